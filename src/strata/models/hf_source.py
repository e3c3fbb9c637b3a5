"""Tensors of a safetensors folder, read under our names through a model's table of rules."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.tensor import TensorRef
from strata.core.errors import CheckpointError
from strata.kernels.views import ExpertBank, Weight
from strata.models.source import (
    Container,
    Rule,
    as_tensor,
    expect_shape,
    floats,
    int64s,
    matrix,
    plane,
    require,
    row_table,
    slice_rows,
    unused_error,
)
from strata.store.rows import RowTable
from strata.quant.formats import FORMATS

LAYER = re.compile(r"blk\.(\d+)\.(.+)")
IGNORED = ("mtp.", "model.visual.", "visual.")


class HfSource:
    """Implements `Source`. `rules` maps our leaf names to HF's; `experts_at` is where a layer's experts live."""

    container: Container = "safetensors"

    def __init__(
        self, checkpoint: Checkpoint, rules: Mapping[str, Rule], experts_at: str, expert_leaves: tuple[str, str, str]
    ) -> None:
        self.checkpoint = checkpoint
        self.rules = rules
        self.experts_at = experts_at
        self.expert_leaves = expert_leaves
        self.used: set[str] = set()

    def _rule(self, name: str) -> tuple[Rule, str] | None:
        match = LAYER.fullmatch(name)
        leaf = match.group(2) if match else name
        rule = self.rules.get(leaf)
        if rule is None:
            return None
        prefix = f"model.layers.{match.group(1)}." if match else ""
        base = prefix + rule.leaf
        return rule, base if base in self.checkpoint.tensors else f"{base}.weight"

    def _found(self, name: str) -> tuple[Rule, TensorRef]:
        found = self._rule(name)
        if found is None:
            raise CheckpointError(f"{self.checkpoint.path}: this model's tensor table has no {name}")
        rule, full = found
        self.used.add(full)
        return rule, require(self.checkpoint, full)

    def has(self, name: str) -> bool:
        """See `Source.has`."""
        found = self._rule(name)
        return found is not None and found[1] in self.checkpoint.tensors

    def weight(self, name: str, rows: int, cols: int) -> Weight:
        """See `Source.weight`."""
        rule, ref = self._found(name)
        if rule.rows == "all":
            return self._matrix(ref, rows, cols)
        total = ref.shape[0]
        if rows > total:
            expect_shape(ref, (rows, cols))
        whole = self._matrix(ref, total, cols)
        return slice_rows(whole, 0, rows) if rule.rows == "head" else slice_rows(whole, total - rows, total)

    def _matrix(self, ref: TensorRef, rows: int, cols: int) -> Weight:
        base = ref.name.removesuffix(".weight")
        tensors = self.checkpoint.tensors
        for side in (
            f"{base}.weight_scale_inv",
            f"{base}.weight_scale",
            f"{base}.weight_scale_2",
            f"{base}.input_scale",
        ):
            if side in tensors:
                self.used.add(side)
        if f"{base}.weight_scale_inv" in tensors:
            expect_shape(ref, (rows, cols))
            scale = tensors[f"{base}.weight_scale_inv"]
            expect_shape(scale, (-(-rows // 128), -(-cols // 128)))
            wide = floats(self.checkpoint, scale).view(-(-rows // 128), -1)
            planes = (plane(self.checkpoint, ref, rows), wide.contiguous().view(torch.uint8).view(wide.shape[0], -1))
            return Weight(FORMATS["FP8_BLOCK"], rows, cols, planes)
        if f"{base}.weight_scale_2" in tensors:
            expect_shape(ref, (rows, cols // 2))
            scale = tensors[f"{base}.weight_scale"]
            expect_shape(scale, (rows, cols // 16))
            second = float(floats(self.checkpoint, tensors[f"{base}.weight_scale_2"])[0])
            planes = (plane(self.checkpoint, ref, rows), plane(self.checkpoint, scale, rows))
            return Weight(FORMATS["NVFP4_PAIRS"], rows, cols, planes, second)
        if f"{base}.weight_scale" in tensors:
            second = float(floats(self.checkpoint, tensors[f"{base}.weight_scale"])[0])
            return matrix(self.checkpoint, ref, rows, cols, second)
        return matrix(self.checkpoint, ref, rows, cols)

    def vector(self, name: str, *shape: int) -> torch.Tensor:
        """See `Source.vector`: adds the 1 of zero-centred norms, turns A_log into -exp(A_log)."""
        rule, ref = self._found(name)
        expect_shape(ref, shape)
        values = floats(self.checkpoint, ref).view(*shape)
        if rule.transform == "plus_one":
            return values + 1
        if rule.transform == "negative_exp":
            return torch.from_numpy((-np.exp(values.numpy().astype(np.float64))).astype(np.float32))
        return values

    def experts(self, layer: int, count: int, width: int, hidden: int) -> ExpertBank:
        """See `Source.experts`: fused [E, 2I, H] and [E, H, I], or one matrix per expert and projection."""
        base = f"model.layers.{layer}.{self.experts_at}"
        fused, down = f"{base}.gate_up_proj", f"{base}.down_proj"
        if fused in self.checkpoint.tensors:
            self.used.update((fused, down))
            both = self._stack(require(self.checkpoint, fused), count, 2 * width, hidden)
            return ExpertBank(
                tuple(slice_rows(w, 0, width) for w in both),
                tuple(slice_rows(w, width, 2 * width) for w in both),
                self._stack(require(self.checkpoint, down), count, hidden, width),
            )
        gate, up, out = self.expert_leaves
        return ExpertBank(
            self._each(base, gate, count, width, hidden),
            self._each(base, up, count, width, hidden),
            self._each(base, out, count, hidden, width),
        )

    def _each(self, base: str, leaf: str, count: int, rows: int, cols: int) -> tuple[Weight, ...]:
        names = [f"{base}.{e}.{leaf}.weight" for e in range(count)]
        self.used.update(names)
        return tuple(self._matrix(require(self.checkpoint, n), rows, cols) for n in names)

    def _stack(self, ref: TensorRef, count: int, rows: int, cols: int) -> tuple[Weight, ...]:
        expect_shape(ref, (count, rows, cols))
        stacked = as_tensor(self.checkpoint.bytes_of(ref).reshape(count, rows, -1))
        return tuple(Weight(ref.format, rows, cols, (stacked[e],)) for e in range(count))

    def rows(self, name: str, layer: int, needed: int, cols: int) -> RowTable:
        """See `Source.rows`: shards are joined in the order of their numbers."""
        base = f"model.layers.{layer}.ple.ple_embedding.ngram_embedding"
        refs = shards(self.checkpoint, f"{base}.shard_") or [require(self.checkpoint, f"{base}.weight")]
        self.used.update(r.name for r in refs)
        return row_table(self.checkpoint, refs, needed, cols)

    def integers(self, name: str, count: int) -> tuple[int, ...]:
        """See `Source.integers`."""
        self.used.add(name)
        return int64s(self.checkpoint, name, count)

    def check_all_used(self) -> None:
        """See `Source.check_all_used`."""
        left: dict[str, object] = {
            n: r
            for n, r in self.checkpoint.tensors.items()
            if n not in self.used and not n.startswith(IGNORED) and not n.endswith((".inv_freq", ".input_scale"))
        }
        if left:
            raise unused_error(self.checkpoint.path, left)


def shards(checkpoint: Checkpoint, prefix: str) -> Sequence[TensorRef]:
    """Tensors PREFIX0.weight, PREFIX1.weight ... in numeric order (not name order)."""
    numbered = {}
    for name, ref in checkpoint.tensors.items():
        if name.startswith(prefix):
            numbered[int(name.removeprefix(prefix).removesuffix(".weight"))] = ref
    return [numbered[i] for i in sorted(numbered)]
