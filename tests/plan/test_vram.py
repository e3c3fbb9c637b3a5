"""Budgets of VRAM and pinned memory."""

import pytest

from strata.core.errors import UsageError
from strata.plan.vram import RESERVE_BYTES, choose_arena, choose_pinned

GIB = 1 << 30


def test_all_experts_when_they_fit_else_what_is_left():
    assert choose_arena(20 * GIB, 10 * GIB, None, None).value == 10 * GIB
    found = choose_arena(8 * GIB, 10 * GIB, None, None)
    assert found.value == 8 * GIB - RESERVE_BYTES and "the experts have 10240" in found.reason
    assert choose_arena(8 * GIB, 10 * GIB, None, 3072).value == 5 * GIB
    assert choose_arena(100, 10 * GIB, None, None).value == 0


def test_a_wish_is_kept_or_refused():
    assert choose_arena(20 * GIB, 50 * GIB, 12, None).value == 12 * GIB
    assert choose_arena(20 * GIB, 5 * GIB, 12, None).value == 5 * GIB
    assert choose_arena(20 * GIB, 50 * GIB, 0, None).value == 0
    with pytest.raises(UsageError, match=r"--vram-gib 19\.5: 19\.0 GiB are free behind a reserve of 1024 MiB"):
        choose_arena(20 * GIB, 50 * GIB, 19.5, None)


def test_what_is_not_in_vram_is_pinned_as_far_as_memory_goes():
    assert choose_pinned(100 * GIB, 10 * GIB, 10 * GIB).value == 0
    assert choose_pinned(100 * GIB, 10 * GIB, 4 * GIB).value == 10 * GIB
    found = choose_pinned(10 * GIB, 20 * GIB, 4 * GIB)
    assert found.value == 8 * GIB and "computed by the CPU" in found.reason
