"""embed on a device (csrc/device/embed.h); bits as embed/naive.py.

Kernels check no id: the ids of a step are checked when it is made, and a row outside every shard stays unwritten.
"""

from collections.abc import Sequence

import torch

from strata.kernels.device import Device, Kernel, blocks_for
from strata.kernels.device_addresses import address
from strata.kernels.embed.naive import table_cols
from strata.kernels.views import Weight

CODE_THREADS, FLOAT_THREADS = 32, 256
"""A thread does a block of codes, or one value: few threads a block spread the few blocks of codes over processors."""


def embed(device: Device, ids: torch.Tensor, shards: Sequence[Weight]) -> torch.Tensor:
    """See Ops.embed, but an id out of range is not noticed. ValueError when the shards' widths or planes do not fit."""
    count, cols = ids.shape[0], table_cols(shards)
    out = device.empty(count, cols)
    at, first = address(device, "embed: ids", ids, torch.int64, (count,)), 0
    for shard in shards:
        coded = shard.format.kind == "codes"
        threads = CODE_THREADS if coded else FLOAT_THREADS
        pieces = count * (cols // shard.format.block if coded else cols)
        kernel, planes = Kernel("embed", f"embed_{shard.format.name}"), device.weight(shard)
        factor, place = float(shard.scale), (first, shard.rows, cols)
        grid = blocks_for(pieces, threads)
        device.launch(kernel, grid, threads, 0, at, *planes, factor, out.data_ptr(), pieces, *place)
        first += shard.rows
    return out
