"""`strata chat` at a real terminal: a process behind a pty, as a person sees it."""

import fcntl
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAUNCH = """
import os, sys, time, types
sys.modules["strata.assemble"] = types.ModuleType("strata.assemble")  # it loads torch, which nothing here needs
sys.modules["strata.assemble"].load = lambda model, wishes, log: loaded(Slow("Hello there " * 6, context=4096))
from cli.fake_model import Scripted, loaded
from strata.cli import chat, main

class Slow(Scripted):
    def step(self, windows):
        time.sleep(0.02)
        return super().step(windows)

sys.exit(main.run(["chat", *sys.argv[1:]], os.environ))
"""
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])")
PATIENCE_S = 45.0


class Terminal:
    """The person's side."""

    def __init__(self, home: Path, *words: str) -> None:
        self.here, there = pty.openpty()
        environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}", "XDG_STATE_HOME": str(home)}
        environ |= {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "COLUMNS": "100"}
        command = [sys.executable, "-c", LAUNCH, *words]
        self.process = subprocess.Popen(
            command,
            stdin=there,
            stdout=there,
            stderr=there,
            env=environ,
            start_new_session=True,
            preexec_fn=own_terminal,
        )
        os.close(there)
        self.seen = ""

    def until(self, text: str) -> str:
        """Everything up to and with `text` that was not looked at before, without control sequences."""
        end_s = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            assert select.select([self.here], [], [], max(0.0, end_s - time.monotonic()))[0], self.seen
            self.seen += ESCAPES.sub("", os.read(self.here, 4096).decode(errors="replace"))
        found, _, self.seen = self.seen.partition(text)
        return found + text

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.here, text.encode())

    def close(self) -> int:
        """Ctrl-D, and the exit code."""
        self.type("\x04")
        code = self.process.wait(PATIENCE_S)
        os.close(self.here)
        return code


def own_terminal() -> None:
    """Ctrl-C of the pty goes to this process."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    started = Terminal(tmp_path)
    yield started
    if started.process.poll() is None:
        started.process.kill()
        started.process.wait()


def test_a_person_at_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    terminal.until(">")
    terminal.type("Hi\\\rthere\r")
    assert "Hello there" in terminal.until("answer 60 tokens")
    terminal.until(">")
    terminal.type("Again\r")
    terminal.until("Hello")
    terminal.type("\x03")
    terminal.until("(stopped)")
    terminal.until(">")
    terminal.type("\x03")
    terminal.until("(/quit or Ctrl-D leaves)")
    terminal.until(">")
    terminal.type("/he\t")
    terminal.until("/help")
    terminal.type("\r")
    terminal.until("Ctrl-C stops an answer.")
    terminal.until(">")
    assert terminal.close() == 0
    typed = (tmp_path / "strata" / "chat-history").read_text()
    assert "+Hi\\\n+there\n" in typed and "+/help\n" in typed

    again = Terminal(tmp_path, "--no-history")
    again.until(">")
    again.type("\x1b[A\x1b[A")
    again.type("Unremembered\r")
    again.until("answer 60 tokens")
    again.until(">")
    assert again.close() == 0
    assert (tmp_path / "strata" / "chat-history").read_text() == typed
