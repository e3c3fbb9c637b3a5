"""The engine on the runner: company, cancelling and continuing change no token."""

import threading

import pytest

from models.made import ops_of, oracle, path_of, runner_of
from strata.engine.engine import Engine, EngineSettings
from strata.engine.events import Finished, Reason, Reused, Token
from strata.engine.request import Request
from strata.engine.settings import Settings
from strata.sampling.params import SamplingParams

PARAMS = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(temperature=1.5, top_k=50, seed=3),
    "penalties": SamplingParams(
        temperature=0.9, seed=4, repeat_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.3
    ),
    "bias": SamplingParams(temperature=1.1, min_p=0.01, seed=5, logit_bias=((17, 4.0), (30, -100.0))),
}
LENGTH = 14


@pytest.fixture(scope="module", params=["qwen4_exp", "llama"])
def path(request):
    return path_of(request.param, "gguf")


def started(path, slots, chunk=8):
    settings = EngineSettings(scheduler=Settings(chunk_tokens=chunk))
    engine = Engine(runner_of(path, ops_of(), slots=slots), settings)
    engine.start()
    return engine


@pytest.fixture(scope="module")
def engine(path):
    made = started(path, 4)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def alone(path):
    """name -> the answer of a request that has an engine of its own."""
    found = {}
    for name, request in requests("solo").items():
        made = started(path, 1, 64)
        try:
            found[name] = tokens_of(made.submit(request))
        finally:
            made.stop()
    return found


def requests(tag):
    ids = oracle("qwen4_exp").ids
    prompts = {"greedy": ids[:30], "sampled": ids[3:12], "penalties": ids[10:45], "bias": ids[40:42]}
    return {n: Request(f"{tag}-{n}", tuple(prompts[n]), LENGTH, PARAMS[n]) for n in PARAMS}


def tokens_of(session):
    events = list(session.events())
    assert isinstance(events[-1], Finished) and events[-1].reason is Reason.LENGTH, events[-1]
    return [e.token for e in events if isinstance(e, Token)]


def test_several_at_once_answer_as_each_alone(engine, alone):
    sessions = {name: engine.submit(request) for name, request in requests("together").items()}
    assert {name: tokens_of(session) for name, session in sessions.items()} == alone
    assert len({tuple(tokens) for tokens in alone.values()}) == len(PARAMS)


def test_more_than_there_are_slots_answer_as_each_alone(engine, alone):
    sessions = [(n, engine.submit(r)) for turn in range(2) for n, r in requests(f"queue{turn}").items()]
    assert all(tokens_of(session) == alone[name] for name, session in sessions)


def test_one_that_is_cancelled_does_not_change_the_others(engine, alone):
    gone = threading.Event()
    long = Request("long", tuple(oracle("qwen4_exp").ids[:20]), 200, PARAMS["greedy"])

    def sink(session, event):
        if isinstance(event, Token):
            session.cancel()
        if isinstance(event, Finished):
            found.append(event)
            gone.set()

    found = []
    engine.submit(long, sink)
    sessions = {name: engine.submit(request) for name, request in requests("beside").items()}
    assert {name: tokens_of(session) for name, session in sessions.items()} == alone
    assert gone.wait(30) and found[0].reason is Reason.CANCEL and found[0].generated < 200


def test_a_bad_token_id_fails_its_own_request_only(engine, alone):
    bad = engine.submit(Request("bad", (5, 4000), 5))
    sessions = {name: engine.submit(request) for name, request in requests("good").items()}
    (event,) = bad.events()
    assert event.reason is Reason.ERROR and "ids of tokens must be from 0 to 198, found 4000" in event.error
    assert {name: tokens_of(session) for name, session in sessions.items()} == alone
    assert engine.fatal is None


@pytest.mark.parametrize("name", PARAMS)
def test_a_conversation_goes_on_as_a_cold_read_would(path, engine, name):
    first = requests("turn1")[name]
    answer = tokens_of(engine.submit(first))
    longer = (*first.tokens, *answer, 9, 8, 7)
    events = list(engine.submit(Request(f"turn2-{name}", longer, LENGTH, PARAMS[name])).events())
    reused = next(e for e in events if isinstance(e, Reused))
    assert reused.tokens == len(first.tokens) + LENGTH - 1
    cold = started(path, 1)
    try:
        assert tokens_of(cold.submit(Request("cold", longer, LENGTH, PARAMS[name]))) == [
            e.token for e in events if isinstance(e, Token)
        ]
    finally:
        cold.stop()
