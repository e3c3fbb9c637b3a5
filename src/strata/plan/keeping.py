"""How much memory kept conversations take, and why. Pure."""

from typing import Literal

from strata.plan.plan import Choice

SHARE = 0.1
"""Part of the available memory that "auto" gives to what is kept in RAM beside the pages."""
MOST = 8 << 30


def choose_state_ram(memory_bytes: int, asked_gib: float | Literal["auto"]) -> tuple[int, Choice]:
    """(bytes, the choice) for recurrent states, and for pages that had to leave the pool."""
    if asked_gib != "auto":
        return int(asked_gib * (1 << 30)), Choice("state_ram_mib", int(asked_gib * 1024), "as asked")
    nbytes = min(MOST, int(memory_bytes * SHARE))
    return nbytes, Choice(
        "state_ram_mib", nbytes >> 20, f"a tenth of {memory_bytes >> 20} MiB that are free, 8192 at most"
    )


def choose_state_disk(asked_gib: float, folder: str) -> Choice:
    """What files may take."""
    where = f"as asked, in {folder}" if asked_gib else "default: conversations end with the process"
    return Choice("state_disk_mib", int(asked_gib * 1024), where)
