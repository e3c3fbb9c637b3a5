"""One process, watched: its output, its time, and the share of the processors that others took meanwhile.

Run as a script it prints that as one JSON line, so that a command which waits for a quiet machine can stand before it:
the wait is then not measured.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from strata.checks.company import Company


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a command."""

    code: int
    out: str
    err: str
    wall_seconds: float
    company: float | None


def watched(command: Sequence[str], through: Sequence[str]) -> Done:
    """Run `command`, started by the command `through` (empty: at once). RuntimeError when it fails."""
    path = f"PYTHONPATH={Path(__file__).resolve().parent.parent / 'src'}"
    full = [*through, "env", path, sys.executable, __file__, *command]
    ran = subprocess.run(full, capture_output=True, text=True, check=False)
    lines = ran.stdout.splitlines()
    done = Done(**json.loads(lines[-1])) if lines and not ran.returncode else None
    if done is None or done.code:
        code, said = (ran.returncode, ran.stderr) if done is None else (done.code, done.err)
        raise RuntimeError(f"{' '.join(command)}: exit code {code}\n{said[-2000:]}")
    return done


def main(command: Sequence[str]) -> int:
    watch, started = Company(), time.perf_counter()
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    wall = round(time.perf_counter() - started, 2)
    share = watch.share()
    sys.stdout.write(json.dumps(asdict(Done(ran.returncode, ran.stdout, ran.stderr, wall, share))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
