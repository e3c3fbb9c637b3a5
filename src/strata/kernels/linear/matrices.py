"""Matrices that one kernel multiplies with the same rows of x, and where their results lie."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from strata.kernels.device import Device
from strata.kernels.linear.launch import bits
from strata.kernels.views import Weight

MOST_MATRICES = 8
"""Of a kernel (csrc/device/products_work.h)."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """Some matrices of one format, for a kernel whose units are so many rows of one."""

    table: int
    """Address of what the kernel knows of them (Matrix in csrc/device/products_work.h)."""
    count: int
    units: int
    y: torch.Tensor
    """Where the results go, [T, rows] of one matrix after the other."""
    results: tuple[torch.Tensor, ...]
    """The same, apart."""

    @property
    def known(self) -> tuple[int, int, int]:
        """What kernels take of them first."""
        return self.table, self.count, self.units


def matrices(device: Device, weights: Sequence[Weight], lines: int, rows: int) -> Matrices:
    """For `rows` rows of x and a kernel whose units are `lines` rows of weights."""
    table: list[int] = []
    units = before = 0
    for weight in weights:
        data, scales = device.weight(weight)
        table += [data, scales, weight.rows, units, before, bits(weight.scale), 0, 0]
        units += -(-weight.rows // lines)
        before += weight.rows
    y = device.empty(rows * before)
    parts = torch.split(y, [rows * weight.rows for weight in weights])
    results = tuple(part.view(rows, weight.rows) for part, weight in zip(parts, weights, strict=True))
    return Matrices(device.constants(table).data_ptr(), len(weights), units, y, results)
