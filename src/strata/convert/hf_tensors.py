"""safetensors folder -> GGUF names, with the transforms that llama.cpp's converter applies (models.md 2.4)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.tensor import TensorRef
from strata.convert.tensors import Floats, Item, tile_heads
from strata.core.errors import UnsupportedError
from strata.models.config import DeltaConfig, hf_delta
from strata.models.registry import ARCHITECTURES, Architecture
from strata.models.source import Rule, expect_shape, require
from strata.quant.decode import dequantise

UNSUFFIXED = {"ssm_a", "ssm_dt.bias"}
MTP_RULES = {
    "nextn.enorm": Rule("pre_fc_norm_embedding", "plus_one"),
    "nextn.hnorm": Rule("pre_fc_norm_hidden", "plus_one"),
    "nextn.shared_head_norm": Rule("norm", "plus_one"),
    "nextn.eh_proj": Rule("fc"),
    "nextn.hc_head_norm": Rule("hyper_connection_mixer.hc_norm", "plus_one"),
    "nextn.hc_head_down": Rule("hyper_connection_mixer.input_mix_weight_down"),
    "nextn.hc_head_up": Rule("hyper_connection_mixer.input_mix_weight_up"),
}


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
        found = [i for leaf, rule in self.entry.rules.items() if (i := self._plain("", "", leaf, rule)) is not None]
        for layer in range(layers):
            found += self._layer(f"blk.{layer}.", f"model.layers.{layer}.")
        for k in range(drafting):
            found += self._layer(f"blk.{layers + k}.", f"mtp.layers.{k}.") + self._drafting(f"blk.{layers + k}.")
        left = sorted(n for n in self.checkpoint.tensors if n not in self.used and not self._ignored(n))
        if left:
            raise UnsupportedError(f"{self.checkpoint.path}: tensor {left[0]} has no place in a {self.name} GGUF file")
        return found

    def _ignored(self, name: str) -> bool:
        buffers = ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets", "inv_freq")
        return name.endswith(buffers) or name.startswith("model.visual.")

    def _layer(self, ours: str, theirs: str) -> list[Item]:
        found = [
            i for leaf, rule in self.entry.rules.items() if (i := self._plain(ours, theirs, leaf, rule)) is not None
        ]
        found += self._experts(ours, theirs + self.entry.experts_at)
        if f"{theirs}linear_attn.in_proj_qkvz.weight" in self.checkpoint.tensors:
            found = [i for i in found if not i.name.startswith(f"{ours}ssm_in")] + self._unpacked(ours, theirs)
        table = f"{theirs}ple.ple_embedding.ngram_embedding"
        if any(n.startswith(table) for n in self.checkpoint.tensors):
            found.append(self._table(table))
        return found

    def _drafting(self, ours: str) -> list[Item]:
        rules = dict(MTP_RULES)
        tensors = self.checkpoint.tensors
        found = [i for leaf, rule in rules.items() if (i := self._plain(ours, "mtp.", leaf, rule)) is not None]
        pair = ("mtp.fc_embedding.weight", "mtp.fc_hidden.weight")
        if pair[0] in tensors:
            # One product per stream over [embedding, hidden] side by side.
            e, h = (self._take(n) for n in pair)

            def joined() -> Iterator[Floats]:
                yield np.concatenate([self._values(e), self._values(h)], axis=1)

            shape = (e.shape[0], e.shape[1] + h.shape[1])
            found.append(Item(f"{ours}nextn.eh_proj.weight", shape, joined, e.format.name))
        return found

    def _take(self, name: str) -> TensorRef:
        self.used.add(name)
        return require(self.checkpoint, name)

    def _values(self, ref: TensorRef, rows: slice | None = None) -> Floats:
        flat = self.checkpoint.bytes_of(ref).reshape(ref.shape[0] if len(ref.shape) > 1 else 1, -1)
        part = flat if rows is None else flat[rows]
        values = dequantise(ref.format, np.ascontiguousarray(part))
        return values.reshape(-1, *ref.shape[1:]) if len(ref.shape) > 1 else values.reshape(ref.shape)

    def _plain(self, ours: str, theirs: str, leaf: str, rule: Rule) -> Item | None:
        base = theirs + rule.leaf
        name = base if base in self.checkpoint.tensors else f"{base}.weight"
        if name not in self.checkpoint.tensors or (not ours) != rule.leaf.startswith(("model.", "lm_head")):
            return None
        ref = self._take(name)
        transform = self._transform(leaf, rule)
        shape = tuple(d for d in ref.shape if d != 1) or (1,)
        rows = self._rows(ref, rule)
        if rows is not None:
            shape = (rows.stop - rows.start, shape[1])
        suffix = "" if leaf in UNSUFFIXED else ".weight"

        def parts() -> Iterator[Floats]:
            yield transform(self._values(ref, rows).reshape(shape)).reshape(-1, shape[-1])

        return Item(f"{ours}{leaf}{suffix}", shape, parts, ref.format.name)

    def _rows(self, ref: TensorRef, rule: Rule) -> slice | None:
        if rule.rows == "all":
            return None
        meta = self.checkpoint.metadata
        cut = meta.integer("indexer_n_heads", 1, 4096) * meta.integer("indexer_head_dim", 1, 4096)
        return slice(0, cut) if rule.rows == "head" else slice(cut, ref.shape[0])

    def _transform(self, leaf: str, rule: Rule) -> Callable[[Floats], Floats]:
        tile = self._tiling(leaf)

        def apply(x: Floats) -> Floats:
            if rule.transform == "plus_one":
                x = x + np.float32(1)
            elif rule.transform == "negative_exp":
                x = (-np.exp(x.astype(np.float64))).astype(np.float32)
            if self.name == "llama" and leaf in ("attn_q", "attn_k"):
                x = self._pairs(x, leaf)
            return tile(x) if tile is not None else x

        return apply

    def _pairs(self, x: Floats, leaf: str) -> Floats:
        """Split halves -> adjacent pairs, the rotary layout of llama GGUF files."""
        meta = self.checkpoint.metadata
        heads = meta.integer("num_attention_heads", 1, 4096)
        if leaf == "attn_k":
            heads = meta.integer("num_key_value_heads", 1, 4096, default=heads)
        return np.ascontiguousarray(x.reshape(heads, 2, -1, x.shape[1]).swapaxes(1, 2).reshape(x.shape))

    def _tiling(self, leaf: str) -> Callable[[Floats], Floats] | None:
        if self.name not in ("qwen35moe", "qwen4exp"):
            return None
        d = hf_delta(self.checkpoint.metadata)
        keys = 2 * d.key_heads * d.key_dim

        def tail(x: Floats) -> Floats:
            return np.concatenate([x[:keys], tile_heads(x[keys:], d.key_heads, d.value_dim)])

        return {
            "attn_qkv": tail,
            "ssm_conv1d": tail,
            "attn_gate": lambda x: tile_heads(x, d.key_heads, d.value_dim),
            "ssm_beta": lambda x: tile_heads(x, d.key_heads, 1),
            "ssm_alpha": lambda x: tile_heads(x, d.key_heads, 1),
            "ssm_a": lambda x: tile_heads(x, d.key_heads, 1),
            "ssm_dt.bias": lambda x: tile_heads(x, d.key_heads, 1),
            "ssm_out": lambda x: tile_heads(x, d.key_heads, d.value_dim, axis=1),
        }.get(leaf)

    def _unpacked(self, ours: str, theirs: str) -> list[Item]:
        """Qwen3-Next: in_proj_qkvz per key head [q | k | v r | z r] -> attn_qkv [q | k | v] and attn_gate."""
        ref = self._take(f"{theirs}linear_attn.in_proj_qkvz.weight")
        d = hf_delta(self.checkpoint.metadata)
        inner = d.value_heads * d.value_dim

        def qkv() -> Iterator[Floats]:
            yield self._split(ref, d)[0]

        def gate() -> Iterator[Floats]:
            yield self._split(ref, d)[1]

        return [
            Item(f"{ours}attn_qkv.weight", (d.channels, ref.shape[1]), qkv, ref.format.name),
            Item(f"{ours}attn_gate.weight", (inner, ref.shape[1]), gate, ref.format.name),
        ]

    def _split(self, ref: TensorRef, d: DeltaConfig) -> tuple[Floats, Floats]:
        wide = d.value_heads // d.key_heads * d.value_dim
        per_head = self._values(ref).reshape(d.key_heads, 2 * d.key_dim + 2 * wide, -1)
        cuts = (d.key_dim, 2 * d.key_dim, 2 * d.key_dim + wide)
        q, k, v, z = (p.reshape(-1, ref.shape[1]) for p in np.split(per_head, cuts, axis=1))
        return np.concatenate([q, k, v]), z

    def _table(self, base: str) -> Item:
        numbered: Mapping[int, TensorRef] = {
            int(n.removeprefix(f"{base}.shard_").removesuffix(".weight")): r
            for n, r in self.checkpoint.tensors.items()
            if n.startswith(f"{base}.shard_")
        }
        refs = [numbered[i] for i in sorted(numbered)] or [require(self.checkpoint, f"{base}.weight")]
        self.used.update(r.name for r in refs)

        def parts() -> Iterator[Floats]:
            for ref in refs:
                for start in range(0, ref.shape[0], 1 << 16):
                    yield self._values(ref, slice(start, start + (1 << 16)))

        rows = sum(r.shape[0] for r in refs)
        return Item("per_layer_token_embd.weight", (rows, refs[0].shape[1]), parts, refs[0].format.name)

    def _experts(self, ours: str, base: str) -> list[Item]:
        tensors = self.checkpoint.tensors
        if f"{base}.gate_up_proj" in tensors:
            both, down = self._take(f"{base}.gate_up_proj"), self._take(f"{base}.down_proj")
            count, double, hidden = both.shape
            half = double // 2
            return [
                self._stacked(f"{ours}ffn_gate_exps.weight", both, (count, half, hidden), slice(0, half)),
                self._stacked(f"{ours}ffn_up_exps.weight", both, (count, half, hidden), slice(half, double)),
                self._stacked(f"{ours}ffn_down_exps.weight", down, down.shape, slice(0, down.shape[1])),
            ]
        found = []
        for leaf, out in zip(self.entry.expert_leaves, ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"), strict=True):
            names: list[str] = []
            while (name := f"{base}.{len(names)}.{leaf}.weight") in tensors:
                names.append(name)
            if names:
                found.append(self._gathered(f"{ours}{out}.weight", [self._take(n) for n in names]))
        return found

    def _stacked(self, name: str, ref: TensorRef, shape: tuple[int, ...], rows: slice) -> Item:
        def parts() -> Iterator[Floats]:
            raw = self.checkpoint.bytes_of(ref).reshape(ref.shape[0], ref.shape[1], -1)
            for expert in raw:
                yield dequantise(ref.format, np.ascontiguousarray(expert[rows]))

        return Item(name, shape, parts, ref.format.name)

    def _gathered(self, name: str, refs: list[TensorRef]) -> Item:
        for ref in refs:
            expect_shape(ref, refs[0].shape)

        def parts() -> Iterator[Floats]:
            for ref in refs:
                yield self._values(ref)

        return Item(name, (len(refs), *refs[0].shape), parts, refs[0].format.name)
