"""Engine tokens to chat events."""

from hypothesis import given, settings
from hypothesis import strategies as st

from chat.tiny_tokenizer import tiny
from strata.chat.events import Done, Event, ReasoningDelta, TextDelta
from strata.chat.reader import AnswerReader, Reading
from strata.engine.events import Finished, Reason, Token


def read(text: str, reading: Reading, logprobs: bool = False, reason: Reason = Reason.STOP) -> list[Event]:
    tokenizer = tiny()
    reader = AnswerReader(tokenizer, reading)
    events: list[Event] = []
    for i in tokenizer.encode(text):
        events += reader.push(Token(i, -0.5 if logprobs else None, ((i, -0.5),) if logprobs else ()))
    return events + reader.finish(Finished(reason, prompt=1))


def text_of(events: list[Event]) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta))


def thoughts_of(events: list[Event]) -> str:
    return "".join(e.text for e in events if isinstance(e, ReasoningDelta))


def done_of(events: list[Event]) -> Done:
    assert [isinstance(e, Done) for e in events].count(True) == 1
    last = events[-1]
    assert isinstance(last, Done)
    return last


def test_reasoning_and_text() -> None:
    events = read("<think>\nhm\n</think>\n\nHello 😀", Reading())
    assert (thoughts_of(events), text_of(events)) == ("hm", "Hello 😀")
    assert done_of(events).reason is Reason.STOP


def test_raw_text_keeps_the_markers() -> None:
    assert text_of(read("<think>a</think>b", Reading(split_reasoning=False))) == "<think>a</think>b"


def test_a_stop_string_ends_it_and_is_named() -> None:
    reader = AnswerReader(tiny(), Reading(stops=("own fox",)))
    events: list[Event] = []
    for i in tiny().encode("The quick brown fox jumps over"):
        events += reader.push(Token(i))
    assert reader.stopped
    events += reader.finish(Finished(Reason.CANCEL, prompt=1))
    assert text_of(events) == "The quick br"
    assert (done_of(events).reason, done_of(events).stop) == (Reason.STOP, "own fox")


def test_a_half_stop_string_is_text_in_the_end() -> None:
    events = read("The quick brown f", Reading(stops=("own fox",)), reason=Reason.LENGTH)
    assert text_of(events) == "The quick brown f"
    assert done_of(events).reason is Reason.LENGTH


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30), st.lists(st.text(min_size=1, max_size=3), max_size=2))
def test_every_token_has_its_logprob_once(text: str, stops: list[str]) -> None:
    tokenizer = tiny()
    events = read(text, Reading(stops=tuple(stops)), logprobs=True)
    ids = [item.token for e in events if not isinstance(e, Done) for item in e.logprobs]
    whole = tokenizer.encode(text)
    assert ids == whole[: len(ids)]
    if done_of(events).stop is None:
        assert ids == whole
    else:
        assert text_of(events) == tokenizer.decode(whole).partition(done_of(events).stop or "")[0] or len(stops) > 1
