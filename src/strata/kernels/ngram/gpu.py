"""ngram_rows on a device (csrc/device/ngram.h); integers as ngram/naive.py."""

import torch

from strata.kernels.device import THREADS, Device, Kernel, blocks_for
from strata.kernels.device_addresses import integers, reachable
from strata.kernels.views import NgramHash, Rows

NGRAM = Kernel("ngram", "ngram_rows")


def ngram_rows(device: Device, tokens: torch.Tensor, rows: Rows, hashing: NgramHash) -> torch.Tensor:
    """See Ops.ngram_rows; a slot or position outside the tokens is not noticed."""
    slots, context = tokens.shape
    count, heads = rows.slot.shape[0], len(hashing.sizes)
    out = device.empty(count, heads, dtype=torch.int64)
    device.launch(
        NGRAM,
        blocks_for(out.numel()),
        THREADS,
        0,
        reachable(device, "ngram_rows: tokens", tokens, torch.int64, (slots, context)),
        integers(device, "ngram_rows: slot", rows.slot, (count,)),
        integers(device, "ngram_rows: position", rows.position, (count,)),
        device.constants(hashing.multipliers).data_ptr(),
        device.constants(hashing.sizes).data_ptr(),
        device.constants(hashing.offsets).data_ptr(),
        out.data_ptr(),
        out.numel(),
        context,
        len(hashing.multipliers),
        heads,
        hashing.end_of_text,
    )
    return out
