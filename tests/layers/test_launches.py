"""The chain of a decode step on a GPU: which kernels a layer launches, one after the other."""

from itertools import pairwise

import numpy as np
import torch

from kernels.layer_cases import normal, rows_of
from kernels.product_cases import bank_of, weight
from strata.kernels.gpu_ops import GpuOps
from strata.kernels.host_device import HostDevice
from strata.kernels.host_program import HostProgram
from strata.kernels.views import Weight
from strata.layers.attention import Attention
from strata.layers.batch import Batch
from strata.layers.delta_net import DeltaNet, SeparateInputs
from strata.layers.hyper import HyperRead, Unwritten
from strata.layers.moe import GatedFeedForward, Moe, SharedExpert
from strata.layers.norm import RmsNorm
from strata.layers.rope import Rope
from strata.models.base import Block
from strata.models.parts import placed_experts
from strata.models.qwen4_exp import ExpBlock
from strata.state.layout import DeltaLayout, KvLayout, LayerLayout
from strata.state.sequence import SequenceStates
from strata.store.experts import ExpertStore

HIDDEN, HEADS, KV_HEADS, DIM, WIDTH, EXPERTS = 544, 4, 2, 32, 32, 8
"""Wide enough for the kernels of real models' norms."""

LAYER = [
    *("add_norm", "linear_1", "attention_inputs", "attention_few", "linear_1"),
    *("add_norm", "linear_1", "route", "group_pairs", "gate_up_1", "down_1", "combine"),
]
"""Of one row through a layer of Qwen3-MoE's kind, whose matrices for the same input share a format."""

STREAMS, RANK = 4, 32
READ = ("stream_add_norm", "linear_1", "low_rank_mix_1")
STREAMS_LAYER = [
    *READ,
    *("linear_1", "delta_step", "linear_1"),
    *READ,
    *(
        "linear_1",
        "linear_1",
        "gate_silu",
        "linear_1",
        "route",
        "group_pairs",
        "gate_up_1",
        "down_1",
        "combine",
        "stream_add",
    ),
]
"""Through one of Flash-Next's kind, with a delta net and a shared expert."""


def matrix(rng: np.random.Generator, rows: int, cols: int, fmt: str = "Q8_0") -> Weight:
    return weight(fmt, rows, cols, rng)


def norm(rng: np.random.Generator, size: int) -> RmsNorm:
    return RmsNorm(torch.from_numpy(rng.standard_normal(size, np.float32)), 1e-6, size)


def block(ops: GpuOps, index: int) -> Block:
    rng = np.random.default_rng(index)
    store = ExpertStore({index: bank_of(rng, [("Q8_0", "Q8_0", "Q8_0")] * EXPERTS, HIDDEN, WIDTH)})
    mixer = Attention(
        name="attention",
        q=matrix(rng, HEADS * DIM, HIDDEN),
        k=matrix(rng, KV_HEADS * DIM, HIDDEN),
        v=matrix(rng, KV_HEADS * DIM, HIDDEN),
        out=matrix(rng, HIDDEN, HEADS * DIM),
        q_norm=norm(rng, DIM),
        k_norm=norm(rng, DIM),
        rope=ROPE,
        heads=HEADS,
        kv_heads=KV_HEADS,
        head_dim=DIM,
        gated=False,
    )
    router = matrix(rng, EXPERTS, HIDDEN, "F32")
    ffn = Moe("ffn", index, router, placed_experts(ops, store), 2, True, None)
    return Block(f"blk.{index}", index, norm(rng, HIDDEN), mixer, norm(rng, HIDDEN), ffn)


def hyper(rng: np.random.Generator, name: str, hidden: int) -> HyperRead:
    wide = STREAMS * hidden
    weights = norm(rng, wide).weight
    low, up, inject = (matrix(rng, *size, "BF16") for size in ((RANK, wide), (wide, RANK), (STREAMS, wide)))
    return HyperRead(name, RmsNorm(weights, 1e-6, hidden), low, up, inject, STREAMS)


def streams_block(ops: GpuOps, index: int, hidden: int, codes: str, rates: str) -> ExpBlock:
    rng = np.random.default_rng(index)
    store = ExpertStore({index: bank_of(rng, [("Q8_0", "Q8_0", "Q8_0")] * EXPERTS, hidden, WIDTH)})
    inner = DELTA.value_heads * DELTA.value_dim
    of_delta = [matrix(rng, n, hidden, codes) for n in (DELTA.channels, inner)]
    mixer = DeltaNet(
        name="delta",
        inputs=SeparateInputs(*of_delta, *(matrix(rng, DELTA.value_heads, hidden, rates) for _ in range(2))),
        conv=normal(1, DELTA.channels, DELTA.history + 1),
        decay_rate=-normal(2, DELTA.value_heads).abs(),
        dt_bias=normal(3, DELTA.value_heads),
        norm=norm(rng, DELTA.value_dim),
        out=matrix(rng, hidden, inner),
        gate="sigmoid",
        layout=DELTA,
    )
    gate, up = (matrix(rng, WIDTH, hidden, codes) for _ in range(2))
    shared = SharedExpert(GatedFeedForward(gate, up, matrix(rng, hidden, WIDTH)), matrix(rng, 1, hidden, "F32"))
    moe = Moe("moe", index, matrix(rng, EXPERTS, hidden, "F32"), placed_experts(ops, store), 2, True, shared)
    return ExpBlock(index, None, hyper(rng, "attn", hidden), mixer, hyper(rng, "ffn", hidden), moe)


DELTA = DeltaLayout(2 * 2 * 32 + 4 * 32, 3, 2, 4, 32, 32, "tiled", 1e-6)
ROPE = Rope(DIM, 1e4, "halves")


def launched(rows: int) -> list[str]:
    """Kernels of a step of `rows` rows of one sequence through two layers, in order."""
    ops = GpuOps(HostDevice())
    states = SequenceStates([LayerLayout(kv=KvLayout(KV_HEADS, DIM))] * 2, 1, 64)
    batch = Batch(torch.zeros(rows, dtype=torch.int64), rows_of([(0, 0, rows)]), states, ops)
    blocks, x = [block(ops, i) for i in range(2)], normal(3, rows, HIDDEN)
    program = HostProgram(ops.device)
    with program.recording():
        y: torch.Tensor | None = None
        for each in blocks:
            x, y = each(x, y, batch)
    return [launch.kernel.name for launch in program.recorded]


def streams_launched(hidden: int, codes: str, rates: str) -> list[str]:
    """Kernels of a step of one row through two layers of Flash-Next's kind, in order."""
    ops = GpuOps(HostDevice())
    states = SequenceStates([LayerLayout(delta=DELTA)] * 2, 1, 64)
    batch = Batch(torch.zeros(1, dtype=torch.int64), rows_of([(0, 0, 1)]), states, ops)
    program = HostProgram(ops.device)
    with program.recording():
        residual: torch.Tensor | Unwritten = normal(3, 1, STREAMS * hidden)
        for index in range(2):
            residual = streams_block(ops, index, hidden, codes, rates)(residual, batch)
    return [launch.kernel.name for launch in program.recorded]


def test_a_layer_of_streams_is_a_short_chain() -> None:
    names = streams_launched(HIDDEN, "Q8_0", "Q8_0")
    assert names == ["rms_norm_wide", *STREAMS_LAYER[1:], *STREAMS_LAYER]


def test_codes_and_plain_floats_that_read_a_row_are_one_launch() -> None:
    """As in the published file: rates in BF16 beside Q6_K, the router in F32 beside a shared expert in Q6_K."""
    names = streams_launched(2048, "Q6_K", "BF16")
    layer = names[-len(names) // 2 :]
    assert layer == [
        *(*READ, "pair_1", "delta_step", "linear_1"),
        *(*READ, "pair_1", "gate_silu", "linear_1"),
        *("route", "group_pairs", "gate_up_1", "down_1", "combine", "stream_add"),
    ]
    apart = streams_launched(2048, "Q8_0", "BF16")  # whose codes have no such kernel
    assert len(apart) == len(names) + 4 and "pair_1" not in apart


def test_a_layer_is_a_short_chain() -> None:
    names = launched(1)
    first, second = names[: -len(LAYER)], names[-len(LAYER) :]
    assert second == LAYER
    assert [name for name in first if name != "rope_angles"] == ["rms_norm_wide", *LAYER[1:]]
    assert ("add_norm", "linear_1") in pairwise(names)


def test_a_prompt_is_none() -> None:
    """Its rows fill the device launch by launch, so only additions are joined there, with their norms."""
    names = launched(33)
    assert not {"add_norm", "attention_inputs", "attention_few"} & set(names)
    assert {"add_norm_many", "rms_norm_narrow", "rope_halves", "cache_write_f32", "attention_whole"} <= set(names)
