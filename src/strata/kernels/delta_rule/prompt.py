"""delta_rule for the many rows of a prompt (csrc/device/delta_prompt.h); bits as delta_rule/naive.py."""

import torch

from strata.kernels.delta_rule import gpu
from strata.kernels.device import GROUP, Device, Kernel
from strata.kernels.device_addresses import floats, held_segments, integers
from strata.kernels.ops import HeadPairing
from strata.kernels.views import Rows

MOST_KEY_DIMS = 128


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
    """See Ops.delta_rule; ValueError when shapes do not fit. Heads of other sizes go through the kernel of windows."""
    slots, value_heads, key_dim, value_dim = state.shape
    num_rows, segments = qkv.shape[0], rows.segments.shape[0]
    if key_dim > MOST_KEY_DIMS or key_dim % 8 or value_dim % GROUP:
        return gpu.delta_rule(device, qkv, beta, decay, state, rows, key_heads, pairing, eps)
    if key_heads < 1 or value_heads % key_heads or pairing not in ("grouped", "tiled"):
        raise ValueError(f"delta_rule: {value_heads} value heads, {key_heads} key heads and {pairing!r} do not fit")
    width, qk_width = 2 * key_heads * key_dim + value_heads * value_dim, 2 * key_heads * key_dim
    source = floats(device, "delta_rule: qkv", qkv, (num_rows, width))
    unit = gpu.unit_for(device, key_dim, value_dim).replace("delta", "delta_prompt", 1)
    qk = gpu.unit_length(device, unit, source, (num_rows, key_heads, key_dim, width), float(eps))
    out = device.empty(num_rows, value_heads, value_dim)
    device.launch(
        Kernel(unit, "delta_prompt"),
        (value_heads * value_dim // GROUP, segments, 1),
        2 * GROUP,
        0,
        source,
        qk.data_ptr(),
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
        int(pairing == "tiled"),
    )
    return out
