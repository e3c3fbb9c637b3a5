"""What takes RAM and VRAM, as far as the engine and the system tell."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strata.core.errors import EngineError
from strata.server.engine_metrics import vram_uses
from strata.server.engine_process import EngineProcess, State

Status = Mapping[str, Any]
MACHINE = Path("/proc/meminfo")
ANSWER_S = 1.0
"""For an engine to say what it holds, before it is ended without."""


def memory_of(status: Status, machine: Path = MACHINE) -> dict[str, Any]:
    """`{"ram": ..., "vram": ...}`, each with uses in bytes, what is free, and the total (None where nobody tells).

    The RAM's uses are the engine's; `vram` is None where it runs on no GPU.
    """
    runner = status.get("runner", {})
    sizes = fields(machine)
    held = {use: max(0, int(nbytes)) for use, nbytes in runner.get("memory", {}).items()}
    ram = {"uses": held, "free": sizes.get("MemAvailable"), "total": sizes.get("MemTotal")}
    uses = vram_uses(runner, status.get("plan", {}))
    free = runner.get("experts", {}).get("vram_free_bytes")
    return {"ram": ram, "vram": {"uses": uses, "free": free, "total": None} if uses else None}


@dataclass(frozen=True, slots=True)
class Freed:
    """What the end of an engine process gives back; the model's file stays in the system's cache."""

    ram_bytes: int = 0
    vram_bytes: int = 0

    def mib(self) -> dict[str, int]:
        """For the log."""
        return {"ram_mib": self.ram_bytes >> 20, "vram_mib": self.vram_bytes >> 20}


async def held_by(engine: EngineProcess) -> Freed:
    """What a process holds: of RAM what is no file's, as the system counts it, of VRAM what it says itself."""
    sizes = fields(Path(f"/proc/{engine.pid}/status"))
    uses: Mapping[str, int] = {}
    if engine.state is State.READY:
        with contextlib.suppress(EngineError, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                status = await engine.status()
                uses = vram_uses(status.get("runner", {}), status.get("plan", {}))
    return Freed(sizes.get("RssAnon", 0) + sizes.get("RssShmem", 0), sum(uses.values()))


def fields(file: Path) -> dict[str, int]:
    """Sizes in a file of the kernel's (`Name:  12 kB`), in bytes; nothing where there is no such file."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        words = line.split()
        if len(words) == 3 and words[2] == "kB" and words[1].isdecimal():
            found[words[0].rstrip(":")] = int(words[1]) << 10
    return found
