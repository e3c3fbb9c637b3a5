"""Reports of requests that wait for room, for their turn, or for a model that is not there."""

import itertools
import threading
from typing import Any

import pytest

from engine.engine_bench import Bench
from fakes import FakeRunner
from models.made import load as model_of
from models.made import ops_of, path_of
from reference.decoding import alone
from reports.live import Stream, ask, device, idle, live, status, text_of, until
from strata.assemble import load
from strata.core.errors import UsageError
from strata.core.limits import Limits
from strata.engine.engine import Engine
from strata.engine.request import Request
from strata.engine.settings import Settings
from strata.plan.wishes import Wishes
from strata.runtime.keeping import Keeping
from strata.runtime.runner import DeviceRunner
from strata.server.engine_process import State
from strata.server.settings import ServerSettings

pytestmark = pytest.mark.timeout(60)


def test_a_prompt_beyond_the_pool_is_refused_and_those_that_fit_wait_for_each_other() -> None:
    """O-027: a prompt larger than the pool waits for ever, without a word."""
    with live(slots=4, context=320, pool=320, step_tokens=128) as up:
        solo = [text_of(ask(up, 11 + i, 170, 30)) for i in range(4)]
        streams = [Stream(up, 11 + i, 170, 30) for i in range(4)]
        until(lambda: status(up)["engine"]["reading"] + status(up)["engine"]["running"])
        refused = ask(up, 20, 400, 1)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
        assert "400" in refused.json()["error"]["message"] and "320" in refused.json()["error"]["message"]
        assert [stream.join().text for stream in streams] == solo
        assert "20" not in device(up)["seats"]


def test_a_pool_that_holds_no_conversation_is_refused_at_the_start() -> None:
    """O-027: a silly split of memory starts, and then nothing fits."""
    path = path_of("llama", "gguf")

    def runner(pages: int) -> DeviceRunner:
        return DeviceRunner(model_of(path), ops_of(), Limits(4, 256, 64), keeping=Keeping(pages=pages))

    assert runner(4).limits.context == 256
    with pytest.raises(UsageError, match="3 pages of 64 tokens hold 192 tokens, one conversation may have 256"):
        runner(3)


def beside(max_gap_s: float, chunk: int, stream: bool) -> tuple[float, float, Bench]:
    """(longest gap of a stream, seconds to the first token of a prompt of 4,000) where 1,000 tokens take 2 s."""
    b = Bench(FakeRunner(Limits(2, 4600, 4096)), Settings(chunk_tokens=chunk, max_gap_s=max_gap_s))
    b.cost = lambda windows: 0.01 + sum(0.002 * len(w.tokens) for w in windows if len(w.tokens) > 1)
    longest, last = 0.0, 0
    if stream:
        b.ask("stream", 8, 200)
        for _ in range(6):
            b.step()
    began = b.now
    b.ask("long", 4000, 2)
    while "long" not in b.read_at:
        last = len(b.answer("stream")) if stream else 0
        before = b.now
        b.step()
        if stream and len(b.answer("stream")) > last:
            longest = max(longest, b.now - before)
        elif stream:
            longest = 1e9
    first_s = b.now - began
    b.run()
    return longest, first_s, b


@pytest.mark.parametrize("chunk", [128, 512, 2048])
def test_a_stream_goes_on_beside_a_long_prompt_which_is_read_as_fast(chunk: int) -> None:
    """O-028: one long prompt freezes all streams for as long as it is read."""
    longest, first_s, b = beside(0.25, chunk, stream=True)
    _, undisturbed_s, _ = beside(0.25, chunk, stream=False)
    assert longest <= 0.25
    assert first_s <= 2 * undisturbed_s
    assert b.answer("stream") == alone(b.sessions["stream"].request, 4600)[0]
    assert beside(1e6, 2048, stream=True)[0] > 4, "without the bound it is frozen"


def test_a_newcomer_is_served_at_once_and_the_long_ones_go_on() -> None:
    """O-029: who comes last waits for all that runs; or who is long waits for all that is short."""
    b = Bench(FakeRunner(Limits(3, 4600, 64)), Settings(chunk_tokens=64, max_wait_s=20.0))
    b.ask("decoding", 5, 500)
    b.step()
    b.ask("reading", 4000, 2)
    b.step()
    for number in range(120):
        b.ask(f"short{number}", 20, 1)
        if number == 0:
            b.step()
            b.step()
            assert b.read_at["short0"] == b.steps or b.read_at["short0"] == b.steps - 1
        b.step()
    for name in ("decoding", "reading"):
        assert b.longest_wait[name] <= 20.0 + 3
    b.run()
    assert b.answer("reading") == alone(b.sessions["reading"].request, 4600)[0]


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_a_slot_has_the_context_that_was_asked_for(slots: int) -> None:
    """O-032: two slots halve the context of each."""
    loaded = load(path_of("llama", "gguf"), Wishes(ctx_size=256, parallel=slots, threads=1))
    engine: Engine = loaded.engine
    assert engine.status()["plan"]["context"] == {"value": 256, "reason": "as asked"}  # type: ignore[index]
    assert (engine.limits.slots, engine.limits.context) == (slots, 256)
    engine.start()
    sessions = [engine.submit(Request(str(i), tuple((i + j) % 190 + 4 for j in range(250)), 6)) for i in range(slots)]
    for session in sessions:
        *_, last = session.events()
        assert last.reason.value == "length" and last.generated == 6  # type: ignore[union-attr]
    engine.stop()


def test_drafts_and_slots_go_together() -> None:
    """O-033: drafts force one slot, or more slots switch drafts off, and only a log line says so."""
    with live(ServerSettings(keep_alive_s=0.05), slots=4, draft_depth=3, step_s=0.004) as up:
        streams = [Stream(up, 31 + i, max_tokens=60) for i in range(4)]
        texts = [stream.join().text for stream in streams]
        found = status(up)["engine"]
        assert (found["slots"]["requested"], found["slots"]["serving"]) == (4, 4)
        assert found["tokens"]["accepted"] > 0 and found["tokens"]["drafted"] > found["tokens"]["accepted"]
        assert found["decoding_per_step"].get("4", 0) > 0, "four were decoded together"
        assert max(map(int, found["rows_per_step"])) > 8, "with drafts"
        assert [text_of(ask(up, 31 + i, max_tokens=60)) for i in range(4)] == texts


def test_asking_for_a_model_that_is_not_there_while_one_loads_ends() -> None:
    """O-035: requests for another model while one is loading block each other until a restart."""
    with live(ServerSettings(keep_alive_s=0.05), slots=2, load_s=0.8, wait=False) as up:
        found: list[int] = []

        def client(names: list[str]) -> None:
            for name in names:
                body: dict[str, Any] = {"model": name, "prompt": [5, 6, 7], "max_tokens": 2}
                found.append(up.http.post("/v1/completions", json=body).status_code)

        mixed = ["tiny", "other", "tiny", "other", "broken"]
        threads = [threading.Thread(target=client, args=(mixed,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert set(found) <= {503, 404, 200} and len(found) == 20
        up.until(State.READY)
        assert ask(up, 41, model="tiny").status_code == 200
        assert ask(up, 41, model="other").status_code == 404
        assert ask(up, 41, model="tiny").status_code == 200
        until(lambda: idle(up))


def test_whoever_has_more_slots_than_rows_waits_no_more_than_a_round() -> None:
    """O-029: with more streams than a step has rows, the last ones are never served."""
    b = Bench(FakeRunner(Limits(7, 64, 3)), Settings(chunk_tokens=2))
    for name in "abcdefg":
        b.ask(name, 1, 40)
    while b.admission.has_work() and len(b.read_at) < 7:
        b.step()
    rounds: list[int] = []
    for _ in range(21):
        rounds += [window.slot for window in b.step()]
    for slot in range(7):
        turns = [place for place, served in enumerate(rounds) if served == slot]
        assert all(later - earlier == 7 for earlier, later in itertools.pairwise(turns)), "a round has each slot once"
        assert len(turns) == 9
