"""delta_inputs and gated_delta_rule of one row in one launch (csrc/device/delta_step.h); bits as kernels/joined.py."""

import math

import torch

from strata.kernels.delta_rule import gpu, inputs
from strata.kernels.device import Device, Kernel
from strata.kernels.device_addresses import floats, integers
from strata.kernels.linear.launch import beside
from strata.kernels.ops import HeadPairing
from strata.kernels.views import DeltaInputs, HeadGate, Rows


def fits(read: DeltaInputs, state: torch.Tensor, rows: Rows) -> bool:
    """Whether `delta_step` takes this call."""
    taps, key_dim = read.weight.shape[1], state.shape[2]
    one = len(read.x) == 1 and len(rows.segments) == 1 and rows.held is None
    return one and taps == inputs.TAPS and gpu.gates(state) and key_dim <= gpu.MOST_KEY_DIMS


def delta_step(
    device: Device,
    read: DeltaInputs,
    state: torch.Tensor,
    rows: Rows,
    key_heads: int,
    pairing: HeadPairing,
    eps: float,
    gate: HeadGate,
) -> torch.Tensor:
    """See Ops.delta_step, for calls that `fits` names; ValueError when shapes do not fit. The slot is not checked."""
    slots, value_heads, key_dim, value_dim = state.shape
    if key_heads < 1 or value_heads % key_heads or pairing not in ("grouped", "tiled"):
        raise ValueError(f"delta_step: {value_heads} value heads, {key_heads} key heads and {pairing!r} do not fit")
    channels, y = 2 * key_heads * key_dim + value_heads * value_dim, device.empty(1, value_heads * value_dim)
    taps, rate, bias, norm = (device.resident(each) for each in (read.weight, read.rate, read.bias, gate.weight))
    known = (
        floats(device, "delta_step: x", read.x, (1, channels)),
        floats(device, "delta_step: weight", taps, (channels, inputs.TAPS)),
        floats(device, "delta_step: history", read.history, (read.history.shape[0], inputs.TAPS - 1, channels)),
        *(floats(device, f"delta_step: {n}", each, (1, value_heads)) for n, each in (("b", read.b), ("a", read.a))),
        *(floats(device, "delta_step: rate and bias", each, (value_heads,)) for each in (rate, bias)),
        floats(device, "delta_step: state", state, (slots, value_heads, key_dim, value_dim)),
        floats(device, "delta_step: gate", gate.values, y.shape),
        floats(device, "delta_step: norm", norm, (value_dim,)),
        y.data_ptr(),
        *beside(device, y),
        integers(device, "delta_step: segments", rows.segments, (1, 3)),
        device.counters(key_heads).data_ptr(),
    )
    sizes = (key_heads, value_heads, key_dim, value_dim, int(pairing == "tiled"), int(gate.kind == "sigmoid"))
    numbers = (float(eps), 1.0 / math.sqrt(key_dim), float(gate.eps))
    kernel = Kernel(gpu.unit_for(device, key_dim, value_dim, "delta_step"), "delta_step", early=True)
    device.launch(kernel, (value_heads, 1, 1), value_dim, 0, *known, *sizes, *numbers)
    return y
