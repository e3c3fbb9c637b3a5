"""attention on the emulated device: the specification's bits for few rows and many, in every order of threads."""

from dataclasses import replace

import pytest
import torch

from kernels.layer_cases import bits, normal, paged, poisoned, rows_of, same_bits
from strata.kernels.attention import gpu, gpu_plan, naive
from strata.kernels.device_addresses import PlaneAddresses
from strata.kernels.host_device import HostDevice
from strata.kernels.shared_memory import shared_memory
from strata.kernels.views import KvType, PagedPlane

CASES = [
    # heads, KV heads, d, page, segments
    (1, 1, 24, 4, [(0, 0, 1)]),
    (4, 2, 32, 16, [(0, 0, 5), (2, 60, 3)]),
    (8, 1, 64, 4, [(1, 31, 3), (0, 5, 1)]),
    (6, 2, 40, 16, [(2, 250, 9), (0, 511, 2)]),
    (3, 3, 128, 16, [(0, 300, 1), (1, 20, 1)]),
    (12, 1, 256, 16, [(0, 40, 2)]),
    (8, 1, 128, 16, [(0, 250, 9), (1, 20, 3)]),
    (4, 1, 256, 16, [(0, 255, 5), (1, 2, 4)]),
    (7, 1, 96, 4, [(0, 255, 1), (1, 256, 1), (2, 257, 1)]),
]


def planes(
    segments: list[tuple[int, int, int]], page: int, entry: tuple[int, int], kv_type: KvType = "f32"
) -> tuple[PagedPlane, PagedPlane]:
    lengths = [max([start + n for s, start, n in segments if s == slot], default=1) for slot in range(3)]
    keys = paged(1, lengths, page, entry, kv_type)
    values = paged(2, lengths, page, entry, kv_type)
    return keys, values


@pytest.mark.parametrize(("heads", "kv_heads", "dim", "page", "segments"), CASES)
@pytest.mark.parametrize(("most", "processors"), [(32, 2), (32, 40), (0, 2)])
def test_bits_of_the_specification(
    monkeypatch: pytest.MonkeyPatch,
    heads: int,
    kv_heads: int,
    dim: int,
    page: int,
    segments: list[tuple[int, int, int]],
    most: int,
    processors: int,
) -> None:
    rows, (keys, values) = rows_of(segments), planes(segments, page, (kv_heads, dim))
    q = normal(3, len(rows.slot), heads, dim)
    monkeypatch.setattr(gpu, "MOST_ROWS", most)  # 0: the kernel for prompts
    device = HostDevice(order=7)
    device.processors = processors  # the more, the fewer queries a thread block has
    with poisoned():
        found = gpu.attention(device, q, keys, values, rows, dim**-0.5)
    expected = naive.attention(q, keys, values, rows, dim**-0.5)
    assert same_bits(found, expected), f"{(bits(found) != bits(expected)).sum()} values differ"


@pytest.mark.parametrize("kv_type", ["bf16", "int8"])
@pytest.mark.parametrize("most", [32, 0])
def test_other_types_of_cache(monkeypatch: pytest.MonkeyPatch, kv_type: KvType, most: int) -> None:
    segments = [(1, 20, 3), (0, 258, 1)]
    rows, (keys, values) = rows_of(segments), planes(segments, 16, (2, 64), kv_type)
    q = normal(3, 4, 4, 64)
    monkeypatch.setattr(gpu, "MOST_ROWS", most)
    found = gpu.attention(HostDevice(), q, keys, values, rows, 0.1)
    assert same_bits(found, naive.attention(q, keys, values, rows, 0.1))


@pytest.mark.parametrize("most", [32, 0])
def test_keys_and_values_of_two_types_and_pages(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    rows, q = rows_of([(0, 70, 2)]), normal(3, 2, 4, 32)
    keys, values = paged(1, [72], 16, (2, 32), "int8"), paged(2, [72], 4, (2, 32), "bf16")
    monkeypatch.setattr(gpu, "MOST_ROWS", most)
    assert same_bits(
        gpu.attention(HostDevice(), q, keys, values, rows, 0.2), naive.attention(q, keys, values, rows, 0.2)
    )


def test_launches_for_as_many_rows_as_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, q = rows_of([(0, 599, 1), (1, 100, 1)]), normal(3, 2, 2, 32)
    keys, values = paged(1, [600, 101], 16, (1, 32)), paged(2, [600, 101], 16, (1, 32))
    expected = naive.attention(q, keys, values, rows, 0.2)
    monkeypatch.setattr(gpu, "MOST_SCRATCH", 1)
    device = HostDevice()
    assert same_bits(gpu.attention(device, q, keys, values, rows, 0.2), expected)
    assert device.launches == 2
    assert not device.counters(gpu.PART_WORDS).any()


def test_more_query_heads_than_a_unit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    units = gpu_plan.units_of(1, 1, 64, 1, 256, False)
    assert (units.heads, units.parts, units.rows) == (16, 4, 1)
    rows, q = rows_of([(0, 40, 2)]), normal(3, 2, 40, 128)
    keys, values = paged(1, [42], 16, (1, 128)), paged(2, [42], 16, (1, 128))
    assert same_bits(
        gpu.attention(HostDevice(), q, keys, values, rows, 0.2), naive.attention(q, keys, values, rows, 0.2)
    )


@pytest.mark.parametrize("most", [32, 0])
def test_scores_far_apart(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Whole blocks of positions whose exponentials are subnormal or 0, of some lanes or of all but one."""
    rows, q = rows_of([(0, 520, 2)]), normal(3, 2, 2, 32)
    keys, values = paged(1, [522], 16, (1, 32)), paged(2, [522], 16, (1, 32))
    q[0] *= 70.0
    q[1] *= 6.0
    monkeypatch.setattr(gpu, "MOST_ROWS", most)
    assert same_bits(
        gpu.attention(HostDevice(), q, keys, values, rows, 1.0), naive.attention(q, keys, values, rows, 1.0)
    )


@pytest.mark.parametrize(
    ("dim", "heads", "queries", "threads", "tile"), [(128, 8, 64, 256, 8192), (256, 8, 32, 256, 32768)]
)
def test_large_units_need_rows_and_shared_memory(dim: int, heads: int, queries: int, threads: int, tile: int) -> None:
    plane = PlaneAddresses(0, 0, 0, 64, 64, 1, dim, "f32")
    call = gpu.Call(0, 0, (0, 0), plane, plane, 0, 0, 0, 1, 1024, heads, 1, 0.1, gpu.Listed(0, 0, 0))
    device = HostDevice()
    wide = gpu.cut(device, call, dim)
    assert (wide.units.queries, wide.threads, wide.tile) == (queries, threads, tile)
    assert wide.shared_bytes <= device.shared.dynamic
    device.processors = 1000
    assert gpu.cut(device, call, dim).units.queries == queries // 2
    device.processors = 2
    device.shared = shared_memory(99 << 10)
    assert gpu.cut(device, call, dim).shared_bytes <= 99 << 10


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("most", [32, 0])
def test_values_that_are_not_finite(monkeypatch: pytest.MonkeyPatch, value: float, most: int) -> None:
    rows, q = rows_of([(0, 299, 2)]), normal(3, 2, 2, 32)
    keys, values = paged(1, [301], 16, (1, 32)), paged(2, [301], 16, (1, 32))
    q[1, 0, 3] = value
    monkeypatch.setattr(gpu, "MOST_ROWS", most)
    assert same_bits(
        gpu.attention(HostDevice(), q, keys, values, rows, 0.2), naive.attention(q, keys, values, rows, 0.2)
    )


def test_another_size_of_block_or_a_changed_value_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative controls."""
    rows, q = rows_of([(0, 300, 1)]), normal(3, 1, 4, 32)
    keys, values = paged(1, [301], 16, (1, 32)), paged(2, [301], 16, (1, 32))
    found = gpu.attention(HostDevice(), q, keys, values, rows, 0.2)
    assert same_bits(found, naive.attention(q, keys, values, rows, 0.2))
    changed = replace(values, data=values.data.clone())
    changed.data[int(values.table[0, 18]), 0, 12, 5] += 1.0
    differs = (gpu.attention(HostDevice(), q, keys, changed, rows, 0.2) != found).view(q.shape)
    assert differs[:, :, 5].all() and differs.sum() == 4
    monkeypatch.setattr(naive, "BLOCK", 128)
    assert not same_bits(found, naive.attention(q, keys, values, rows, 0.2))


def test_what_kernels_cannot_do_is_refused() -> None:
    rows, q = rows_of([(0, 3, 1)]), normal(3, 1, 4, 36)
    keys = paged(1, [4], 4, (2, 36), "bf16")
    with pytest.raises(ValueError, match="bf16 heads of 36 values, expected a multiple of 8"):
        gpu.attention(HostDevice(), q, keys, keys, rows, 0.2)
    with pytest.raises(ValueError, match="no multiple of 2 KV heads"):
        gpu.attention(HostDevice(), torch.zeros(1, 3, 36), keys, keys, rows, 0.2)
