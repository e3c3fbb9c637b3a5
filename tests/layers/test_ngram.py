"""The hash of the n-gram embedding, in whole numbers: the specification and C++."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.layer_cases import rows_of
from models.made import ops_of
from strata.kernels.naive_ops import NaiveOps
from strata.kernels.views import NgramHash

END = 3
OPS = (NaiveOps, ops_of)
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
    tokens = torch.full((4, 16), 99, dtype=torch.int64)
    tokens[slot, : len(sequence)] = torch.tensor(sequence)
    expected = [plain(sequence, at) for at in range(len(sequence))]
    for ops in [make() for make in OPS]:
        assert ops.ngram_rows(tokens, rows_of([(slot, 0, len(sequence))]), HASH).tolist() == expected


def test_large_ids_do_not_lose_bits():
    """Products stay exact below 2^63."""
    big = NgramHash((2**44 + 7, 2**44 + 9), (2**31 - 1,), (5,), END)
    tokens = torch.tensor([[248_000, 247_999]])
    expected = [[((247_999 * (2**44 + 7)) ^ (248_000 * (2**44 + 9))) % (2**31 - 1) + 5]]
    for ops in [make() for make in OPS]:
        assert ops.ngram_rows(tokens, rows_of([(0, 1, 1)]), big).tolist() == expected


def test_a_position_outside_the_tokens_is_refused():
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    for ops in [make() for make in OPS]:
        for slot, position in ((0, 4), (1, 0)):
            with pytest.raises(IndexError, match=f"slot {slot}, position {position} of 1 slots of 4 tokens"):
                ops.ngram_rows(tokens, rows_of([(slot, position, 1)]), HASH)
