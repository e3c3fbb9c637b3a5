"""An answer as blocks: consecutive events of one kind, one block after the other, each begun and ended once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from strata.chat.events import CallDelta, CallStart, Delta, ReasoningDelta, TextDelta, TokenLogprob

Kind: TypeAlias = Literal["reasoning", "text", "call"]


@dataclass(frozen=True, slots=True)
class Begun:
    """A block begins."""

    index: int
    kind: Kind
    id: str = ""
    """Of a call."""
    name: str = ""
    """Of the tool that is called."""


@dataclass(frozen=True, slots=True)
class More:
    """More of the block that began last: text, reasoning, or a call's arguments."""

    index: int
    kind: Kind
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """The block is over; this is all of it."""

    begun: Begun
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


Step: TypeAlias = Begun | More | Ended


class Blocks:
    """Cuts events into blocks with rising indexes."""

    def __init__(self) -> None:
        self._open: Begun | None = None
        self._count = 0
        self._texts: list[str] = []
        self._logprobs: list[TokenLogprob] = []

    def push(self, event: Delta) -> Iterator[Step]:
        """The steps that `event` makes."""
        match event:
            case CallStart(name=name, id=call):
                yield from self.close()
                yield self._begin("call", call, name)
                return
            case CallDelta():
                kind: Kind = "call"
            case ReasoningDelta():
                kind = "reasoning"
            case TextDelta():
                kind = "text"
        if self._open is None or self._open.kind != kind:
            yield from self.close()
            yield self._begin(kind)
        self._texts.append(event.text)
        self._logprobs += event.logprobs
        yield More(self._count - 1, kind, event.text, event.logprobs)

    def close(self) -> Iterator[Ended]:
        """End the block that is open, if one is."""
        if self._open is not None:
            yield Ended(self._open, "".join(self._texts), tuple(self._logprobs))
        self._open, self._texts, self._logprobs = None, [], []

    def _begin(self, kind: Kind, call: str = "", name: str = "") -> Begun:
        self._open = Begun(self._count, kind, call, name)
        self._count += 1
        return self._open


def ended_blocks(events: Sequence[Delta]) -> list[Ended]:
    """All blocks of a whole answer."""
    blocks = Blocks()
    steps = [step for event in events for step in blocks.push(event)]
    return [step for step in (*steps, *blocks.close()) if isinstance(step, Ended)]
