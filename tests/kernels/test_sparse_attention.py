"""select_blocks and sparse_attention: against sorting and float64 formulas, C++ against the specification."""

import pytest
import torch

from kernels.layer_cases import entries, every_way, native, normal, paged, rows_of, same_bits
from strata.kernels.attention import naive as dense_naive
from strata.kernels.sparse_attention import cpu, naive
from strata.kernels.views import PagedPlane, Rows


def chosen(q: torch.Tensor, keys: PagedPlane, rows: Rows, ratio: int, budget: int) -> list[list[int]]:
    """The rule in plain float64 sorting."""
    result = []
    for t in range(len(q)):
        position = int(rows.position[t])
        n = (position + 1) // ratio
        scores = (entries(keys, int(rows.slot[t]), n) @ q[t].double().T).clamp(min=0).sum(1).tolist() if n else []
        best = sorted(sorted(range(n), key=lambda j: (-scores[j], -j))[:budget])
        result.append([j * ratio + i for j in best for i in range(ratio)] + list(range(n * ratio, position + 1)))
    return result


CASES = [
    # heads, di, page, ratio, budget, segments
    (1, 24, 4, 4, 2, [(0, 0, 9)]),
    (4, 128, 16, 4, 8, [(0, 60, 5), (1, 2, 1), (2, 200, 3)]),
    (3, 32, 4, 2, 5, [(1, 37, 4), (0, 8, 2)]),
    (2, 64, 16, 1, 3, [(0, 20, 2)]),
    (4, 40, 16, 4, 0, [(2, 33, 3)]),
]


@pytest.mark.parametrize(("heads", "dim", "page", "ratio", "budget", "segments"), CASES)
def test_choice(heads: int, dim: int, page: int, ratio: int, budget: int, segments: list[tuple[int, int, int]]) -> None:
    rows = rows_of(segments)
    lengths = [max([(start + n) // ratio for s, start, n in segments if s == slot] + [1]) for slot in range(3)]
    keys, q = paged(1, lengths, page, (dim,)), normal(2, len(rows.slot), heads, dim)
    positions, count = naive.select_blocks(q, keys, rows, ratio, budget)
    for t, listed in enumerate(chosen(q, keys, rows, ratio, budget)):
        assert positions[t].tolist() == listed + [-1] * ((budget + 1) * ratio - len(listed))
        assert int(count[t]) == len(listed)
    every_way(lambda n: cpu.select_blocks(n, q, keys, rows, ratio, budget), [positions, count])


def test_many_blocks_that_threads_share() -> None:
    rows = rows_of([(0, 11_999, 1), (1, 7_000, 2)])
    keys, q = paged(1, [3000, 1751], 16, (64,)), normal(2, 3, 4, 64)
    expected = naive.select_blocks(q, keys, rows, 4, 512)
    every_way(lambda n: cpu.select_blocks(n, q, keys, rows, 4, 512), expected)


@pytest.mark.parametrize("distinct", [1, 2, 5])
def test_ties_keep_the_later_block(distinct: int) -> None:
    keys = paged(1, [50], 16, (32,))
    for j in range(50):
        keys.data[int(keys.table[0, j // 16]), j % 16] = float(j % distinct)
    q, rows = torch.ones(1, 2, 32), rows_of([(0, 199, 1)])
    expected = naive.select_blocks(q, keys, rows, 4, 7)
    assert expected[0][0].tolist()[:28] == chosen(q, keys, rows, 4, 7)[0]
    every_way(lambda n: cpu.select_blocks(n, q, keys, rows, 4, 7), expected)
    if distinct == 1:
        assert expected[0][0].tolist()[:28] == list(range(43 * 4, 200))


def test_blocks_that_relu_sets_to_zero_tie() -> None:
    keys = paged(1, [20], 4, (32,))
    q = -keys.data[int(keys.table[0, 0]), 0].abs()[None, None]
    keys.data.nan_to_num_(0.0).abs_()
    rows = rows_of([(0, 79, 1)])
    positions, count = naive.select_blocks(q, keys, rows, 4, 3)
    assert positions[0, :12].tolist() == list(range(68, 80)) and count.tolist() == [12]
    every_way(lambda n: cpu.select_blocks(n, q, keys, rows, 4, 3), [positions, count])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("where", ["q", "key"])
def test_non_finite_scores_end_and_agree(value: float, where: str) -> None:
    keys, q = paged(1, [40], 16, (32,)), normal(2, 1, 4, 32)
    (q[0, 1] if where == "q" else keys.data[int(keys.table[0, 1]), 3])[7] = value
    rows = rows_of([(0, 159, 1)])
    positions, count = naive.select_blocks(q, keys, rows, 4, 5)
    assert count.tolist() == [20] and positions[0, :20].unique().numel() == 20
    if value != value and where == "key":
        assert 19 * 4 in positions[0].tolist()
    every_way(lambda n: cpu.select_blocks(n, q, keys, rows, 4, 5), [positions, count])


def test_a_changed_key_changes_the_choice() -> None:
    keys, q, rows = paged(1, [40], 16, (32,)), normal(2, 1, 4, 32), rows_of([(0, 159, 1)])
    expected = naive.select_blocks(q, keys, rows, 4, 1)[0]
    best = int(expected[0, 0]) // 4
    keys.data[int(keys.table[0, best // 16]), best % 16] = 0
    assert not same_bits(cpu.select_blocks(native("avx2", 2), q, keys, rows, 4, 1)[0], expected)


def test_a_full_list_is_dense_attention() -> None:
    rows = rows_of([(0, 40, 3), (1, 9, 1)])
    keys, values = paged(1, [43, 10], 4, (2, 32)), paged(2, [43, 10], 4, (2, 32))
    q = normal(3, 4, 4, 32)
    positions = torch.full((4, 43), -1, dtype=torch.int32)
    count = rows.position + 1
    for t in range(4):
        positions[t, : int(count[t])] = torch.arange(int(count[t]))
    expected = dense_naive.attention(q, keys, values, rows, 0.2)
    assert same_bits(naive.sparse_attention(q, keys, values, rows, 0.2, positions, count), expected)
    every_way(lambda n: [cpu.sparse_attention(n, q, keys, values, rows, 0.2, positions, count)], [expected])


@pytest.mark.parametrize(("heads", "kv_heads", "dim", "length"), [(8, 2, 64, 90), (3, 1, 24, 300), (24, 2, 256, 700)])
def test_listed_positions(heads: int, kv_heads: int, dim: int, length: int) -> None:
    rows = rows_of([(1, length - 2, 2), (0, 30, 1)])
    keys, values = paged(1, [31, length], 16, (kv_heads, dim)), paged(2, [31, length], 16, (kv_heads, dim))
    index = paged(4, [8, length // 4], 4, (32,))
    q = normal(3, 3, heads, dim)
    positions, count = naive.select_blocks(normal(5, 3, 2, 32), index, rows, 4, 12)
    expected = naive.sparse_attention(q, keys, values, rows, dim**-0.5, positions, count)
    for t in range(3):
        here = positions[t, : int(count[t])].long()
        k, v = (entries(p, int(rows.slot[t]), int(rows.position[t]) + 1)[here] for p in (keys, values))
        for h in range(heads):
            p = torch.softmax(k[:, h * kv_heads // heads] @ q[t, h].double() * dim**-0.5, 0)
            torch.testing.assert_close(
                expected.view(q.shape)[t, h].double(), p @ v[:, h * kv_heads // heads], rtol=1e-5, atol=2e-6
            )
    every_way(lambda n: [cpu.sparse_attention(n, q, keys, values, rows, dim**-0.5, positions, count)], [expected])
    moved = positions.clone()
    moved[0, 0] = 1 if int(moved[0, 0]) != 1 else 2
    assert not same_bits(
        cpu.sparse_attention(native("avx2", 2), q, keys, values, rows, dim**-0.5, moved, count), expected
    )


def test_an_empty_list_gives_nan() -> None:
    rows, keys = rows_of([(0, 5, 2)]), paged(1, [7], 4, (1, 32))
    q, positions = normal(1, 2, 2, 32), torch.tensor([[-1, -1], [0, -1]], dtype=torch.int32)
    count = torch.tensor([0, 1], dtype=torch.int32)
    expected = naive.sparse_attention(q, keys, keys, rows, 1.0, positions, count)
    assert expected[0].isnan().all() and expected[1].isfinite().all()
    every_way(lambda n: [cpu.sparse_attention(n, q, keys, keys, rows, 1.0, positions, count)], [expected])


def test_bad_lists_are_refused() -> None:
    rows, keys, n = rows_of([(0, 5, 1)]), paged(1, [7], 4, (1, 32)), native("portable", 1)
    q, positions = normal(1, 1, 2, 32), torch.tensor([[0, 99]], dtype=torch.int32)
    with pytest.raises(IndexError, match="a count of 3 in a list of 2"):
        cpu.sparse_attention(n, q, keys, keys, rows, 1.0, positions, torch.tensor([3], dtype=torch.int32))
    with pytest.raises(IndexError, match="entry 99"):
        cpu.sparse_attention(n, q, keys, keys, rows, 1.0, positions, torch.tensor([2], dtype=torch.int32))
    with pytest.raises(ValueError, match="ratio 0"):
        cpu.select_blocks(n, q, paged(1, [7], 4, (32,)), rows, 0, 1)
