"""delta_rule on a device (csrc/device/delta.h); bits as delta_rule/naive.py. Slots are not checked."""

import math
from dataclasses import dataclass

import torch

from strata.kernels.device import GROUP, THREADS, Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats, held_segments, integers
from strata.kernels.linear.launch import beside
from strata.kernels.ops import HeadPairing
from strata.kernels.views import HeadGate, Rows

MOST_ROWS = 4
"""Of a step whose q and k every block normalises for itself: that saves a launch."""
MOST_KEY_DIMS = MOST_VALUE_DIMS = 256


def unit_length(device: Device, unit: str, source: int, sizes: tuple[int, int, int, int], eps: float) -> torch.Tensor:
    """q, divided by the root of its dims too, and k of every head at unit length, [rows, 2 * key heads * key dims].

    `source`: where qkv lies; `sizes`: rows, key heads, key dims, values of a row of qkv.
    """
    num_rows, key_heads, key_dim, _ = sizes
    qk = device.empty(num_rows, 2 * key_heads * key_dim)
    grid, scale = blocks_for(num_rows * 2 * key_heads, THREADS // GROUP), 1.0 / math.sqrt(key_dim)
    device.launch(
        Kernel(unit, "delta_normalise", early=True), grid, THREADS, 0, source, qk.data_ptr(), *sizes, eps, scale
    )
    return qk


def delta_rule(
    device: Device,
    qkv: torch.Tensor,
    beta: torch.Tensor,
    decay: torch.Tensor,
    state: torch.Tensor,
    rows: Rows,
    key_heads: int,
    pairing: HeadPairing,
    eps: float,
) -> torch.Tensor:
    """See Ops.delta_rule; ValueError when shapes do not fit."""
    call = Call.of(device, qkv, beta, decay, state, rows, key_heads, pairing, eps)
    _, value_heads, _, value_dim = state.shape
    out = device.empty(len(qkv), value_heads, value_dim)
    kernel, grid = Kernel(call.unit, "delta_rule", early=True), (value_heads * -(-value_dim // GROUP), call.segments, 1)
    flags = (int(call.ready), int(pairing == "tiled"))
    device.launch(kernel, grid, GROUP, 0, *call.inputs, out.data_ptr(), *call.runs, *call.sizes, *flags, *call.numbers)
    return out


def gates(state: torch.Tensor) -> bool:
    """Whether `gated_delta_rule` takes this state."""
    value_dim = state.shape[3]
    return value_dim % GROUP == 0 and value_dim <= MOST_VALUE_DIMS


def gated_delta_rule(
    device: Device,
    qkv: torch.Tensor,
    beta: torch.Tensor,
    decay: torch.Tensor,
    state: torch.Tensor,
    rows: Rows,
    key_heads: int,
    pairing: HeadPairing,
    eps: float,
    gate: HeadGate,
) -> torch.Tensor:
    """See Ops.gated_delta_rule, for states that `gates` names; ValueError when shapes do not fit."""
    call = Call.of(device, qkv, beta, decay, state, rows, key_heads, pairing, eps)
    num_rows, (_, value_heads, _, value_dim) = len(qkv), state.shape
    y = device.empty(num_rows, value_heads * value_dim)
    opened = floats(device, "gated_delta_rule: gate", gate.values, y.shape)
    weight = floats(device, "gated_delta_rule: weight", device.resident(gate.weight), (value_dim,))
    kernel, grid = Kernel(call.unit, "delta_gated", early=True), (value_heads, call.segments, 1)
    places = (opened, weight, y.data_ptr(), *beside(device, y))
    flags = (int(call.ready), int(pairing == "tiled"), int(gate.kind == "sigmoid"))
    numbers = (*call.numbers, float(gate.eps))
    shared = 4 * num_rows * value_dim
    device.launch(kernel, grid, value_dim, shared, *call.inputs, *places, *call.runs, *call.sizes, *flags, *numbers)
    return y


@dataclass(frozen=True, slots=True)
class Call:
    """What both kernels are told of a call, in the order of their arguments."""

    unit: str
    segments: int
    inputs: tuple[int, ...]
    """Addresses: qkv, its q and k, beta, decay, state."""
    runs: tuple[int, int]
    """Addresses: segments, and which are held."""
    sizes: tuple[int, ...]
    ready: bool
    """q and k are normalised."""
    numbers: tuple[float, float]
    kept: torch.Tensor | None
    """What `inputs` names beside the arguments."""

    @classmethod
    def of(
        cls,
        device: Device,
        qkv: torch.Tensor,
        beta: torch.Tensor,
        decay: torch.Tensor,
        state: torch.Tensor,
        rows: Rows,
        key_heads: int,
        pairing: HeadPairing,
        eps: float,
    ) -> "Call":
        """Of many rows q and k are normalised by a launch of their own. ValueError when shapes do not fit."""
        slots, value_heads, key_dim, value_dim = state.shape
        num_rows, segments = qkv.shape[0], rows.segments.shape[0]
        if key_heads < 1 or value_heads % key_heads or pairing not in ("grouped", "tiled"):
            raise ValueError(f"delta_rule: {value_heads} value heads, {key_heads} key heads and {pairing!r} do not fit")
        if key_dim > MOST_KEY_DIMS:
            raise ValueError(f"delta_rule: keys of {key_dim} dims, expected {MOST_KEY_DIMS} at most")
        width = 2 * key_heads * key_dim + value_heads * value_dim
        source = floats(device, "delta_rule: qkv", qkv, (num_rows, width))
        unit = unit_for(device, key_dim, value_dim)
        qk, qk_width, ready, kept = source, width, num_rows > MOST_ROWS, None
        if ready:
            kept = unit_length(device, unit, source, (num_rows, key_heads, key_dim, width), float(eps))
            qk, qk_width = kept.data_ptr(), 2 * key_heads * key_dim
        inputs = (
            source,
            qk,
            floats(device, "delta_rule: beta", beta, (num_rows, value_heads)),
            floats(device, "delta_rule: decay", decay, (num_rows, value_heads)),
            floats(device, "delta_rule: state", state, (slots, value_heads, key_dim, value_dim)),
        )
        found = integers(device, "delta_rule: segments", rows.segments, (segments, 3))
        runs = (found, held_segments(device, "delta_rule", rows))
        sizes = (key_heads, value_heads, key_dim, value_dim, qk_width)
        return cls(unit, segments, inputs, runs, sizes, ready, (float(eps), 1.0 / math.sqrt(key_dim)), kept)


def unit_for(device: Device, key_dim: int, value_dim: int, header: str = "delta") -> str:
    """The kernels for these dims: a GPU keeps a column of the state in registers; the host's take dims as arguments."""
    if device.torch_device.type == "cpu":
        return header
    return f"{header} DELTA_KEY_DIM={key_dim} DELTA_VALUE_DIM={value_dim}"
