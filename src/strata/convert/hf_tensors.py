"""safetensors folder -> GGUF names, with the transforms that llama.cpp's converter applies."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from strata.checkpoint.checkpoint import Checkpoint
from strata.convert.hf_experts import expert_matrices
from strata.convert.stored import Matrices, decoded
from strata.convert.tensors import AnyArray, Floats, Item, Pieces
from strata.convert.transforms import Transform, tile_heads, transform_of, unpack_qkvz
from strata.core.errors import CheckpointError, UnsupportedError
from strata.models.config import hf_delta
from strata.models.drafting import RULES
from strata.models.hf_source import shards
from strata.models.hf_weights import UNREAD, stored_weights
from strata.models.registry import ARCHITECTURES, Architecture
from strata.models.source import Rule, floats, require

UNSUFFIXED = {"ssm_a", "ssm_dt.bias"}
BUFFERS = ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets", ".inv_freq")
"""Ends of names that become keys, or that every reader derives."""

MTP_LAYER = re.compile(r"mtp\.layers\.(\d+)\.")


@dataclass(slots=True)
class HfTensors:
    """Lists every tensor of a folder as an `Item`, and refuses to forget one."""

    checkpoint: Checkpoint
    name: str
    """GGUF's name of the architecture."""
    used: set[str] = field(default_factory=set)

    @property
    def entry(self) -> Architecture:
        """The architecture's tables."""
        return ARCHITECTURES[self.name]

    def items(self, layers: int, drafting: int) -> list[Item]:
        """All tensors: embeddings, each layer, then the drafting layers behind them."""
        found = self._rules("", "", self.entry.rules, False)
        for layer in range(layers):
            found += self._layer(f"blk.{layer}.", f"model.layers.{layer}.", False)
        for k in range(drafting):
            ours = f"blk.{layers + k}."
            found += self._layer(ours, f"mtp.layers.{k}.", True) + self._drafting(ours)
        left = sorted(n for n in self.checkpoint.tensors if n not in self.used and not n.endswith((*BUFFERS, *UNREAD)))
        if left:
            raise UnsupportedError(f"{self.checkpoint.path}: tensor {left[0]} has no place in a {self.name} GGUF file")
        return found

    def _rules(self, ours: str, theirs: str, rules: Mapping[str, Rule], drafting: bool) -> list[Item]:
        """Tensors that a table of rules names below a prefix; rules of another level are passed over."""
        found = []
        for leaf, rule in rules.items():
            at_top = rule.leaf.startswith(("model.", "lm_head"))
            name = None if at_top == bool(ours) else self._existing(theirs, rule)
            if name is not None:
                found.append(self._item(ours + leaf, leaf, name, rule, drafting))
        return found

    def _existing(self, prefix: str, rule: Rule) -> str | None:
        names = [full for n in (rule.leaf, rule.other) if n for full in (prefix + n, f"{prefix}{n}.weight")]
        return next((n for n in names if n in self.checkpoint.tensors), None)

    def _layer(self, ours: str, theirs: str, drafting: bool) -> list[Item]:
        rules = {leaf: rule for leaf, rule in self.entry.rules.items() if leaf != "ssm_in"}
        found = self._rules(ours, theirs, rules, drafting)
        for out, matrices in expert_matrices(self.checkpoint, self.entry, theirs, self.used):
            found.append(self._matrix_item(f"{ours}{out}.weight", matrices, Transform(), drafting))
        if f"{theirs}linear_attn.in_proj_qkvz.weight" in self.checkpoint.tensors:
            found += self._unpacked(ours, theirs)
        table = f"{theirs}ple.ple_embedding.ngram_embedding"
        if any(n.startswith(table) for n in self.checkpoint.tensors):
            found.append(self._table(table))
        return found

    def _drafting(self, ours: str) -> list[Item]:
        found = self._rules(ours, "mtp.", RULES, True)
        pair = ("mtp.fc_embedding.weight", "mtp.fc_hidden.weight")
        if pair[0] in self.checkpoint.tensors:
            # One product per stream over [embedding, hidden] side by side.
            parts = [self._matrices(n) for n in pair]
            if parts[0].rows != parts[1].rows:
                raise CheckpointError(
                    f"{self.checkpoint.path}: tensor {pair[1]}: expected {parts[0].rows} rows, found {parts[1].rows}"
                )

            def joined() -> Pieces:
                yield 0, np.concatenate([decoded(p.weights[0], 0, p.rows) for p in parts], axis=1)

            shape = (parts[0].rows, parts[0].columns + parts[1].columns)
            found.append(Item(f"{ours}nextn.eh_proj.weight", shape, joined, parts[0].stored, drafting=True))
        return found

    def _matrices(self, name: str) -> Matrices:
        stored = stored_weights(self.checkpoint, name)
        self.used.update(stored.used)
        return Matrices(f"{stored.ref.file}: tensor {name}", stored.weights)

    def _item(self, full: str, leaf: str, name: str, rule: Rule, drafting: bool) -> Item:
        suffix = "" if leaf in UNSUFFIXED else ".weight"
        transform = transform_of(self.name, leaf, rule, self.checkpoint.metadata)
        ref = require(self.checkpoint, name)
        shape = tuple(d for d in ref.shape if d != 1) or (1,)
        if len(shape) == 1 or len(ref.shape) != 2:
            self.used.add(name)
            return Item(full + suffix, shape, self._small(name, shape, transform), ref.format.name, drafting=drafting)
        matrices = self._matrices(name)
        if rule.rows != "all":
            meta = self.checkpoint.metadata
            cut = meta.integer("indexer_n_heads", 1, 4096) * meta.integer("indexer_head_dim", 1, 4096)
            matrices = matrices.cut(0, cut) if rule.rows == "head" else matrices.cut(cut, matrices.rows)
        return self._matrix_item(full + suffix, matrices, transform, drafting)

    def _small(self, name: str, shape: tuple[int, ...], transform: Transform) -> Callable[[], Pieces]:
        """Norms, rates and convolutions, whole."""

        def make() -> Iterator[tuple[int, Floats]]:
            values = floats(self.checkpoint, require(self.checkpoint, name)).numpy().reshape(shape)
            yield 0, transform(values).reshape(-1, shape[-1])

        return make

    def _matrix_item(self, name: str, matrices: Matrices, transform: Transform, drafting: bool) -> Item:
        stack = (len(matrices.weights),) if name.removesuffix(".weight").endswith("_exps") else ()
        return Item(
            name,
            (*stack, matrices.rows, matrices.columns),
            matrices.pieces(transform),
            matrices.stored,
            matrices.native(transform),
            drafting,
            _reorder(transform),
        )

    def _unpacked(self, ours: str, theirs: str) -> list[Item]:
        """Qwen3-Next: in_proj_qkvz -> attn_qkv and attn_gate."""
        d = hf_delta(self.checkpoint.metadata)
        matrices = self._matrices(f"{theirs}linear_attn.in_proj_qkvz.weight")
        if matrices.rows != d.channels + d.value_heads * d.value_dim:
            raise CheckpointError(f"{matrices.source}: expected {d.channels + d.value_heads * d.value_dim} rows")

        def part(index: int) -> Transform:
            def rows(x: AnyArray) -> AnyArray:
                return np.ascontiguousarray(unpack_qkvz(x, d)[index])

            return Transform(rows=rows)

        made = []
        for name, count, index in (("attn_qkv", d.channels, 0), ("attn_gate", d.value_heads * d.value_dim, 1)):
            transform, shape = part(index), (count, matrices.columns)
            pieces, native = matrices.pieces(transform), matrices.native(transform)
            made.append(Item(f"{ours}{name}.weight", shape, pieces, matrices.stored, native))
        return made

    def _table(self, base: str) -> Item:
        names = shards(self.checkpoint, f"{base}.shard_") or [f"{base}.weight"]
        parts = [self._matrices(n) for n in names]
        rows, columns = sum(p.rows for p in parts), parts[0].columns
        factor = np.float32(1)
        if len(names) > 1 and f"{base}.weight_scale" in self.checkpoint.tensors:
            self.used.add(f"{base}.weight_scale")
            factor = np.float32(floats(self.checkpoint, require(self.checkpoint, f"{base}.weight_scale"))[0])

        def pieces() -> Pieces:
            for part in parts:
                for _, values in part.pieces(Transform())():
                    yield 0, values if factor == 1 else values * factor

        return Item("per_layer_token_embd.weight", (rows, columns), pieces, parts[0].stored)


def _reorder(transform: Transform) -> Callable[[AnyArray], AnyArray] | None:
    """How columns move, for a vector over them."""
    if transform.columns is None:
        return None
    keys, dim = transform.columns
    return lambda x: tile_heads(x, keys, dim, axis=x.ndim - 1)
