"""Whose turn it is among those who wait with prompts of different lengths. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Turn(Generic[T]):
    """Someone who waits."""

    who: T
    left: int
    """Prompt tokens still to be read."""
    late: bool
    """Whether it has waited too long: it is overtaken no more and goes first."""
    order: tuple[int, ...]
    """Smaller ones first, as far as lengths do not matter."""


def overtakes(left: int, other: int) -> bool:
    """Whether a prompt with `left` tokens to read goes before one with `other`: it is under half as long."""
    return 2 * left < other


def in_turn(waiting: Iterable[Turn[T]]) -> list[T]:
    """Everyone by `order`, but who is late first, and short prompts before much longer ones."""
    line_up = sorted(waiting, key=lambda turn: turn.order)
    ordered = [turn.who for turn in line_up if turn.late]
    rest = [turn for turn in line_up if not turn.late]
    while rest:
        head = rest[0]
        quick = [turn for turn in rest if overtakes(turn.left, head.left)]
        ordered += [turn.who for turn in (*quick, head)]
        rest = [turn for turn in rest[1:] if not overtakes(turn.left, head.left)]
    return ordered
