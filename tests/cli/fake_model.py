"""A loaded model for `strata run` and `strata chat`: the fake runner, the tiny tokenizer."""

import json
from types import SimpleNamespace
from typing import Any

from chat.tiny_tokenizer import metadata_of, tiny, tokenizer_json
from fakes import FakeRunner
from strata.chat.template import CHATML
from strata.checkpoint.metadata import Metadata
from strata.core.limits import Limits
from strata.core.window import Window
from strata.engine.engine import Engine
from strata.engine.runner import Drawn, Stepped

TEMPLATE = CHATML + "{% if enable_thinking is defined and enable_thinking %}{{ '<think>\n' }}{% endif %}"


class Scripted(FakeRunner):
    """Answers every prompt with the same text, then ends the turn."""

    def __init__(self, text: str, context: int = 256) -> None:
        super().__init__(Limits(slots=1, context=context, step_tokens=64), vocabulary=tiny().size)
        self.script = [*tiny().encode(text), tiny().ids["<|im_end|>"]]
        self.at = 0
        self.prompts: list[list[int]] = []

    def step(self, windows: Any) -> list[Stepped]:
        """The next token of the script."""
        if self.gate is not None:
            self.gate.acquire()
        return [self._one(window) for window in windows]

    def _one(self, window: Window) -> Stepped:
        state = self.states[window.slot]
        state[window.start :] = window.tokens
        drawn = ()
        if window.score:
            if len(window.tokens) > 1 or self.at >= len(self.script):
                self.at = 0
                self.prompts.append(list(state))
            self.pending[window.slot] = self.script[self.at]
            drawn = (Drawn(self.script[self.at]),)
            self.at += 1
        return Stepped(window.slot, drawn, len(state))


def loaded(runner: Scripted, **metadata: Any) -> Any:
    """What `strata.assemble.load` gives, as far as these commands look."""
    values = dict(metadata_of(json.loads(tokenizer_json("qwen2")), "qwen2").values)
    values |= {"tokenizer.chat_template": TEMPLATE} | metadata
    checkpoint = SimpleNamespace(kind="gguf", path=SimpleNamespace(name="tiny.gguf"), metadata=None)
    checkpoint.metadata = Metadata(checkpoint.path, values)  # type: ignore[arg-type]
    return SimpleNamespace(engine=Engine(runner), checkpoint=checkpoint, runner=runner)
