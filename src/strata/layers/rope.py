"""Rotary position embedding (RoFormer, arXiv 2104.09864) over the first `rotary` dims of a head."""

import torch

from strata.kernels.ops import Ops, RopeLayout


class Rope:
    """Angles p * theta^(-2i/rotary) / factor_i; a layer gets those of the step's rows from its batch."""

    def __init__(self, rotary: int, theta: float, layout: RopeLayout, factors: tuple[float, ...] | None = None) -> None:
        self.rotary = rotary
        self.layout: RopeLayout = layout
        spread = factors if factors is not None else (1.0,) * (rotary // 2)
        frequencies = [theta ** (-2.0 * i / rotary) / spread[i] for i in range(rotary // 2)]
        self.frequencies = torch.tensor(frequencies, dtype=torch.float64)

    def angles(self, ops: Ops, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(cos, sin) [T, rotary/2] at int32 positions [T]."""
        return ops.rope_angles(positions, self.frequencies)

    def __call__(self, ops: Ops, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rotate x [T, heads, d] at positions [T]."""
        cos, sin = self.angles(ops, positions)
        return ops.rope(x, cos, sin, self.layout)
