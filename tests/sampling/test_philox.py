"""The generator against the published vectors of the Random123 library (kat_vectors, philox4x32 10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.sampling.philox import philox4x32, uniform

VECTORS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in text.split())


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_equals_the_published_vectors(counter: str, key: str, expected: str) -> None:
    c0, c1, c2, c3 = words(counter)
    k0, k1 = words(key)
    assert philox4x32((c0, c1, c2, c3), (k0, k1)) == words(expected)


def test_a_flipped_bit_of_counter_or_key_changes_the_words() -> None:
    base = philox4x32((5, 0, 0, 0), (7, 0))
    others = [philox4x32((4, 0, 0, 0), (7, 0)), philox4x32((5, 1, 0, 0), (7, 0)), philox4x32((5, 0, 0, 0), (7, 1))]
    assert base not in others


def test_uniform_takes_the_high_53_bits_of_the_first_two_words() -> None:
    first, second, _, _ = philox4x32((9, 3, 0, 0), (1, 2))
    expected = (first * 2**32 + second) // 2**11 / 2**53
    assert uniform(seed=1 + (2 << 32), position=9 + (3 << 32)) == expected


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_uniform_is_from_zero_to_below_one(seed: int, position: int) -> None:
    assert 0.0 <= uniform(seed, position) < 1.0


def test_uniform_is_flat_over_positions() -> None:
    cells = [0] * 16
    for position in range(16_000):
        cells[int(uniform(42, position) * 16)] += 1
    chi = sum((count - 1000) ** 2 / 1000 for count in cells)
    assert chi < 37.7  # 0.1% point of chi-square with 15 degrees of freedom


@pytest.mark.parametrize(("seed", "position"), [(-1, 0), (1 << 64, 0), (0, -1), (0, 1 << 64)])
def test_values_beyond_64_bits_are_refused(seed: int, position: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        uniform(seed, position)
