"""delta_rule on a device (csrc/device/delta.h); bits as delta_rule/naive.py. Slots are not checked."""

import math

import torch

from strata.kernels.device import GROUP, THREADS, Device, Kernel, blocks_for
from strata.kernels.device_addresses import floats, held_segments, integers
from strata.kernels.ops import HeadPairing
from strata.kernels.views import Rows

MOST_ROWS = 4
"""Of a step whose q and k every block normalises for itself: that saves a launch."""
MOST_KEY_DIMS = 256


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
    slots, value_heads, key_dim, value_dim = state.shape
    num_rows, segments = qkv.shape[0], rows.segments.shape[0]
    if key_heads < 1 or value_heads % key_heads or pairing not in ("grouped", "tiled"):
        raise ValueError(f"delta_rule: {value_heads} value heads, {key_heads} key heads and {pairing!r} do not fit")
    if key_dim > MOST_KEY_DIMS:
        raise ValueError(f"delta_rule: keys of {key_dim} dims, expected {MOST_KEY_DIMS} at most")
    width, scale = 2 * key_heads * key_dim + value_heads * value_dim, 1.0 / math.sqrt(key_dim)
    source = floats(device, "delta_rule: qkv", qkv, (num_rows, width))
    unit = unit_for(device, key_dim, value_dim)
    qk, qk_width, ready = source, width, num_rows > MOST_ROWS
    if ready:
        qk_width = 2 * key_heads * key_dim
        normalised = unit_length(device, unit, source, (num_rows, key_heads, key_dim, width), float(eps))
        qk = normalised.data_ptr()
    out = device.empty(num_rows, value_heads, value_dim)
    device.launch(
        Kernel(unit, "delta_rule", early=True),
        (value_heads * -(-value_dim // GROUP), segments, 1),
        GROUP,
        0,
        source,
        qk,
        floats(device, "delta_rule: beta", beta, (num_rows, value_heads)),
        floats(device, "delta_rule: decay", decay, (num_rows, value_heads)),
        floats(device, "delta_rule: state", state, (slots, value_heads, key_dim, value_dim)),
        out.data_ptr(),
        integers(device, "delta_rule: segments", rows.segments, (segments, 3)),
        held_segments(device, "delta_rule", rows),
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        qk_width,
        int(ready),
        int(pairing == "tiled"),
        eps,
        scale,
    )
    return out


def unit_for(device: Device, key_dim: int, value_dim: int) -> str:
    """The kernels for these dims: a GPU keeps a column of the state in registers; the host's take dims as arguments."""
    if device.torch_device.type == "cpu":
        return "delta"
    return f"delta DELTA_KEY_DIM={key_dim} DELTA_VALUE_DIM={value_dim}"
