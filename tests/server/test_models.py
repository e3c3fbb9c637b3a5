"""Several models, one loaded at a time: who is served, who waits, what is refused. Fake engines."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.harness import Running, several, sse
from strata.server.models import Terms
from strata.server.settings import ServerSettings

pytestmark = pytest.mark.timeout(60)
LONG = {"answers": [[65] * 60], "token_s": 0.02}
QUICK_COMMENTS = ServerSettings(keep_alive_s=0.05)


class Starts:
    """Counts the engines of a model that were started, by the file in which each leaves its number."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file = folder / f"{name}.pid"
        self.seen: list[str] = []

    def now(self) -> int:
        """How many were seen so far; asked after every start."""
        found = self.file.read_text() if self.file.exists() else ""
        if found and found not in self.seen:
            self.seen.append(found)
        return len(self.seen)


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def ask(up: Running, model: str | None, **more: Any) -> httpx.Response:
    body = {"prompt": "x", "max_tokens": 3, **({} if model is None else {"model": model}), **more}
    return up.http.post("/v1/completions", json=body)


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """`work` under way, and where its result will be."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    return thread, found


def states(up: Running) -> dict[str, str]:
    return {each["id"]: each["status"]["value"] for each in up.http.get("/v1/models").json()["data"]}


def metrics(up: Running, name: str) -> dict[str, float]:
    lines = [line for line in up.http.get("/metrics").text.splitlines() if line.startswith(name)]
    return {line.rpartition(" ")[0].removeprefix(name): float(line.rpartition(" ")[2]) for line in lines}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """a is loaded first; b is another one."""
    with several({"a": LONG, "b": {"context": 256}}, QUICK_COMMENTS) as up:
        yield up


def test_the_model_that_is_asked_for_answers_and_takes_the_place_of_the_other(pair: Running) -> None:
    assert ask(pair, "a").json()["model"] == "a"
    assert states(pair) == {"a": "loaded", "b": "unloaded"}
    assert ask(pair, "b").json()["model"] == "b"
    assert states(pair) == {"a": "unloaded", "b": "loaded"}
    contexts = {each["id"]: each["context_length"] for each in pair.http.get("/v1/models").json()["data"]}
    assert contexts == {"a": 512, "b": 256}, "what was loaded once is known"
    assert ask(pair, None).json()["model"] == "b", "a request that names none does not change the model"
    assert ask(pair, "default").json()["model"] == "b"
    assert pair.http.get("/v1/status").json()["model"] == "b"


def test_a_name_that_nobody_has_is_refused_with_those_that_there_are(pair: Running) -> None:
    before = states(pair)
    refused = ask(pair, "c")
    assert refused.status_code == 404
    assert "'a', 'b'" in refused.json()["error"]["message"] and refused.json()["error"]["code"] == "model_not_found"
    assert pair.http.get("/v1/models/c").status_code == 404
    assert pair.http.post("/v1/load", json={"model": "c"}).status_code == 404
    assert states(pair) == before


def test_what_cannot_be_honoured_loads_nothing(pair: Running) -> None:
    ask(pair, "b")
    assert ask(pair, "a", temperature=-1).status_code == 400
    wrong = pair.http.post("/v1/completions", json={"model": 7, "prompt": "x"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "model")
    assert states(pair)["b"] == "loaded"


def test_what_runs_comes_to_its_end_before_the_model_changes(pair: Running) -> None:
    ask(pair, "a")
    with pair.http.stream("POST", "/v1/completions", json={"model": "a", "prompt": "x", "stream": True}) as reply:
        lines = reply.iter_lines()
        next(lines)
        other, found = in_thread(lambda: ask(pair, "b"))
        until(lambda: pair.http.get("/v1/status").json()["waiting_for_model"] == 1)
        late, last = in_thread(lambda: ask(pair, "a"))
        until(lambda: pair.http.get("/v1/status").json()["waiting_for_model"] == 2)
        events = sse("\n".join(lines))
    assert len([event for event in events if event != "[DONE]" and event["choices"][0]["text"]]) >= 59
    other.join(20)
    late.join(20)
    assert found[0].json()["model"] == "b" and last[0].json()["model"] == "a", "in the order in which they asked"
    assert states(pair)["a"] == "loaded"


def test_a_stream_that_waits_for_its_model_gets_comments(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with several({"a": {}, "b": {"load_until": str(go)}}, QUICK_COMMENTS) as up:
        reader, found = in_thread(lambda: ask(up, "b", stream=True).text)
        until(lambda: up.http.get("/v1/status").json()["loading"])
        assert states(up)["b"] == "loading"
        assert up.http.get("/v1/status").json()["loading"] == {"percent": 43, "what": "reading the model's file"}
        health = up.http.get("/health")
        assert (health.status_code, health.json()["status"], health.json()["percent"]) == (503, "loading", 43)
        time.sleep(0.7)  # an answer is not begun before half a second
        go.touch()
        reader.join(20)
    assert found[0].startswith(": keep-alive") and "[DONE]" in found[0]
    assert len([event for event in sse(found[0]) if event != "[DONE]"]) >= 3


def test_unloading_says_what_it_freed_and_the_next_request_loads_again(pair: Running) -> None:
    ask(pair, "a")
    freed = pair.http.post("/v1/unload").json()
    assert freed["model"] == "a" and freed["freed"]["ram_bytes"] > 1 << 20
    assert set(states(pair).values()) == {"unloaded"}
    health = pair.http.get("/health")
    assert (health.status_code, health.json()) == (200, {"status": "unloaded"})
    assert pair.http.get("/slots").status_code == 503
    assert pair.http.get("/metrics").status_code == 200
    again = pair.http.post("/v1/unload", json={}).json()
    assert again["freed"] == {"ram_bytes": 0, "vram_bytes": 0}, "there is nothing to free"
    assert pair.http.post("/tokenize", json={"content": "x"}).status_code == 200, "text needs no engine"
    assert ask(pair, None).json()["model"] == "a", "the one that was loaded last"


def test_loading_by_request_and_what_was_counted(pair: Running) -> None:
    found = pair.http.post("/v1/load", json={"model": "b"})
    assert found.status_code == 200 and found.json()["model"] == "b" and found.json()["context_length"] == 256
    assert states(pair) == {"a": "unloaded", "b": "loaded"}
    assert pair.http.post("/v1/unload", json={"model": "a"}).json()["freed"]["ram_bytes"] == 0
    assert states(pair)["b"] == "loaded", "only what is named is unloaded"
    loads = metrics(pair, "strata_model_loads_total")
    assert loads['{model="b",outcome="loaded"}'] >= 1 and loads['{model="a",outcome="loaded"}'] >= 1
    assert metrics(pair, "strata_model_loaded") == {'{model="a"}': 0.0, '{model="b"}': 1.0}
    reasons = "".join(metrics(pair, "strata_model_unloads_total"))
    assert 'reason="switch"' in reasons


def test_whoever_leaves_changes_nothing_and_a_deadline_holds_while_waiting(tmp_path: Path) -> None:
    starts = Starts(tmp_path, "b")
    endless = {"answers": [[65] * 500], "token_s": 0.05}
    with several({"a": endless, "b": {"pid": str(starts.file)}}, QUICK_COMMENTS, Terms(queue_limit=2)) as up:
        with up.http.stream("POST", "/v1/completions", json={"model": "a", "prompt": "x", "stream": True}):
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(
                    f"{up.url}/v1/completions", json={"model": "b", "prompt": "x"}, timeout=httpx.Timeout(20, read=0.1)
                )
            until(lambda: up.http.get("/v1/status").json()["waiting_for_model"] == 0)
            body = {"model": "b", "prompt": "x"}
            late = up.http.post("/v1/completions", json=body, headers={"X-Strata-Deadline-S": "0.1"})
            assert (late.status_code, late.json()["error"]["code"]) == (504, "deadline_exceeded")
            waiting = [in_thread(lambda: ask(up, "b"))[0] for _ in range(2)]
            until(lambda: up.http.get("/v1/status").json()["waiting_for_model"] == 2)
            assert starts.now() == 0
            full = ask(up, "b")
            assert full.status_code == 429 and full.headers["retry-after"]
        for thread in waiting:
            thread.join(20)
        assert states(up)["b"] == "loaded"
        assert starts.now() == 1, "once for both"


def test_a_model_that_cannot_be_loaded_is_tried_once_and_takes_no_other_one_along(tmp_path: Path) -> None:
    """O-105: the load fails, and nobody can tell why."""
    with several({"a": {}, "b": {"fail_load": True}}) as up:
        failed = ask(up, "b")
        assert failed.status_code == 500
        assert "tensor x is cut short" in failed.json()["error"]["message"]
        assert states(up) == {"a": "unloaded", "b": "failed"}
        assert ask(up, "a").status_code == 200
        assert ask(up, "b").status_code == 500
        assert states(up) == {"a": "loaded", "b": "failed"}, "not tried again, so a stays"
        assert up.http.post("/v1/load", json={"model": "b"}).status_code == 500, "but on demand"
        assert metrics(up, "strata_model_loads_total")['{model="b",outcome="failed"}'] == 2
        assert ask(up, None).json()["model"] == "a"


def test_an_engine_that_crashes_comes_back_as_the_model_that_it_was(tmp_path: Path) -> None:
    """O-031: a request waits while the model's process is replaced, and goes on in the new one."""
    crashed = {"crash_after": 1, "crash_once": str(tmp_path / "crashed")}
    with several({"a": {}, "b": crashed}) as up:
        assert ask(up, "b").status_code == 503
        until(lambda: up.http.get("/health").status_code == 200)
        assert ask(up, None).json()["model"] == "b"
        assert up.http.get("/v1/status").json()["restarts"] == 1
        assert ask(up, "a").json()["model"] == "a"
        assert up.http.get("/v1/status").json()["restarts"] == 1, "counted on, though its process is gone"


def test_idle_models_are_unloaded_and_busy_ones_are_not() -> None:
    with several({"a": {"answers": [[65] * 40], "token_s": 0.02}}, terms=Terms(idle_s=0.4)) as up:
        assert ask(up, "a", max_tokens=40).status_code == 200, "it takes twice as long"
        until(lambda: states(up)["a"] == "unloaded")
        assert metrics(up, "strata_model_unloads_total") == {'{model="a",reason="idle"}': 1.0}
        assert ask(up, "a").status_code == 200


def test_a_first_request_is_read_by_the_context_that_its_load_told(tmp_path: Path) -> None:
    """Without max_tokens a form has to end in what the context leaves, which nobody knew when the request came."""
    heard = tmp_path / "lines"
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    with several({"a": {}, "b": {"context": 256, "log": str(heard)}}) as up:
        body = {"model": "b", "prompt": "x", "json_schema": schema, "seed": 1}
        for _ in range(2):
            assert up.http.post("/v1/completions", json=body).status_code == 200
    first, second = (line.split()[2:] for line in heard.read_text().splitlines() if line.startswith("GEN"))
    assert first == second and any(word.startswith("mask=") for word in first)


def test_who_asks_while_a_model_ends_for_somebody_who_left_is_served() -> None:
    with several({"a": {"deaf": True}, "b": {}}) as up:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{up.url}/v1/completions", json={"model": "b", "prompt": "x"}, timeout=httpx.Timeout(20, read=0.3)
            )
        assert up.http.get("/v1/status").json()["requests"] == 0, "a takes two seconds to end"
        assert ask(up, "a").json()["model"] == "a"
        assert states(up) == {"a": "loaded", "b": "unloaded"}
        assert metrics(up, "strata_model_loads_total") == {'{model="a",outcome="loaded"}': 2.0}, "b for nobody"


def test_the_server_tells_of_itself_while_a_model_ends() -> None:
    """An engine that takes no question any more, for it was told to quit, is no failure of who asks the server."""
    with several({"a": {"deaf": True}}) as up:
        ending, _ = in_thread(lambda: up.http.post("/v1/unload"))
        seen = set()
        while ending.is_alive():
            found = up.http.get("/v1/status")
            assert found.status_code == 200 and up.http.get("/metrics").status_code == 200
            seen.add(found.json()["state"])
        assert seen <= {"ready", "unloaded"} and "unloaded" in seen
