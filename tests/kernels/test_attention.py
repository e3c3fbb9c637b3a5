"""attention: against float64 softmax attention, C++ against the specification, and each row on its own."""

import pytest
import torch

from kernels.layer_cases import bits, entries, every_way, native, normal, paged, rows_of, same_bits
from strata.kernels.attention import cpu, naive
from strata.kernels.sparse_attention import cpu as sparse_cpu
from strata.kernels.sparse_attention import naive as sparse_naive
from strata.kernels.views import KvType, PagedPlane, Rows


def truth(q: torch.Tensor, keys: PagedPlane, values: PagedPlane, rows: Rows, scale: float) -> torch.Tensor:
    out = torch.empty(q.shape, dtype=torch.float64)
    group = q.shape[1] // keys.entry[0]
    for t in range(len(q)):
        slot, seen = int(rows.slot[t]), int(rows.position[t]) + 1
        k, v = entries(keys, slot, seen), entries(values, slot, seen)
        for h in range(q.shape[1]):
            p = torch.softmax(k[:, h // group] @ q[t, h].double() * scale, 0)
            out[t, h] = p @ v[:, h // group]
    return out


CASES = [
    # heads, KV heads, d, page, segments
    (1, 1, 24, 4, [(0, 0, 1)]),
    (4, 2, 32, 16, [(0, 0, 5), (2, 60, 3)]),
    (8, 1, 64, 4, [(1, 31, 3), (0, 5, 1)]),
    (8, 8, 40, 16, [(0, 30, 4)]),
    (6, 2, 128, 16, [(2, 0, 20), (0, 64, 1), (1, 33, 2)]),
    (2, 1, 128, 4, [(0, 100, 40)]),
    (8, 2, 32, 16, [(0, 0, 300)]),
    (6, 2, 40, 16, [(2, 250, 9), (0, 511, 2), (1, 700, 5)]),
    (7, 1, 96, 4, [(0, 255, 1), (1, 256, 1), (2, 257, 1)]),
]


@pytest.mark.parametrize(("heads", "kv_heads", "dim", "page", "segments"), CASES)
def test_formula_and_cpp(heads: int, kv_heads: int, dim: int, page: int, segments: list[tuple[int, int, int]]) -> None:
    rows = rows_of(segments)
    lengths = [max([start + n for s, start, n in segments if s == slot], default=1) for slot in range(3)]
    keys, values = paged(1, lengths, page, (kv_heads, dim)), paged(2, lengths, page, (kv_heads, dim))
    q = normal(3, len(rows.slot), heads, dim)
    expected = naive.attention(q, keys, values, rows, dim**-0.5)
    torch.testing.assert_close(
        expected.view(q.shape).double(), truth(q, keys, values, rows, dim**-0.5), rtol=1e-5, atol=2e-6
    )
    every_way(lambda n: [cpu.attention(n, q, keys, values, rows, dim**-0.5)], [expected])


@pytest.mark.parametrize("kv_type", ["bf16", "int8"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "page", "segments"),
    [
        (8, 2, 64, 16, [(1, 20, 3), (0, 300, 2)]),
        (3, 1, 32, 4, [(0, 0, 40)]),
        (16, 2, 256, 16, [(0, 600, 1)]),
        (5, 5, 96, 16, [(2, 70, 7), (0, 255, 1)]),
    ],
)
def test_other_types_of_cache(
    kv_type: KvType, heads: int, kv_heads: int, dim: int, page: int, segments: list[tuple[int, int, int]]
) -> None:
    rows = rows_of(segments)
    lengths = [max([start + n for s, start, n in segments if s == slot], default=1) for slot in range(3)]
    keys, values = (paged(seed, lengths, page, (kv_heads, dim), kv_type) for seed in (1, 2))
    q = normal(3, len(rows.slot), heads, dim)
    expected = naive.attention(q, keys, values, rows, dim**-0.5)
    torch.testing.assert_close(
        expected.view(q.shape).double(), truth(q, keys, values, rows, dim**-0.5), rtol=1e-5, atol=2e-6
    )
    every_way(lambda n: [cpu.attention(n, q, keys, values, rows, dim**-0.5)], [expected])
    positions = torch.arange(0, int(rows.position[-1]) + 1, 3, dtype=torch.int32)[None].contiguous()
    last = rows_of([(int(rows.slot[-1]), int(rows.position[-1]), 1)])
    count = torch.tensor([positions.shape[1]], dtype=torch.int32)
    listed = sparse_naive.sparse_attention(q[-1:], keys, values, last, 0.1, positions, count)
    every_way(lambda n: [sparse_cpu.sparse_attention(n, q[-1:], keys, values, last, 0.1, positions, count)], [listed])


def test_keys_and_values_may_be_of_two_types() -> None:
    rows, q = rows_of([(0, 70, 2)]), normal(3, 2, 4, 32)
    keys, values = paged(1, [72], 16, (2, 32), "int8"), paged(2, [72], 4, (2, 32), "bf16")
    expected = naive.attention(q, keys, values, rows, 0.2)
    every_way(lambda n: [cpu.attention(n, q, keys, values, rows, 0.2)], [expected])


def test_an_int8_plane_without_fitting_scales_is_refused() -> None:
    keys, q, rows = paged(1, [9], 4, (1, 64), "int8"), normal(3, 1, 1, 64), rows_of([(0, 8, 1)])
    assert keys.scales is not None
    for scales, said in ((None, "int8 needs scales"), (keys.scales[..., :1].contiguous(), "scales: expected")):
        with pytest.raises(ValueError, match=said):
            cpu.attention(native("portable", 1), q, PagedPlane(keys.data, keys.table, scales), keys, rows, 1.0)
    half = PagedPlane(keys.data.to(torch.float16), keys.table)
    with pytest.raises(ValueError, match="expected a plane of float32, bfloat16 or int8"):
        cpu.attention(native("portable", 1), q, half, keys, rows, 1.0)


def test_another_size_of_block_gives_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of([(0, 300, 1)])
    keys, values = paged(1, [301], 16, (1, 32)), paged(2, [301], 16, (1, 32))
    q = normal(3, 1, 4, 32)
    found = cpu.attention(native("portable", 1), q, keys, values, rows, 0.2)
    assert same_bits(found, naive.attention(q, keys, values, rows, 0.2))
    monkeypatch.setattr(naive, "BLOCK", 128)
    assert not same_bits(found, naive.attention(q, keys, values, rows, 0.2))


@pytest.mark.parametrize(
    ("heads", "segments"),
    [(4, [(0, 2999, 1)]), (2, [(0, 1500, 2), (1, 2500, 1)]), (32, [(0, 1020, 7), (1, 2500, 1)])],
)
def test_a_long_cache_that_threads_share(heads: int, segments: list[tuple[int, int, int]]) -> None:
    rows = rows_of(segments)
    keys, values = paged(1, [3000, 2501], 16, (1, 128)), paged(2, [3000, 2501], 16, (1, 128))
    q = normal(3, len(rows.slot), heads, 128)
    every_way(lambda n: [cpu.attention(n, q, keys, values, rows, 0.1)], [naive.attention(q, keys, values, rows, 0.1)])


def test_each_row_alone_gives_the_same_bits() -> None:
    segments = [(1, 20, 7), (0, 3, 2), (2, 70, 9)]
    rows = rows_of(segments)
    keys, values = paged(1, [5, 27, 79], 4, (2, 64)), paged(2, [5, 27, 79], 4, (2, 64))
    q = normal(3, len(rows.slot), 8, 64)
    n = native("avx2", 2)
    together = cpu.attention(n, q, keys, values, rows, 0.125)
    alone = [
        cpu.attention(n, q[t : t + 1], keys, values, rows_of([(int(rows.slot[t]), int(rows.position[t]), 1)]), 0.125)
        for t in range(len(q))
    ]
    assert same_bits(together, torch.cat(alone))


def test_a_changed_page_or_value_changes_the_result() -> None:
    rows = rows_of([(0, 20, 1)])
    keys, values = paged(1, [21, 21], 4, (1, 32)), paged(2, [21, 21], 4, (1, 32))
    q = normal(3, 1, 2, 32)
    n = native("portable", 1)
    expected = naive.attention(q, keys, values, rows, 0.2)
    table = keys.table.clone()
    table[0, 2] = table[1, 2]
    assert not same_bits(cpu.attention(n, q, PagedPlane(keys.data, table), values, rows, 0.2), expected)
    data = values.data.clone()
    data[int(values.table[0, 5]), 0, 0, 31] += 1
    found = cpu.attention(n, q, keys, PagedPlane(values.data, values.table), rows, 0.2)
    changed = cpu.attention(n, q, keys, PagedPlane(data, values.table), rows, 0.2)
    assert same_bits(found, expected)
    assert (bits(changed) != bits(expected)).nonzero()[1].tolist() == [31, 32 + 31]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("where", ["q", "key", "value"])
def test_non_finite_values_stay_visible(value: float, where: str) -> None:
    rows = rows_of([(0, 40, 2), (1, 50, 1)])
    keys, values = paged(1, [42, 51], 16, (1, 32)), paged(2, [42, 51], 16, (1, 32))
    q = normal(3, 3, 2, 32)
    {"q": q[0, 1], "key": keys.data[int(keys.table[0, 1]), 0, 3], "value": values.data[int(values.table[0, 1]), 0, 3]}[
        where
    ][5] = value
    expected = naive.attention(q, keys, values, rows, 0.2)
    assert not expected[0, 32:].isfinite().all() or (value < 0 and where == "key") or value == float("inf")
    assert expected[2].isfinite().all()
    every_way(lambda n: [cpu.attention(n, q, keys, values, rows, 0.2)], [expected])


def test_entries_without_a_page_are_refused() -> None:
    keys = paged(1, [9], 4, (1, 32))
    n, q = native("portable", 1), normal(1, 1, 2, 32)
    with pytest.raises(IndexError, match="page -1 in its table"):
        cpu.attention(n, q, keys, keys, rows_of([(0, 12, 1)]), 1.0)
    keys.table.clamp_(min=0)
    with pytest.raises(IndexError, match="entry 16 is beyond its page table of 16"):
        cpu.attention(n, q, keys, keys, rows_of([(0, 16, 1)]), 1.0)
    with pytest.raises(IndexError, match="slot 1"):
        cpu.attention(n, q, keys, keys, rows_of([(1, 0, 1)]), 1.0)
    with pytest.raises(ValueError, match="3 query heads are no multiple of 2 KV heads"):
        cpu.attention(n, normal(1, 1, 3, 32), paged(1, [9], 4, (2, 32)), keys, rows_of([(0, 0, 1)]), 1.0)
