"""A real engine, before a fake device, as a child process: `python live_engine.py JSON`."""

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from string import ascii_letters
from typing import Any

from chat.tiny_tokenizer import tiny
from fakes import FakeRunner
from strata.core.held import Held
from strata.core.limits import Limits
from strata.core.log import Log
from strata.core.window import Window
from strata.engine.engine import Engine, EngineSettings
from strata.engine.lines import Greeting, Stall, serve_lines
from strata.engine.runner import Stepped
from strata.engine.settings import Settings
from strata.sampling.params import SamplingParams

DEFAULTS: dict[str, Any] = {
    "slots": 2,
    "context": 512,
    "step_tokens": 64,
    "scheduler": {},
    "pool": None,  # tokens that all slots hold together
    "draft_depth": 0,
    "load_s": 0.0,
    "step_s": 0.002,
    "token_s": 0.0,  # per prompt token of a step
    "stall_s": 60.0,
    "hang_at": None,  # step that does not come back
    "die_at": None,  # step at which the engine's thread ends
    "freeze_at": None,  # step at which the whole process stops answering
    "poisoned": [],  # prompts that begin with one of these tokens fail their windows
    "log": None,
}
LETTERS = [tiny().encode(letter)[0] for letter in ascii_letters]
"""Answers are made of these: none ends by chance, and an answer is as long as its text."""


class Device(FakeRunner):
    """Takes its time, counts what it computes for whom (by the first token of the prompt), and breaks on demand."""

    def __init__(self, script: Mapping[str, Any]) -> None:
        limits = Limits(script["slots"], script["context"], script["step_tokens"])
        super().__init__(limits, vocabulary=tiny().size, draft_depth=script["draft_depth"])
        self.script = script
        self.poisoned = set(script["poisoned"])
        self.pool = script["pool"] or self.pool
        self.names: dict[int, int] = {}
        self.seats: Counter[int] = Counter()
        self.rows: Counter[int] = Counter()

    def seat(self, slot: int, tokens: Sequence[int], params: SamplingParams, *rest: Any) -> Held:
        """See FakeRunner."""
        held = super().seat(slot, tokens, params, *rest)
        self.names[slot] = tokens[0]
        self.seats[tokens[0]] += 1
        return held

    def step(self, windows: Sequence[Window]) -> list[Stepped]:
        """See FakeRunner."""
        number = self.calls + 1
        if number == self.script["hang_at"]:
            threading.Event().wait()
        if number == self.script["die_at"]:
            raise SystemExit
        if number == self.script["freeze_at"]:
            os.kill(os.getpid(), 19)
        prompts = sum(len(window.tokens) for window in windows if len(window.tokens) > 1)
        time.sleep(self.script["step_s"] + self.script["token_s"] * prompts)
        for window in windows:
            self.rows[self.names[window.slot]] += len(window.tokens)
        return super().step(windows)

    def says(self, text: Sequence[int], slot: int) -> int:
        """A letter."""
        return LETTERS[super().says(text, slot) % len(LETTERS)]

    def status(self) -> Mapping[str, object]:
        """What was computed for whom."""
        by_name = {"seats": self.seats, "rows": self.rows}
        return {"calls": self.calls, **{key: {str(k): v for k, v in c.items()} for key, c in by_name.items()}}


def main() -> int:
    """Serve lines until QUIT."""
    script = DEFAULTS | json.loads(sys.argv[1])
    time.sleep(script["load_s"])
    log = Log(stream=open(script["log"], "w")) if script["log"] else None  # noqa: SIM115 - open until the end
    engine = Engine(Device(script), EngineSettings(scheduler=Settings(**script["scheduler"])), log)
    stall = Stall(script["stall_s"], lambda: os._exit(1))
    return serve_lines(engine, sys.stdin, sys.stdout, Greeting((0, 2)), stall)


if __name__ == "__main__":
    os._exit(main())
