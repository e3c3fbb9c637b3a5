"""cache_write and pool_blocks: what is written lies where attention reads, and block means are right."""

from functools import partial

import pytest
import torch

from kernels.layer_cases import empty_plane, entries, every_way, native, normal, paged, rows_of, same_bits
from strata.kernels.attention import naive as attention_naive
from strata.kernels.cache import cpu, naive
from strata.kernels.views import KvType, PagedPlane


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
    changed = (plane.data != before) & ~(plane.data.isnan() & before.isnan())
    assert changed.any(-1).sum() == 5 * (entry[0] if len(entry) == 2 else 1)


VALUES = [0.0, -0.0, 1.0, -1.5, 3.0e38, 3.4e38, 1e-40, -1e-45, 1.00390625, 1.01171875, float("inf"), float("nan")]
"""Among them a subnormal, ties of the upper half both ways, and what rounds to infinity."""


def planes(kv_type: KvType, heads: int, dim: int) -> tuple[PagedPlane, PagedPlane]:
    """Two empty planes of 3 pages of 4 entries."""
    table = torch.tensor([[2, 0, 1]], dtype=torch.int32)
    return empty_plane(table, 3, 4, (heads, dim), kv_type), empty_plane(table, 3, 4, (heads, dim), kv_type)


def same_plane(a: PagedPlane, b: PagedPlane) -> bool:
    if a.scales is not None and b.scales is not None and not same_bits(a.scales, b.scales):
        return False
    code = (
        torch.int32 if a.data.dtype is torch.float32 else torch.int16 if a.data.dtype is torch.bfloat16 else torch.int8
    )
    return torch.equal(a.data.view(code), b.data.view(code))


@pytest.mark.parametrize("isa", ["portable", "avx2", "avx512"])
@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("kv_type", ["f32", "bf16", "int8"])
def test_every_type_is_written_as_specified(kv_type: KvType, threads: int, isa: str) -> None:
    x = normal(2, 12, 4, 64) * torch.logspace(-8, 8, 12)[:, None, None]
    x[3, 0, : len(VALUES)] = torch.tensor(VALUES)
    x[4, 1, : len(VALUES) - 2] = torch.tensor(VALUES[:-2])
    x[5, 2] = 0
    slots, places = torch.zeros(13, dtype=torch.int32), int32([*range(12), 7])
    places[2] = -1
    x = torch.cat([x, x[:1]])
    expected, found = planes(kv_type, 4, 64)
    naive.cache_write(expected, slots, places, x)
    cpu.cache_write(native(isa, threads), found, slots, places, x)
    assert same_plane(found, expected)
    found.data.view(torch.int8)[0, 0, 0, 0] ^= 1
    assert not same_plane(found, expected)


def test_bf16_is_the_nearest_even_upper_half() -> None:
    x = torch.cat([normal(2, 1, 1, 1000), torch.tensor(VALUES[:-1])[None, None]], 2)
    plane, _ = planes("bf16", 1, x.shape[2])
    naive.cache_write(plane, int32([0]), int32([5]), x)
    assert torch.equal(plane.data[0, 0, 1], x[0, 0].to(torch.bfloat16))
    assert not torch.equal(plane.data[0, 0, 1].view(torch.int16), (x[0, 0].view(torch.int32) >> 16).to(torch.int16))


def test_int8_is_within_half_a_step_of_what_was_written() -> None:
    x = normal(2, 1, 2, 64)
    plane, _ = planes("int8", 2, 64)
    naive.cache_write(plane, int32([0]), int32([0]), x)
    largest = x[0].view(2, 2, 32).abs().amax(2)
    error = (entries(plane, 0, 1)[0] - x[0].double()).view(2, 2, 32).abs().amax(2)
    assert (error <= largest / 127 * 0.501).all() and (error > largest / 127 * 0.3).all()


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
