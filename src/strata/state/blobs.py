"""Bytes of conversations in RAM: they outlive many steps, so each blob has pages of its own."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from strata.core.mapping import mapped

ALIGNED = 64
"""Arrays begin at multiples of this."""


def blank(sizes: Mapping[str, int]) -> dict[str, npt.NDArray[np.uint8]]:
    """Zeros of so many bytes by name, in one mapping, which goes back to the system with the last of them."""
    places, end = {}, 0
    for name, size in sizes.items():
        places[name], end = end, end - -size // ALIGNED * ALIGNED
    if not end:
        return {name: np.empty(0, np.uint8) for name in sizes}
    memory = np.frombuffer(mapped(end), np.uint8)
    return {name: memory[places[name] : places[name] + size] for name, size in sizes.items()}
