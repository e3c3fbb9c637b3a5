"""Shared by the tests of layer operations: every way to run the C++ form, poison, paged planes and rows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch

from kernels.natives import native
from strata.kernels.attention import cpu as attention_cpu
from strata.kernels.cache import naive as cache_naive
from strata.kernels.native import Native
from strata.kernels.views import KvType, PagedPlane, Rows

WAYS = [("portable", 1), ("portable", 5), ("avx2", 2), ("avx512", 1), ("avx512", 2), ("avx512", 5)]
"""Instruction sets and thread counts; none may show in a result."""


def bits(x: torch.Tensor) -> np.ndarray:
    """The bits of x, with every NaN made the same one: which NaN it is, is not part of the rule."""
    values = x.detach().contiguous().numpy().copy()
    if values.dtype == np.float32:
        values[np.isnan(values)] = np.nan
    return values.view(np.int32)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal shapes and bits."""
    return a.shape == b.shape and np.array_equal(bits(a), bits(b))


@contextmanager
def poisoned() -> Iterator[None]:
    """Uninitialised tensors hold NaN (floats) or a wild number (integers), so that unwritten places show."""

    def fill(x: torch.Tensor) -> torch.Tensor:
        return x.fill_(float("nan") if x.is_floating_point() else 171 if x.dtype is torch.uint8 else 1_234_567)

    def empty(*shape: object, **options: object) -> torch.Tensor:
        return fill(real_empty(*shape, **options))  # type: ignore[call-overload]

    def empty_like(x: torch.Tensor) -> torch.Tensor:
        return fill(real_empty_like(x))

    real_empty, real_empty_like = torch.empty, torch.empty_like
    with mock.patch.object(torch, "empty", empty), mock.patch.object(torch, "empty_like", empty_like):
        yield


def soil(way: Native) -> None:
    """Leaves NaN all over the scratch memory of `way`."""
    plane = PagedPlane(torch.full((1, 1, 2048, 1), float("nan")), torch.zeros((1, 1), dtype=torch.int32))
    attention_cpu.attention(way, torch.full((1, 16, 1), float("nan")), plane, plane, rows_of([(0, 2047, 1)]), 1.0)


def every_way(run: Callable[[Native], Sequence[torch.Tensor]], expected: Sequence[torch.Tensor]) -> None:
    """run(native) gives the expected bits on every instruction set and thread count, poisoned and soiled."""
    ran = 0
    for isa, threads in WAYS:
        try:
            way = native(isa, threads)
        except pytest.skip.Exception:
            continue
        soil(way)
        with poisoned():
            found = run(way)
        ran += 1
        for a, b in zip(found, expected, strict=True):
            assert same_bits(a, b), f"{isa}, {threads} threads: {(bits(a) != bits(b)).sum()} values differ"
    assert ran >= 2


def rows_of(segments: Sequence[tuple[int, int, int]]) -> Rows:
    """Rows of (slot, first position, number of rows) runs."""
    slot: list[int] = []
    position: list[int] = []
    runs: list[tuple[int, int, int]] = []
    for s, start, length in segments:
        runs.append((s, len(slot), length))
        slot += [s] * length
        position += range(start, start + length)
    as_int32 = {"dtype": torch.int32}
    return Rows(
        torch.tensor(slot, **as_int32),  # type: ignore[arg-type]
        torch.tensor(position, **as_int32),  # type: ignore[arg-type]
        torch.tensor(runs, **as_int32).reshape(-1, 3),  # type: ignore[arg-type]
    )


def held_rows(segments: Sequence[tuple[int, int, int]], held: Sequence[int]) -> Rows:
    """The same, with the segments of these numbers held."""
    flags = [int(number in held) for number in range(len(segments))]
    return replace(rows_of(segments), held=torch.tensor(flags, dtype=torch.int32))


def normal(seed: int, *shape: int) -> torch.Tensor:
    """Standard normal float32 of a shape."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def paged(seed: int, lengths: Sequence[int], page: int, entry: tuple[int, ...], kv_type: KvType = "f32") -> PagedPlane:
    """A plane with lengths[s] random entries in slot s, on shuffled pages; NaN and page -1 where nothing is held.

    Of a type other than float32, the entries are written by the specification and unheld ones are zero.
    """
    rng = np.random.default_rng(seed)
    per_slot = max(-(-n // page) for n in lengths) + 1
    table = np.full((len(lengths), per_slot), -1, np.int32)
    free = list(rng.permutation(len(lengths) * per_slot))
    plane = empty_plane(torch.from_numpy(table), len(lengths) * per_slot, page, entry, kv_type)
    for s, n in enumerate(lengths):
        for p in range(n):
            if p % page == 0:
                table[s, p // page] = free.pop()
            x = torch.from_numpy(rng.standard_normal((1, *entry)).astype(np.float32))
            cache_naive.cache_write(plane, torch.tensor([s]), torch.tensor([p]), x)
    return plane


def empty_plane(table: torch.Tensor, pages: int, page: int, entry: tuple[int, ...], kv_type: KvType) -> PagedPlane:
    """A plane without entries: NaN, or zeros of a type other than float32."""
    *heads, dim = entry
    if kv_type == "f32":
        return PagedPlane(torch.full((pages, *heads, page, dim), float("nan")), table)
    dtype = torch.bfloat16 if kv_type == "bf16" else torch.int8
    scales = torch.zeros(pages, *heads, page, dim // 32) if kv_type == "int8" else None
    return PagedPlane(torch.zeros(pages, *heads, page, dim, dtype=dtype), table, scales)


def entries(plane: PagedPlane, slot: int, count: int) -> torch.Tensor:
    """The first entries of a slot, read one by one, as float64."""
    found = []
    for p in range(count):
        at = plane.at(int(plane.table[slot, p // plane.page]), p % plane.page)
        entry = plane.data[at].double()
        if plane.scales is not None:
            entry = entry * plane.scales[at].double().repeat_interleave(32, -1)
        found.append(entry)
    return torch.stack(found)
