"""cache_write and pool_blocks: what is written lies where attention reads, and block means are right."""

from functools import partial

import pytest
import torch

from kernels.layer_cases import entries, every_way, native, normal, paged, rows_of, same_bits
from strata.kernels.attention import naive as attention_naive
from strata.kernels.cache import cpu, naive
from strata.kernels.views import PagedPlane


def int32(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("page", [4, 16])
@pytest.mark.parametrize("entry", [(2, 24), (32,)])
def test_written_entries_lie_where_the_table_says(page: int, entry: tuple[int, ...]) -> None:
    plane = paged(1, [30, 20, 40], page, entry)
    slots, places = int32([2, 0, 2, 1, 0]), int32([39, 3, 0, 19, 29])
    x = normal(2, 5, *entry)
    twin = PagedPlane(plane.data.clone(), plane.table)
    before = plane.data.clone()
    naive.cache_write(plane, slots, places, x)
    cpu.cache_write(native("portable", 1), twin, slots, places, x)
    assert same_bits(plane.data, twin.data)
    for i in range(5):
        assert torch.equal(entries(plane, int(slots[i]), int(places[i]) + 1)[-1], x[i].double())
    assert ((plane.data != before) & ~(plane.data.isnan() & before.isnan())).flatten(2).any(2).sum() == 5


def test_the_last_write_of_an_entry_stays() -> None:
    plane, x = paged(1, [4], 4, (8,)), normal(2, 2, 8)
    cpu.cache_write(native("portable", 1), plane, int32([0, 0]), int32([1, 1]), x)
    assert torch.equal(entries(plane, 0, 2)[1], x[1].double())


def test_a_bad_entry_is_refused_before_anything_is_written() -> None:
    plane, x = paged(1, [9], 4, (8,)), normal(2, 2, 8)
    before = plane.data.clone()
    for write in (naive.cache_write, partial(cpu.cache_write, native("portable", 1))):
        for slot, entry in ((0, 12), (0, 99), (0, -2), (1, 0)):
            with pytest.raises(IndexError):
                write(plane, int32([0, slot]), int32([0, entry]), x)
        assert same_bits(plane.data, before)
        with pytest.raises(ValueError, match="cache_write"):
            write(plane, int32([0]), int32([0]), x)


def test_no_entry_is_written_nowhere_and_has_no_mean() -> None:
    plane, x, places = paged(1, [9], 4, (8,)), normal(2, 3, 8), int32([2, -1, 5])
    before = plane.data.clone()
    for write in (naive.cache_write, partial(cpu.cache_write, native("portable", 1))):
        plane.data.copy_(before)
        write(plane, int32([0, 0, 0]), places, x)
        assert torch.equal(entries(plane, 0, 6)[[2, 5]], x[[0, 2]].double())
        changed = (plane.data != before) & ~(plane.data.isnan() & before.isnan())
        assert changed.flatten(2).any(2).sum() == 2
    expected = naive.pool_blocks(plane, int32([0, 0]), int32([-1, 1]), 4)
    assert not expected[0].any() and expected[1].all()
    every_way(lambda n: [cpu.pool_blocks(n, plane, int32([0, 0]), int32([-1, 1]), 4)], [expected])


def test_attention_reads_what_was_written() -> None:
    keys, values, rows = paged(1, [9], 4, (1, 32)), paged(2, [9], 4, (1, 32)), rows_of([(0, 8, 1)])
    q = normal(3, 1, 1, 32)
    before = attention_naive.attention(q, keys, values, rows, 1.0)
    cpu.cache_write(native("portable", 1), values, int32([0]), int32([4]), normal(5, 1, 1, 32))
    assert not same_bits(attention_naive.attention(q, keys, values, rows, 1.0), before)


@pytest.mark.parametrize(("dim", "ratio", "page"), [(24, 4, 4), (128, 4, 16), (64, 3, 4), (700, 1, 16), (32, 16, 4)])
def test_block_means(dim: int, ratio: int, page: int) -> None:
    raw = paged(1, [ratio * 3, ratio * 7], page, (dim,))
    slots, blocks = int32([1, 0, 1, 1]), int32([6, 2, 0, 3])
    expected = naive.pool_blocks(raw, slots, blocks, ratio)
    for i in range(4):
        members = entries(raw, int(slots[i]), (int(blocks[i]) + 1) * ratio)[-ratio:]
        torch.testing.assert_close(expected[i].double(), members.mean(0), rtol=1e-6, atol=1e-6)
    every_way(lambda n: [cpu.pool_blocks(n, raw, slots, blocks, ratio)], [expected])
    raw.data[int(raw.table[1, 0]), 0, 0] += 1
    found = cpu.pool_blocks(native("avx2", 2), raw, slots, blocks, ratio)
    assert not same_bits(found[2], expected[2]) and same_bits(found[0], expected[0])


def test_a_block_without_a_page_is_refused() -> None:
    raw = paged(1, [8], 4, (32,))
    with pytest.raises(IndexError, match="page -1"):
        cpu.pool_blocks(native("portable", 1), raw, int32([0]), int32([2]), 4)
    with pytest.raises(IndexError, match="beyond its page table"):
        cpu.pool_blocks(native("portable", 1), raw, int32([0]), int32([99]), 4)
