"""Budgets of VRAM and pinned memory."""

import pytest

from strata.core.errors import UsageError
from strata.plan.vram import (
    RESERVE_BYTES,
    ahead_bytes,
    choose_arena,
    choose_chunk,
    choose_pinned,
    choose_state_room,
    reserve_for,
)

GIB = 1 << 30


def test_all_experts_when_they_fit_else_what_is_left():
    assert choose_arena(20 * GIB, 10 * GIB, None, None)[0] == 10 * GIB
    nbytes, found = choose_arena(8 * GIB, 10 * GIB, None, None)
    assert nbytes == 8 * GIB - RESERVE_BYTES and "the experts have 10240" in found.reason
    assert (found.name, found.value) == ("vram_experts_mib", nbytes >> 20)
    assert choose_arena(8 * GIB, 10 * GIB, None, 3072)[0] == 5 * GIB
    assert choose_arena(100, 10 * GIB, None, None)[0] == 0


def test_a_wish_is_kept_or_refused():
    assert choose_arena(20 * GIB, 50 * GIB, 12, None)[0] == 12 * GIB
    assert choose_arena(20 * GIB, 5 * GIB, 12, None)[0] == 5 * GIB
    # More than there is was asked, and more than the experts need: all of them is no less than asked.
    assert choose_arena(20 * GIB, 5 * GIB, 30, None)[0] == 5 * GIB
    assert choose_arena(20 * GIB, 50 * GIB, 0, None)[0] == 0
    with pytest.raises(UsageError, match=r"--vram-gib 19\.5: 19\.0 GiB are free behind a reserve of 1024 MiB"):
        choose_arena(20 * GIB, 50 * GIB, 19.5, None)


def test_what_is_not_in_vram_is_pinned_as_far_as_memory_goes():
    assert choose_pinned(100 * GIB, 10 * GIB, True)[0] == 0
    assert choose_pinned(100 * GIB, 10 * GIB, False)[0] == 10 * GIB
    nbytes, found = choose_pinned(10 * GIB, 20 * GIB, False)
    assert nbytes == 8 * GIB and "computed by the CPU" in found.reason


def test_prompts_are_read_in_the_largest_chunks_that_leave_the_card_alone():
    row = 600 << 10
    assert choose_chunk(row, 140 * GIB)[0] == 8192 and choose_chunk(row, 24 * GIB)[0] == 2048
    assert choose_chunk(row, 8 * GIB)[0] == 512 == choose_chunk(1 << 30, 8 * GIB)[0]
    assert "2048 rows" not in choose_chunk(row, 24 * GIB)[1] and "1200 MiB" in choose_chunk(row, 24 * GIB)[1]
    # What was asked for is not changed; else there is room for the rows.
    assert (reserve_for(300, 4 * GIB), reserve_for(None, 4 * GIB)) == (300, 5 * 1024)


def test_a_prompts_experts_on_their_way_take_little_or_nothing():
    assert ahead_bytes(100 * GIB, 50 * GIB, GIB, None) == 0  # all of them stay
    half = ahead_bytes(26 * GIB, 50 * GIB, GIB, None)
    assert half == GIB  # half of two layers
    assert ahead_bytes(9 * GIB, 50 * GIB, GIB, None) == 0  # 1.7 of 9 GiB would be too much


def test_states_get_what_experts_leave_but_a_quarter_at_least():
    plenty = choose_state_room(100 * GIB, 4 * GIB, 50 * GIB, None, None)
    assert (plenty.usual, plenty.most) == (45 * GIB, 95 * GIB)
    short = choose_state_room(17 * GIB, 4 * GIB, 50 * GIB, None, None)
    assert (short.usual, short.most) == (3 * GIB, 12 * GIB)
    # What was asked for experts is set aside.
    asked = choose_state_room(17 * GIB, 4 * GIB, 50 * GIB, 10, None)
    assert (asked.usual, asked.most) == (2 * GIB, 2 * GIB)


def test_a_gpu_that_is_too_small_is_refused_with_both_numbers():
    with pytest.raises(UsageError, match=r"every step reads need 4096 MiB, 3072 MiB are free behind a reserve of 1024"):
        choose_state_room(4 * GIB, 4 * GIB, 50 * GIB, None, None)
    with pytest.raises(UsageError, match=r"need 4096 MiB and 8192 MiB for experts, 11264 MiB are free"):
        choose_state_room(12 * GIB, 4 * GIB, 50 * GIB, 8, None)
