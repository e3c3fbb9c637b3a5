"""A model's experts behind a budget of VRAM: what `--vram-gib` and the flags beside it do."""

from collections import Counter
from dataclasses import dataclass, replace

from strata.core.errors import UsageError
from strata.core.log import Log
from strata.experts.adaptive import AdaptSettings
from strata.experts.gpu import GpuExperts
from strata.experts.measure import measured
from strata.experts.placing import (
    ARENA_BLOCK,
    HostSide,
    Sizes,
    block_bytes,
    packed_bytes,
    place_experts,
    split_plan,
)
from strata.experts.profile import Profile
from strata.kernels.device import Device
from strata.kernels.native import Native
from strata.models.base import Model
from strata.plan.plan import Choice
from strata.plan.vram import ahead_bytes, choose_arena, choose_pinned, reserve_bytes
from strata.plan.wishes import Wishes
from strata.store.blobs import BlobLayout
from strata.store.pinned import BLOCK_BYTES, PinnedStore


@dataclass(frozen=True, slots=True)
class Tiered:
    """Experts in their places, with what was decided."""

    experts: GpuExperts
    choices: tuple[Choice, ...]
    profile: Profile | None

    def close(self) -> None:
        """End the answering thread; what was learned is kept for the next start."""
        counts = self.experts.close()
        if self.profile is not None:
            self.profile.save(counts)


def adapt_settings(wishes: Wishes) -> AdaptSettings:
    """The adaptive tier's knobs as wished."""
    return AdaptSettings(
        wishes.adapt_every, wishes.adapt_swaps, wishes.adapt_decay, wishes.adapt_min_gain, wishes.adapt_async
    )


def tier_experts(
    device: Device,
    native: Native,
    model: Model,
    wishes: Wishes,
    host_bytes: int,
    side: HostSide,
    profile: Profile | None,
) -> Tiered:
    """Put the model's experts in VRAM, pinned memory and reach of the CPU, behind weights and states.

    `host_bytes` of host memory may be taken. UsageError when the model has no experts or the budget is not there.
    """
    if not model.store.banks:
        raise UsageError("this model has no experts that could lie apart from its other weights")
    counts = Counter[int]()
    for bank in model.store.banks.values():
        counts[BlobLayout.of(bank).nbytes] += len(bank.gate)
    largest, total = max(counts), sum(size * n for size, n in counts.items())
    packed = packed_bytes(counts, block_bytes(ARENA_BLOCK, largest, total, side.vram.granule))
    layer_bytes = max(BlobLayout.of(bank).nbytes * len(bank.gate) for bank in model.store.banks.values())
    free = side.vram.free_bytes()
    free -= ahead_bytes(free, packed, layer_bytes, wishes.vram_reserve_mib)
    arena_bytes, arena = choose_arena(free, packed, wishes.vram_gib, wishes.vram_reserve_mib)
    # Allocators of pinned memory round up to powers of two.
    block = max(min(BLOCK_BYTES, 1 << (total - 1).bit_length()), largest)
    pin_bytes, pin = choose_pinned(host_bytes, packed_bytes(counts, block), arena_bytes >= packed)
    pinned = PinnedStore(model.store, side.allocate, block)
    reserve = reserve_bytes(wishes.vram_reserve_mib)
    sizes = Sizes(arena_bytes, reserve, pin_bytes, wishes.pcie_share, adapt=adapt_settings(wishes))
    start = profile.load() if profile is not None else None
    experts = place_experts(device, native, pinned, model.shape.top_k, sizes, side, start)
    if wishes.pcie_share is None:
        rates = measured(device, native, experts)
        most = experts.split.tables.shape[1] - 1
        experts.split = split_plan(pinned, most, None, rates, device.torch_device)
    model.experts.inner = experts
    return Tiered(experts, (arena, pin, *outcome(experts, start is not None, pinned)), profile)


def outcome(experts: GpuExperts, learned: bool, pinned: PinnedStore) -> tuple[Choice, ...]:
    """What came of it, for the log."""
    held, there = len(experts.cache.frames.held), sum(len(b.gate) for b in pinned.store.banks.values())
    start = "the most used of earlier runs" if learned else "no profile yet: in order, until uses are counted"
    refused = f"; the system refused more: {pinned.refused}" if pinned.refused else ""
    return (
        Choice("resident", held, f"of {there} experts; {start}"),
        Choice("pinned_mib", pinned.nbytes >> 20, f"{len(pinned.blobs)} experts{refused}"),
    )


def reported(side: HostSide, log: Log) -> HostSide:
    """The same with its progress in the log."""
    return replace(side, progress=log.progress)
