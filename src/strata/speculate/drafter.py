"""What a drafter is asked, and what it answers. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Proposal:
    """Likely next tokens of a sequence, each given those before it."""

    tokens: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()
    """Of each token, from 0 to 1: how sure the drafter is, by its own measure."""

    def cut(self, most: int) -> "Proposal":
        """Its first `most` tokens."""
        return Proposal(self.tokens[:most], self.confidence[:most])


class Ask(NamedTuple):
    """A wish for a proposal for one slot."""

    pending: int
    """The sequence's newest token, which `Drafter.extend` has not told of."""
    depth: int
    """Tokens at most, one or more."""
    goes_on: Callable[[Sequence[float]], bool]
    """Whether one more is worth drafting after proposals of these confidences; asked where each costs time."""


class Spent(NamedTuple):
    """What a drafter's last proposals took."""

    first_s: float
    """Until it had one draft for every slot."""
    more_s: float
    passes: int
    """Further ones."""


class Drafter(Protocol):
    """Proposes tokens for the sequences of slots. What it proposes changes speed, never tokens."""

    def begin(self, slot: int, tokens: Sequence[int]) -> None:
        """A sequence that begins with `tokens` was seated; none of it counts as read before `extend` says so."""
        ...

    def rest(self, slot: int) -> None:
        """In the place of `begin`: a sequence was seated that this drafter need not read, it is not going to be asked.

        It stays so for whatever goes on from what is kept of that sequence.
        """
        ...

    def knows(self, slot: int) -> bool:
        """Whether it reads along with the slot's sequence, so that it can be asked."""
        ...

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        """These tokens, which follow those told of before, are part of the slot's sequence for good."""
        ...

    def forget(self, slot: int) -> None:
        """The slot's sequence is over."""
        ...

    def propose(self, asks: Mapping[int, Ask]) -> dict[int, Proposal]:
        """Proposals by slot; a slot for which there is nothing to propose may be missing."""
        ...

    def took(self) -> float:
        """Seconds since this was asked last that went into proposing and reading along, and will the next time too."""
        ...

    def spent(self) -> Spent | None:
        """What that took; None where it is nothing to speak of, or was no measure of what the next will take."""
        ...
