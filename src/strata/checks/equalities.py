"""Equalities of the engine, bit for bit in the logits: placement, company and interruptions change nothing.

    1  one slot = many slots            3  drafts on = drafts off
    2  chunked prompt = whole prompt    6  restored = never parked

Each has a negative control: with `tamper` one stored value is changed on purpose, and the comparison must then name
prompt and position. (4 and 5 need a second device or stage.)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from strata.core.window import Window
from strata.runtime.runner import DeviceRunner
from strata.state.sequence import SequenceStates

Logits = list[npt.NDArray[np.float32]]
Pair = tuple[str, Logits, Logits]
"""(what is compared, expected rows, found rows)"""

DRAFTS = ((0, 1), (1, 1), (3, 0), (2, 4), (0, 3), (4, 2))
"""(right, then wrong) drafts of the windows of equality 3: none, some and all of them are rejected."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One comparison: how many rows were compared, and where the first difference is ("" when there is none)."""

    name: str
    rows: int
    difference: str

    @property
    def equal(self) -> bool:
        """Whether every bit agreed."""
        return not self.difference


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared."""

    prompts: Sequence[Sequence[int]]
    """Three or more, of different lengths, each of two tokens or more."""
    steps: int
    """Tokens that each of them is continued by; two or more."""
    tamper: bool = False


class Equalities:
    """Runs the comparisons on one runner with at least as many slots as prompts, and at least three."""

    def __init__(self, runner: DeviceRunner, plan: Plan) -> None:
        self.runner = runner
        self.plan = plan
        self.solo = [self.alone(0, p, (len(p),)) for p in plan.prompts]

    def named(self) -> Mapping[str, Callable[[], Verdict]]:
        """Every equality by its name, to be run one by one."""
        return {
            "one slot = many slots": self.slots,
            "chunked prompt = whole prompt": self.chunks,
            "drafts on = drafts off": self.drafts,
            "restored = never parked": self.restored,
        }

    def all(self) -> list[Verdict]:
        """Every equality."""
        return [run() for run in self.named().values()]

    def tampered(self, slot: int) -> None:
        """The negative control: change one value that the slot remembers."""
        if self.plan.tamper:
            spoil(self.runner.states, slot)

    def read(self, slot: int, prompt: Sequence[int], chunks: Sequence[int]) -> npt.NDArray[np.float32]:
        """Read a prompt in chunks from a clean slot -> the last row's logits."""
        r = self.runner
        r.states.clear(slot)
        start, last = 0, np.empty(0, np.float32)
        for i, size in enumerate(chunks):
            final = i == len(chunks) - 1
            window = Window(slot, start, tuple(prompt[start : start + size]), 1 if final else 0)
            logits = r.forward([window])
            r.states.commit(slot, size, r.ops)
            start += size
            if final:
                last = logits[0].copy()
            elif start == size:
                self.tampered(slot)
        return last

    def go_on(self, slot: int, first: npt.NDArray[np.float32], steps: int) -> Logits:
        """Greedy continuation, one token a step -> logits of every row including the first."""
        r, out = self.runner, [first]
        for _ in range(steps):
            window = Window(slot, r.states.length[slot], (int(out[-1].argmax()),), 1)
            out.append(r.forward([window])[0].copy())
            r.states.commit(slot, 1, r.ops)
        return out

    def alone(self, slot: int, prompt: Sequence[int], chunks: Sequence[int]) -> Logits:
        """One prompt, nobody else."""
        return self.go_on(slot, self.read(slot, prompt, chunks), self.plan.steps)

    def slots(self) -> Verdict:
        """1: all prompts at once, the long ones reading while others decode, against each alone."""
        r, prompts = self.runner, self.plan.prompts
        got: list[Logits] = [[] for _ in prompts]
        for slot in range(len(prompts)):
            r.states.clear(slot)
        # Small unequal chunks, so that reads of several slots overlap with decoding for most of the run.
        sizes = [max(1, len(p) // self.plan.steps + slot) for slot, p in enumerate(prompts)]
        tampered = False
        while any(len(g) <= self.plan.steps for g in got):
            windows = []
            for slot, prompt in enumerate(prompts):
                held = r.states.length[slot]
                if held < len(prompt):
                    chunk = prompt[held : held + sizes[slot]]
                    windows.append(Window(slot, held, tuple(chunk), int(held + len(chunk) == len(prompt))))
                elif len(got[slot]) <= self.plan.steps:
                    windows.append(Window(slot, held, (int(got[slot][-1].argmax()),), 1))
            logits = r.forward(windows)
            row = 0
            for w in windows:
                r.states.commit(w.slot, len(w.tokens), r.ops)
                if w.score:
                    got[w.slot].append(logits[row].copy())
                    row += 1
            if not tampered:
                tampered = True
                self.tampered(0)
        return verdict("one slot = many slots", self.against_solo(got))

    def against_solo(self, got: Sequence[Logits]) -> list[Pair]:
        """Rows of every prompt beside those it has alone."""
        return [(f"prompt {i}", a, b) for i, (a, b) in enumerate(zip(self.solo, got, strict=True))]

    def chunks(self) -> Verdict:
        """2: a prompt read in small pieces, in odd ones, and in two halves, against whole."""
        pairs = []
        for i, (prompt, solo) in enumerate(zip(self.plan.prompts, self.solo, strict=True)):
            for size in sorted({1 if len(prompt) <= 64 else 37, 7, (len(prompt) + 1) // 2}):
                cuts = [min(size, len(prompt) - at) for at in range(0, len(prompt), size)]
                pairs.append((f"prompt {i} in pieces of {size}", solo, self.alone(1, prompt, cuts)))
        return verdict("chunked prompt = whole prompt", pairs)

    def drafts(self) -> Verdict:
        """3: windows that carry right and wrong drafts, rejected at every place, against one token a step."""
        got = []
        for prompt, solo in zip(self.plan.prompts, self.solo, strict=True):
            rows: Logits = [self.read(1, prompt, (len(prompt),))]
            self.tampered(1)
            turn = 0
            while len(rows) <= self.plan.steps:
                rows += self.drafted(solo, len(rows) - 1, *DRAFTS[turn % len(DRAFTS)])
                turn += 1
            got.append(rows[: self.plan.steps + 1])
        return verdict("drafts on = drafts off", self.against_solo(got))

    def drafted(self, solo: Logits, at: int, right: int, wrong: int) -> Logits:
        """One window of slot 1 from answer position `at` -> the rows that its accepted drafts leave standing."""
        r, size = self.runner, self.runner.model.shape.vocabulary
        tokens = [int(row.argmax()) for row in solo]
        good = tokens[at + 1 : at + 1 + right]
        bad = tokens[at + 1 + len(good) :][:1] or [0]
        junk = [(bad[0] + 1 + i) % size for i in range(wrong)]
        window = Window(1, r.states.length[1], (tokens[at], *good, *junk), 1 + len(good) + len(junk))
        logits = r.forward([window])
        keep = 1 + len(good)
        r.states.commit(1, keep, r.ops)
        return [row.copy() for row in logits[:keep]]

    def restored(self) -> Verdict:
        """6: taken away in the middle, its slot used by another, put back into a third slot, against uninterrupted."""
        r, got = self.runner, []
        half = self.plan.steps // 2
        for prompt in self.plan.prompts:
            rows = self.go_on(1, self.read(1, prompt, (len(prompt),)), half)
            snapshot = r.states.snapshot(1)
            self.read(1, self.plan.prompts[0], (len(self.plan.prompts[0]),))
            r.states.restore(2, snapshot)
            self.tampered(2)
            got.append(rows + self.go_on(2, rows[-1], self.plan.steps - half)[1:])
        return verdict("restored = never parked", self.against_solo(got))


def spoil(states: SequenceStates, slot: int) -> None:
    """Change one value of every kind in every layer that remembers something."""
    for layer in states.layers:
        for plane in (layer.keys, layer.values):
            if plane is not None and states.pages.held[slot]:
                stored = plane.data if plane.scales is None else plane.scales
                flip(stored[plane.at(states.pages.held[slot][0], 0)])
        for tensor in (layer.conv, layer.delta, layer.ngram):
            if tensor is not None:
                flip(tensor[slot])


def flip(tensor: torch.Tensor) -> None:
    """Turn the largest value's sign and make it larger, in place."""
    at = np.unravel_index(int(tensor.abs().argmax()), tensor.shape)
    tensor[at] = -2.0 * tensor[at] - 1.0


def verdict(name: str, pairs: Sequence[Pair]) -> Verdict:
    """Compare bits; name the first prompt, answer position and the two tokens where they differ."""
    rows = 0
    for what, expected, got in pairs:
        if len(expected) != len(got):
            return Verdict(name, rows, f"{what}: {len(got)} rows, expected {len(expected)}")
        for at, (a, b) in enumerate(zip(expected, got, strict=True)):
            rows += 1
            if not np.array_equal(a.view(np.int32), b.view(np.int32)):
                gap = float(np.abs(a - b).max())
                tokens = f"tokens {int(a.argmax())} and {int(b.argmax())}"
                return Verdict(name, rows, f"{what}, answer position {at}: {tokens}, logits differ by {gap:g}")
    return Verdict(name, rows, "")
