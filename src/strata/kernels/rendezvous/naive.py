"""The rendezvous: the specification of csrc/device/rendezvous.h."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from strata.kernels.exact import fma

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


class Tier(IntEnum):
    """Where an expert's bytes lie."""

    FRAME = 0
    """VRAM."""
    PINNED = 1
    """Host memory that the GPU can read in place."""
    HOST = 2
    """Host memory or a mapped file; only the CPU reads it."""


class Way(IntEnum):
    """How an expert of a call is computed."""

    FRAME = 0
    PCIE = 1
    CPU = 2


@dataclass(frozen=True, slots=True)
class Placed:
    """What `place` decides."""

    ways: Ints
    """[T, k] of every entry."""
    by_expert: dict[int, Way]
    """Of every distinct expert."""

    def entries(self) -> list[int]:
        """Entries by way."""
        return [int((self.ways == way).sum()) for way in Way]

    def experts(self) -> list[int]:
        """Distinct experts by way."""
        return [sum(found is way for found in self.by_expert.values()) for way in Way]


def place(ids: Ints, tiers: Ints, share: Ints) -> Placed:
    """Frames first. Of m missing distinct experts the first share[m] pinned ones, by number, go over PCIe; the CPU
    computes the others.

    ids [T, k]; tiers [experts]; share [most + 1].
    """
    used = sorted({int(e) for e in ids.flat})
    missing = [e for e in used if tiers[e] != Tier.FRAME]
    pinned = [e for e in missing if tiers[e] == Tier.PINNED]
    over = set(pinned[: int(share[len(missing)])])
    by_expert = {e: Way.FRAME if tiers[e] == Tier.FRAME else Way.PCIE if e in over else Way.CPU for e in used}
    ways = np.array([by_expert[int(e)] for e in ids.flat], np.int32).reshape(ids.shape)
    return Placed(ways, by_expert)


def combine(outputs: Floats, weights: Floats, ways: Ints, answers: Floats) -> Floats:
    """y = fma(weight_k, expert_k, y) in rank order from 0; what the CPU computed is in `answers`.

    outputs, answers [T, k, hidden]; weights, ways [T, k] -> [T, hidden].
    """
    both = np.where((ways == Way.CPU)[..., None], answers, outputs)
    y = np.zeros((len(both), both.shape[2]), np.float32)
    for rank in range(both.shape[1]):
        y = fma(weights[:, rank : rank + 1], both[:, rank], y)
    return y
