"""What lies where and how much it is used: every expert of every layer, for people who look. Pure."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strata.kernels.rendezvous.naive import Tier

NAMES: Mapping[int, str] = {Tier.FRAME: "vram", Tier.PINNED: "pinned", Tier.HOST: "host"}
NONE = 255
"""Tier of an expert that a layer does not have."""


@dataclass(frozen=True, slots=True)
class ExpertMap:
    """One moment's."""

    layers: tuple[int, ...]
    """Numbers of the layers with experts."""
    tiers: npt.NDArray[np.uint8]
    """[layers, experts]: `Tier`, or NONE."""
    uses: npt.NDArray[np.float64]
    """[layers, experts]: how often rows chose it; recent uses may weigh more."""
    counted: bool = True
    """Whether anybody counts uses."""

    def values(self) -> dict[str, object]:
        """Plain values for JSON. `tiers` and `heat` are base64 of one byte per expert, layer by layer; heat is the
        square root of the uses, 255 = the most used expert of the model.
        """
        most = float(self.uses.max(initial=0.0))
        heat = np.sqrt(self.uses / most) if most > 0.0 else np.zeros_like(self.uses)
        return {
            "layers": list(self.layers),
            "experts": int(self.tiers.shape[1]) if self.layers else 0,
            "tier_names": {str(int(code)): name for code, name in NAMES.items()},
            "in_tier": {name: int((self.tiers == code).sum()) for code, name in NAMES.items()},
            "uses_in_tier": {name: float(self.uses[self.tiers == code].sum()) for code, name in NAMES.items()},
            "tiers": base64.b64encode(self.tiers.tobytes()).decode(),
            "heat": base64.b64encode(np.round(255.0 * heat).astype(np.uint8).tobytes()).decode(),
            "counted": self.counted,
        }


def map_of(
    counts: Mapping[int, int], tiers: Mapping[int, npt.NDArray[np.integer]], uses: Mapping[int, npt.ArrayLike]
) -> ExpertMap:
    """Put together what is known by layer: number of experts, their tiers, their uses (none: nobody counts)."""
    layers = tuple(sorted(counts))
    wide = max(counts.values(), default=0)
    all_tiers = np.full((len(layers), wide), NONE, np.uint8)
    all_uses = np.zeros((len(layers), wide), np.float64)
    for row, layer in enumerate(layers):
        count = counts[layer]
        all_tiers[row, :count] = tiers[layer][:count]
        if layer in uses:
            all_uses[row, :count] = np.asarray(uses[layer], np.float64)[:count]
    return ExpertMap(layers, all_tiers, all_uses, bool(uses))
