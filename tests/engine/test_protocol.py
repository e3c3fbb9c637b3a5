"""Both ends of the pipe: what one writes the other reads back, and no line crashes a parser."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import CapacityError, RequestError
from strata.core.order import Order
from strata.core.sharing import Sharing
from strata.engine.events import Event, Finished, Progress, Reason, Reused, Token, Yielded
from strata.engine.protocol import (
    CODES,
    KEYS,
    Admitted,
    Error,
    Experts,
    Fatal,
    Gen,
    Info,
    Keep,
    Kept,
    LineError,
    Of,
    Quit,
    Ready,
    Stat,
    Status,
    Stop,
    Yield,
    code_of,
    format_admitted,
    format_error,
    format_event,
    format_experts,
    format_fatal,
    format_gen,
    format_info,
    format_kept,
    format_ready,
    format_status,
    parse_command,
    parse_event,
)
from strata.engine.request import QueueFullError, Request
from strata.sampling.constraint import Constraint
from strata.sampling.params import SamplingParams

TOKENS = st.integers(0, (1 << 31) - 1)
COUNTS = st.integers(0, 1 << 40)
FLOATS = st.floats(-1000, 1000)
TIMES = st.integers(0, 10**9).map(lambda us: us / 1e6)
IDS = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FFF), min_size=1, max_size=20).filter(
    lambda text: text.isprintable() and not any(c.isspace() or c in "=@" for c in text) and text != "-"
)

PARAMS = st.builds(
    SamplingParams,
    temperature=st.floats(0, 100),
    top_k=st.integers(0, 1000),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    repeat_penalty=st.floats(0.01, 100),
    presence_penalty=st.floats(-100, 100),
    frequency_penalty=st.floats(-100, 100),
    logit_bias=st.lists(st.tuples(TOKENS, FLOATS), max_size=3).map(tuple),
    seed=st.integers(0, 2**64 - 1),
    logprobs=st.integers(-1, 20),
)
REQUESTS = st.builds(
    Request,
    id=IDS,
    tokens=st.lists(TOKENS, min_size=1, max_size=5).map(tuple),
    max_new=st.none() | st.integers(0, 1000),
    params=PARAMS,
    stop_ids=st.lists(TOKENS, max_size=3).map(tuple),
    echo_stop=st.booleans(),
    priority=st.integers(-5, 5),
    deadline_s=st.none() | st.floats(0.001, 1e6),
    draft=st.none() | st.integers(0, 20),
    stream_from=st.integers(0, 100),
    sharing=st.builds(
        Sharing, st.sampled_from([(), (0,), (1, 0)]), st.lists(TOKENS, max_size=2).map(tuple), st.booleans()
    ),
)
FINISHED = st.builds(
    Finished,
    reason=st.sampled_from(Reason),
    prompt=COUNTS,
    reused=COUNTS,
    generated=COUNTS,
    drafted=COUNTS,
    accepted=COUNTS,
    steps=COUNTS,
    stop_id=st.none() | TOKENS,
    queue_s=TIMES,
    prompt_s=TIMES,
    decode_s=TIMES,
)
EVENTS = st.one_of(
    st.builds(Progress, COUNTS, COUNTS),
    st.builds(Reused, COUNTS, st.sampled_from(["slot", "ram", "disk"])),
    st.builds(Token, TOKENS),
    st.builds(Token, TOKENS, FLOATS, st.lists(st.tuples(TOKENS, FLOATS), max_size=3).map(tuple)),
    st.builds(Yielded, COUNTS),
)


@given(REQUESTS)
def test_a_request_survives_its_line(request: Request) -> None:
    line = format_gen(request)
    assert "\n" not in line
    assert parse_command(line, default_stop=(3, 4)) == Gen(request)


def test_a_request_for_a_slot_survives_its_line() -> None:
    request = Request("@3", (5, 6), 7, stop_ids=(2,), slot=3)
    assert format_gen(request) == "BGEN 3 7 stop=2 5 6"
    assert parse_command(format_gen(request)) == Gen(request)


def test_every_key_of_the_protocol_is_read() -> None:
    values = {
        "temperature": "0.5", "top_p": "0.9", "top_k": "40", "min_p": "0.05", "repeat_penalty": "1.1",
        "presence_penalty": "0.2", "frequency_penalty": "0.3", "logit_bias": "5:-1.5,7:2", "seed": "9",
        "logprobs": "2", "stop": "1,2", "echo_stop": "1", "priority": "-3", "deadline": "1.5", "draft": "4",
        "stream_from": "6", "marks": "1,2", "openers": "7", "cache": "0",
        "mask": Constraint('start: "a"', 7).written(),
    }  # fmt: skip
    assert set(values) == set(KEYS)
    command = parse_command(f"GEN r -1 {' '.join(f'{k}={v}' for k, v in values.items())} 10 11")
    params = SamplingParams(0.5, 40, 0.9, 0.05, 1.1, 0.2, 0.3, ((5, -1.5), (7, 2.0)), 9, 2, Constraint('start: "a"', 7))
    assert command == Gen(
        Request(
            "r",
            (10, 11),
            None,
            params,
            (1, 2),
            True,
            priority=-3,
            deadline_s=1.5,
            draft=4,
            stream_from=6,
            sharing=Sharing((1, 2), (7,), False),
        )
    )


def test_stop_ids_default_to_the_models_and_can_be_none() -> None:
    for line, expected in [("GEN a 1 5", (8, 9)), ("GEN a 1 stop= 5", ()), ("GEN a 1 stop=4 5", (4,))]:
        command = parse_command(line, default_stop=(8, 9))
        assert isinstance(command, Gen)
        assert command.request.stop_ids == expected


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("STOP a", Stop("a")),
        ("YIELD a", Yield("a")),
        ("BSTOP 2", Stop("@2")),
        ("BYIELD 02", Yield("@2")),
        ("  STAT ", Stat()),
        ("QUIT\r", Quit()),
        ("PARK", Keep(Order("park"))),
        ("VRAM 2048", Keep(Order("vram", mib=2048))),
        ("SAVE", Keep(Order("save"))),
        ("EXPERTS", Keep(Order("experts"))),
        ("RESTORE 5 6", Keep(Order("restore", (5, 6)))),
    ],
)
def test_short_commands(line: str, command: object) -> None:
    assert parse_command(line) == command


@pytest.mark.parametrize(
    ("line", "request_id", "code", "words"),
    [
        ("", "-", "usage", "expected GEN"),
        ("HELLO there", "-", "usage", "found 'HELLO there'"),
        ("gen a 1 2", "-", "usage", "expected GEN"),
        ("GEN", "-", "usage", "expected GEN"),
        ("STAT now", "-", "usage", "expected GEN"),
        ("STOP a b", "-", "usage", "STOP takes one word, found 2"),
        ("GEN a", "a", "usage", "<max_new> and token ids are missing"),
        ("GEN a x 1", "a", "bad_request", "not a whole number: 'x'"),
        ("GEN a -2 1", "a", "bad_request", "max_new must be 0 or more, found -2"),
        ("GEN a 5", "a", "bad_request", "the prompt has no tokens"),
        ("GEN a 5 1 two", "a", "bad_request", "not a whole number: 'two'"),
        ("GEN a 5 1 1.5", "a", "bad_request", "not a whole number: '1.5'"),
        ("GEN a 5 1 ٣", "a", "bad_request", "not a whole number"),
        ("GEN a 5 1 99999999999", "a", "bad_request", "tokens: token ids are from 0"),
        ("GEN a 5 heat=1 1", "a", "bad_request", "unknown key 'heat'; known are temperature"),
        ("GEN a 5 mask=x 1", "a", "bad_request", "mask: expected a constraint"),
        ("BGEN 3 5 mask= 1", "@3", "bad_request", "mask"),
        ("GEN a 5 1 seed=2", "a", "bad_request", "not a whole number: 'seed=2'"),
        ("GEN a 5 seed=1 seed=2 1", "a", "bad_request", "key seed is given twice"),
        ("GEN a 5 seed= 1", "a", "bad_request", "seed: not a whole number"),
        ("GEN a 5 temperature=hot 1", "a", "bad_request", "temperature: could not convert"),
        ("GEN a 5 temperature=nan 1", "a", "bad_request", "temperature must be from 0 to 100"),
        ("GEN a 5 top_p=1.5 1", "a", "bad_request", "top_p must be from 0 to 1"),
        ("GEN a 5 logit_bias=5 1", "a", "bad_request", "logit_bias: could not convert"),
        ("GEN a 5 echo_stop=yes 1", "a", "bad_request", "echo_stop: not 0 or 1"),
        ("GEN a=b 5 1", "-", "bad_request", "a request id is"),
        ("GEN @1 5 1", "-", "usage", "belong to the slot forms"),
        ("BGEN one 5 1", "-", "usage", "a slot is a small whole number"),
        ("BGEN 1 5 heat=1 1", "@1", "bad_request", "unknown key 'heat'"),
        ("GENI a 5 cat.png 1", "a", "unsupported", "images need a vision model"),
        ("BGENI 2 5 cat.png 1", "@2", "unsupported", "images need a vision model"),
        ("GENI", "-", "unsupported", "images"),
        ("PARK a", "-", "usage", "PARK: not a whole number: 'a'"),
        ("PARK 1", "-", "usage", "PARK takes no words"),
        ("RESTORE", "-", "usage", "RESTORE takes token ids"),
        ("SAVE a f", "-", "usage", "SAVE: not a whole number: 'a'"),
        ("GEN a 5 marks=2 1", "a", "bad_request", "marks are positions from 0 to 1 (the prompt's end)"),
        ("GEN a 5 marks=-1 1", "a", "bad_request", "marks are positions"),
        ("VRAM", "-", "usage", "VRAM takes one whole number of MiB"),
        ("VRAM 8 9", "-", "usage", "VRAM takes one whole number of MiB"),
        ("VRAM -1", "-", "bad_request", "VRAM takes 0 to 16777216 MiB, found -1"),
    ],
)
def test_a_line_that_cannot_be_honoured_says_why(line: str, request_id: str, code: str, words: str) -> None:
    with pytest.raises(LineError) as caught:
        parse_command(line)
    assert (caught.value.id, caught.value.code) == (request_id, code)
    assert words in caught.value.message
    assert code in CODES


PLAIN = "GEN BGEN STOP BYIELD STAT GENI BGENI PARK a -1 7 = seed= stop=1,,2 logit_bias=: temperature=1e999 @1 -"
WORDS = st.sampled_from([*PLAIN.split(), f"priority={'9' * 30}", "\x00"])


@given(st.text(max_size=60) | st.lists(WORDS | st.text(max_size=5), max_size=7).map(" ".join))
def test_no_line_to_the_engine_raises_anything_else(line: str) -> None:
    try:
        parse_command(line)
    except LineError as error:
        assert error.code in CODES
        parse_event(format_error(error.id, error.code, error.message))


@given(IDS.filter(lambda text: not text.isdecimal()) | st.integers(0, 99).map("@{}".format), EVENTS)
def test_an_event_survives_its_line(request_id: str, event: Event) -> None:
    line = format_event(request_id, event)
    assert "\n" not in line
    assert parse_event(line) == Of(request_id, event)


@given(IDS, FINISHED)
def test_a_finished_survives_its_line(request_id: str, event: Finished) -> None:
    message = parse_event(format_event(request_id, event))
    assert isinstance(message, Of)
    assert isinstance(message.event, Finished)
    assert message.id == request_id
    for name in ("reason", "prompt", "reused", "generated", "drafted", "accepted", "steps", "stop_id", "code", "error"):
        assert getattr(message.event, name) == getattr(event, name)
    for name in ("queue_s", "prompt_s", "decode_s"):
        assert math.isclose(getattr(message.event, name), getattr(event, name), abs_tol=1e-6)


def test_the_lines_are_those_of_the_interface() -> None:
    done = Finished(Reason.STOP, 5, 2, 3, 4, 1, steps=2, stop_id=9, queue_s=0.001, prompt_s=0.25, decode_s=1.5)
    failed = Finished(Reason.ERROR, 5, code="failed", error="the step\n failed: text=3  x")
    lines = {
        format_event("a", Progress(2, 5)): "PP a 2 5",
        format_event("a", Reused(2)): "REUSED a 2 slot",
        format_event("a", Token(7)): "T a 7",
        format_event("a", Token(7, -0.5, ((7, -0.5), (8, -1.0)))): "T a 7 -0.5 7:-0.5 8:-1.0",
        format_event("a", Yielded(4)): "YIELDED a 4",
        format_event("a", done): "DONE a stop prompt=5 reused=2 generated=3 drafted=4 accepted=1 steps=2 stop=9 "
        "queue_ms=1.000 prompt_ms=250.000 decode_ms=1500.000",
        format_event("a", failed): "DONE a error prompt=5 reused=0 generated=0 drafted=0 accepted=0 steps=0 "
        "queue_ms=0.000 prompt_ms=0.000 decode_ms=0.000 code=failed text=the step failed: text=3 x",
        format_event("@2", Token(7)): "BT 2 7",
        format_event("@2", Yielded(4)): "YIELDED 2 4",
        format_event("@2", done): "BDONE 2 3 stop 1751.000",
        format_admitted(2, True): "BADM 2 1",
        format_ready(64, (1, 2)): "READY 64 1 2",
        format_info(batch_slots=4, reason="as asked"): "INFO batch_slots=4 reason=as_asked",
        format_error("a", "busy", "3 wait\nalready"): "ERR a busy 3 wait already",
        format_fatal("out of\nmemory"): "FATAL out of memory",
        format_status({"a": {"b": 1}}): 'STAT {"a":{"b":1}}',
        format_experts({"a": "b=="}): 'EXPERTS {"a":"b=="}',
        format_kept("save", {"saved": 3, "bytes": 40}): "KEPT save saved=3 bytes=40",
    }
    for got, expected in lines.items():
        assert got == expected
    read = parse_event(format_event("a", failed))
    assert isinstance(read, Of)
    assert isinstance(read.event, Finished)
    assert (read.event.code, read.event.error) == ("failed", "the step failed: text=3 x")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("INFO batch_slots=4 model=x", Info({"batch_slots": "4", "model": "x"})),
        ("READY 64 1 2\n", Ready(64, (1, 2))),
        ("READY 64", Ready(64, ())),
        ("ERR a busy 3 wait already", Error("a", "busy", "3 wait already")),
        ('STAT {"a":1}', Status({"a": 1})),
        ('EXPERTS {"a":"b=="}', Experts({"a": "b=="})),
        ("FATAL out of memory", Fatal("out of memory")),
        ("KEPT save saved=3", Kept("save", {"saved": 3})),
        ("BADM 2 0", Admitted(2, False)),
        ("BDONE 2 3 stop 1500.0", Of("@2", Finished(Reason.STOP, 0, generated=3, decode_s=1.5))),
    ],
)
def test_engine_lines_are_read(line: str, message: object) -> None:
    assert parse_event(line) == message


FOREIGN = """|HELLO|PP a 1|PP a x 2|T|T a|T a x|T a 1 -0.5 7|DONE a|DONE a early|DONE a stop|READY|READY x|STAT|STAT {
|KEPT|KEPT park x|KEPT park x=y|STAT 5 5|ERR a|INFO x|BDONE 1 2 stop|BT x 1|BADM x 1"""


@pytest.mark.parametrize("line", FOREIGN.split("|"))
def test_what_no_engine_writes_is_refused(line: str) -> None:
    with pytest.raises(RequestError, match="not a line of the engine"):
        parse_event(line)


SAID = st.sampled_from(["T", "PP", "DONE", "a", "1", "=", "x=1", "BT", "STAT", "{", "ERR"])


@given(st.text(max_size=40) | st.lists(SAID, max_size=6).map(" ".join))
def test_no_line_from_the_engine_raises_anything_else(line: str) -> None:
    try:
        parse_event(line)
    except RequestError as error:
        assert "not a line of the engine" in error.message


INTERFACE = {
    "GEN a 5 1": True, "STOP a": True, "YIELD a": True, "STAT": True, "QUIT": True, "PARK": True, "SAVE": True,
    "RESTORE 1": True, "VRAM 8": True, "EXPERTS": True,
    "BGEN 1 5 1": True, "BSTOP 1": True, "BYIELD 1": True, "GENI a 5 x 1": False,
    "BGENI 1 5 x 1": False, f"GEN a 5 mask={Constraint('x').written()} 1": True,
    **dict.fromkeys(
        (
            f"GEN a 5 {name}=1 1" for name in (
                "temperature", "top_p", "top_k", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty",
                "seed", "logprobs", "stop", "priority", "draft",
            )
        ), True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("line", "built"), INTERFACE.items())
def test_every_name_of_the_interface_is_honoured_or_refused_by_name(line: str, built: bool) -> None:
    if built:
        parse_command(line)
        return
    with pytest.raises(LineError) as caught:
        parse_command(line)
    assert caught.value.code == "unsupported"


def test_errors_have_their_codes() -> None:
    assert code_of(QueueFullError("full")) == "busy"
    assert code_of(CapacityError("long")) == "too_long"
    assert code_of(RequestError("bad")) == "bad_request"
    assert code_of(LineError("a", "unknown", "gone")) == "unknown"
