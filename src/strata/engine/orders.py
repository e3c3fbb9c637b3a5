"""Orders about kept conversations: from any thread to the engine's, each with exactly one answer."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from strata.core.errors import EngineError
from strata.core.order import Order

Answer: TypeAlias = Mapping[str, Any] | Exception
"""Counts of what was done (of "experts": the map's plain values), or why it was not."""


class Orders:
    """Orders waiting for the engine's thread. Not locked: the engine calls it under its own lock."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Order, Callable[[Answer], None]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, order: Order, answer: Callable[[Answer], None]) -> None:
        """Take an order in."""
        self._waiting.append((order, answer))

    def take(self) -> list[tuple[Order, Callable[[Answer], None]]]:
        """All that wait, in order of arrival."""
        taken, self._waiting = self._waiting, []
        return taken


def refuse(orders: list[tuple[Order, Callable[[Answer], None]]], reason: str) -> None:
    """Answer every one with an error."""
    for order, answer in orders:
        answer(EngineError(f"{order.verb} was not carried out: {reason}"))
