"""/tokenize, /detokenize and /props."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from server.harness import ids, running
from strata.chat.tokenizer import Tokenizer
from strata.server.aside import SHORT

TEXT = "Straße 漢字 <|im_start|>user 👨‍👩‍👧"


def test_there_and_back() -> None:
    with running() as up:
        found = up.http.post("/tokenize", json={"content": TEXT}).json()
        assert found["tokens"] == ids(TEXT)
        assert found["count"] == len(ids(TEXT))
        assert found["max_model_len"] == up.engine.require_ready().context
        back = up.http.post("/detokenize", json={"tokens": found["tokens"]}).json()
        assert back["content"] == back["prompt"] == TEXT
        other = up.http.post("/tokenize", json={"prompt": TEXT, "return_token_strs": True, "model": "tiny"}).json()
        assert other["tokens"] == ids(TEXT) and len(other["token_strs"]) == len(ids(TEXT))


def test_pieces_join_to_the_text() -> None:
    with running() as up:
        pieces = up.http.post("/tokenize", json={"content": TEXT, "with_pieces": True}).json()["tokens"]
    joined = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces)
    assert joined.decode() == TEXT
    assert any(isinstance(p["piece"], list) for p in pieces)


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/tokenize", {}, 400, "expected either content or prompt, found neither"),
        ("/tokenize", {"content": "a", "prompt": "b"}, 400, "found both"),
        ("/tokenize", {"content": "a", "model": "none"}, 404, "is not served"),
        ("/tokenize", {"content": 3}, 400, "content"),
        ("/detokenize", {"tokens": [1, 99_999_999]}, 400, "tokens[1]: expected an id below"),
        ("/detokenize", {"tokens": ["a"]}, 400, "tokens"),
        ("/detokenize", {}, 400, "tokens"),
    ],
)
def test_what_is_refused(path: str, body: dict[str, object], status: int, words: str) -> None:
    with running() as up:
        answer = up.http.post(path, json=body)
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]


def test_long_texts_keep_no_other_client_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, set[threading.Thread]] = {"encode": set(), "decode": set()}

    def noted(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **more: Any) -> Any:
            threads[name].add(threading.current_thread())
            return work(*args, **more)

        return run

    for name in threads:
        monkeypatch.setattr(Tokenizer, name, noted(name, getattr(Tokenizer, name)))
    with running() as up:
        for count, within in ((1, True), (SHORT, False)):
            found = up.http.post("/tokenize", json={"content": "word " * count}).json()
            assert len(found["tokens"]) == found["count"]
            up.http.post("/detokenize", json={"tokens": [1] * (count + 1)})
            for name, seen in threads.items():
                assert (up.thread in seen) == within, name
                seen.clear()


def test_props() -> None:
    with running() as up:
        found = up.http.get("/props").json()
    assert found["total_slots"] == 4
    assert found["chat_template"].startswith("{")
    assert found["default_generation_settings"]["n_ctx"] > 0
    assert found["modalities"] == {"vision": False, "audio": False}
