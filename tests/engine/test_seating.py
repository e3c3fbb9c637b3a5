"""Who gets a slot, who waits and who leaves: with a fake device, no thread and a clock that is a number."""

from dataclasses import replace

import pytest

from engine.engine_bench import bench
from reference.decoding import alone
from strata.core.errors import CapacityError, RequestError
from strata.engine.events import Finished, Reason, Reused, Yielded
from strata.engine.request import QueueFullError, Request
from strata.engine.slot import Slot, choose_slot


def test_waiting_sessions_are_seated_by_priority_then_arrival() -> None:
    b = bench(slots=1)
    for name, priority in [("a", 0), ("b", 0), ("c", -5), ("d", 0)]:
        b.ask(name, 3, 1, priority=priority)
    b.run()
    assert sorted(b.events, key=lambda name: b.finished(name).queue_s) == ["c", "a", "b", "d"]


def test_a_full_queue_refuses_and_a_free_slot_is_no_queue() -> None:
    b = bench(slots=2, queue_limit=1)
    for name in "abc":
        b.ask(name, 3, 2)
    with pytest.raises(QueueFullError, match="3 requests wait already"):
        b.ask("d", 3, 2)
    b.step()
    with pytest.raises(QueueFullError, match="1 requests wait already"):
        b.ask("d", 3, 2)
    b.run()
    b.ask("d", 3, 2)
    b.run()
    assert b.tally.refused == 2
    assert b.tally.submitted == sum(b.tally.finished.values()) == 4


def test_refusals_leave_nothing_behind() -> None:
    b = bench(context=16)
    with pytest.raises(CapacityError, match=r"prompt of 10 tokens and 7 new ones .* 16 tokens"):
        b.ask("a", 10, 7)
    assert not b.admission.has_work()
    b.ask("a", 10, 6)
    with pytest.raises(RequestError, match="a request a is already under way"):
        b.ask("a", 10, 6)
    b.run()
    assert b.finished("a").generated == 6


def test_a_cancel_frees_the_slot_at_the_next_step() -> None:
    b = bench(slots=1)
    session = b.ask("a", 3, 50)
    b.ask("b", 3, 2)
    b.ask("c", 3, 2).cancel()
    b.step()
    b.step()
    session.cancel()
    b.step()
    assert b.runner.released == [0]
    assert (b.finished("a").reason, b.finished("a").generated) == (Reason.CANCEL, 2)
    assert b.finished("c") == Finished(Reason.CANCEL, 3, queue_s=1.0)
    b.run()
    assert b.answer("b") == alone(b.sessions["b"].request, 256)[0]


def test_a_deadline_ends_waiting_and_running_sessions() -> None:
    b = bench(slots=1)
    b.ask("a", 3, 50, deadline_s=5.0)
    b.ask("b", 3, 50, deadline_s=3.0)
    b.ask("c", 3, 2)
    b.run()
    assert (b.finished("a").reason, b.finished("a").generated) == (Reason.CANCEL, 4)
    assert (b.finished("b").reason, b.finished("b").queue_s) == (Reason.CANCEL, 3.0)
    assert (b.finished("b").code, b.finished("b").error) == ("deadline", "the deadline of 3 s has passed")
    assert b.finished("c").reason is Reason.LENGTH


def test_a_read_that_gives_way_goes_on_where_it_stopped() -> None:
    b = bench(slots=2, step_tokens=8, chunk_tokens=8)
    session = b.ask("a", 40, 3)
    b.step()
    b.step()
    session.give_way()
    b.step()
    assert b.events["a"][-2:] == [Yielded(16), b.finished("a")]
    assert b.finished("a").reason is Reason.CANCEL
    b.submit(replace(session.request, id="again"))
    b.run()
    assert b.events["again"][0] == Reused(16)
    assert b.answer("again") == alone(session.request, 256)[0]


def test_giving_way_does_not_touch_a_session_that_decodes() -> None:
    b = bench()
    session = b.ask("a", 3, 5)
    b.step()
    session.give_way()
    b.run()
    assert b.finished("a").reason is Reason.LENGTH
    waiting = b.ask("b", 3, 5)
    waiting.give_way()
    b.run()
    assert b.events["b"] == [Yielded(0), b.finished("b")]


def test_the_next_turn_finds_its_conversation_and_a_new_one_an_empty_slot() -> None:
    b = bench(slots=3)
    first = b.ask("a", 6, 4)
    b.run()
    b.submit(Request("other", (9, 9, 9), 2))
    b.run()
    assert [len(state) for state in b.runner.states.values()] == [9, 4, 0]
    turn = Request("a2", (*first.request.tokens, *b.answer("a"), 5, 6), 2)
    b.submit(turn)
    b.run()
    assert b.events["a2"][0] == Reused(9)
    assert b.answer("a2") == alone(turn, 256)[0]


def test_slot_choice() -> None:
    slots = [Slot(0, held=(1, 2, 3, 4), freed=3), Slot(1, held=(1, 9), freed=1), Slot(2, held=(5,), freed=2)]
    assert choose_slot(slots, (1, 2, 3, 7)).index == 0  # an edited last message
    assert choose_slot(slots, (1, 7)).index == 1  # half of a short conversation
    assert choose_slot(slots, (8,)).index == 1  # nothing in common: the one used longest ago
    assert choose_slot([*slots, Slot(3)], (8,)).index == 3  # a slot never used
    assert choose_slot([slots[0], slots[2]], (1, 7)).index == 2  # a short shared beginning destroys nothing


def test_a_request_waits_for_the_slot_it_names_and_lets_others_pass() -> None:
    b = bench(slots=2)
    b.ask("a", 3, 10, slot=1)
    b.ask("b", 3, 2, slot=1)
    b.ask("c", 3, 2)
    b.run()
    assert b.runner.released == [0, 1, 1]
    assert b.finished("b").queue_s > b.finished("c").queue_s


def test_a_session_without_room_waits_again_unless_nobody_can_make_any() -> None:
    b = bench()
    b.ask("a", 5)
    ((index, _),) = b.admission.admit()
    assert not b.admission.unseat(index, "no room")
    b.ask("b", 6)
    ((other, _),) = b.admission.admit()
    assert b.admission.unseat(other, "no room")
    assert list(b.admission.waiting) == ["b"] and b.admission.slots[other].session is None
    assert b.admission.waiting["b"][1].lacks == "no room"


def test_who_finds_no_page_sits_the_step_out_and_goes_on_later() -> None:
    b = bench(slots=3, drafts=3, step_tokens=32)
    for name in "abc":
        b.ask(name, 5, 12)
    b.step()
    b.runner.told_short = {1}
    for _ in range(3):
        assert {window.slot for window in b.step()} == {0, 2}
    assert b.admission.slots[1].facts()["state"] == "waiting for pages" and b.tally.short == 3
    b.runner.told_short = set()
    assert 1 in {window.slot for window in b.step()} and b.admission.slots[1].facts()["state"] == "decoding"
    b.run()
    assert all(b.answer(name) == alone(b.sessions[name].request, 256)[0] for name in "abc")
