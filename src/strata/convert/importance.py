"""Which columns of a matrix matter: sums of squares of what a model feeds into each while it reads a text."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from strata.convert.tensors import Floats, Item
from strata.core.errors import UsageError
from strata.kernels.views import ExpertBank, Weight
from strata.models.source import Source
from strata.store.rows import RowTable

Sums = npt.NDArray[np.float64]

LEAST = 1e-6
"""No column counts for less than this part of the mean: a block in which nothing counted could not be scaled."""

PRIOR_ROWS = 16
"""An expert that few tokens visited is weighed partly by all experts' inputs, as if so many of its rows were those."""


@dataclass(slots=True)
class Column:
    """What was fed into one tensor: float64 [matrices, cols] sums of squares, and rows per matrix."""

    sums: Sums
    rows: npt.NDArray[np.int64]

    def add(self, matrix: int, x: torch.Tensor) -> None:
        """Rows x [N, cols] went into `matrix`."""
        self.sums[matrix] += np.square(x.numpy().astype(np.float64)).sum(axis=0)
        self.rows[matrix] += len(x)


Columns = dict[str, Column]
"""By GGUF's tensor name."""


class NamedSource:
    """A `Source` that remembers which memory belongs to which of our tensor names."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.container = source.container
        self.places: list[tuple[int, int, str]] = []
        """(first address, one past the last, name)"""
        self.layers: dict[int, int] = {}
        """Address of a layer's first gate matrix -> layer."""

    def has(self, name: str) -> bool:
        """See `Source.has`."""
        return self.source.has(name)

    def weight(self, name: str, rows: int, cols: int) -> Weight:
        """See `Source.weight`."""
        weight = self.source.weight(name, rows, cols)
        first = weight.planes[0].data_ptr()
        self.places.append((first, first + weight.planes[0].numel(), name))
        return weight

    def vector(self, name: str, *shape: int) -> torch.Tensor:
        """See `Source.vector`."""
        return self.source.vector(name, *shape)

    def experts(self, layer: int, count: int, width: int, hidden: int) -> ExpertBank:
        """See `Source.experts`."""
        bank = self.source.experts(layer, count, width, hidden)
        self.layers[bank.gate[0].planes[0].data_ptr()] = layer
        return bank

    def rows(self, name: str, layer: int, needed: int, cols: int) -> RowTable:
        """See `Source.rows`."""
        return self.source.rows(name, layer, needed, cols)

    def integers(self, name: str, count: int) -> tuple[int, ...]:
        """See `Source.integers`."""
        return self.source.integers(name, count)

    def check_all_used(self) -> None:
        """See `Source.check_all_used`."""
        self.source.check_all_used()

    def name_of(self, weight: Weight) -> str | None:
        """The tensor that `weight`, or the matrix it was cut from, was given out as."""
        at = weight.planes[0].data_ptr()
        return next((name for first, end, name in self.places if first <= at < end), None)


@dataclass(slots=True)
class Recorder:
    """Implements `Heard`: adds up what every named matrix reads."""

    names: NamedSource
    columns: Columns = field(default_factory=dict)

    def product(self, weight: Weight, x: torch.Tensor) -> None:
        """See `Heard.product`; matrices without a name (parts of experts) are not ours to count."""
        name = self.names.name_of(weight)
        if name is not None:
            self.column(name, 1, weight.cols).add(0, x)

    def expert(self, bank: ExpertBank, expert: int, x: torch.Tensor, hidden: torch.Tensor) -> None:
        """See `Heard.expert`."""
        layer = self.names.layers[bank.gate[0].planes[0].data_ptr()]
        for leaf, rows in (("ffn_gate_exps", x), ("ffn_up_exps", x), ("ffn_down_exps", hidden)):
            self.column(f"blk.{layer}.{leaf}", len(bank.gate), rows.shape[1]).add(expert, rows)

    def column(self, name: str, matrices: int, cols: int) -> Column:
        """The entry of a tensor, made when it is first fed."""
        found = self.columns.get(name)
        if found is None:
            found = Column(np.zeros((matrices, cols)), np.zeros(matrices, np.int64))
            self.columns[name] = found
        return found


PACKED = {"attn_qkv": "ssm_in", "attn_gate": "ssm_in"}
"""Qwen3-Next: two matrices of the file are one in a folder."""


def by_item(recorded: Columns, items: Sequence[Item]) -> Columns:
    """What was recorded on the source, under the names and in the column order of the file to be written."""
    found: Columns = {}
    for item in items:
        block, _, leaf = item.name.removesuffix(".weight").rpartition(".")
        names = (f"{block}.{leaf}", f"{block}.{PACKED.get(leaf, leaf)}") if block else (leaf, leaf)
        column = recorded.get(names[0]) or recorded.get(names[1])
        if column is not None:
            sums = column.sums if item.reorder is None else item.reorder(column.sums)
            found[item.name] = Column(sums, column.rows)
    return found


def importance_of(columns: Columns, items: Sequence[Item]) -> dict[str, Floats]:
    """Mean square of every input column, float32 [cols] or [experts, cols]; UsageError when a shape does not fit."""
    found = {}
    for item in items:
        column = columns.get(item.name)
        if column is None or not column.rows.any():
            continue
        if column.sums.shape != (item.matrices, item.columns):
            raise UsageError(
                f"importance data of tensor {item.name}: expected {item.matrices} x {item.columns}, "
                f"found {' x '.join(map(str, column.sums.shape))}"
            )
        common = column.sums.sum(axis=0) / column.rows.sum()
        prior = PRIOR_ROWS if item.matrices > 1 else 0
        means = (column.sums + prior * common) / (column.rows[:, None] + prior)
        means = np.maximum(means, LEAST * means.mean(axis=1, keepdims=True)).astype(np.float32)
        found[item.name] = means if item.matrices > 1 else means[0]
    return found


def unvisited(columns: Columns) -> int:
    """Experts that no token of the text went to."""
    return sum(int((c.rows == 0).sum()) for n, c in columns.items() if "ffn_gate_exps" in n)
