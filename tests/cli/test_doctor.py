"""`strata doctor`: every finding, good and bad."""

import json
import socket
from pathlib import Path

import pytest

from strata.checks import health
from strata.cli.main import run


def test_this_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    environ = {"STRATA_CACHE_DIR": str(tmp_path), "STRATA_PORT": "0"}
    assert run(["doctor", "--json"], environ) == 0
    found = {f["name"]: f for f in json.loads(capsys.readouterr().out)["findings"]}
    assert found["kernels"]["state"] in ("ok", "note")
    assert found["memory"]["found"].endswith("GiB free")
    assert str(tmp_path) in found
    assert run(["doctor"], environ) == 0
    assert "processor" in capsys.readouterr().out


def test_what_cannot_work_ends_with_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("no such file")

    monkeypatch.setattr(health, "Native", broken)
    assert run(["doctor"], {}) == 1
    said = capsys.readouterr().out
    assert "BAD" in said and "OSError: no such file" in said and "scripts/build" in said


def test_single_findings() -> None:
    assert health.python((3, 10, 1)).state == "note"
    assert health.python((3, 12, 0)).state == "ok"
    assert health.memory(1 << 30).state == "note"
    assert health.memory(1 << 36).state == "ok"
    assert health.pinned(-1).found == "unlimited"
    assert health.pinned(8 << 20).state == "note"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert health.listening(taken.getsockname()[1]).state == "note"


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert health.disk(tmp_path / "new" / "er").state in ("ok", "note")
    monkeypatch.setattr("strata.checks.health.os.access", lambda *_: False)
    assert health.disk(tmp_path).state == "bad"
