"""Tensors of a GGUF file: its names are ours."""

from collections.abc import Sequence

import torch

from strata.checkpoint.checkpoint import Checkpoint
from strata.core.errors import CheckpointError, UnsupportedError
from strata.kernels.views import ExpertBank, Weight
from strata.models.source import (
    Container,
    as_tensor,
    expect_shape,
    floats,
    int64s,
    matrix,
    require,
    row_table,
    unused_error,
)
from strata.store.rows import RowTable


class GgufSource:
    """Implements `Source`. Names that begin with one of `drafting` belong to the drafting head's layers.

    It is for the trunk, or for the `head`.
    """

    container: Container = "gguf"

    def __init__(self, checkpoint: Checkpoint, drafting: Sequence[str], head: bool = False) -> None:
        self.checkpoint = checkpoint
        self.drafting = tuple(drafting)
        self.head = head
        self.used: set[str] = set()

    def _full(self, name: str) -> str:
        return name if name in self.checkpoint.tensors else f"{name}.weight"

    def has(self, name: str) -> bool:
        """See `Source.has`."""
        return self._full(name) in self.checkpoint.tensors

    def weight(self, name: str, rows: int, cols: int) -> Weight:
        """See `Source.weight`. A `NAME.scale` tensor multiplies the product (NVFP4)."""
        full = self._full(name)
        self.used.add(full)
        scale = float(self._scales(name, 1)[0])
        return matrix(self.checkpoint, require(self.checkpoint, full), rows, cols, scale)

    def vector(self, name: str, *shape: int) -> torch.Tensor:
        """See `Source.vector`: GGUF stores norms and decay rates transformed already."""
        full = self._full(name)
        self.used.add(full)
        ref = require(self.checkpoint, full)
        # Some files store the norm of n streams as [n, hidden], others flat.
        if len(shape) > 1 or ref.count != shape[0]:
            expect_shape(ref, shape)
        return floats(self.checkpoint, ref).view(*shape)

    def experts(self, layer: int, count: int, width: int, hidden: int) -> ExpertBank:
        """See `Source.experts`; gate and up may be fused, gate rows first."""
        block = f"blk.{layer}."
        if self.has(block + "ffn_gate_up_exps"):
            both = self._stack(block + "ffn_gate_up_exps", count, 2 * width, hidden)
            gate, up = self._halves(both, width)
        else:
            gate = self._stack(block + "ffn_gate_exps", count, width, hidden)
            up = self._stack(block + "ffn_up_exps", count, width, hidden)
        return ExpertBank(gate, up, self._stack(block + "ffn_down_exps", count, hidden, width))

    def _halves(self, both: Sequence[Weight], width: int) -> tuple[tuple[Weight, ...], tuple[Weight, ...]]:
        def half(w: Weight, start: int) -> Weight:
            return Weight(w.format, width, w.cols, (w.planes[0][start : start + width],), w.scale)

        return tuple(half(w, 0) for w in both), tuple(half(w, width) for w in both)

    def _stack(self, name: str, count: int, rows: int, cols: int) -> tuple[Weight, ...]:
        full = self._full(name)
        self.used.add(full)
        ref = require(self.checkpoint, full)
        if len(ref.shape) == 3 and ref.shape[2] > cols and ref.shape[:2] == (count, rows):
            raise UnsupportedError(
                f"{ref.file}: tensor {ref.name}: rows are padded to {ref.shape[2]} values, the model has {cols}",
                "files with padded expert rows are not supported; use one with the published widths",
            )
        expect_shape(ref, (count, rows, cols))
        scales = self._scales(name, count)
        stacked = as_tensor(self.checkpoint.bytes_of(ref).reshape(count, rows, -1))
        return tuple(Weight(ref.format, rows, cols, (stacked[e],), scales[e]) for e in range(count))

    def _scales(self, name: str, count: int) -> list[float]:
        side = f"{name}.scale"
        if side not in self.checkpoint.tensors:
            return [1.0] * count
        self.used.add(side)
        values = floats(self.checkpoint, self.checkpoint.tensors[side]).tolist()
        if len(values) not in (1, count):
            raise CheckpointError(
                f"{self.checkpoint.path}: tensor {side}: expected 1 or {count} values, found {len(values)}"
            )
        return list(values) if len(values) == count else list(values) * count

    def rows(self, name: str, layer: int, needed: int, cols: int) -> RowTable:
        """See `Source.rows`."""
        full = self._full(name)
        self.used.add(full)
        return row_table(self.checkpoint, [require(self.checkpoint, full)], needed, cols)

    def integers(self, name: str, count: int) -> tuple[int, ...]:
        """See `Source.integers`."""
        self.used.add(name)
        return int64s(self.checkpoint, name, count)

    def check_all_used(self) -> None:
        """See `Source.check_all_used`."""
        left = {
            n: r
            for n, r in self.checkpoint.tensors.items()
            if n not in self.used and n.startswith(self.drafting) == self.head and not n.endswith(".input_scale")
        }
        if left:
            raise unused_error(self.checkpoint.path, left)
