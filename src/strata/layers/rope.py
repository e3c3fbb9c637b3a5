"""Rotary position embedding (RoFormer, arXiv 2104.09864) over the first `rotary` dims of a head."""

import math

import numpy as np
import torch

from strata.kernels.ops import Ops, RopeLayout

GROWTH = 256


class Rope:
    """Angles p * theta^(-2i/rotary) / factor_i for positions as they are first needed.

    Every cosine is one libm call in double precision, rounded once: a vectorised cosine may round its tail
    differently, and the result would depend on how many positions were asked at once.
    """

    def __init__(self, rotary: int, theta: float, layout: RopeLayout, factors: tuple[float, ...] | None = None) -> None:
        self.rotary = rotary
        self.layout: RopeLayout = layout
        spread = factors if factors is not None else (1.0,) * (rotary // 2)
        self.frequencies = [theta ** (-2.0 * i / rotary) / spread[i] for i in range(rotary // 2)]
        self.cos = torch.empty(0, rotary // 2)
        self.sin = torch.empty(0, rotary // 2)

    def _grow(self, positions: int) -> None:
        start = self.cos.shape[0]
        stop = -(-positions // GROWTH) * GROWTH
        angles = [p * f for p in range(start, stop) for f in self.frequencies]
        for name, function in (("cos", math.cos), ("sin", math.sin)):
            values = np.array([function(a) for a in angles], dtype=np.float64).astype(np.float32)
            grown = torch.cat([getattr(self, name), torch.from_numpy(values).view(-1, self.rotary // 2)])
            setattr(self, name, grown)

    def at(self, positions: torch.Tensor, limit: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(cos, sin) [T, rotary/2] at int positions [T], all below `limit`."""
        if limit > self.cos.shape[0]:
            self._grow(limit)
        index = positions.to(torch.int64)
        return self.cos[index], self.sin[index]

    def __call__(self, ops: Ops, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rotate x [T, heads, d] at positions [T]."""
        if not len(positions):
            return x
        cos, sin = self.at(positions, int(positions.max()) + 1)
        return ops.rope(x, cos, sin, self.layout)
