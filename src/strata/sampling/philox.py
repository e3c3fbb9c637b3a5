"""Counter-based random numbers: the draw of (seed, position) is the same in every batch, slot and window.

Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): ten rounds of two
32 x 32 -> 64 bit products. No state, so a draft row, a retry and a restart all see the number of their position.
"""

_MASK = 0xFFFFFFFF
_MULTIPLY = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """The four 32-bit words for four counter words and two key words (each 0 <= word < 2**32)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        low, high = c0 * _MULTIPLY[0], c2 * _MULTIPLY[1]
        c0, c1, c2, c3 = (high >> 32) ^ c1 ^ k0, high & _MASK, (low >> 32) ^ c3 ^ k1, low & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits; `seed` and `position` are from 0 to 2**64 - 1.

    Key = the seed's low and high word, counter = the position's low and high word and two zeros; the first word gives
    the high 32 bits, the top 21 bits of the second the rest.
    """
    if not (0 <= seed < 1 << 64 and 0 <= position < 1 << 64):
        raise ValueError(f"seed and position must fit 64 bits, found {seed} and {position}")
    words = philox4x32((position & _MASK, position >> 32, 0, 0), (seed & _MASK, seed >> 32))
    return ((words[0] << 21) | (words[1] >> 11)) * 2.0**-53
