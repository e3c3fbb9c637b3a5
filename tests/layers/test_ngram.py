"""The hash of the n-gram embedding, in whole numbers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strata.layers.ngram import NgramHash

END = 3
HASH = NgramHash((7, 11, 13), (101, 103, 107, 109), (0, 101, 204, 311), END)


def plain(sequence, at):
    """One position, said with lists: the tokens before it, cut at an end-of-text token."""
    before = []
    for token in reversed(sequence[:at]):
        if token == END:
            break
        before.append(token)
    one, two = [*before[:2], END, END][:2]
    pair = sequence[at] * 7 ^ one * 11
    triple = pair ^ two * 13
    return [pair % 101, pair % 103 + 101, triple % 107 + 204, triple % 109 + 311]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(0, 3))
def test_rows_are_those_of_the_tokens_before(sequence, slot):
    tokens = np.full((4, 16), 99, dtype=np.int64)
    tokens[slot, : len(sequence)] = sequence
    positions = list(range(len(sequence)))
    found = HASH.rows(HASH.context(tokens, [slot] * len(sequence), positions))
    assert found.tolist() == [plain(sequence, at) for at in positions]


def test_large_ids_do_not_lose_bits():
    """Products stay exact below 2^63."""
    big = NgramHash((2**44 + 7, 2**44 + 9), (2**31 - 1,), (5,), END)
    tokens = np.array([[248_000, 247_999]], dtype=np.int64)
    found = big.rows(big.context(tokens, [0], [1]))
    assert found.tolist() == [[((247_999 * (2**44 + 7)) ^ (248_000 * (2**44 + 9))) % (2**31 - 1) + 5]]
