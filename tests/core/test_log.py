"""Lines of the log: as text, as JSON, and how far something long is."""

import io
import json
import re

import pytest

from strata.core.log import Level, Log

STORY = {"model": "a b", "count": 3, "seconds": 1.23456, "stream": True, "reason": None, "empty": ""}


def test_a_line_of_text() -> None:
    stream = io.StringIO()
    Log(stream=stream).info("request", **STORY)
    said = "info request model='a b' count=3 seconds=1.235 stream=True reason=None empty=''\n"
    assert re.fullmatch(r"\d\d:\d\d:\d\d " + re.escape(said), stream.getvalue())


def test_a_line_of_json_has_the_same_as_values() -> None:
    stream = io.StringIO()
    log = Log(Level.INFO, stream, "json")
    log.warning("request", **STORY, path="\n", rate=float("nan"), most=float("inf"))
    log.debug("below the level")
    (line,) = stream.getvalue().splitlines()
    found = json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", found.pop("time"))
    unlike = {"seconds": 1.235, "path": "\n", "rate": "nan", "most": "inf"}
    assert found == {"level": "warning", "event": "request", **STORY, **unlike}


def test_progress_is_heard_at_once_and_written_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, int, int]] = []
    stream = io.StringIO()
    log = Log(stream=stream, heard=lambda *how: heard.append(how))
    for done in range(1, 5):
        log.progress("reading", done << 20, 4 << 20)
    assert heard == [("reading", done << 20, 4 << 20) for done in range(1, 5)]
    assert stream.getvalue() == "", "it was quick"
    monkeypatch.setattr("strata.core.log.PROGRESS_EVERY_S", 0.0)
    log.progress("copying", 1 << 20, 4 << 20)
    assert "info copying percent=25 done_mib=1 total_mib=4" in stream.getvalue()
