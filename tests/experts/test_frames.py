"""Frames: nothing is lost, nothing is given twice."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strata.experts.frames import ALIGNMENT, Frame, Frames, aligned
from strata.experts.placing import block_bytes, packed_bytes

BLOCK = 16 * ALIGNMENT


def frames(blocks=1):
    found = Frames(BLOCK)
    for _ in range(blocks):
        found.add_block()
    return found


def test_frames_have_the_size_of_their_expert_and_the_smallest_run_is_taken():
    f = frames()
    assert f.take((0, 0), 4 * ALIGNMENT) == Frame(0, 0, 4 * ALIGNMENT)
    assert f.take((1, 0), ALIGNMENT + 1) == Frame(0, 4 * ALIGNMENT, 2 * ALIGNMENT)
    assert f.take((2, 0), 3) == Frame(0, 6 * ALIGNMENT, ALIGNMENT)
    f.give((1, 0))
    assert f.take((3, 1), 2 * ALIGNMENT) == Frame(0, 4 * ALIGNMENT, 2 * ALIGNMENT)


def test_what_does_not_fit_is_refused_and_changes_nothing():
    f = frames()
    assert f.take((0, 0), BLOCK + 1) is None
    assert f.take((0, 1), BLOCK) is not None
    assert f.take((0, 2), 1) is None and (0, 2) not in f.held


def test_a_frame_never_crosses_blocks():
    f = frames(2)
    f.take((0, 0), 10 * ALIGNMENT)
    f.take((0, 1), 10 * ALIGNMENT)
    assert f.take((0, 2), 7 * ALIGNMENT) is None
    assert f.used_bytes == 20 * ALIGNMENT and f.nbytes == 2 * BLOCK


def test_room_beside_a_frame_counts_when_another_would_take_its_place():
    f = frames()
    for expert, size in enumerate((4, 4, 4)):
        f.take((0, expert), size * ALIGNMENT)
    assert not f.fits_in_place_of((0, 1), 5 * ALIGNMENT)
    assert f.fits_in_place_of((0, 2), 8 * ALIGNMENT) and not f.fits_in_place_of((0, 2), 8 * ALIGNMENT + 1)
    f.give((0, 1))
    assert f.fits_in_place_of((0, 0), 8 * ALIGNMENT)


def test_mistakes_are_named():
    f = frames()
    f.take((0, 0), 1)
    with pytest.raises(ValueError, match="layer 0, expert 0 has a frame already"):
        f.take((0, 0), 1)
    with pytest.raises(ValueError, match="block 0 still holds 1 experts"):
        f.drop_block(0)
    with pytest.raises(ValueError, match="a frame of 0 bytes"):
        f.take((0, 1), 0)
    with pytest.raises(KeyError):
        f.give((5, 5))
    with pytest.raises(ValueError, match="multiple of 256"):
        Frames(100)


def test_a_dropped_block_number_serves_again():
    f = frames(3)
    f.drop_block(1)
    assert sorted(f.blocks) == [0, 2] and f.add_block(5 * ALIGNMENT) == 1 and sorted(f.blocks) == [0, 1, 2]
    assert f.nbytes == 2 * BLOCK + 5 * ALIGNMENT


@pytest.mark.parametrize("budget", range(0, 3 * BLOCK, 100))
def test_blocks_fill_a_budget_but_for_less_than_eight_experts(budget):
    f, largest = frames(0), ALIGNMENT + 1
    while nbytes := f.next_block(budget, largest):
        f.add_block(nbytes)
    assert budget - (8 * 2 * ALIGNMENT if budget >= 2 * ALIGNMENT else budget + 1) < f.nbytes <= budget
    assert sum(nbytes != BLOCK for nbytes in f.blocks.values()) <= 1


class Life(RuleBasedStateMachine):
    """Random takes, gives, blocks that come and go, against a plain set of bytes."""

    @initialize(blocks=st.integers(0, 3))
    def begin(self, blocks):
        self.frames = frames(blocks)
        self.next = 0

    @rule(size=st.integers(1, BLOCK + 1))
    def take(self, size):
        owner, self.next = (self.next % 5, self.next), self.next + 1
        longest = max((r.nbytes for runs in self.frames.free.values() for r in runs), default=0)
        frame = self.frames.take(owner, size)
        assert (frame is not None) == (aligned(size) <= longest)

    @precondition(lambda self: self.frames.held)
    @rule(data=st.data())
    def give(self, data):
        owner = data.draw(st.sampled_from(sorted(self.frames.held)))
        expected = self.frames.held[owner]
        assert self.frames.give(owner) == expected

    @precondition(lambda self: self.frames.held)
    @rule(data=st.data(), size=st.integers(1, BLOCK))
    def replace(self, data, size):
        owner = data.draw(st.sampled_from(sorted(self.frames.held)))
        if self.frames.fits_in_place_of(owner, size):
            self.frames.give(owner)
            assert self.frames.take(owner, size) is not None

    @rule(alignments=st.integers(1, 16))
    def add(self, alignments):
        if len(self.frames.blocks) < 4:
            self.frames.add_block(alignments * ALIGNMENT)

    @precondition(lambda self: self.frames.blocks)
    @rule(data=st.data())
    def drop(self, data):
        block = data.draw(st.sampled_from(sorted(self.frames.blocks)))
        for owner in self.frames.owners(block):
            self.frames.give(owner)
        self.frames.drop_block(block)

    @invariant()
    def every_byte_belongs_to_one(self):
        if not hasattr(self, "frames"):
            return
        runs = [*self.frames.held.values(), *(r for rs in self.frames.free.values() for r in rs)]
        for block, nbytes in self.frames.blocks.items():
            here = sorted(r for r in runs if r.block == block)
            assert here[0].offset == 0 and here[-1].end == nbytes
            assert all(a.end == b.offset for a, b in pairwise(here))
        assert sum(r.nbytes for r in runs) == self.frames.nbytes
        assert self.frames.used_bytes == sum(f.nbytes for f in self.frames.held.values())
        assert all(f.offset % ALIGNMENT == 0 for f in runs)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@given(st.integers(0, 1 << 40))
def test_alignment_rounds_up(nbytes):
    assert nbytes <= aligned(nbytes) < nbytes + ALIGNMENT and aligned(nbytes) % ALIGNMENT == 0


@pytest.mark.parametrize("counts", [{256: 10}, {256: 3, 512: 4}, {1024: 5, 256: 1}, {768: 100, 512: 7, 256: 900}])
@pytest.mark.parametrize("wished", [256, 1024, 8192])
def test_an_arena_of_the_packed_size_holds_every_expert(counts, wished):
    total = sum(size * n for size, n in counts.items())
    block = block_bytes(wished, max(counts), total)
    frames = Frames(block)
    for _ in range(packed_bytes(counts, block) // block):
        frames.add_block()
    owners = [(layer, e) for layer, (_, n) in enumerate(counts.items()) for e in range(n)]
    for seed in range(3):
        for owner in np.random.default_rng(seed).permutation(owners).tolist():
            assert frames.take(tuple(owner), list(counts)[owner[0]]) is not None
        for owner in owners:
            frames.give(owner)
