"""Specification of stream_mix and stream_add.

stream_mix: `p_s = sigmoid(g_s) x_s` (shared sigmoid, one rounding for the product); `a = p_0`, then `a = a + p_s` in
order; `y = a / float32(streams)`, IEEE division. stream_add: `w_s = sigmoid(g_s / divisor) * factor`, a
rounding each; `y_s = fma(w_s, y, residual_s)`.
"""

import numpy as np
import torch

from strata.kernels.activate.naive import activate, sigmoid
from strata.kernels.exact import fma


def stream_mix(gate: torch.Tensor, x: torch.Tensor, streams: int) -> torch.Tensor:
    """See Ops.stream_mix."""
    if gate.shape != x.shape or streams < 1 or x.shape[1] % streams:
        raise ValueError(f"stream_mix: gate {tuple(gate.shape)}, x {tuple(x.shape)} do not hold {streams} streams")
    with np.errstate(all="ignore"):
        product = (sigmoid(gate.numpy()) * x.numpy()).reshape(len(x), streams, -1)
        total = product[:, 0]
        for s in range(1, streams):
            total = total + product[:, s]
        return torch.from_numpy(total / np.float32(streams))


def stream_add(
    residual: torch.Tensor, y: torch.Tensor, gates: torch.Tensor, divisor: float, factor: float
) -> torch.Tensor:
    """See Ops.stream_add."""
    num_rows, streams = (int(n) for n in gates.shape)
    if y.shape[0] != num_rows or tuple(residual.shape) != (num_rows, streams * y.shape[1]):
        raise ValueError(
            f"stream_add: residual {tuple(residual.shape)}, y {tuple(y.shape)} and gates {tuple(gates.shape)} "
            "do not fit"
        )
    before = residual.numpy().reshape(num_rows, streams, -1)
    weights = activate("sigmoid", gates, divisor, factor).numpy()
    after = fma(weights[:, :, None], y.numpy()[:, None, :], before)
    return torch.from_numpy(after.reshape(num_rows, -1))
