"""Which windows a step has: with a fake device, no thread and a clock that is a number."""

from dataclasses import replace

import pytest

from engine.engine_bench import bench
from reference.decoding import alone
from strata.core.errors import UsageError
from strata.core.sharing import Sharing
from strata.core.window import Window
from strata.engine.events import Finished, Progress, Reason, Reused
from strata.engine.request import Request


def test_one_request_is_read_in_chunks_and_decoded() -> None:
    b = bench(chunk_tokens=4)
    b.ask("a", 10, 3)
    steps = [b.step() for _ in range(5)]
    prompt = b.sessions["a"].request.tokens
    assert steps[:3] == [
        [Window(0, 0, prompt[:4], 0)],
        [Window(0, 4, prompt[4:8], 0)],
        [Window(0, 8, prompt[8:], 1)],
    ]
    assert [(w.start, len(w.tokens), w.score) for step in steps[3:] for w in step] == [(10, 1, 1), (11, 1, 1)]
    assert [event for event in b.events["a"] if isinstance(event, Progress)] == [
        Progress(4, 10),
        Progress(8, 10),
        Progress(10, 10),
    ]
    assert b.answer("a") == alone(b.sessions["a"].request, 256)[0]
    assert b.finished("a") == Finished(Reason.LENGTH, 10, generated=3, steps=2, queue_s=1.0, prompt_s=2.0, decode_s=2.0)
    assert not b.admission.has_work()


def test_chunk_borders_stay_on_the_grid_after_a_reused_beginning() -> None:
    b = bench(slots=1, chunk_tokens=4)
    b.submit(Request("a", (1, 2, 3, 4, 5, 6), 1))
    b.run()
    b.submit(Request("b", (1, 2, 3, 40, 41, 42, 43, 44, 45, 46), 1))
    b.run()
    assert b.events["b"][0] == Reused(3)
    reads = [(w.start, len(w.tokens)) for step in b.runner.steps for w in step]
    assert reads == [(0, 4), (4, 2), (3, 1), (4, 4), (8, 2)]
    assert b.finished("b").reused == 3


@pytest.mark.parametrize(("slots", "rows", "chunk"), [(4, 4096, 512), (4, 512, 256), (1, 17, 16), (8, 4, 1)])
def test_the_chunk_leaves_every_slot_a_row_unless_it_is_given(slots: int, rows: int, chunk: int) -> None:
    assert bench(slots=slots, step_tokens=rows).scheduler.chunk_tokens == chunk


def test_a_session_with_drafts_gets_a_window_of_one_more() -> None:
    b = bench(drafts=3)
    b.ask("a", 5, 20)
    b.ask("b", 5, 20, draft=1)
    b.ask("c", 5, 20, draft=0)
    b.run()
    windows = [w for step in b.runner.steps for w in step if w.start >= 5]
    assert [max(len(w.tokens) for w in windows if w.slot == slot) for slot in range(3)] == [4, 2, 1]
    assert all(w.score == len(w.tokens) for w in windows)
    for name in "abc":
        assert b.answer(name) == alone(b.sessions[name].request, 256)[0]
        assert b.finished(name).generated == 20
    assert 0 < b.finished("a").accepted < b.finished("a").drafted
    assert b.finished("c").drafted == 0


@pytest.mark.parametrize("drafts", [0, 5])
@pytest.mark.parametrize(("prompt", "max_new"), [(10, 22), (31, 1), (10, None), (32, 0)])
def test_max_new_and_the_context_end_exactly(drafts: int, prompt: int, max_new: int | None) -> None:
    b = bench(context=32, drafts=drafts)
    b.ask("a", prompt, max_new)
    b.run()
    expected = 32 - prompt
    assert len(b.answer("a")) == b.finished("a").generated == expected
    assert b.finished("a").reason is Reason.LENGTH
    assert len(b.runner.states[0]) == max(prompt, 31)


def test_a_stop_id_ends_the_answer_and_is_reported_in_finished() -> None:
    plain = Request("a", (1, 2, 3), 30)
    words = alone(plain, 256)[0]
    stop = next(token for i, token in enumerate(words) if i >= 5 and token not in words[:i])
    cut = words.index(stop)
    for drafts in (0, 6):
        b = bench(drafts=drafts)
        b.submit(replace(plain, stop_ids=(stop,)))
        b.submit(replace(plain, id="b", stop_ids=(stop,), echo_stop=True))
        b.run()
        assert b.answer("a") == words[:cut]
        assert b.answer("b") == words[: cut + 1]
        for name, generated in (("a", cut), ("b", cut + 1)):
            done = b.finished(name)
            assert (done.reason, done.stop_id, done.generated) == (Reason.STOP, stop, generated)


def test_a_resumed_answer_reports_only_its_rest() -> None:
    b = bench()
    b.ask("a", 5, 8, stream_from=6)
    b.run()
    assert b.answer("a") == alone(b.sessions["a"].request, 256)[0][6:]
    assert b.finished("a").generated == 8


def test_prompts_are_read_beside_running_streams() -> None:
    b = bench(slots=2, step_tokens=16, chunk_tokens=8)
    b.ask("a", 4, 60)
    b.step()
    b.ask("long", 100, 2)
    mixed = [b.step() for _ in range(12)]
    assert all(sorted(len(w.tokens) for w in step) in ([1, 8], [1, 4]) for step in mixed)
    b.run()
    assert b.answer("a") == alone(b.sessions["a"].request, 256)[0]


def test_several_prompts_take_turns_when_they_do_not_fit_one_step() -> None:
    b = bench(slots=3, step_tokens=8, chunk_tokens=8)
    for name in "abc":
        b.ask(name, 24, 1)
    order = [b.step()[0].slot for _ in range(9)]
    assert order == [0, 1, 2] * 3


def test_several_prompts_share_a_step_that_has_room() -> None:
    b = bench(slots=3, step_tokens=16, chunk_tokens=8)
    for name in "abc":
        b.ask(name, 16, 1)
    assert [[w.slot for w in b.step()] for _ in range(3)] == [[0, 1], [2, 0], [1, 2]]


def test_more_slots_than_rows_rotate_fairly() -> None:
    b = bench(slots=5, step_tokens=2, chunk_tokens=2)
    for name in "abcde":
        b.ask(name, 1, 40)
    for _ in range(8):  # until all have been read
        b.step()
    counts = [0] * 5
    for _ in range(10):
        for window in b.step():
            counts[window.slot] += 1
    assert counts == [4] * 5


def test_a_chunk_of_a_whole_step_alternates_with_decoding() -> None:
    b = bench(slots=2, step_tokens=8, chunk_tokens=8)
    b.ask("a", 1, 50)
    b.step()
    b.ask("long", 64, 1)
    slots = [[w.slot for w in b.step()] for _ in range(6)]
    assert sorted(slots[:2]) == [[0], [1]]
    assert slots[0::2] == [slots[0]] * 3
    assert slots[1::2] == [slots[1]] * 3


def test_drafts_give_way_to_the_first_chunk_but_not_to_further_ones() -> None:
    b = bench(slots=3, step_tokens=16, chunk_tokens=8, drafts=10)
    b.ask("a", 1, 100)
    b.step()
    b.ask("b", 64, 1)
    b.ask("c", 64, 1)
    widths = {w.slot: len(w.tokens) for w in b.step()}
    assert widths == {0: 1 + 7, 1: 8}


def test_windows_of_a_prompt_end_where_its_state_is_kept() -> None:
    b = bench(chunk_tokens=8)
    b.ask("a", 20, 2, sharing=Sharing((9, 3, 16, 20)))
    reads = [len(window.tokens) for _ in range(5) for window in b.step()]
    assert reads == [3, 5, 1, 7, 4]  # also at 8 and 16, the borders of chunks
    b.run()
    assert b.answer("a") == alone(b.sessions["a"].request, 256)[0]


@pytest.mark.parametrize("chunk", [0, 65])
def test_a_chunk_that_fits_no_step_is_refused(chunk: int) -> None:
    with pytest.raises(UsageError, match=f"from 1 to 64 tokens .* found {chunk}"):
        bench(step_tokens=64, chunk_tokens=chunk)
