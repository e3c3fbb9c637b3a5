"""`bench soak`: random load on a server for minutes; nothing may be lost, wrong, or left behind.

Clients send prompts of a pool whose answers were given alone before, next turns on them, and prompts that nobody sent
before; some leave in the middle of an answer, some before it. A pool's answer, whole or as far as its client stayed, is
compared with the one given alone; of the new prompts' answers some are asked for again, alone, at the end.
"""

import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from strata.checks.client import TOO_MANY, Ask, Client, Got
from strata.checks.loading import Spread, histograms, prompt_of, since
from strata.checks.soaked import Sample, Soaked, taken
from strata.core.errors import StrataError

SIZES = (8, 50, 25, 100, 250, 50, 500, 150, 1000, 75, 250, 2000, 100, 4000, 50, 600)
"""Prompt tokens of the pool, about."""
ANSWERS = (12, 40, 72, 24, 8, 96, 33, 16)
NEW = 1000
"""Number of the first prompt that is not of the pool."""
LEAST = 8
"""Requests of each client, however short the time: fewer would prove nothing."""
RECHECKED = 40
IDLE_S = 30.0
PAUSE_S = 0.5
"""After a refusal."""


@dataclass(slots=True)
class Count:
    """What became of the requests. Changed under one lock."""

    asked: int = 0
    whole: int = 0
    left: int = 0
    refused: int = 0
    lost: int = 0
    wrong: int = 0
    compared: int = 0
    """Answers that were compared, whole ones and beginnings."""
    problems: list[str] = field(default_factory=list)
    """The first ones, in words."""
    whole_answers: list[Got] = field(default_factory=list)
    new: list[tuple[Ask, str]] = field(default_factory=list)
    """Prompts that nobody sent before, and what was answered."""


class Soak:
    """One run against one server."""

    def __init__(
        self, client: Client, clients: int, seconds: float, seed: int, memory: Callable[[], int | None]
    ) -> None:
        self.client = client
        self.clients = clients
        self.seconds = seconds
        self.seed = seed
        self.memory = memory
        self.pool: list[tuple[Ask, str]] = []
        self.count = Count()
        self.lock = threading.Lock()
        self.numbers = itertools.count(NEW)
        self.until_s = 0.0

    def run(self, tell: Callable[[str, int, int], None]) -> Soaked:
        """Answers alone, the load, answers alone again, and what is left behind."""
        self.learn(lambda done, total: tell("answers alone", done, total + 1))
        samples = {"start": self.sample()}
        before = histograms(self.client)
        began_s = time.perf_counter()
        self.until_s = began_s + self.seconds
        threads = [threading.Thread(target=self.work, args=(i,), daemon=True) for i in range(self.clients)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(min(1.0, self.seconds / 20))
            passed_s = time.perf_counter() - began_s
            if "middle" not in samples and passed_s >= self.seconds / 2:
                samples["middle"] = self.sample()
            tell(f"{self.count.asked} requests", int(passed_s), int(self.seconds) + 1)
        seconds = time.perf_counter() - began_s
        samples["end"] = self.sample()
        samples.setdefault("middle", samples["end"])
        rows, streams = (since(b, a) for b, a in zip(before, histograms(self.client), strict=True))
        rechecked = self.recheck(lambda done, total: tell("answers alone again", done, total + 1))
        leaked = self.leaked()
        samples["afterwards"] = self.sample()
        count, whole = self.count, self.count.whole_answers
        tokens = sum(got.tokens for got in whole)
        return Soaked(
            clients=self.clients,
            seconds=seconds,
            **{
                name: getattr(count, name)
                for name in ("asked", "whole", "left", "refused", "lost", "wrong", "compared")
            },
            rechecked=rechecked,
            leaked=leaked,
            memory=samples,
            tokens=tokens,
            rate=tokens / seconds,
            first_token_s=Spread.of([got.first_s for got in whole if got.times_s]),
            gap_s=Spread.of([b - a for got in whole for a, b in itertools.pairwise(got.times_s)]),
            rows_per_step=rows,
            streams_per_step=streams,
            problems=tuple(count.problems[:10]),
        )

    # --- answers alone ---------------------------------------------------------------------------------------

    def learn(self, tell: Callable[[int, int], None]) -> None:
        """The pool with its answers: greedy ones, every fourth drawn with a seed; then next turns on half of them."""
        asks = [
            Ask(prompt_of(i, size), ANSWERS[i % len(ANSWERS)], 0.8 if i % 4 == 3 else 0.0, i, ignore_eos=i % 8 != 0)
            for i, size in enumerate(SIZES)
        ]
        total = len(asks) + len(asks) // 2
        for ask in asks:
            self.pool.append((ask, self.alone(ask)))
            tell(len(self.pool), total)
        for i, (ask, said) in enumerate(self.pool[: len(asks) : 2]):
            again = Ask(f"{ask.prompt}{said}\nAnd then {said[:20]}", ANSWERS[-1 - i % len(ANSWERS)])
            self.pool.append((again, self.alone(again)))
            tell(len(self.pool), total)

    def alone(self, ask: Ask) -> str:
        """The answer to a request while nobody else is there. StrataError when there is none."""
        got = self.client.complete(ask)
        if got.error or not got.finish:
            raise StrataError(f"a request failed that was alone: {got.error or 'its answer did not end'}")
        return got.text

    def recheck(self, tell: Callable[[int, int], None]) -> int:
        """Ask some of the new prompts again, alone; how many."""
        chosen = random.Random(self.seed).sample(self.count.new, min(RECHECKED, len(self.count.new)))
        for done, (ask, said) in enumerate(chosen, 1):
            self.compare(ask, said, self.alone(ask), whole=True)
            tell(done, len(chosen))
        return len(chosen)

    # --- the load --------------------------------------------------------------------------------------------

    def work(self, number: int) -> None:
        """One client, until the time is over and it has asked `LEAST` times."""
        draw = random.Random(self.seed * 1000 + number)
        asked = 0
        while time.perf_counter() < self.until_s or asked < LEAST:
            asked += 1
            ask, alone = self.choose(draw)
            got = self.client.complete(ask)
            with self.lock:
                self.judge(ask, alone, got)
            if got.status == TOO_MANY:
                time.sleep(PAUSE_S)

    def choose(self, draw: random.Random) -> tuple[Ask, str | None]:
        """A request, and what it is answered alone (None: not known)."""
        kind = draw.random()
        if kind < 0.25:
            return Ask(prompt_of(next(self.numbers), draw.choice(SIZES)), draw.choice(ANSWERS)), None
        ask, said = draw.choice(self.pool)
        if kind < 0.40:
            ask = replace(ask, leave_after=draw.randint(1, 12))
        elif kind < 0.50:
            ask = replace(ask, leave_after=0, leave_s=draw.uniform(0.0, 0.5))
        return ask, said

    def judge(self, ask: Ask, alone: str | None, got: Got) -> None:
        """Take note of what became of one request."""
        count = self.count
        count.asked += 1
        if got.status == TOO_MANY:
            count.refused += 1
        elif got.left:
            count.left += 1
        elif got.error or not got.finish:
            count.lost += 1
            count.problems.append(f"lost: {got.error or 'the answer did not end'}")
        else:
            count.whole += 1
            count.whole_answers.append(got)
            if alone is None:
                count.new.append((ask, got.text))
        if alone is not None and got.text:
            self.compare(ask, alone, got.text, whole=not got.left and bool(got.finish))

    def compare(self, ask: Ask, alone: str, said: str, whole: bool) -> None:
        """An answer, or its beginning, against the one given alone."""
        self.count.compared += 1
        if (said == alone) if whole else alone.startswith(said):
            return
        at = next((i for i, (a, b) in enumerate(zip(alone, said, strict=False)) if a != b), min(len(alone), len(said)))
        self.count.wrong += 1
        self.count.problems.append(
            f"wrong: answer to {ask.prompt[:40]!r}..., character {at}: {said[at : at + 20]!r},"
            f" alone {alone[at : at + 20]!r}"
        )

    # --- what is left behind ---------------------------------------------------------------------------------

    def status(self) -> Mapping[str, Any]:
        """The engine's; empty where the server does not say."""
        found = (self.client.get("/v1/status") or {}).get("engine")
        return found if isinstance(found, Mapping) else {}

    def sample(self) -> Sample:
        """Memory now."""
        runner, used = self.status().get("runner", {}), self.memory()
        kept = int(runner.get("kept", {}).get("bytes", {}).get("ram", 0))
        return Sample(None if used is None else used - kept, kept, runner.get("memory", {}))

    def leaked(self) -> Mapping[str, int]:
        """What is still taken once nobody asks for anything."""
        end_s = time.perf_counter() + IDLE_S
        while (found := taken(self.status())) and any(found.values()) and time.perf_counter() < end_s:
            time.sleep(0.1)
        return found
