"""The real server before an engine that computes nothing, so that the server is what bounds.

    python benchmarks/scripted_engine.py serve --rate 60 --port 0 ...     `strata serve` with that engine as its child
    python benchmarks/scripted_engine.py engine --rate 60                 the child: lines on stdin and stdout

Every live request gets one token a step, `--rate` steps a second (0: as fast as lines can be written), each line
written by itself, as the real engine writes what its threads come up with.
"""

import argparse
import sys
import threading
import time
from dataclasses import dataclass

from strata.cli import main as command_line
from strata.cli import serve as serving
from strata.engine.events import Event, Finished, Progress, Reason, Token
from strata.engine.protocol import Gen, Quit, Stat, Stop, format_event, format_ready, format_status, parse_command
from strata.engine.request import Request

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=("serve", "engine"))
    parser.add_argument("--rate", type=float, default=60.0)
    options, flags = parser.parse_known_args()
    if options.role == "engine":
        Scripted(options.rate).run()
        return 0
    child = [sys.executable, __file__, "engine", "--rate", str(options.rate)]
    serving.engine_command = lambda path, wishes: child
    sys.argv = ["strata", "serve", *flags]
    command_line.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
