"""RMS normalisation. A zero-centred weight (HF: y = (1 + w) rms(x)) has its 1 added when it is loaded."""

from dataclasses import dataclass

import torch

from strata.kernels.ops import Ops


@dataclass(frozen=True, slots=True)
class RmsNorm:
    """y = w * x / sqrt(mean(x^2) + eps), the mean over groups of `group` values of the last axis."""

    weight: torch.Tensor
    eps: float
    group: int

    def __call__(self, ops: Ops, x: torch.Tensor) -> torch.Tensor:
        return ops.rms_norm(x, self.weight, self.eps, self.group)

    def added(self, ops: Ops, x: torch.Tensor, y: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """(x + y, its norm) of x [T, group] and y like it; None: nothing is added."""
        return (x, self(ops, x)) if y is None else ops.add_norm(x, y, self.weight, self.eps)
