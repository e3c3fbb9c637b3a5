"""Equality 4: all experts resident = tiered, bit for bit in the logits.

The same answers with the experts on the CPU alone, and then at several placements: in frames of VRAM, read over PCIe,
computed by the CPU, and mixed. Without a GPU the frames are those of the emulator, which is slow; everything around the
experts stays where it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from strata.checks.equalities import Equalities, Pair, Verdict, verdict
from strata.experts.adaptive import AdaptSettings
from strata.experts.gpu import GpuExperts
from strata.experts.placing import HostSide, Sizes, place_experts
from strata.kernels.device import Device
from strata.kernels.native import Native
from strata.models.base import Model
from strata.store.blobs import BlobLayout
from strata.store.experts import ExpertStore
from strata.store.pinned import PinnedStore

NAME = "resident = tiered"
PLACEMENTS = {
    "all in VRAM": (1.0, 0.0),
    "half in VRAM": (0.5, 0.3),
    "a tenth in VRAM": (0.1, 0.5),
    "over PCIe and on the CPU": (0.0, 0.6),
    "all on the CPU": (0.0, 0.0),
}
"""Shares of the experts in VRAM and in pinned memory."""
FEW = 6
"""Tokens of an answer at most: the emulator is slow."""


class Tiers:
    """Runs the comparison on the runner of `run`, whose placement is put back afterwards."""

    def __init__(self, run: Equalities, device: Device, native: Native, side: HostSide) -> None:
        self.run = run
        self.device = device
        self.native = native
        self.side = side

    def resident(self) -> Verdict:
        """Every placement against the runner's own; the negative control flips one byte in a frame."""
        pairs: list[Pair] = []
        for name, shares in PLACEMENTS.items():
            with self.placed(*shares) as experts:
                if self.run.plan.tamper:
                    flip_byte(experts)
                for i, (prompt, solo) in enumerate(zip(self.run.plan.prompts, self.run.solo, strict=True)):
                    rows = self.run.go_on(0, self.run.read(0, prompt, (len(prompt),)), min(FEW, self.run.plan.steps))
                    pairs.append((f"{name}, prompt {i}", solo[: len(rows)], rows))
                experts.read_ledger()
                wrong = experts.counters.disagreement()
                if wrong:
                    return Verdict(NAME, 0, f"{name}: {wrong}")
        return verdict(NAME, pairs)

    @contextmanager
    def placed(self, vram: float, pinned: float) -> Iterator[GpuExperts]:
        """The runner's experts at a placement, op by op: what was recorded reads them elsewhere."""
        runner = self.run.runner
        model, forwarder = runner.model, runner.forwarder
        experts = experts_at(self.device, self.native, model, self.side, vram, pinned)
        before, tap = model.experts.inner, forwarder.tap
        model.experts.inner, forwarder.tap = experts, forwarder.tap or silent
        forwarder.recorded.clear()
        try:
            yield experts
        finally:
            model.experts.inner, forwarder.tap = before, tap
            experts.close()


def experts_at(device: Device, native: Native, model: Model, side: HostSide, vram: float, pinned: float) -> GpuExperts:
    """The model's experts with these shares of them in VRAM and in pinned memory, and a few of them moving."""
    store = ExpertStore(model.store.banks)
    each = max(BlobLayout.of(bank).nbytes for bank in store.banks.values())
    total = each * sum(len(bank.gate) for bank in store.banks.values())
    arena, pin = (-(-int(share * total) // each) * each for share in (vram, pinned))
    block = max(each, arena // 4 // each * each)
    sizes = Sizes(arena + block, 0, pin, adapt=AdaptSettings(every=2, swaps=2), block_bytes=block)
    held = PinnedStore(store, side.allocate, each)
    return place_experts(device, native, held, model.shape.top_k, sizes if arena else Sizes(0, 0, pin), side)


def silent(name: str, tensors: dict[str, torch.Tensor]) -> None:
    """A tap that takes note of nothing: it keeps steps from being recorded."""


def flip_byte(experts: GpuExperts) -> None:
    """Change one bit of the first frame's codes in every block."""
    for memory in experts.cache.blocks.values():
        memory[64] ^= 64
