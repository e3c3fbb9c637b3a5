"""What every tool-call dialect offers: calls out of text while it comes, and what a forced call looks like."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Tool:
    """One function that may be called."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    """JSON schema of its arguments; None: an object without any."""
    strict: bool = False
    """Whether its arguments must fit the schema; without it they are as the model writes them."""

    def written(self) -> dict[str, Any]:
        """As OpenAI writes it, which is the form that templates know."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        function["parameters"] = dict(self.parameters or {"type": "object", "properties": {}})
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Said:
    """Text that is no call."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call begins."""

    name: str


@dataclass(frozen=True, slots=True)
class Argued:
    """More of the arguments of the call that began last: joined they are one JSON object."""

    text: str


@dataclass(frozen=True, slots=True)
class Over:
    """The call that began last has ended."""

    whole: bool = True
    """False: the answer ended within it."""


CallPart: TypeAlias = Said | Called | Argued | Over


class CallParser(Protocol):
    """Reads one answer. What looks like a call and is none comes back as text, as it was written."""

    def push(self, text: str) -> list[CallPart]:
        """The parts that became certain with `text`; EngineError when arguments are no JSON after all."""
        ...

    def flush(self) -> list[CallPart]:
        """What was held back, once no more text comes."""
        ...


@dataclass(frozen=True, slots=True)
class ToolDialect:
    """One way of writing calls."""

    name: str
    mark: str
    """What a chat template contains that asks for this dialect."""
    opener: str
    """What every call begins with."""
    parser: Callable[[Sequence[Tool]], CallParser]
    grammar: Callable[[Sequence[Tool], bool], str]
    """Lark rules in which `calls` is one of these tools called (or, with True, several calls)."""
    after_name: str
    """What follows a tool's name."""
    closings: tuple[str, ...] = ()
    """What ends the text of an argument, and a call."""
    marks: str = "<"
    """Characters beside those of JSON with which more may begin than what was written last."""
