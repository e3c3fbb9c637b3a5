"""What every layer of one step is given beside its input."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from strata.kernels.ops import Ops
from strata.kernels.views import Rows
from strata.state.sequence import SequenceStates

Tap = Callable[[str, dict[str, torch.Tensor]], None]
"""Called with an operation's name and its tensors; `strata parity` listens here."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's rows, the memory of their slots, and the operations to use."""

    tokens: torch.Tensor
    """int64 [T]"""
    rows: Rows
    states: SequenceStates
    ops: Ops
    tap: Tap | None = None

    def report(self, name: str, **tensors: torch.Tensor) -> None:
        """Tell the tap, when there is one."""
        if self.tap is not None:
            self.tap(name, tensors)
