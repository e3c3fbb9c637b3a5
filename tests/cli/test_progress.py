"""Progress of long work."""

import io

import pytest
from rich.console import Console

from strata.cli import progress as module
from strata.cli.progress import Lines, progress


def test_lines_come_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = Lines("work", 3.0, lambda: now[0])
    for second in range(10):
        now[0] = float(second)
        lines(f"part{second}", second + 1, 10)
    assert capsys.readouterr().err.splitlines() == ["work 40% part3", "work 70% part6", "work 100% part9"]


def test_plain_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("work", clock=lambda: 0.0) as said:
        said("a", 1, 2)
        said("b", 2, 2)
    shown = capsys.readouterr()
    assert shown.err == "work 100% b\n" and shown.out == ""


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()

    def terminal(**_: bool) -> Console:
        return Console(file=stream, force_terminal=True, width=80)

    monkeypatch.setattr(module, "Console", terminal)
    with progress("work") as said:
        said("[red]part", 1, 2)
    assert "work" in stream.getvalue() and "50%" in stream.getvalue() and "[red]part" in stream.getvalue()
