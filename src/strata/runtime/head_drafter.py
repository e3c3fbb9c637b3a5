"""Drafts by a model's own drafting head: it catches up with the rows that the trunk has run, then goes on by itself.

The head's cache is part of the slot's memory (state/sequence.py): entry p belongs to the pair of row p and token p + 1.
What the trunk leaves of its rows waits here until the head reads it: when drafts are wanted, when much has gathered,
and before a slot's memory is kept. `states.layers[...].carry` has the trunk's last row, so that a sequence that is
taken up again (a prefix hit, a restored conversation) goes on as if it had never been away.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from strata.core.errors import EngineError
from strata.core.window import Window
from strata.models.drafting import DraftHead
from strata.runtime.head_steps import HeadSteps, Passed
from strata.speculate.drafter import Ask, Proposal, Spent

MOST_WAITING = 128
"""Rows of a slot that wait for the head at most; more are read at once."""

Choose = Callable[[int, npt.NDArray[np.float32], int, npt.NDArray[np.int64] | None], tuple[int, float]]
"""(slot, logits [N], position, the tokens that they are of or None for all) -> (the token that the slot's request would
draw there, its probability among them)."""


@dataclass(slots=True)
class Reading:
    """How far the head is with a slot's sequence."""

    held: int = 0
    """Pairs that its cache has."""
    rows: list[torch.Tensor] = field(default_factory=list)
    """Trunk rows [n, width] from row `held` on."""


class HeadDrafter:
    """Implements `Drafter`; the runner brings it the trunk's rows (`take`) and tells when memory is kept (`settle`)."""

    def __init__(self, steps: HeadSteps, layer: int, choose: Choose) -> None:
        """`layer` is the number of the head's first layer in the states."""
        self.steps = steps
        self.states = steps.states
        self.head: DraftHead = steps.head
        carry = self.states.layers[layer].carry
        if carry is None:
            raise EngineError(f"layer {layer} keeps no row of the trunk, a drafting head cannot go on from it")
        self.carry = carry
        self.choose = choose
        self.tokens = None if self.head.tokens is None else self.head.tokens.numpy()
        self.readings: dict[int, Reading] = {}
        self._spent: Spent | None = None

    # --- sequences -------------------------------------------------------------------------------------------

    def begin(self, slot: int, tokens: Sequence[int]) -> None:
        """See `Drafter.begin`; what the states hold of the sequence already counts as read but for its last pair."""
        length = self.states.length[slot]
        if length and bool(torch.isnan(self.carry[slot, 0])):
            return  # it rested while what is kept of the sequence was read
        rows = [self.carry[slot : slot + 1].clone()] if length else []
        self.readings[slot] = Reading(max(0, length - 1), rows)

    def rest(self, slot: int) -> None:
        """See `Drafter.rest`; a row that is no number says so in whatever is kept of the sequence."""
        self.readings.pop(slot, None)
        self.carry[slot, 0] = torch.nan

    def knows(self, slot: int) -> bool:
        """See `Drafter.knows`."""
        return slot in self.readings

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        """See `Drafter.extend`; the tokens are read from the states."""

    def forget(self, slot: int) -> None:
        """See `Drafter.forget`."""
        self.readings.pop(slot, None)

    def take(self, slot: int, rows: torch.Tensor) -> None:
        """The trunk's rows [n, width] of a window that was just committed, one or more; they are copied."""
        if slot not in self.readings:
            return
        reading = self._reading(slot, len(rows))
        self.carry[slot] = rows[-1]
        reading.rows.append(rows.clone())
        if self.states.length[slot] - reading.held > MOST_WAITING:
            self.settle(slot)

    def settle(self, slot: int) -> None:
        """Let the head read all pairs whose second token the states hold: then the slot's memory is whole."""
        if slot not in self.readings:
            return
        reading, length = self._reading(slot), self.states.length[slot]
        count = length - 1 - reading.held
        if count < 1:
            return
        rows = torch.cat(reading.rows)
        tokens = self._tokens(slot, reading.held + 1, length)
        self.steps.run([Window(slot, reading.held, tokens, 0)], rows[:count], chained=False)
        reading.held, reading.rows = length - 1, [rows[count:].clone()]

    def _reading(self, slot: int, new: int = 0) -> Reading:
        """EngineError when the slot moved on without its rows being brought here."""
        reading = self.readings[slot]
        expected = self.states.length[slot] - new
        if reading.held + sum(len(rows) for rows in reading.rows) != expected:
            raise EngineError(f"slot {slot} holds {expected} tokens, its drafting head was told of other rows")
        return reading

    def _tokens(self, slot: int, start: int, stop: int) -> tuple[int, ...]:
        return tuple(self.states.tokens[slot, start:stop].tolist())

    # --- proposals -------------------------------------------------------------------------------------------

    def propose(self, asks: Mapping[int, Ask]) -> dict[int, Proposal]:
        """See `Drafter.propose`: all slots together, pass by pass, each as far as its ask goes on."""
        began, replayed = time.perf_counter(), True
        passed = self._catch_up(asks)
        replayed &= self.steps.replayed
        tokens: dict[int, list[int]] = {slot: [] for slot in asks}
        sure: dict[int, list[float]] = {slot: [] for slot in asks}
        going, passes, first_s = list(asks), 0, 0.0
        while True:
            self._draw(going, passed, tokens, sure)
            first_s = first_s or time.perf_counter() - began
            on = [s for s in going if len(tokens[s]) < asks[s].depth and asks[s].goes_on(sure[s])]
            if not on:
                break
            index = torch.tensor([going.index(slot) for slot in on], device=passed.hidden.device)
            # Draft i is the second token of the pair at position length - 1 + i.
            windows = [Window(s, self.states.length[s] - 1 + len(tokens[s]), (tokens[s][-1],), 1) for s in on]
            passed = self.steps.run(windows, passed.hidden[index], chained=True)
            replayed &= self.steps.replayed
            going, passes = on, passes + 1
        self._spent = Spent(first_s, time.perf_counter() - began - first_s, passes) if replayed else None
        return {slot: Proposal(tuple(tokens[slot]), tuple(sure[slot])) for slot in asks}

    def _catch_up(self, asks: Mapping[int, Ask]) -> Passed:
        """All rows that wait, the last of each slot paired with its newest token."""
        windows, rows = [], []
        for slot, ask in asks.items():
            length, reading = self.states.length[slot], self._reading(slot)
            self.states.make_room(slot, min(length + ask.depth, self.states.context))
            if reading.held == length:  # the last pair was read for a step that did not come: it is read again
                reading.held, reading.rows = length - 1, [self.carry[slot : slot + 1].clone()]
            tokens = (*self._tokens(slot, reading.held + 1, length), ask.pending)
            windows.append(Window(slot, reading.held, tokens, 1))
            rows += reading.rows
            reading.held, reading.rows = length, []
        return self.steps.run(windows, torch.cat(rows), chained=False)

    def _draw(
        self,
        slots: Sequence[int],
        passed: Passed,
        tokens: Mapping[int, list[int]],
        sure: Mapping[int, list[float]],
    ) -> None:
        """One draft for each of the slots, from its row of the pass."""
        logits = passed.logits.cpu().numpy()
        for row, slot in zip(logits, slots, strict=True):
            token, share = self.choose(slot, row, self.states.length[slot] + 1 + len(tokens[slot]), self.tokens)
            tokens[slot].append(token)
            sure[slot].append(share)

    def took(self) -> float:
        """See `Drafter.took`."""
        return self.steps.took()

    def spent(self) -> Spent | None:
        """See `Drafter.spent`."""
        return self._spent
