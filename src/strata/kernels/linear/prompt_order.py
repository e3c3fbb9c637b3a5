"""In which order one thread adds the terms of a product so that the sum is the lane rule's (docs/numerics.md 1.4, 1.5).

The lane rule has 32 sums, lane l's of the sub-blocks l, l + 32, .., and adds them by a tree: l and l + 16, then l + 8,
+ 4, + 2, + 1. Depth first, one sum and five that wait for their partner do: lanes 0, 16, 8, 24, 4, .., and after each
the joins that it completes (csrc/device/prompt_layout.h).
"""

from functools import lru_cache

LANES = 32
LEVELS = 5


def lane_at(index: int) -> int:
    """The lane that comes `index`-th: the bits of the number in reverse."""
    return int(f"{index:05b}"[::-1], 2)


@lru_cache(maxsize=256)
def order_table(count: int) -> tuple[int, ...]:
    """For `count` sub-blocks: a word for each place in the order, then the place of each sub-block.

    A word is 0 while the lane has more; after its last sub-block it is (1 + levels joined) + 16 * (mask of levels whose
    other half has no lanes and counts as +0). What has joined fewer than five levels waits at that level.
    """
    if count < 1:
        raise ValueError(f"order_table: {count} sub-blocks, expected at least one")
    words: list[int] = []
    place_of = [0] * count
    for index in range(LANES):
        own = range(lane_at(index), count, LANES)
        for sub_block in own:
            place_of[sub_block] = len(words)
            words.append(0)
        if own:
            words[-1] = climb_word(index, count)
    return (*words, *place_of)


def climb_word(index: int, count: int) -> int:
    """How the sum of the lane that comes `index`-th climbs the tree when there are `count` sub-blocks."""
    zeros = level = 0
    while level < LEVELS:
        if not index >> level & 1:
            other = (index >> level) + 1 << level
            if any(lane_at(i) < count for i in range(other, other + (1 << level))):
                break
            zeros |= 1 << level
        level += 1
    return 1 + level + 16 * zeros
