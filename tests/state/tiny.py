"""Every kind of memory in three small layers, with the real layers' code writing it."""

from dataclasses import dataclass

import numpy as np
import torch

from strata.core.window import Window
from strata.kernels.cpu_ops import CpuOps
from strata.kernels.native import Native
from strata.kernels.ops import Ops
from strata.kernels.views import KvType, NgramHash, Weight
from strata.layers.attention import Attention
from strata.layers.batch import Batch
from strata.layers.delta_net import DeltaNet, SeparateInputs
from strata.layers.ngram import NgramEmbedding
from strata.layers.norm import RmsNorm
from strata.layers.rope import Rope
from strata.layers.sparse_attention import Indexer
from strata.quant.formats import FORMATS
from strata.runtime.pack import StepInputs, StepShape
from strata.state.layout import ConvLayout, DeltaLayout, IndexLayout, KvLayout, LayerLayout
from strata.state.memory import HOST, Memory
from strata.state.sequence import SequenceStates, Snapshot
from strata.store.rows import RowTable

HIDDEN, VOCABULARY, END = 32, 13, 5
DELTA = DeltaLayout(2 * 2 * 8 + 4 * 8, 3, 2, 4, 8, 8, "grouped", 1e-6)
RATIO, HEADS, DIM, KV = 4, 4, 32, 2
LAYOUTS = (
    LayerLayout(ngram=ConvLayout(2 * HIDDEN, 3 * 3), kv=KvLayout(KV, DIM)),
    LayerLayout(delta=DELTA),
    LayerLayout(kv=KvLayout(KV, DIM), index=IndexLayout(DIM, RATIO)),
)


@dataclass
class Draws:
    """Random weights in a fixed order."""

    generator: torch.Generator

    def tensor(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator)

    def weight(self, rows: int, cols: int) -> Weight:
        values = self.tensor(rows, cols) / cols**0.5
        return Weight(FORMATS["F32"], rows, cols, (values.view(torch.uint8).view(rows, -1),))

    def norm(self, size: int, group: int | None = None) -> RmsNorm:
        return RmsNorm(1 + 0.1 * self.tensor(size), 1e-6, group or size)


class Tiny:
    """Layers that all read the token's embedding, so that what a layer remembers depends on tokens alone."""

    def __init__(self, ops: Ops | None = None, kv_type: KvType = "f32") -> None:
        self.ops = ops or CpuOps(Native(1))
        self.kv_type: KvType = kv_type
        d = Draws(torch.Generator().manual_seed(0))
        self.table = d.tensor(VOCABULARY, HIDDEN)
        rope = Rope(4, 100.0, "halves")
        self.dense = self.attention(d, rope, None)
        indexer = Indexer(d.weight(2 * DIM, HIDDEN), d.weight(DIM, HIDDEN), d.norm(DIM), d.norm(DIM), 2, DIM, RATIO, 2)
        self.sparse = self.attention(d, rope, indexer)
        inputs = SeparateInputs(
            d.weight(DELTA.channels, HIDDEN), d.weight(32, HIDDEN), d.weight(4, HIDDEN), d.weight(4, HIDDEN)
        )
        self.delta = DeltaNet(
            name="delta",
            inputs=inputs,
            conv=d.tensor(DELTA.channels, 4),
            decay_rate=-d.tensor(4).abs(),
            dt_bias=d.tensor(4),
            norm=d.norm(8),
            out=d.weight(HIDDEN, 32),
            gate="silu",
            layout=DELTA,
        )
        self.ngram = NgramEmbedding(
            name="ngram",
            hash=NgramHash((3, 5, 7), (11, 13, 17, 19), (0, 11, 24, 41), END),
            table=RowTable([d.weight(60, 8)]),
            key=d.weight(2 * HIDDEN, 32),
            value=d.weight(HIDDEN, 32),
            norm_key=d.norm(2 * HIDDEN, HIDDEN),
            norm_query=d.norm(2 * HIDDEN, HIDDEN),
            norm_conv=d.norm(2 * HIDDEN, HIDDEN),
            conv=d.tensor(2 * HIDDEN, 4),
            dilation=3,
            streams=2,
        )

    def attention(self, d: Draws, rope: Rope, indexer: Indexer | None) -> Attention:
        return Attention(
            name="attention",
            q=d.weight(HEADS * DIM, HIDDEN),
            k=d.weight(KV * DIM, HIDDEN),
            v=d.weight(KV * DIM, HIDDEN),
            out=d.weight(HIDDEN, HEADS * DIM),
            q_norm=None,
            k_norm=None,
            rope=rope,
            heads=HEADS,
            kv_heads=KV,
            head_dim=DIM,
            gated=False,
            indexer=indexer,
        )

    def states(self, slots: int = 3, context: int = 192, where: Memory = HOST) -> SequenceStates:
        return SequenceStates(LAYOUTS, slots, context, self.kv_type, where)

    def run(self, states: SequenceStates, windows: list[Window], keep: bool = True) -> torch.Tensor:
        """Reserve the windows and run every layer -> the rows' outputs side by side; nothing is committed."""
        inputs = StepInputs(StepShape.of(windows, keep))
        inputs.fill(windows, (), [keep] * len(windows) if keep else ())
        first = 0
        for w in windows:
            states.reserve(w.slot, w.tokens, first, keep)
            first += len(w.tokens)
        batch = Batch(inputs.tokens, inputs.rows, states, self.ops)
        x = self.table[inputs.tokens].contiguous()
        journal = states.journal.layers if states.journaling else [None, None, None]
        y = [
            self.ngram(x.repeat(1, 2), batch, states.layers[0], journal[0]),
            self.dense(x, batch, states.layers[0]),
            self.delta(x, batch, states.layers[1], journal[1]),
            self.sparse(x, batch, states.layers[2]),
        ]
        return torch.cat(y, 1)

    def extend(self, states: SequenceStates, slot: int, tokens: list[int], size: int = 1) -> None:
        """Append tokens in windows of `size`, committed whole."""
        for at in range(0, len(tokens), size):
            part = tuple(tokens[at : at + size])
            self.run(states, [Window(slot, states.length[slot], part, 0)], keep=False)
            states.commit(slot, len(part), self.ops)


def memory(states: SequenceStates, slot: int) -> dict[str, np.ndarray]:
    """All that a slot remembers and that a later step may read."""
    assert slot not in states.open
    n = states.length[slot]
    found = {"tokens": states.tokens[slot, :n].copy()}
    for name, tensor in recurrent(states).items():
        found[name] = tensor[slot].numpy().copy()
    for name, (plane, per) in paged(states).items():
        entries = n // per
        where = [(int(states.table.device[slot, e // plane.page]), e % plane.page) for e in range(entries)]
        assert all(page in states.pages.held[slot] for page, _ in where)
        tensors = {name: plane.data} | ({} if plane.scales is None else {f"{name}.scales": plane.scales})
        for part, tensor in tensors.items():
            bits = tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor
            held = [bits[plane.at(page, at)].numpy() for page, at in where]
            found[part] = np.stack(held) if where else np.empty(0)
    return found


def recurrent(states: SequenceStates) -> dict[str, torch.Tensor]:
    named = {}
    for i, layer in enumerate(states.layers):
        named |= {f"{i}.conv": layer.conv, f"{i}.delta": layer.delta, f"{i}.ngram": layer.ngram}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def paged(states: SequenceStates) -> dict[str, tuple]:
    named = {}
    for i, layer in enumerate(states.layers):
        planes = {"keys": (layer.keys, 1), "values": (layer.values, 1)}
        planes |= {"raw": (layer.raw_keys, 1), "blocks": (layer.block_keys, RATIO)}
        named |= {f"{i}.{name}": found for name, found in planes.items()}
    return {name: found for name, found in named.items() if found[0] is not None}


def difference(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[str]:
    """Names of what differs, bit for bit."""
    assert a.keys() == b.keys()
    return [name for name in a if a[name].shape != b[name].shape or a[name].tobytes() != b[name].tobytes()]


def copied(snapshot: Snapshot) -> Snapshot:
    """The same by value, to see that nobody writes into the original."""
    paged_, rest = ({k: v.clone() for k, v in part.items()} for part in (snapshot.paged, snapshot.recurrent))
    return Snapshot(snapshot.tokens.copy(), paged_, rest)
