"""Tokens of rows of logits on a device (csrc/device/choose.h); tokens as sampling/sample.py and choose/naive.py.

What a row asks for lies in `DrawRows`, a few tensors at fixed addresses, so a captured step can end with `draw`: the
host writes the wishes before the step and reads back one int32 for each row. Penalties and bias change the logits
before; log-probabilities are of logits that were fetched (sampling/sample.py).
"""

import torch

from strata.kernels.choose.naive import MOST_VALUES
from strata.kernels.device import Device, Kernel
from strata.kernels.device_addresses import address, floats, integers, reachable
from strata.kernels.views import DrawRows

LARGEST, TOKENS = (Kernel("choose", name, early=True) for name in ("choose_largest", "choose_tokens"))
TOKEN_THREADS = 1024
PIECE = 8192
"""Logits of a row that one block looks through for the largest."""


def draw_rows(device: Device, rows: int) -> DrawRows:
    """What `rows` rows ask for, uninitialised, on the device."""
    f64 = torch.float64
    return DrawRows(
        device.empty(rows),
        device.empty(rows, dtype=torch.int32),
        device.empty(rows, dtype=f64),
        device.empty(rows, dtype=f64),
        device.empty(rows, dtype=f64),
        device.empty(rows, dtype=torch.int32),
    )


def draw(device: Device, logits: torch.Tensor, rows: DrawRows, sampled: bool = True) -> torch.Tensor:
    """logits float32 [N, V] -> a token of each row, in rows.tokens; -1 where one is NaN or +infinity or none is finite.

    `sampled` False: every temperature is 0, which needs no scratch memory. Launches only.
    """
    num_rows, count = logits.shape
    if not 0 < count <= MOST_VALUES:
        raise ValueError(f"draw: {count} values, expected 1 to {MOST_VALUES}")
    pieces = -(-count // PIECE)
    values, ids = device.empty(num_rows, pieces), device.empty(num_rows, pieces, dtype=torch.int32)
    weights = device.empty(num_rows, count if sampled else 0, dtype=torch.int64)
    source = floats(device, "draw: logits", logits, (num_rows, count))
    device.launch(
        LARGEST, (pieces, num_rows, 1), TOKEN_THREADS, 0, source, values.data_ptr(), ids.data_ptr(), count, PIECE
    )
    device.launch(
        TOKENS,
        (num_rows, 1, 1),
        TOKEN_THREADS,
        0,
        source,
        values.data_ptr(),
        ids.data_ptr(),
        floats(device, "draw: temperature", rows.temperature, (num_rows,)),
        integers(device, "draw: top_k", rows.top_k, (num_rows,)),
        *(
            address(device, f"draw: {name}", wish, torch.float64, (num_rows,))
            for name, wish in (("top_p", rows.top_p), ("min_p", rows.min_p), ("uniform", rows.uniform))
        ),
        weights.data_ptr(),
        reachable(device, "draw: tokens", rows.tokens, torch.int32, (num_rows,)),
        count,
        pieces,
    )
    return rows.tokens


def choose(
    device: Device, logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float, uniform: float
) -> int:
    """See Ops.choose; it waits for the device."""
    count = logits.shape[0]
    kept = top_k if 0 < top_k < count else 0
    rows = draw_rows(device, 1)
    wishes = (rows.temperature, temperature), (rows.top_k, kept), (rows.top_p, top_p), (rows.min_p, min_p)
    for tensor, value in (*wishes, (rows.uniform, uniform)):
        tensor.fill_(value)
    token = int(draw(device, logits.reshape(1, count), rows)) if rows.temperature[0] > 0 else -1
    if token < 0:
        raise ValueError(f"choose: {count} values, none finite or one NaN or +infinity, or temperature {temperature}")
    return token
