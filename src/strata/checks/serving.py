"""A server process that is started for a benchmark, what it says about itself, and the memory that it takes."""

import collections
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import strata
from strata.core.errors import StrataError

READY = re.compile(r" ready .*\burl=(\S+)")
START_S = 600.0
END_S = 20.0


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is, and its process (None: somebody else's)."""

    url: str
    pid: int | None = None


@contextmanager
def served(model: str | None, flags: Sequence[str], environ: Mapping[str, str]) -> Iterator[Server]:
    """`strata serve` on a free port, until it is not needed any more. StrataError when it does not come up."""
    source = str(Path(strata.__file__).parent.parent)
    command = [sys.executable, "-m", "strata", "serve", *([model] if model else []), "--port", "0", *flags]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**environ, "PYTHONPATH": source}, process_group=0
    )
    reader = Reader(process)
    try:
        yield Server(reader.url(), process.pid)
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.thread.join(END_S)


class Reader:
    """Reads what a server says, so that it never waits for a reader."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.last: collections.deque[str] = collections.deque(maxlen=20)
        self.known = threading.Event()
        self.found = ""
        self.thread = threading.Thread(target=self.read, name="strata-server-log", daemon=True)
        self.thread.start()

    def read(self) -> None:
        """Until the server ends."""
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.last.append(line)
                if ready := READY.search(line):
                    self.found = ready.group(1)
                    self.known.set()
        self.known.set()

    def url(self) -> str:
        """Where the server is, once it takes requests."""
        self.known.wait(START_S)
        if not self.found:
            raise StrataError(f"the server did not come up: {''.join(self.last)[-800:].strip() or 'no word of it'}")
        return self.found


def family(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """The process and its children; Linux only, elsewhere none."""
    found = [pid]
    for entry in proc.glob("[0-9]*/stat"):
        try:
            # pid (command, which may hold anything) state parent ...
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it has ended meanwhile
        if parent == pid:
            found.append(int(entry.parent.name))
    return found if (proc / str(pid)).is_dir() else []


def memory(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Bytes that a process and its children hold of their own, mapped files not counted; None where nobody says."""
    total = 0
    for each in family(pid, proc):
        try:
            lines = (proc / str(each) / "status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))
    return total or None
