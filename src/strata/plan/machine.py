"""What this machine offers."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """Measured facts that a plan is made from."""

    threads: int
    """Threads that compute, the engine's own included."""
    isa: str
    """Instruction set of the kernels."""
    memory_bytes: int
    """Memory that can be taken without swapping."""
    threads_reason: str
    """Why so many, and why there."""


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int:
    """MemAvailable in bytes; half of the physical memory where the system does not say."""
    if meminfo.is_file():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
