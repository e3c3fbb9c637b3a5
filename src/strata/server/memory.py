"""What takes RAM and VRAM, as far as the engine and the system tell."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strata.server.engine_metrics import vram_uses

Status = Mapping[str, Any]
MACHINE = Path("/proc/meminfo")


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
