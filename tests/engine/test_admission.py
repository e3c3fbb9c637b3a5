"""Overtaking, waiting bounds and gaps: with a fake device and a clock that is a number."""

from engine.engine_bench import Bench, bench
from fakes import FakeRunner
from reference.decoding import alone
from strata.core.held import Held
from strata.core.limits import Limits
from strata.engine.events import Progress, Reason, Reused
from strata.engine.outcome import admitted
from strata.engine.settings import Settings


def place_of(b: Bench, name: str) -> int:
    """Number of the step in which a prompt was fully read."""
    return b.read_at[name]


def test_a_short_prompt_is_read_before_the_rest_of_a_long_one() -> None:
    b = bench(slots=2, step_tokens=16, chunk_tokens=16)
    b.ask("long", 160)
    b.step()
    b.step()
    b.ask("short", 20)
    b.run()
    assert place_of(b, "short") == 4
    assert place_of(b, "long") > 10
    for name in ("long", "short"):
        assert b.answer(name) == alone(b.sessions[name].request, 256)[0]


def test_with_every_slot_taken_the_long_read_is_set_aside_and_goes_on_where_it_was() -> None:
    b = bench(slots=1, step_tokens=16, chunk_tokens=16)
    b.ask("long", 160)
    b.step()
    b.step()
    b.ask("short", 20)
    b.run()
    assert place_of(b, "short") == 4
    assert b.tally.set_aside == 1
    assert b.finished("long").reason is Reason.LENGTH
    assert b.finished("long").reused == 0
    assert not [event for event in b.events["long"] if isinstance(event, Reused)]
    assert [event for event in b.events["long"] if isinstance(event, Progress)][-1] == Progress(160, 160)
    assert b.answer("long") == alone(b.sessions["long"].request, 256)[0]


def test_a_read_of_higher_priority_or_for_its_own_slot_is_not_set_aside() -> None:
    for fields in ({"priority": -1}, {"slot": 0}):
        b = bench(slots=1, step_tokens=16, chunk_tokens=16)
        b.ask("long", 160, **fields)
        b.step()
        b.ask("short", 20)
        b.run()
        assert b.tally.set_aside == 0
        assert place_of(b, "long") < place_of(b, "short")


def test_short_prompts_that_keep_coming_do_not_starve_a_long_one() -> None:
    b = bench(slots=1, step_tokens=16, chunk_tokens=16, max_wait_s=5.0)
    b.ask("long", 160)
    for number in range(80):
        b.ask(f"short-{number}", 12, 1)
        b.step()
    assert "long" in b.read_at
    assert b.longest_wait["long"] <= 5.0 + 3  # a step of a second each way
    b.run()


def test_without_the_bound_it_would_starve() -> None:
    b = bench(slots=1, step_tokens=16, chunk_tokens=16, max_wait_s=1e9)
    b.ask("long", 160)
    for number in range(80):
        b.ask(f"short-{number}", 12, 1)
        b.step()
    assert "long" not in b.read_at


def timed(max_gap_s: float) -> Bench:
    """Steps cost 10 ms, 2 ms per prompt token."""
    b = Bench(FakeRunner(Limits(3, 4096, 1024)), Settings(chunk_tokens=512, max_gap_s=max_gap_s))
    b.cost = lambda windows: 0.01 + sum(0.002 * len(w.tokens) for w in windows if len(w.tokens) > 1)
    return b


def gap_beside_two_prompts(max_gap_s: float) -> tuple[float, Bench]:
    b = timed(max_gap_s)
    b.ask("stream", 8, 60)
    for _ in range(6):
        b.step()
    b.ask("a", 2000, 2)
    b.ask("b", 1200, 2)
    longest = 0.0
    while b.admission.find("stream"):
        before = b.now
        b.step()
        longest = max(longest, b.now - before)
    b.run()
    return longest, b


def test_prompts_are_read_in_steps_that_end_within_the_gap() -> None:
    longest, b = gap_beside_two_prompts(0.25)
    assert 0.1 < longest <= 0.25
    for name in ("stream", "a", "b"):
        assert b.answer(name) == alone(b.sessions[name].request, 4096)[0]


def test_the_gap_is_exceeded_when_the_bound_is_wide() -> None:
    longest, _ = gap_beside_two_prompts(30.0)
    assert longest > 1.0


def test_alone_a_prompt_is_read_in_whole_chunks() -> None:
    b = timed(0.25)
    b.ask("a", 2000, 2)
    assert [len(window.tokens) for _ in range(4) for window in b.step()] == [512, 512, 512, 464]


def test_the_time_of_seating_is_that_of_finding_and_that_of_bringing_back() -> None:
    b = bench()
    b.ask("a", 5)
    b.now = 10.0
    ((index, _),) = b.admission.admit()
    b.admission.seated(index, Held(2, "disk", match_s=0.5), b.now, began=8.0)
    _, line = b.admission.slots[index].occupied()
    line.looked_s, line.first_s = 0.25, 11.0
    phases = admitted(index, 5, line)
    assert (phases.queue_s, phases.match_s, phases.restore_s, phases.read_s) == (7.75, 0.75, 1.5, 1.0)
