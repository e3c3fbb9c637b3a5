"""How much VRAM the experts get, and how much host memory is pinned for the others. Pure."""

from strata.core.errors import UsageError
from strata.plan.plan import Choice

RESERVE_BYTES = 1 << 30
"""VRAM left alone unless asked otherwise: what else runs on the card, and work memory of kernels."""
SHARE_TO_PIN = 0.8
"""Of the free host memory, at most: pinned memory cannot be swapped out."""


def reserve_bytes(wished_mib: int | None) -> int:
    """VRAM that is left alone."""
    return RESERVE_BYTES if wished_mib is None else wished_mib << 20


def choose_arena(free_bytes: int, expert_bytes: int, wished_gib: float | None, reserve_mib: int | None) -> Choice:
    """Bytes of VRAM for experts, of `free_bytes` that are left behind weights and states.

    UsageError for a wish that the card cannot meet.
    """
    reserve = reserve_bytes(reserve_mib)
    room = max(0, free_bytes - reserve)
    if wished_gib is None:
        if expert_bytes <= room:
            return Choice("vram", expert_bytes, f"all experts fit: {room >> 20} MiB are left for them")
        return Choice("vram", room, f"{room >> 20} MiB are left; the experts have {expert_bytes >> 20}")
    wished = int(wished_gib * (1 << 30))
    if wished > room:
        raise UsageError(
            f"--vram-gib {wished_gib:g}: {room / (1 << 30):.1f} GiB are free behind a reserve of {reserve >> 20} MiB",
            "ask for less, or for a smaller --ctx-size or --vram-reserve-mib",
        )
    return Choice(
        "vram", min(wished, expert_bytes), "as asked" if wished <= expert_bytes else "all experts, less than asked"
    )


def choose_pinned(free_bytes: int, expert_bytes: int, arena_bytes: int) -> Choice:
    """Bytes of host memory to pin, so that the GPU reads misses in place and swaps are quick."""
    if arena_bytes >= expert_bytes:
        return Choice("pinned", 0, "all experts are in VRAM")
    room = int(SHARE_TO_PIN * free_bytes)
    if room >= expert_bytes:
        return Choice("pinned", expert_bytes, "all experts, as far as the system lets them be pinned")
    return Choice("pinned", room, f"{room >> 20} MiB of free memory; the others are computed by the CPU")
