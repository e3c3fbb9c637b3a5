"""Where each expert's bytes lie, as the device reads it: an entry of kernels/experts/table.py for each of them."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from strata.experts.frames import Owner
from strata.kernels.experts.table import COLUMNS, TIER_SHIFT, entry
from strata.kernels.rendezvous.naive import Tier
from strata.kernels.views import ExpertBank
from strata.store.blobs import PLANES, weights_of

Ints = npt.NDArray[np.int64]
At = int | tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]
"""A layer, or (layers, experts)."""

FIXED = 6
"""From this column on an entry does not depend on the place: factors, and formats (with the tier)."""


def is_there(planes: Ints) -> npt.NDArray[np.bool_]:
    """Whether addresses of planes [.., PLANES] are of something: the first plane of every expert is."""
    found: npt.NDArray[np.bool_] = planes[..., 0] != 0
    return found


class ResidencyTable:
    """The table on the host, and its copy on the device; steps read the copy of the last `publish`.

    An expert has up to two places: pinned host memory (or none), and a frame (or none), which counts as long as it is
    there.
    """

    def __init__(self, banks: Mapping[int, ExpertBank], layers: int, device: torch.device) -> None:
        experts = max((len(bank.gate) for bank in banks.values()), default=0)
        self.pinned = np.zeros((layers, experts, PLANES), np.int64)
        """Addresses of the planes in memory that the device reads in place; 0: it is not there."""
        self.frames = np.zeros((layers, experts, PLANES), np.int64)
        """The same in VRAM."""
        self.entries = torch.zeros(layers, experts, COLUMNS, dtype=torch.int64, device=device)
        """int64 [layers, experts, COLUMNS] on the device."""
        self.host = torch.zeros(layers, experts, COLUMNS, dtype=torch.int64, pin_memory=device.type == "cuda")
        """The same, as of the last `publish`."""
        self.fixed = np.zeros((layers, experts, COLUMNS - FIXED), np.int64)
        for layer, bank in banks.items():
            for expert in range(len(bank.gate)):
                self.fixed[layer, expert] = entry(weights_of(bank, expert), [(0, 0)] * 3)[FIXED:]
        self.changed = {(layer, expert) for layer, bank in banks.items() for expert in range(len(bank.gate))}
        self.publish()

    def set_pinned(self, owner: Owner, addresses: Sequence[int]) -> None:
        """The expert's planes lie in memory that the device reads in place."""
        self.pinned[owner] = addresses
        self.changed.add(owner)

    def set_frame(self, owner: Owner, addresses: Sequence[int]) -> None:
        """The expert's planes lie in VRAM."""
        self.frames[owner] = addresses
        self.changed.add(owner)

    def drop_frame(self, owner: Owner) -> None:
        """The expert leaves VRAM."""
        self.frames[owner] = 0
        self.changed.add(owner)

    @property
    def framed(self) -> npt.NDArray[np.bool_]:
        """[layers, experts]: who lies in VRAM."""
        return is_there(self.frames)

    def tier(self, at: At) -> Ints:
        """Of all experts of a layer, or of those at (layers, experts)."""
        framed, pinned = is_there(self.frames[at]), is_there(self.pinned[at])
        return np.where(framed, Tier.FRAME, np.where(pinned, Tier.PINNED, Tier.HOST)).astype(np.int64)

    def publish(self) -> None:
        """Bring what changed to the device, before everything that is launched from now on.

        A copy may still be under way when the host writes here again: whatever it wrote goes there again, after it.
        """
        if not self.changed:
            return
        layers, experts = np.array(list(self.changed)).T
        at = (layers, experts)
        tier = self.tier(at)
        planes = np.where((tier == Tier.FRAME)[:, None], self.frames[at], self.pinned[at])
        self.host.numpy()[at] = self.rows(at, planes, tier)
        for layer in sorted(set(layers.tolist())):
            self.entries[layer].copy_(self.host[layer], non_blocking=True)
        self.changed.clear()

    def rows(self, at: At, planes: Ints, tier: Ints) -> Ints:
        """Entries [.., COLUMNS] of the experts at `at` whose planes lie at `planes` [.., PLANES] in `tier`."""
        rows = np.concatenate([planes[:, 0::2], planes[:, 1::2], self.fixed[at]], axis=1)
        rows[:, -1] |= tier << TIER_SHIFT
        return rows
