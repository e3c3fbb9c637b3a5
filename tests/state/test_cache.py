"""Kept prefixes: what is gone on with is what was written, whatever happened on the way; nothing leaks."""

import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from state.kept import PAGE, Kept
from strata.core.errors import CapacityError, UnsupportedError
from strata.core.held import Held
from strata.core.order import Order
from strata.core.sharing import PRIVATE
from strata.state.archive import Archive
from strata.state.prefix import Node
from strata.state.stops import Spacing

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=14)
SLOTS = 3


class Sequences(RuleBasedStateMachine):
    """Slots come and go, share, are cut and fail; budgets are small; files are written and the process starts anew."""

    folder: Path

    @initialize(
        pages=st.integers(12, 24), ram=st.sampled_from([0, 200, 600, 5000]), disk=st.sampled_from([None, 900, 10**6]),
        state_bytes=st.sampled_from([0, 32]), rewrites=st.sampled_from([0, 1]), grid=st.sampled_from([1, 2, PAGE]),
        ahead=st.sampled_from([0, 1, 100]),
    )  # fmt: skip
    def start(self, pages, ram, disk, state_bytes, rewrites, grid, ahead):
        self.folder = Path(tempfile.mkdtemp())
        self.settings = {"pages": pages, "ram": ram, "disk": disk or 0, "state_bytes": state_bytes}
        self.settings |= {"rewrites": rewrites, "spacing": Spacing(grid, 2 * PAGE), "ahead": ahead}
        self.settings["folder"] = None if disk is None else self.folder
        self.kept = Kept(SLOTS, **self.settings)
        self.seen: list[list[int]] = [[]]

    def sequence(self, slot):
        return self.kept.contents.sequences[slot]

    def free(self):
        return [slot for slot in range(SLOTS) if slot not in self.kept.cache.paths]

    @precondition(lambda self: self.free())
    @rule(data=st.data(), new=TOKENS, room=st.integers(0, 30), marks=st.lists(st.integers(0, 40), max_size=3))
    def seat(self, data, new, room, marks):
        old = data.draw(st.sampled_from(self.seen))
        tokens = [*old[: data.draw(st.integers(0, len(old)))], *new][: self.kept.context]
        slot, most = self.free()[0], min(self.kept.context, len(tokens) + room)
        before = [list(held) for held in self.kept.table.held]
        try:
            held = self.kept.seat(slot, tokens, most, [m for m in marks if m <= len(tokens)])
        except CapacityError:
            assert len(self.free()) < SLOTS, "alone there is always room"
            assert self.kept.table.held == before
            return
        assert held < len(tokens)
        self.targets = getattr(self, "targets", {}) | {slot: (tokens, most)}
        self.seen.append(tokens)

    @precondition(lambda self: self.kept.cache.paths)
    @rule(data=st.data(), count=st.integers(1, 9), unkept=st.integers(0, 3), opens=st.booleans())
    def go_on(self, data, count, unkept, opens):
        slot = data.draw(st.sampled_from(sorted(self.kept.cache.paths)))
        tokens, most = self.targets[slot]
        at = len(self.sequence(slot))
        stops = [stop for stop in self.kept.cache.stops[slot] if stop > at]
        limit = min([*stops, len(tokens)]) if at < len(tokens) else most
        new = (tokens[at:] or data.draw(TOKENS))[: min(count, limit - at)]
        unkept = min(unkept, most - at - len(new))
        if self.kept.cache.short({slot: at + len(new) + unkept}):
            assert at >= len(tokens), "pages for the prompt are certain"
            return
        self.kept.append(slot, new, unkept)  # room was promised, so it never fails
        if opens:
            self.kept.cache.committed(slot, np.array(self.sequence(slot)), opens=True)
        self.seen.append(list(self.sequence(slot)))

    @precondition(lambda self: self.kept.cache.paths)
    @rule(data=st.data(), well=st.booleans())
    def end(self, data, well):
        slot = data.draw(st.sampled_from(sorted(self.kept.cache.paths)))
        (self.kept.release if well else self.kept.fail)(slot)

    @rule(verb=st.sampled_from(["park", "save", "restore"]), data=st.data())
    def order(self, verb, data):
        tokens = data.draw(st.sampled_from(self.seen)) if verb == "restore" else []
        with suppress(CapacityError, UnsupportedError):
            self.kept.cache.order(Order(verb, tuple(tokens)))

    @rule()
    def restart(self):
        if self.settings["folder"] is not None:
            self.kept.cache.close()
            self.kept = Kept(SLOTS, **self.settings)

    @invariant()
    def adds_up(self):
        if hasattr(self, "kept"):
            self.kept.tiers.poll()
            self.kept.check()

    def finish(self):
        """Everybody can grow to its most, one after the other."""
        while seated := sorted(self.kept.cache.paths):
            self.kept.tiers.settle()
            able = [slot for slot in seated if not self.kept.cache.short({slot: self.targets[slot][1]})]
            assert able, "everybody waits for everybody else"
            tokens, most = self.targets[able[0]]
            at = len(self.sequence(able[0]))
            for stop in [stop for stop in sorted({*self.kept.cache.stops[able[0]], len(tokens), most}) if stop > at]:
                at = len(self.sequence(able[0]))
                self.kept.append(able[0], [*tokens[at:stop], *[0] * (stop - max(at, len(tokens)))])
            self.kept.release(able[0])

    def teardown(self):
        if hasattr(self, "kept"):
            self.finish()
            self.kept.cache.close()
            self.kept.check()
            nodes = self.kept.cache.tree.nodes()
            assert all(not node.users for node in nodes)
            for node in list(nodes):
                if not node.gone:
                    self.kept.tiers.drop(node)
            assert len(self.kept.table.free) == self.kept.table.pages, "pages leaked"
            assert not list(self.folder.iterdir()) or self.settings["folder"] is None, "files leaked"
            shutil.rmtree(self.folder)


TestSequences = Sequences.TestCase
TestSequences.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_follow_up_goes_on_at_the_end():
    kept = Kept()
    kept.read(0, [1, 2, 3, 4, 5])
    kept.append(0, [6, 7])
    kept.release(0)
    assert kept.cache.known([1, 2, 3, 4, 5, 6, 7, 8, 9]) == 7
    assert kept.read(1, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 7
    kept.check()


def test_two_that_run_share_the_pages_of_a_marked_beginning():
    kept = Kept()
    system = list(range(10))
    kept.read(0, [*system, 20, 21, 22], marks=[10])
    assert kept.read(1, [*system, 30, 31]) == 8
    assert kept.table.held[0][:2] == kept.table.held[1][:2]
    assert kept.cache.status()["shared_pages"] >= 2
    kept.release(0)
    kept.check()


def test_an_edited_message_is_gone_on_with_below_the_change():
    kept = Kept()
    kept.read(0, list(range(30)), marks=[13, 22])
    kept.release(0)
    assert kept.read(1, [*range(23), 90, 91]) == 20
    kept.release(1)
    assert kept.read(1, [*range(14), 80]) == 12


def test_where_two_prompts_parted_the_third_goes_on():
    """Without any mark: what two sequences share is kept when the second comes."""
    kept, shared = Kept(spacing=Spacing(PAGE, 10 * PAGE)), list(range(22))
    for slot, rest in enumerate(([50, 51, 52], [60, 61, 62, 63], [70, 71])):
        assert kept.read(slot, [*shared, *rest]) == (20 if slot == 2 else 0)
    kept.check()


def test_before_a_drawn_opener_the_state_is_kept():
    kept = Kept(spacing=Spacing(PAGE, 10 * PAGE))
    kept.read(0, list(range(10)))
    kept.append(0, [20, 21, 22])
    kept.cache.committed(0, np.array(kept.contents.sequences[0]), opens=True)
    kept.append(0, [30, 31])
    kept.release(0)
    assert kept.read(0, [*range(10), 20, 21, 22, 40]) == 13
    kept.check()


def test_a_private_sequence_takes_nothing_and_leaves_nothing():
    kept = Kept()
    kept.read(0, list(range(20)))
    kept.release(0)
    prefixes = kept.cache.status()["prefixes"]
    held, state = kept.cache.seat(1, [*range(20), 7], 30, PRIVATE)
    assert held == Held(0) and state == {}
    kept.append(1, [*range(20), 7])
    kept.release(1)
    assert kept.cache.status()["prefixes"] == prefixes and kept.cache.known([*range(20), 7, 8]) == 20
    with pytest.raises(CapacityError):
        kept.cache.seat(1, [1], 4 * 25, PRIVATE)
    kept.check()


def test_without_recurrent_states_no_window_is_cut_for_a_mark_and_the_whole_prompt_is_shared():
    kept = Kept(state_bytes=0)
    kept.read(0, list(range(22)), marks=[10])
    assert kept.held.stops == (8, 16)
    assert kept.read(1, [*range(22), 50]) == 20, "whole pages, while it runs"
    kept.release(0)
    assert kept.read(2, [*range(22), 50]) == 22
    kept.check()


def test_the_same_prompt_again_reads_less_than_a_page_and_one_token():
    kept = Kept()
    kept.read(0, list(range(27)))
    kept.release(0)
    assert kept.read(0, list(range(27))) == 24


def test_without_recurrent_states_any_length_will_do():
    kept = Kept(state_bytes=0, ram=0)
    kept.read(0, list(range(27)))
    kept.release(0)
    assert kept.read(0, [*range(19), 50, 51, 52]) == 19
    assert kept.read(1, [*range(18), 60]) == 18
    kept.check()
    kept.release(0)
    assert kept.read(2, [*range(19), 50, 51, 70]) == 21


def test_a_slot_without_room_is_refused_with_numbers_and_nothing_changes():
    kept = Kept(pages=10, context=40)
    kept.read(0, list(range(8)), most=24)
    before = kept.cache.status()
    with pytest.raises(
        CapacityError, match=r"20 tokens need 5 pages of 4 \(5 at once\), 4 of 10 can be had: 8 are free, 0 hold"
    ) as e:
        kept.seat(1, list(range(50, 60)), most=20)
    assert "4 are promised" in str(e.value)
    assert kept.cache.status() == before and kept.table.held[1] == []
    kept.seat(1, list(range(50, 60)), most=16)
    kept.append(0, [1] * 16)
    kept.check()


def test_the_longest_unused_gives_way_first():
    kept = Kept(pages=10, context=40, ram=0, state_bytes=0)
    for first in (0, 20, 40):
        kept.read(0, list(range(first, first + 12)))
        kept.release(0)
    assert [kept.cache.known(list(range(first, first + 13))) for first in (0, 20, 40)] == [12, 12, 12]
    kept.read(0, list(range(60, 72)))
    kept.release(0)
    assert kept.cache.known(list(range(13))) < 12 and kept.cache.known(list(range(40, 53))) == 12
    kept.check()


def test_parked_pages_come_back_from_ram():
    kept = Kept()
    kept.read(0, list(range(30)))
    kept.release(0)
    assert kept.cache.order(Order("park")) == {"parked": 5, "dropped": 0}
    assert len(kept.table.free) == kept.table.pages
    assert kept.read(1, [*range(30), 7]) == 30 and kept.held.tier == "ram"
    kept.check()


def test_states_of_a_path_in_use_are_thinned_rather_than_the_end_lost():
    kept = Kept(ram=4 * 32)
    kept.read(0, list(range(40)))
    assert sum(node.state is not None for node in kept.cache.tree.nodes()) == 4
    kept.release(0)
    assert kept.read(1, [*range(40), 7]) == 40
    kept.check()


def test_what_a_failed_sequence_left_is_not_gone_on_with():
    kept = Kept()
    kept.read(0, list(range(20)))
    kept.fail(0)
    assert kept.cache.known(list(range(20))) == 0
    kept.check()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda kept, node: node.pages.append(23),
        lambda kept, node: setattr(node, "users", 3),
        lambda kept, node: setattr(node, "pages", None),
        lambda kept, node: setattr(node, "used", 10**9),
        lambda kept, node: kept.tiers.__setattr__("ram_budget", 3),
        lambda kept, node: kept.table.claim(2, 0, 4 * 200),
    ],
)
def test_check_sees_what_does_not_add_up(spoil):
    """Negative control: every part of `check` is what sees its fault."""
    kept = Kept()
    kept.read(0, list(range(20)))
    kept.release(0)
    kept.check()
    spoil(kept, kept.cache.tree.nodes()[-1])
    with pytest.raises(AssertionError):
        kept.check()


def test_a_page_that_was_not_copied_before_it_was_written_is_seen(monkeypatch):
    """Negative control: without copy on write the second sequence changes what the first left behind."""
    kept = Kept()
    kept.read(0, list(range(10)))
    kept.release(0)
    kept.seat(0, [*range(10), 50])
    monkeypatch.setattr(type(kept.table), "_shared", lambda *_: [])
    with pytest.raises(AssertionError, match="written into a shared page"):
        kept.append(0, [50])


def test_a_tree_of_many_runs_needs_no_deep_stack():
    kept = Kept(slots=1, context=8192, pages=2048, ram=10**8)
    kept.read(0, [int(t) for t in np.random.default_rng(0).integers(0, 200, 6000)])
    kept.release(0)
    assert len(kept.cache.tree.nodes()) > 700
    assert isinstance(kept.cache.tree.nodes()[-1], Node) and kept.cache.tree.nodes()[-1].end == 6000


def test_a_shared_last_page_is_counted_before_it_is_copied():
    """What is kept in the midst of a page costs its sequence one more; without room for that it is not kept."""
    fine = Spacing(1, 100)
    for pages, expected in ((6, 13), (5, 0)):
        kept = Kept(slots=2, context=20, pages=pages, spacing=fine)
        kept.read(0, list(range(14)), marks=[13], most=20)
        kept.check()
        assert kept.cache.known([*range(13), 50]) == expected
        kept.append(0, [1] * 6)
        kept.check()


def test_a_prefix_that_does_not_fit_is_gone_on_with_as_far_as_it_does():
    kept = Kept(slots=2, context=24, pages=10, spacing=Spacing(1, 100))
    kept.read(0, list(range(22)), marks=[9, 14, 18])
    kept.release(0)
    kept.cache.order(Order("park"))
    kept.read(0, [50, 51], most=4)
    # 8 are to be had: 6 for the sequence, of which the runs share what is whole; their other pages come on top.
    assert kept.read(1, [*range(22), 60], most=23) == 14 and kept.held.tier == "ram"
    kept.check()


def test_long_contexts_share_a_pool_that_holds_one_of_them():
    kept = Kept(slots=4, context=40, pages=16, ahead=1)
    for slot in range(3):
        kept.read(slot, [slot, *range(50, 57)], most=40)
    kept.append(0, [1] * 4)
    kept.append(1, [1] * 4)
    assert kept.cache.short({0: 13, 1: 13}) == {1}
    assert kept.cache.status()["waiting_slots"] == [1] and "waits for pages slot=1" in kept.said.getvalue()
    with pytest.raises(CapacityError, match="1 conversations that are under way wait for pages"):
        kept.seat(3, [9])
    for at in range(12, 40, 4):
        assert kept.cache.short({0: at + 4, 1: 13}) == {1}
        kept.append(0, [1] * 4)
    kept.release(0)
    assert kept.cache.short({1: 40}) == frozenset() and kept.cache.status()["waiting_slots"] == []
    kept.check()


def test_what_others_may_need_is_told_to_who_finds_no_room():
    kept = Kept(slots=2, context=40, pages=10, ahead=0)
    kept.read(0, list(range(8)), most=40)
    with pytest.raises(CapacityError, match=r"40 tokens need 10 pages of 4 \(1 at once\), 8 of 10 .* need 8 more"):
        kept.seat(1, [1, 2, 3], most=40)
    kept.seat(1, [1, 2, 3], most=4)
    kept.check()


def test_what_is_on_its_way_to_disk_does_not_refuse_the_only_one(tmp_path, monkeypatch):
    plain, gate = Archive.write, threading.Event()

    def slow(self, *parts):
        gate.wait(20)
        return plain(self, *parts)

    monkeypatch.setattr(Archive, "write", slow)
    kept = Kept(pages=12, folder=tmp_path)
    kept.read(0, list(range(40)))
    kept.release(0)
    threading.Timer(0.05, gate.set).start()
    assert kept.seat(0, list(range(100, 148)), 48) == 0
    kept.cache.close()
