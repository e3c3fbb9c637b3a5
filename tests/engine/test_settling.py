"""What a step's results do to sessions and counts, and results that cannot be."""

import pytest

from engine.engine_bench import bench
from reference.decoding import alone
from strata.core.errors import EngineError
from strata.core.held import Held
from strata.core.window import Window
from strata.engine.events import Reason
from strata.engine.runner import Drawn, Stepped


def result(window: Window, *tokens: int, length: int | None = None, slot: int | None = None) -> Stepped:
    held = window.end - window.score + len(tokens) if length is None else length
    return Stepped(window.slot if slot is None else slot, tuple(map(Drawn, tokens)), held)


def test_results_that_contradict_the_window_are_refused() -> None:
    b = bench(drafts=2)
    b.ask("a", 5, 20)
    b.step()
    b.scheduler.draft_caps(b.now)
    (window,) = b.scheduler.next_windows({0: (7, 8)})
    wrong = [
        [],
        [result(window, 7, slot=1)],
        [result(window)],
        [result(window, 7, 8, 9, 10)],
        [result(window, 7, length=5)],
        [result(window, 6, 8)],  # a draft kept that its row did not draw
    ]
    for results in wrong:
        with pytest.raises(EngineError):
            b.scheduler.settle([window], results, 1.0)
    assert b.tally.steps == 1
    b.scheduler.settle([window], [result(window, 7, 9)], 1.0)
    assert b.tally.accepted == {1: 1}


def test_more_drafts_than_fit_and_more_tokens_held_than_asked_are_refused() -> None:
    b = bench(draft_limit=2)
    b.ask("a", 5, 20)
    b.step()
    assert b.scheduler.draft_caps(b.now) == {0: 2}
    with pytest.raises(EngineError, match="3 drafts for slot 0, at most 2 fit"):
        b.scheduler.next_windows({0: (1, 2, 3)})
    b.ask("b", 5, 20)
    ((index, _),) = b.admission.admit()
    with pytest.raises(EngineError, match="5 tokens held of a prompt of 5"):
        b.admission.seated(index, Held(5), 1.0)


def test_every_token_is_counted_once() -> None:
    b = bench(slots=2, drafts=4, step_tokens=32, chunk_tokens=8)
    for i in range(6):
        b.ask(f"r{i}", 5 + 3 * i, 6 + i)
    b.run()
    ends = [b.finished(name) for name in b.events]
    windows = [w for step in b.runner.steps for w in step]
    assert b.tally.generated_tokens == sum(end.generated for end in ends) == sum(len(b.answer(n)) for n in b.events)
    assert b.tally.prompt_tokens + b.tally.reused_tokens == sum(end.prompt for end in ends)
    assert b.tally.reused_tokens == sum(end.reused for end in ends)
    assert (b.tally.drafted.total(), b.tally.accepted.total()) == (
        sum(end.drafted for end in ends),
        sum(end.accepted for end in ends),
    )
    assert sum(rows * count for rows, count in b.tally.rows.items()) == sum(len(w.tokens) for w in windows)
    assert sum(b.tally.rows.values()) == sum(b.tally.decoding.values()) == b.tally.steps == len(b.runner.steps)


def test_a_window_that_failed_ends_its_own_session_and_is_not_relied_on() -> None:
    b = bench(slots=2)
    b.runner.poisoned = {len("bad")}  # the first token of its prompt
    b.ask("bad", 8)
    b.ask("good", 8)
    b.run()
    end = b.finished("bad")
    assert (end.reason, end.code, end.error) == (Reason.ERROR, "failed", "this prompt was told to fail")
    assert b.answer("bad") == []
    assert b.answer("good") == alone(b.sessions["good"].request, 256)[0]
    assert b.admission.slots[0].held == ()
    assert b.tally.finished == {"error": 1, "length": 1}
