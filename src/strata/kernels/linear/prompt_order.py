"""In which order one thread adds the terms of a product so that the sum is the lane rule's (docs/numerics.md 1.4, 1.5).

The lane rule has 32 sums, lane l's of the sub-blocks l, l + 32, .., and adds them by a tree: l and l + 16, then l + 8,
+ 4, + 2, + 1. Depth first, one sum and five that wait for their partner do: lanes 0, 16, 8, 24, 4, .., and after each
the joins that it completes (csrc/device/prompt_sums.h).
"""

from functools import lru_cache

LANES = 32


def lane_at(turn: int) -> int:
    """The lane whose turn it is: the bits of the number in reverse."""
    return int(f"{turn:05b}"[::-1], 2)


@lru_cache(maxsize=256)
def places(count: int) -> tuple[int, ...]:
    """The place in that order of each of `count` sub-blocks; ValueError when there are none."""
    if count < 1:
        raise ValueError(f"places: {count} sub-blocks, expected at least one")
    order = [block for turn in range(LANES) for block in range(lane_at(turn), count, LANES)]
    found = [0] * count
    for place, block in enumerate(order):
        found[block] = place
    return tuple(found)
