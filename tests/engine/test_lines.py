"""The engine as its client sees it: text in, text out."""

import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TextIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import FakeRunner
from reference.decoding import alone
from strata.engine.engine import Engine, EngineSettings
from strata.engine.events import Finished, Reason, Reused, Token, Yielded
from strata.engine.lines import Greeting, read_lines, serve_lines
from strata.engine.protocol import (
    Admitted,
    Error,
    Experts,
    Fatal,
    Info,
    Kept,
    Message,
    Of,
    Ready,
    Status,
    format_gen,
    parse_event,
)
from strata.engine.request import Request

pytestmark = pytest.mark.timeout(30)


class Pipe:
    """serve_lines on a thread, with both of its streams."""

    def __init__(self, runner: FakeRunner, max_line: int = 4000, **settings: Any) -> None:
        self.engine = Engine(runner, EngineSettings(**settings))
        self.result: int | None = None
        in_read, in_write = os.pipe()
        out_read, out_write = os.pipe()
        self.stdin = os.fdopen(in_write, "w", encoding="utf-8")
        self.stdout = os.fdopen(out_read, encoding="utf-8")
        streams = os.fdopen(in_read, encoding="utf-8", errors="replace"), os.fdopen(out_write, "w", encoding="utf-8")
        self.thread = threading.Thread(target=self._run, args=(*streams, max_line))
        self.thread.start()
        self.greeting = [self.read(), self.read(), self.read()]

    def _run(self, stdin: TextIO, stdout: TextIO, max_line: int) -> None:
        greeting = Greeting((49,), {"model": "fake one"})
        # A stream whose reader went away still holds what could not be written when it closes.
        with suppress(BrokenPipeError), stdin, stdout:
            self.result = serve_lines(self.engine, stdin, stdout, greeting, max_line=max_line)

    def send(self, *lines: str) -> None:
        self.stdin.write("".join(f"{line}\n" for line in lines))
        self.stdin.flush()

    def read(self) -> Message:
        line = self.stdout.readline()
        assert line.endswith("\n"), "the engine closed its output"
        return parse_event(line)

    def until(self, wanted: Callable[[Message], bool]) -> list[Message]:
        messages = [self.read()]
        while not wanted(messages[-1]):
            messages.append(self.read())
        return messages

    def close(self) -> list[Message]:
        if not self.stdin.closed:
            self.stdin.close()
        rest = [parse_event(line) for line in self.stdout]
        self.thread.join()
        self.stdout.close()
        return rest


@pytest.fixture
def connect() -> Iterator[Callable[..., Pipe]]:
    pipes: list[Pipe] = []

    def start(runner: FakeRunner | None = None, **settings: Any) -> Pipe:
        pipes.append(Pipe(runner or FakeRunner(), **settings))
        return pipes[-1]

    yield start
    for pipe in pipes:
        if pipe.thread.is_alive():
            pipe.close()


Connect = Callable[..., Pipe]


def ends(name: str) -> Callable[[Message], bool]:
    return lambda message: isinstance(message, Of) and message.id == name and isinstance(message.event, Finished)


def tokens(messages: list[Message], name: str) -> list[int]:
    mine = [message.event for message in messages if isinstance(message, Of) and message.id == name]
    return [event.token for event in mine if isinstance(event, Token)]


def gated() -> FakeRunner:
    runner = FakeRunner()
    runner.gate = threading.Semaphore(0)
    return runner


def open_gate(runner: FakeRunner) -> None:
    assert runner.gate is not None
    runner.gate.release(10_000)


def let_end(pipe: Pipe, runner: FakeRunner) -> None:
    """A step after the other until the loop has ended: with an open gate answers may end before the line is read."""
    assert runner.gate is not None
    while pipe.thread.is_alive():
        runner.gate.release()
        pipe.thread.join(0.02)


def test_the_greeting_tells_slots_context_and_stop_ids(connect: Connect) -> None:
    pipe = connect(requested_slots=8, slots_reason="memory for 4")
    assert pipe.greeting == [
        Info({"batch_slots": "4", "requested": "8", "reason": "memory_for_4"}),
        Info({"model": "fake_one"}),
        Ready(256, (49,)),
    ]
    assert pipe.close() == []
    assert pipe.result == 0


def test_two_requests_get_their_own_tokens(connect: Connect) -> None:
    pipe = connect(FakeRunner(draft_depth=3))
    requests = [Request("a", (1, 2, 3), 9), Request("b", (4, 5), 12)]
    pipe.send(*map(format_gen, requests))
    done: set[str] = set()
    messages: list[Message] = []
    while done != {"a", "b"}:
        messages.append(pipe.read())
        done |= {name for name in "ab" if ends(name)(messages[-1])}
    for request in requests:
        assert tokens(messages, request.id) == alone(request, 256)[0]
    assert pipe.close() == []


def test_a_gen_without_stop_ends_at_the_models_stop_ids(connect: Connect) -> None:
    pipe = connect()
    words, reason, stop = alone(Request("a", (1, 2), 250, stop_ids=(49,)), 256)
    assert reason is Reason.STOP
    pipe.send("GEN a 250 1 2")
    messages = pipe.until(ends("a"))
    last = messages[-1]
    assert tokens(messages, "a") == words
    assert isinstance(last, Of)
    assert isinstance(last.event, Finished)
    assert (last.event.reason, last.event.stop_id) == (Reason.STOP, stop)


def test_logprobs_and_reuse_are_reported(connect: Connect) -> None:
    pipe = connect()
    pipe.send("GEN a 1 logprobs=2 1 2 3")
    first = pipe.until(ends("a"))
    token = alone(Request("a", (1, 2, 3), 1), 256)[0][0]
    assert Of("a", Token(token, -0.5, ((token, -0.5), ((token + 1) % 50, -1.5)))) in first
    pipe.send("GEN b 1 1 2 3")
    assert pipe.until(ends("b"))[0] == Of("b", Reused(2))


def test_the_slot_addressed_forms_are_answered(connect: Connect) -> None:
    pipe = connect()
    pipe.send("BGEN 2 5 stop= 7 8 9")
    messages = pipe.until(ends("@2"))
    words = alone(Request("x", (7, 8, 9), 5), 256)[0]
    assert tokens(messages, "@2") == words
    assert messages[1] == Admitted(2, True)
    last = messages[-1]
    assert isinstance(last, Of)
    assert isinstance(last.event, Finished)
    assert (last.event.reason, last.event.generated) == (Reason.LENGTH, 5)
    pipe.send("BGEN 2 2 stop= 7 8 9 " + " ".join(map(str, words)))
    assert pipe.until(ends("@2"))[0] == Of("@2", Reused(7))
    pipe.send("BGEN 4 2 1", "BSTOP 3", "BGEN 1 3 77")
    messages = pipe.until(ends("@1"))
    assert [(m.id, m.code) for m in messages if isinstance(m, Error)] == [
        ("@4", "too_long"),
        ("@3", "unknown"),
        ("@1", "bad_request"),
    ]
    assert messages[-3] == Admitted(1, False)


def test_orders_about_kept_conversations_are_answered(connect: Connect) -> None:
    runner = FakeRunner()
    pipe = connect(runner)
    pipe.send("PARK", "SAVE", "RESTORE 1 2")
    assert [pipe.read() for _ in range(3)] == [
        Kept("park", {"orders": 1}),
        Kept("save", {"orders": 2}),
        Error("-", "unsupported", "restore: nothing is kept"),
    ]
    assert pipe.close() == [] and runner.closed


def test_stop_and_yield(connect: Connect) -> None:
    runner = gated()
    pipe = connect(runner)
    long = " ".join(str(i % 50) for i in range(150))
    pipe.send("GEN a 200 1", f"BGEN 3 5 {long}", f"GEN c 5 {long}", "STAT")
    pipe.until(lambda message: isinstance(message, Status))
    pipe.send("STOP a", "BYIELD 3", "YIELD c", "STAT")
    pipe.until(lambda message: isinstance(message, Status))
    open_gate(runner)
    messages: list[Message] = []
    while not all(any(ends(name)(message) for message in messages) for name in ("a", "@3", "c")):
        messages.append(pipe.read())
    reasons = {m.id: m.event.reason for m in messages if isinstance(m, Of) and isinstance(m.event, Finished)}
    assert reasons == {"a": Reason.CANCEL, "@3": Reason.CANCEL, "c": Reason.CANCEL}
    yielded = {m.id: m.event.read for m in messages if isinstance(m, Of) and isinstance(m.event, Yielded)}
    assert set(yielded) == {"@3", "c"}
    assert all(read % 32 == 0 for read in yielded.values())


def test_lines_that_cannot_be_honoured_are_answered_and_nothing_stops(connect: Connect) -> None:
    pipe = connect(max_line=200)
    pipe.send("HELLO", "", "GEN a 5 heat=2 1", "GENI b 5 cat.png 1", "PARK x", "STOP zz", "GEN big 300 1", "GEN a")
    pipe.send("GEN a 5 " + "1 " * 200, "\x00\x01", "GEN ok 2 stop= 1 2")
    messages = pipe.until(ends("ok"))
    errors = [(m.id, m.code) for m in messages if isinstance(m, Error)]
    assert errors == [
        ("-", "usage"),
        ("a", "bad_request"),
        ("b", "unsupported"),
        ("-", "usage"),
        ("zz", "unknown"),
        ("big", "too_long"),
        ("a", "usage"),
        ("-", "usage"),
        ("-", "usage"),
    ]
    assert tokens(messages, "ok") == alone(Request("ok", (1, 2), 2), 256)[0]


def test_bytes_that_are_no_text_are_an_unknown_line(connect: Connect) -> None:
    pipe = connect()
    os.write(pipe.stdin.fileno(), b"\xff\xfe GEN\n")
    message = pipe.read()
    assert isinstance(message, Error)
    assert (message.id, message.code) == ("-", "usage")


def test_an_id_that_lives_is_not_touched_by_its_double(connect: Connect) -> None:
    runner = gated()
    pipe = connect(runner)
    pipe.send("GEN a 3 stop= 1 2", "GEN a 3 stop= 1 2", "STAT")
    messages = pipe.until(lambda message: isinstance(message, Status))
    assert [m for m in messages if isinstance(m, Error)] == [
        Error("-", "bad_request", "a request a is already under way")
    ]
    open_gate(runner)
    assert tokens(pipe.until(ends("a")), "a") == alone(Request("a", (1, 2), 3), 256)[0]


def test_stat_answers_with_json(connect: Connect) -> None:
    pipe = connect()
    pipe.send("GEN a 3 stop= 1 2")
    pipe.until(ends("a"))
    pipe.send("STAT")
    message = pipe.read()
    assert isinstance(message, Status)
    assert message.values == pipe.engine.status()
    assert message.values["tokens"]["generated"] == 3


def test_experts_answers_with_json(connect: Connect) -> None:
    pipe = connect()
    pipe.send("EXPERTS")
    assert pipe.read() == Experts({"orders": 1})  # what this runner says to any order


@pytest.mark.parametrize("polite", [True, False])
def test_quit_and_the_end_of_input_cancel_what_runs(connect: Connect, polite: bool) -> None:
    runner = gated()
    pipe = connect(runner)
    pipe.send("GEN a 200 stop= 1 2", "GEN b 200 stop= 1 2", "STAT")
    pipe.until(lambda message: isinstance(message, Status))
    if polite:
        pipe.send("QUIT", "HELLO")
    else:
        pipe.stdin.close()
    let_end(pipe, runner)
    rest = pipe.close()
    finished = [m.event.reason for m in rest if isinstance(m, Of) and isinstance(m.event, Finished)]
    assert finished == [Reason.CANCEL, Reason.CANCEL]
    assert not any(isinstance(m, Error) for m in rest)
    assert pipe.result == 0


def test_an_engine_that_gives_up_says_so_and_the_loop_ends(connect: Connect) -> None:
    runner = FakeRunner()
    runner.fail_at = set(range(1, 10))
    pipe = connect(runner, max_failures=1)
    pipe.send("GEN a 3 1 2")
    messages = pipe.until(lambda message: isinstance(message, Fatal))
    assert ends("a")(messages[0])
    last = messages[-1]
    assert isinstance(last, Fatal)
    assert "step 1 was told to fail" in last.text
    pipe.send("STAT")
    assert pipe.close() == []
    assert pipe.result == 1


def test_a_reader_that_went_away_ends_the_loop(connect: Connect) -> None:
    pipe = connect()
    pipe.stdout.close()
    pipe.send("STAT", "STAT")
    pipe.thread.join(10)
    assert not pipe.thread.is_alive()
    assert pipe.result == 0
    pipe.stdin.close()


def test_long_lines_are_skipped_whole() -> None:
    text = "short\n" + "x" * 11 + "\n" + "y" * 10 + "\r\n" + "z" * 500 + "\nlast"
    assert list(read_lines(io.StringIO(text, newline=""), 10)) == ["short", None, None, None, "last"]
    assert list(read_lines(io.StringIO("0123456789\nx\n"), 10)) == ["0123456789", "x"]
    assert list(read_lines(io.StringIO("x" * 30), 10)) == [None]


def test_output_lines_are_whole_with_many_sessions(connect: Connect) -> None:
    pipe = connect(FakeRunner(draft_depth=2))
    pipe.send(*(f"GEN r{i} 20 stop= logprobs=5 {i} {i + 1}" for i in range(20)), *["STAT"] * 20)
    left = {f"r{i}" for i in range(20)}
    stats = 0
    while left or stats < 20:
        message = pipe.read()  # parse_event refuses a torn line
        stats += isinstance(message, Status)
        left -= {name for name in left if ends(name)(message)}
    assert pipe.close() == []


WORDS = """GEN BGEN STOP BSTOP YIELD BYIELD PARK RESTORE SAVE VRAM EXPERTS CLEAR GENI BGENI STAT
a @1 - 0 1 3 7 49 -1 99999999999 seed=1"""
GARBAGE = st.lists(
    st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), max_size=30)
    | st.lists(st.sampled_from([*WORDS.split(), "deadline=0.001", "mask=x", "temperature=nan"]), max_size=6).map(
        " ".join
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(GARBAGE)
def test_no_input_stops_the_loop(lines: list[str]) -> None:
    said = io.StringIO()
    text = "\n".join([*lines, "GEN last 3 5 6", "STAT", ""])
    engine = Engine(FakeRunner())
    assert serve_lines(engine, io.StringIO(text), said, Greeting()) == 0
    messages = [parse_event(line) for line in said.getvalue().split("\n")[:-1]]
    assert isinstance(messages[0], Info)
    assert sum(isinstance(message, Status) for message in messages) == 1 + sum(
        line.split() == ["STAT"] for line in lines
    )
    assert [type(m) for m in messages if isinstance(m, Of) and m.id == "last" and isinstance(m.event, Finished)] == [Of]


def test_a_deadline_is_named_in_both_forms(connect: Connect) -> None:
    pipe = connect()
    pipe.send("GEN a 50 deadline=1e-9 1 2 3", "BGEN 2 50 deadline=1e-9 4 5")
    told = pipe.until(ends("a"))
    told += [] if any(ends("@2")(message) for message in told) else pipe.until(ends("@2"))
    ended = [message.event for message in told if isinstance(message, Of) and isinstance(message.event, Finished)]
    assert [event.reason for event in ended] == [Reason.CANCEL] * 2
    assert {event.code for event in ended} == {"deadline", ""}  # a BDONE carries none: its ERR does
    assert Error("@2", "deadline", "the deadline of 1e-09 s has passed") in told
