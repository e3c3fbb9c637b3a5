"""What the server serves: one model's names, its way of writing chats, and the defaults of its requests."""

import dataclasses
import itertools
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from strata.chat.conversation import Conversation
from strata.sampling.params import SamplingParams
from strata.server.errors import ApiError
from strata.server.grammars import GrammarChecker

DEFAULT_NAME = "default"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model behind the HTTP side."""

    name: str
    conversation: Conversation
    defaults: SamplingParams
    created: int
    """Unix time for the list of models."""
    max_tokens: int | None = None
    """Of a request that names none; None = up to the end of the context."""
    seed: int | None = None
    """Of a request that names none; None = a new one each time."""
    aliases: frozenset[str] = field(default=frozenset((DEFAULT_NAME,)))
    grammars: GrammarChecker = field(default_factory=GrammarChecker, compare=False)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), compare=False)
    """Of its requests."""

    def new_id(self) -> str:
        """The name of a request to the engine, which none had before."""
        return f"r{next(self.numbers)}"

    def check_name(self, asked: str | None) -> None:
        """404 unless the request means this model."""
        if asked is not None and asked != self.name and asked not in self.aliases:
            raise ApiError(404, f"model {asked[:100]!r} is not served, {self.name!r} is", "model", "model_not_found")

    def sampling(self) -> dict[str, float | int | None]:
        """What holds for a request that asks for nothing."""
        names = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty")
        return {
            **{name: getattr(self.defaults, name) for name in names},
            "max_tokens": self.max_tokens,
            "seed": self.seed,
        }

    def params(self, asked: Mapping[str, Any], number: int) -> SamplingParams:
        """Sampling of answer `number` of a request: what it asked for, over the server's and the model's defaults.

        Answers of one request take consecutive seeds.
        """
        given = {name: value for name, value in asked.items() if value is not None}
        seed = given.pop("seed", self.seed)
        if seed is None:
            seed = secrets.randbits(48)
        first = dataclasses.replace(self.defaults, seed=seed, **given)
        return dataclasses.replace(first, seed=(seed + number) % (1 << 64))
