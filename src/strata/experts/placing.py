"""Puts a model's experts where they belong on a machine: pinned memory, the arena, the tables, the answering thread."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from strata.experts.adaptive import AdaptSettings, Counts, Usage, hottest
from strata.experts.ahead import LayersAhead
from strata.experts.cache import ExpertCache, Vram
from strata.experts.counters import Counters
from strata.experts.frames import LEAST_FRAMES, Frames
from strata.experts.gpu import LIMIT_NS, MOST_ROWS, GpuExperts, SplitPlan
from strata.experts.residency import ResidencyTable
from strata.experts.split import Line, Split, fixed_table
from strata.kernels.device import Device
from strata.kernels.experts.table import COLUMNS, described
from strata.kernels.native import Native
from strata.kernels.rendezvous.answerer import Answerer
from strata.kernels.rendezvous.gpu import Desk
from strata.kernels.rendezvous.mailbox import Mailbox
from strata.kernels.transfers import HostCopies, StreamCopies, Transfers
from strata.store.pinned import Allocate, PinnedStore, pinned_memory, plain_memory

ARENA_BLOCK = 512 << 20
"""What is given back or taken again at once."""
GRANULE = 2 << 20
"""What torch rounds large blocks of a GPU's memory up to."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds for n experts of a size on each side, as measured alone at the start."""

    cpu: Callable[[int], Line]
    """By bytes of an expert."""
    pcie: Callable[[int], Line]


TYPICAL_RATES = Rates(lambda size: Line(10e-6, size / 60e9), lambda size: Line(5e-6, size / 25e9))
"""Where nothing was measured: the split corrects them soon."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is asked for; `pcie_share` None: the split is found."""

    arena_bytes: int
    reserve_bytes: int
    pin_bytes: int
    pcie_share: float | None = None
    rates: Rates = TYPICAL_RATES
    adapt: AdaptSettings = field(default_factory=AdaptSettings)
    block_bytes: int = ARENA_BLOCK
    limit_ns: int = LIMIT_NS


@dataclass(frozen=True, slots=True)
class HostSide:
    """The kinds of memory and copies that belong to a device."""

    vram: Vram
    copies: Transfers
    allocate: Allocate
    pinned: bool
    progress: Callable[[str, int, int], None] = lambda what, done, total: None
    """Hears of pinning, which takes half a second per GiB, and of what is brought to VRAM: (what, bytes, of bytes)."""


def emulated(free_bytes: Callable[[], int] = lambda: 1 << 40) -> HostSide:
    """For the emulator: all memory is the host's."""
    return HostSide(Vram(plain_memory, free_bytes, lambda: None), HostCopies(), plain_memory, False)


def cuda(device: torch.device) -> HostSide:
    """For a CUDA or HIP device."""

    def allocate(nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=device)

    def free_bytes() -> int:
        # One reading of torch's counts instead of two: each takes 0.2 ms of the steps that look.
        torch_has = torch.cuda.memory_stats_as_nested_dict(device)
        reserved, allocated = (int(torch_has[f"{kind}_bytes"]["all"]["current"]) for kind in ("reserved", "allocated"))
        unused = reserved - allocated
        return int(torch.cuda.mem_get_info(device)[0]) + unused

    vram = Vram(allocate, free_bytes, torch.cuda.empty_cache, GRANULE)
    return HostSide(vram, StreamCopies(device), pinned_memory, True)


def side_of(device: torch.device) -> HostSide:
    """What belongs to `device`."""
    return emulated() if device.type == "cpu" else cuda(device)


def place_experts(
    device: Device,
    native: Native,
    pinned: PinnedStore,
    top_k: int,
    sizes: Sizes,
    side: HostSide,
    start: Counts | None = None,
) -> GpuExperts:
    """Pin, fill the arena, start the answering thread; `start` are the counts of a learned profile [layers, experts].

    What fits nowhere else is computed by the CPU. The store's banks move into pinned memory as far as it goes.
    """
    store = pinned.store
    layers = max(store.banks) + 1
    experts = max(len(bank.gate) for bank in store.banks.values())
    hidden = next(iter(store.banks.values())).gate[0].cols
    counts = np.zeros((layers, experts)) if start is None else start
    bytes_of = np.array([pinned.layouts[i].nbytes if i in pinned.layouts else 0 for i in range(layers)], np.int64)
    pinned.fill(hottest(counts, bytes_of), sizes.pin_bytes, partial(side.progress, "pinning experts"))

    table = ResidencyTable(store.banks, layers, device.torch_device)
    for owner, blob in pinned.blobs.items():
        table.set_pinned(owner, pinned.layouts[owner[0]].addresses(pinned.weights(*owner), blob.data_ptr()))
    block = block_bytes(sizes.block_bytes, int(bytes_of.max()), sizes.arena_bytes, side.vram.granule)
    cache = ExpertCache(pinned, table, side.vram, side.copies, Frames(block))
    cache.grow(sizes.arena_bytes, sizes.reserve_bytes)
    cache.fill(hottest(counts, bytes_of), partial(side.progress, "bringing experts to the GPU"))

    mailbox = Mailbox(MOST_ROWS, MOST_ROWS * top_k, hidden, side.pinned)
    desk = Desk.of(device.torch_device, mailbox, layers, experts, COLUMNS, sizes.limit_ns)
    most = min(MOST_ROWS * top_k, experts)
    return GpuExperts(
        device=device,
        cache=cache,
        desk=desk,
        answerer=Answerer(native, mailbox, store.banks),
        split=split_plan(pinned, most, sizes.pcie_share, sizes.rates, device.torch_device),
        calls={layer: described(desk.call, bank) for layer, bank in store.banks.items()},
        settings=sizes.adapt,
        usage=Usage(counts, sizes.adapt.decay),
        counters=Counters(layers, top_k),
        reserve_bytes=sizes.reserve_bytes,
        ahead=LayersAhead(cache),
    )


def block_bytes(wished: int, largest: int, arena: int, granule: int = 1) -> int:
    """Bytes of a block of the arena: whole frames of the `largest` expert, and what is left of the last `granule`."""
    block = min(max(wished, LEAST_FRAMES * largest), max(largest, arena))
    return -(-(block // largest * largest) // granule) * granule


def packed_bytes(counts: Mapping[int, int], block: int) -> int:
    """Bytes of so many blocks that all experts fit, `counts` of them by size; none crosses a border."""
    largest = max(counts)
    each = -(-sum(counts.values()) // (block // largest)) * block
    if len(counts) == 1 or block == largest:
        return each
    # A block loses less than the largest one at its end.
    total = sum(size * count for size, count in counts.items())
    return min(each, -(-total // (block - largest)) * block)


def split_plan(pinned: PinnedStore, most: int, share: float | None, rates: Rates, device: torch.device) -> SplitPlan:
    """A split for every size of experts, or a fixed share for all."""
    by_size = sorted({layout.nbytes for layout in pinned.layouts.values()})
    kind = {layer: by_size.index(layout.nbytes) for layer, layout in pinned.layouts.items()}
    if share is not None:
        tables = np.stack([fixed_table(share, most)] * len(by_size))
        return SplitPlan({}, kind, by_size, torch.from_numpy(tables).to(device))
    splits = {size: Split(rates.cpu(size), rates.pcie(size), most) for size in by_size}
    tables = np.stack([splits[size].table() for size in by_size])
    return SplitPlan(splits, kind, by_size, torch.from_numpy(tables).to(device))
