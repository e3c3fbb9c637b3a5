"""Reports of prompt caches, on a hybrid model: what is gone on with is what a cold read gives, and is gone on with.

O-011 drafts from a known answer, right and wrong; a model's own drafting head goes the same way through the runner.
O-018 renders tools as the template gets them; over HTTP tools are refused by name until they are built.

The cold read is the same request with `cached` off: it takes nothing that is kept and leaves nothing.
"""

import contextlib
import gc
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from models.made import load, ops_of, path_of
from strata.core.limits import Limits
from strata.core.order import Order
from strata.core.sharing import PRIVATE, SHARED, Sharing
from strata.core.window import Window
from strata.engine.engine import Engine, EngineSettings
from strata.engine.events import Finished, Reason, Token
from strata.engine.request import Request
from strata.engine.settings import Settings
from strata.runtime.keeping import GRID, Keeping, OnDisk
from strata.runtime.runner import DeviceRunner
from strata.sampling.params import SamplingParams
from strata.state.prefix import Node

pytestmark = pytest.mark.timeout(60)
CHUNK, CONTEXT = 128, 1024
WORDS = [int(token) for token in np.random.default_rng(5).integers(4, 199, 4000)]
numbers = itertools.count()
Said = tuple[list[tuple[int, float | None]], int]
"""An answer's tokens with their likelihoods, and how many prompt tokens were not read."""


class Guessing(DeviceRunner):
    """Drafts what the answer is known to be, every third token wrong, so that drafts are accepted and taken back."""

    answers: Mapping[tuple[int, ...], Sequence[int]] = {}

    def draft(self, caps: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
        """See Runner."""
        drafts = {}
        for slot, cap in caps.items():
            held = tuple(self.sequence(slot).tolist())
            for prompt, answer in self.answers.items():
                said = len(held) - len(prompt) + 1  # the last drawn token is not held yet
                if held[: len(prompt)] == prompt and said > 0:
                    guess = [t if (len(held) + i) % 3 else 5 for i, t in enumerate(answer[said : said + min(cap, 3)])]
                    drafts[slot] = tuple(guess)
        return {slot: guess for slot, guess in drafts.items() if guess}


class Checked(DeviceRunner):
    """After every step no kept run of the present prompt is longer than what was fed."""

    most = 0

    def step(self, windows: Sequence[Window]) -> list:
        """See Runner."""
        results = super().step(windows)
        for window in windows:
            if window.slot not in self.cache.paths:  # a cold one
                continue
            assert all(node.end <= window.end for node in self.cache.made[window.slot]), "kept beyond what was fed"
            self.most = max(self.most, len(self.cache.paths[window.slot].path()))
        self.cache.check()
        return results


def made(kind: type[DeviceRunner] = DeviceRunner, folder: Path | None = None, ram: int = 1 << 26) -> DeviceRunner:
    disk = None if folder is None else OnDisk(folder, 1 << 26, "tiny")
    keeping = Keeping(ram_bytes=ram, disk=disk)
    return kind(load(path_of("qwen3_next", "gguf")), ops_of(), Limits(2, CONTEXT, 256), keeping=keeping)


class Talk:
    """An engine that is asked one request after the other."""

    def __init__(self, runner: DeviceRunner) -> None:
        self.runner = runner
        self.engine = Engine(runner, EngineSettings(scheduler=Settings(chunk_tokens=CHUNK)))
        self.engine.start()

    def ask(
        self, tokens: Sequence[int], new: int = 8, sharing: Sharing = SHARED, draft: int = 0, seed: int | None = None
    ) -> Said:
        params = SamplingParams(logprobs=0) if seed is None else SamplingParams(temperature=1.0, seed=seed, logprobs=0)
        request = Request(f"r{next(numbers)}", tuple(tokens), new, params, sharing=sharing, draft=draft)
        *events, last = self.engine.submit(request).events()
        assert isinstance(last, Finished) and last.reason is Reason.LENGTH, last
        return [(e.token, e.logprob) for e in events if isinstance(e, Token)], last.reused

    def cold(self, tokens: Sequence[int], new: int = 8, seed: int | None = None) -> list[tuple[int, float | None]]:
        """The answer of one that takes nothing from others."""
        said, reused = self.ask(tokens, new, PRIVATE, seed=seed)
        assert reused == 0
        return said

    def order(self, verb: str) -> Mapping[str, int]:
        """Have an order carried out."""
        found: list = []
        self.engine.order(Order(verb), found.append)
        while not found:
            self.ask([7], 1, PRIVATE)
        assert not isinstance(found[0], Exception), found[0]
        return found[0]


@contextlib.contextmanager
def talking(runner: DeviceRunner) -> Iterator[Talk]:
    """A talk with an engine that is stopped afterwards, whatever happened."""
    talk = Talk(runner)
    try:
        yield talk
    finally:
        talk.engine.stop()
    runner.cache.check()


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talking(made()) as started:
        yield started


def turns(talk: Talk, count: int, size: int = 60, draft: int = 0) -> Iterator[tuple[list[int], int, Said]]:
    """A growing chat -> (prompt, tokens that are new in it, what was said), turn by turn."""
    prompt: list[int] = []
    marks: list[int] = []
    said: list[int] = []
    for turn in range(count):
        before = len(prompt) + len(said)
        prompt = [*prompt, *said, *WORDS[turn * 97 : turn * 97 + size]]
        marks = [*marks, before, len(prompt) - 3] if before else [len(prompt) - 3]
        found = talk.ask(prompt, 8, Sharing(tuple(marks)), draft)
        said = [token for token, _ in found[0]]
        yield prompt, len(prompt) - before, found


def test_states_of_a_long_chat_do_not_drift(talk: Talk) -> None:
    """O-009: six turns; answer and likelihoods of every one are those of a cold read, bit for bit."""
    for turn, (prompt, _, (said, reused)) in enumerate(turns(talk, 6)):
        assert said == talk.cold(prompt) and (reused > 0) == (turn > 0)


def test_a_damaged_state_is_seen(talk: Talk) -> None:
    """Negative control of all of these: one kept array with turned signs, and the answer is another."""
    prompt = WORDS[:300]
    talk.ask(prompt)
    for node in talk.runner.cache.tree.nodes():
        for name, array in (node.state or {}).items():
            if name.endswith("delta"):
                array.view(np.float32)[:] *= -1
    said, reused = talk.ask(prompt)
    assert reused and said != talk.cold(prompt)


def test_branches_of_one_beginning_do_not_poison_each_other(talk: Talk) -> None:
    """O-010: X+Y, then X+Z where Z leaves the text in X's last third, one shared token, X+Y again."""
    x, y, z = WORDS[:300], WORDS[1000:1200], WORDS[2000:2150]
    for tokens, shared, least in (
        ([*x, *y], 0, 0),
        ([*x[:230], *z], 230, 0),
        ([x[0], *z], 1, 0),
        ([*x, *y], 500, 500 - GRID),
    ):
        said, reused = talk.ask(tokens)
        assert said == talk.cold(tokens) and least <= reused <= shared


def test_drafts_and_the_cache_together_say_what_each_says_alone() -> None:
    """O-011: {cache on, off} x {no drafts, 3} on a chat of three turns, three times over: the same text."""
    texts = []
    with talking(made(Guessing)) as talk:
        for draft in (0, 3, 3, 3):
            texts.append([(prompt, said) for prompt, _, (said, _) in turns(talk, 3, 90, draft)])
            talk.runner.answers = {tuple(prompt): [token for token, _ in said] for prompt, said in texts[0]}
        for prompt, said in texts[0]:
            assert said == talk.cold(prompt) == talk.ask(prompt, 8, PRIVATE, draft=3)[0]
        status = talk.engine.status()
    assert all(text == texts[0] for text in texts)
    assert status["tokens"]["drafted"] > status["tokens"]["accepted"] > 20


def test_the_same_request_again_says_the_same(talk: Talk) -> None:
    """O-012: 600 tokens three times at temperature 0, and once with the request's cache off."""
    prompt = WORDS[:600]
    found = [talk.ask(prompt) for _ in range(3)]
    assert [reused for _, reused in found] == [0, 576, 576]
    assert all(said == talk.cold(prompt) for said, _ in found)


def test_what_is_kept_is_never_longer_than_what_was_fed() -> None:
    """O-013: five chunks, twice, then a shorter prompt; checked after every step, and so is the number of runs."""
    with talking(made(Checked)) as talk:
        for length in (5 * CHUNK, 5 * CHUNK, 3 * CHUNK + 9):
            said, _ = talk.ask(WORDS[:length])
            assert said == talk.cold(WORDS[:length])
    assert 0 < talk.runner.most <= 5 * CHUNK // talk.runner.cache.spacing.every + 5


@pytest.mark.parametrize("shared", [100, 480])
def test_short_prompts_hit_too(talk: Talk, shared: int) -> None:
    """O-014: two requests that differ in their last 20 tokens; the grid of 32 tokens is the documented minimum."""
    first, second = ([*WORDS[:shared], *WORDS[at : at + 20]] for at in (1000, 2000))
    talk.ask(first)
    said, reused = talk.ask(second)
    assert reused == shared // GRID * GRID and said == talk.cold(second)


def test_the_second_sight_hits(talk: Talk) -> None:
    """O-015: ten turns of 60 tokens; from the second on no more is read than what is new and one interval."""
    for turn, (prompt, new, (_, reused)) in enumerate(turns(talk, 10)):
        read = len(prompt) - reused
        assert read <= new + GRID if turn else read == len(prompt)


def test_clearing_gives_back_what_was_reported() -> None:
    """O-016: 60 conversations of 500 tokens, then CLEAR: nothing is reported, nothing is held, all pages are free."""
    with talking(made(ram=1 << 20)) as talk:
        for number in range(60):
            talk.ask([number + 4, *WORDS[number * 13 : number * 13 + 499]], 1)
        kept = talk.runner.status()["kept"]
        assert 0 < kept["bytes"]["ram"] <= kept["budget"]["ram"] and kept["moved"]["dropped"] > 0
        assert kept["bytes"]["ram"] == held_by(talk.runner), "what is reported is what is held"
        assert talk.order("clear") == {"cleared": kept["prefixes"], "left": 0}
        after = talk.runner.status()["kept"]
        assert after["bytes"] == {"pages": 0, "ram": 0, "disk": 0} and held_by(talk.runner) == 0
        assert after["free_pages"] == kept["pages"] and after["prefixes"] == 0


def held_by(runner: DeviceRunner) -> int:
    """Bytes of all arrays of this runner's runs that are alive, dropped ones too, by the garbage collector's list."""
    gc.collect()
    runs = [found for found in gc.get_objects() if type(found) is Node and found.parent is not None]
    mine = [run for run in runs if run.path()[0].parent is runner.cache.tree.root]
    blobs = [blob for run in mine for blob in (run.parked, run.state) if blob]
    return sum(array.nbytes for blob in blobs for array in blob.values())


def test_regenerating_the_last_answer_keeps_all_before_it(talk: Talk) -> None:
    """O-017: a chat of 800 tokens; its last answer is dropped and asked for again, three times, with other seeds."""
    history, question = WORDS[:740], WORDS[900:960]
    prompt = [*history, *question]
    marks = Sharing((len(history), len(prompt) - 4))
    talk.ask(prompt, 12, marks)
    for seed in (1, 2, 3):
        said, reused = talk.ask(prompt, 12, marks, seed=seed)
        assert reused >= len(prompt) - 4 - GRID and said == talk.cold(prompt, 12, seed)


def test_the_same_request_is_the_same_prompt_in_every_process(tmp_path: Path) -> None:
    """O-018: six messages and tools, other whitespace, other hash seeds: the same tokens, all found after a restart.

    Another order of a tool's keys is another text: templates write tools as they were given, as models learned them.
    """
    messages = [{"role": role, "content": f"{role} says {i}"} for i, role in enumerate(["user", "assistant"] * 3)]
    tool = {"type": "function", "function": {"name": "find", "parameters": {"b": {"x": 1}, "a": 2}}}
    request = {"tools": [tool], "messages": messages}
    prompts = [in_process(json.dumps(request, indent=indent), seed) for seed, indent in ((1, None), (2, 3))]
    assert prompts[0] == prompts[1] and len(prompts[0]) > 3 * GRID
    for held in (0, (len(prompts[0]) - 1) // GRID * GRID):
        with talking(made(folder=tmp_path)) as talk:
            assert talk.ask(prompts[0], 1)[1] == held


def in_process(text: str, seed: int) -> list[int]:
    """What a process of its own renders, in ids of the tiny model."""
    root = Path(__file__).parents[2]
    paths = f"{root / 'src'}{os.pathsep}{root / 'tests'}"
    environ = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, str(Path(__file__).with_name("rendering.py"))]
    done = subprocess.run(command, input=text, env=environ, capture_output=True, text=True, check=True)
    return [4 + token % 190 for token in json.loads(done.stdout)]
