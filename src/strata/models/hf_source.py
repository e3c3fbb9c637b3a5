"""Tensors of a safetensors folder, read under our names through a model's table of rules."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from strata.checkpoint.checkpoint import Checkpoint
from strata.core.errors import CheckpointError
from strata.kernels.views import ExpertBank, Weight
from strata.models.hf_weights import UNREAD, stored_weights
from strata.models.source import Container, Rule, expect_shape, floats, int64s, require, slice_rows, unused_error
from strata.store.rows import RowTable

LAYER = re.compile(r"blk\.(\d+)\.(.+)")
IGNORED = ("mtp.", "model.visual.", "visual.")


class HfSource:
    """Implements `Source`. `rules` maps our leaf names to HF's; `experts_at` are the places where experts live.

    Layers from number `drafting` on are those of the drafting head, which the source is then for.
    """

    container: Container = "safetensors"

    def __init__(
        self,
        checkpoint: Checkpoint,
        rules: Mapping[str, Rule],
        experts_at: Sequence[str],
        expert_leaves: tuple[str, str, str],
        drafting: int | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.rules = rules
        self.experts_at = experts_at
        self.expert_leaves = expert_leaves
        self.drafting = drafting
        self.used: set[str] = set()
        self.left: dict[str, int] = {}
        """Rows of stacked matrices that nobody has asked for yet; negative when two parts overlap."""

    def _full(self, name: str) -> tuple[Rule, str] | None:
        """The rule for our `name`, and the name in the folder (the first of the rule's that exists)."""
        match = LAYER.fullmatch(name)
        leaf = match.group(2) if match else name
        rule = self.rules.get(leaf)
        if rule is None:
            return None
        prefix = self._prefix(int(match.group(1)), leaf) if match else ""
        names = [full for n in (rule.leaf, rule.other) if n for full in (prefix + n, f"{prefix}{n}.weight")]
        return rule, next((n for n in names if n in self.checkpoint.tensors), names[1])

    def _prefix(self, layer: int, leaf: str = "") -> str:
        """Where a layer's tensors are in the folder; what belongs to the head as a whole is beside its layers."""
        if self.drafting is None or layer < self.drafting:
            return f"model.layers.{layer}."
        return "mtp." if leaf.startswith("nextn.") else f"mtp.layers.{layer - self.drafting}."

    def _found(self, name: str) -> tuple[Rule, str]:
        found = self._full(name)
        if found is None:
            raise CheckpointError(f"{self.checkpoint.path}: this model's tensor table has no {name}")
        return found

    def has(self, name: str) -> bool:
        """See `Source.has`."""
        found = self._full(name)
        return found is not None and found[1] in self.checkpoint.tensors

    def weight(self, name: str, rows: int, cols: int) -> Weight:
        """See `Source.weight`."""
        rule, full = self._found(name)
        if rule.rows == "all":
            return self._matrix(full, rows, cols)
        whole = self._matrix(full, None, cols)
        total = whole.rows
        if rows > total:
            self._matrix(full, rows, cols)
        self.left[full] = self.left.get(full, total) - rows
        return slice_rows(whole, 0, rows) if rule.rows == "head" else slice_rows(whole, total - rows, total)

    def _matrix(self, name: str, rows: int | None, cols: int) -> Weight:
        """The matrix under `name` with its scales; any number of rows when `rows` is None."""
        (weight,) = self._stored(name, 1, rows, cols)
        return weight

    def _stored(self, name: str, count: int, rows: int | None, cols: int) -> tuple[Weight, ...]:
        stored = stored_weights(self.checkpoint, name)
        self.used.update(stored.used)
        first = stored.weights[0]
        found = (len(stored.weights), first.rows, first.cols)
        if found != (count, first.rows if rows is None else rows, cols):
            wanted = [n for n in (count if count > 1 else None, rows, cols) if n is not None]
            raise CheckpointError(
                f"{stored.ref.file}: tensor {name}: expected shape {wanted}, found {list(stored.ref.shape)}"
            )
        return stored.weights

    def vector(self, name: str, *shape: int) -> torch.Tensor:
        """See `Source.vector`: adds the 1 of zero-centred norms, turns A_log into -exp(A_log)."""
        rule, full = self._found(name)
        ref = require(self.checkpoint, full)
        self.used.add(full)
        expect_shape(ref, shape)
        values = floats(self.checkpoint, ref).view(*shape)
        if rule.transform == "plus_one":
            return values + 1
        if rule.transform == "negative_exp":
            return torch.from_numpy((-np.exp(values.numpy().astype(np.float64))).astype(np.float32))
        return values

    def experts(self, layer: int, count: int, width: int, hidden: int) -> ExpertBank:
        """See `Source.experts`: fused [E, 2I, H] and [E, H, I], or one matrix per expert and projection."""
        bases = [f"{self._prefix(layer)}{at}" for at in self.experts_at]
        for base in bases:
            fused = f"{base}.gate_up_proj"
            if fused in self.checkpoint.tensors:
                both = self._stored(fused, count, 2 * width, hidden)
                return ExpertBank(
                    tuple(slice_rows(w, 0, width) for w in both),
                    tuple(slice_rows(w, width, 2 * width) for w in both),
                    self._stored(f"{base}.down_proj", count, hidden, width),
                )
        gate, up, out = self.expert_leaves
        return ExpertBank(
            self._each(bases[0], gate, count, width, hidden),
            self._each(bases[0], up, count, width, hidden),
            self._each(bases[0], out, count, hidden, width),
        )

    def _each(self, base: str, leaf: str, count: int, rows: int, cols: int) -> tuple[Weight, ...]:
        return tuple(self._matrix(f"{base}.{e}.{leaf}.weight", rows, cols) for e in range(count))

    def rows(self, name: str, layer: int, needed: int, cols: int) -> RowTable:
        """See `Source.rows`: shards are joined in the order of their numbers."""
        base = f"model.layers.{layer}.ple.ple_embedding.ngram_embedding"
        names = shards(self.checkpoint, f"{base}.shard_") or [f"{base}.weight"]
        tables = [self._matrix(n, None, cols) for n in names]
        common = f"{base}.weight_scale"
        if common in self.checkpoint.tensors and names != [f"{base}.weight"]:
            # one scale for all shards
            scale = require(self.checkpoint, common)
            self.used.add(common)
            expect_shape(scale, (1,))
            value = float(floats(self.checkpoint, scale)[0])
            tables = [replace(t, scale=t.scale * value) for t in tables]
        table = RowTable(tables)
        if table.rows < needed:
            raise CheckpointError(
                f"{self.checkpoint.path}: tensor {names[0]}: expected {needed} rows or more, found {table.rows}"
            )
        return table

    def integers(self, name: str, count: int) -> tuple[int, ...]:
        """See `Source.integers`."""
        self.used.add(name)
        return int64s(self.checkpoint, name, count)

    def check_all_used(self) -> None:
        """See `Source.check_all_used`; stacked matrices must be used up too."""
        for name, rows in self.left.items():
            if rows:
                total = require(self.checkpoint, name).shape[0]
                raise CheckpointError(
                    f"{self.checkpoint.path}: tensor {name}: expected {total - rows} rows, found {total}"
                )
        left: dict[str, object] = {
            n: r
            for n, r in self.checkpoint.tensors.items()
            if n not in self.used and self._mine(n) and not n.endswith((".inv_freq", *UNREAD))
        }
        if left:
            raise unused_error(self.checkpoint.path, left)

    def _mine(self, name: str) -> bool:
        """Whether the tensor belongs to what this source is for."""
        return not name.startswith(IGNORED) if self.drafting is None else name.startswith("mtp.")


def shards(checkpoint: Checkpoint, prefix: str) -> list[str]:
    """Names PREFIX0.weight, PREFIX1.weight ... by number, not by name; CheckpointError when one is missing."""
    numbered = {}
    for name in checkpoint.tensors:
        number = name.removeprefix(prefix).removesuffix(".weight")
        if name.startswith(prefix) and number.isdigit():
            numbered[int(number)] = name
    missing = sorted(set(range(len(numbered))) - set(numbered))
    if missing:
        raise CheckpointError(f"{checkpoint.path}: tensor {prefix}{missing[0]}.weight is missing")
    return [numbered[i] for i in sorted(numbered)]
