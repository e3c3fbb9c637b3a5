"""What every layer of one step is given beside its input."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from strata.kernels.ops import Ops
from strata.kernels.views import Rows
from strata.layers.rope import Rope
from strata.state.sequence import SequenceStates

Tap = Callable[[str, dict[str, torch.Tensor]], None]
"""Called with an operation's name and its tensors; `strata parity` listens here."""

Mark = Callable[[str], None]
"""Called when a part of the step is complete, with its name; whoever times steps listens here."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's rows, the memory of their slots, and the operations to use."""

    tokens: torch.Tensor
    """int64 [T]"""
    rows: Rows
    states: SequenceStates
    ops: Ops
    tap: Tap | None = None
    mark: Mark | None = None
    routed: dict[int, torch.Tensor] | None = None
    """By layer the experts that the rows chose, int32 [T, k], where somebody wants to know; where the step ran."""
    known_angles: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    """Of every rope that was asked for, by its identity."""

    def angles(self, rope: Rope) -> tuple[torch.Tensor, torch.Tensor]:
        """(cos, sin) of the rows' positions, computed once for all layers that share the rope."""
        known = self.known_angles.get(id(rope))
        if known is None:
            known = self.known_angles[id(rope)] = rope.angles(self.ops, self.rows.position)
        return known

    def report(self, name: str, **tensors: torch.Tensor) -> None:
        """An operation is done: tell the tap, when there is one, and close its part of the step."""
        self.tell(name, **tensors)
        self.close(name)

    def tell(self, name: str, **tensors: torch.Tensor) -> None:
        """Tell the tap of an operation that is done, when there is one."""
        if self.tap is not None:
            self.tap(name, tensors)

    def close(self, part: str) -> None:
        """All since the last part was closed is `part` of the step."""
        if self.mark is not None:
            self.mark(part)
