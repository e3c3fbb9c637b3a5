"""The real server before an engine that computes nothing, or before the real one with a watch at its door.

    python benchmarks/scripted_engine.py serve --rate 60 --port 0 ...   `strata serve` with the scripted engine
    python benchmarks/scripted_engine.py serve --watched --port 0 ...   `strata serve` with the real one behind a watch
    python benchmarks/scripted_engine.py engine --rate 60               the scripted one: lines on stdin and stdout
    python benchmarks/scripted_engine.py watch COMMAND ...              passes lines on, and tells in DONE how long the
                                                                        first token took from its GEN, as `prompt_ms`

Every live request of the scripted one gets one token a step, `--rate` steps a second (0: as fast as lines can be
written), each line written by itself, as the real engine writes what its threads come up with.
"""

import argparse
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from strata.cli import main as command_line
from strata.cli import serve as serving
from strata.engine.events import Event, Finished, Progress, Reason, Token
from strata.engine.protocol import Gen, Quit, Stat, Stop, format_event, format_ready, format_status, parse_command
from strata.engine.request import Request
from strata.plan.wishes import Wishes

CONTEXT = 8192
FIRST, DIFFERENT = 300, 200
"""Tokens said: words of the demo's vocabulary, one after the other."""


@dataclass(slots=True)
class Live:
    """A request, and how far it is."""

    request: Request
    came_s: float
    said: int = 0
    waited_s: float = 0.0
    """From its line to its first token: what this engine has to be told apart from."""


class Scripted:
    """Live requests, all of them a token a step."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.live: dict[str, Live] = {}
        self.changed = threading.Condition()
        self.lock = threading.Lock()
        self.over = False

    def say(self, line: str) -> None:
        with self.lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def event(self, request: Request, event: Event) -> None:
        self.say(format_event(request.id, event))

    def listen(self) -> None:
        """Answer lines until there are no more."""
        for line in sys.stdin:
            came_s = time.perf_counter()
            match parse_command(line.rstrip("\n"), ()):
                case Gen(request):
                    self.event(request, Progress(len(request.tokens), len(request.tokens)))
                    with self.changed:
                        self.live[request.id] = Live(request, came_s)
                        self.changed.notify()
                case Stop(name) if name in self.live:
                    with self.changed:
                        live = self.live.pop(name)
                    self.finish(live, Reason.CANCEL)
                case Stat():
                    slots = {"requested": 16, "serving": 16, "reason": "scripted"}
                    self.say(format_status({"running": len(self.live), "reading": 0, "waiting": 0, "slots": slots}))
                case Quit():
                    break
        with self.changed:
            self.over = True
            self.changed.notify()

    def finish(self, live: Live, reason: Reason) -> None:
        """Its last words."""
        prompt = len(live.request.tokens)
        self.event(live.request, Finished(reason, prompt, generated=live.said, prompt_s=live.waited_s))

    def step(self) -> None:
        """One token for everybody."""
        with self.changed:
            self.changed.wait_for(lambda: self.live or self.over)
            everybody = list(self.live.items())
        for name, live in everybody:
            live.waited_s = live.waited_s or time.perf_counter() - live.came_s
            self.event(live.request, Token(FIRST + live.said % DIFFERENT))
            live.said += 1
            with self.changed:
                ended = live.said == live.request.max_new and self.live.pop(name, None) is not None
            if ended:
                self.finish(live, Reason.LENGTH)

    def run(self) -> None:
        """Until the end of input."""
        threading.Thread(target=self.listen, daemon=True).start()
        self.say(format_ready(CONTEXT, ()))
        while not self.over:
            began = time.perf_counter()
            self.step()
            if self.rate:
                time.sleep(max(0.0, 1 / self.rate - (time.perf_counter() - began)))


def watch(command: Sequence[str]) -> int:
    """Run an engine; what it takes for its first token is what lies between two lines at its door."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    came_s: dict[bytes, float] = {}
    took_s: dict[bytes, float] = {}

    def pass_in(pipe: IO[bytes]) -> None:
        for line in sys.stdin.buffer:
            if line.startswith(b"GEN "):
                came_s[line.split(b" ", 2)[1]] = time.perf_counter()
            pipe.write(line)
            pipe.flush()
        pipe.close()

    threading.Thread(target=pass_in, args=[child.stdin], daemon=True).start()
    for line in child.stdout:
        verb, name, *_ = [*line.split(b" ", 2), b""]
        if verb == b"T" and name not in took_s:
            took_s[name] = time.perf_counter() - came_s[name]
        elif verb == b"DONE" and name in took_s:
            line = re.sub(rb" queue_ms=[0-9.]+", b" queue_ms=0.000", line)
            line = re.sub(rb" prompt_ms=[0-9.]+", b" prompt_ms=%.3f" % (1e3 * took_s[name]), line)
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    return child.wait()


def main() -> int:
    if sys.argv[1:2] == ["watch"]:
        return watch(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=("serve", "engine"))
    parser.add_argument("--rate", type=float, default=60.0)
    parser.add_argument("--watched", action="store_true")
    options, flags = parser.parse_known_args()
    if options.role == "engine":
        Scripted(options.rate).run()
        return 0
    scripted = [sys.executable, __file__, "engine", "--rate", str(options.rate)]
    real = serving.engine_command

    def engine_command(path: Path, wishes: Wishes) -> list[str]:
        return [sys.executable, __file__, "watch", *real(path, wishes)] if options.watched else scripted

    serving.engine_command = engine_command
    sys.argv = ["strata", "serve", *flags]
    command_line.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
