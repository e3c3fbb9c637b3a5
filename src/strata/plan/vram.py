"""How much VRAM the experts get, and how much host memory is pinned for the others. Pure."""

from strata.core.errors import UsageError
from strata.plan.plan import Choice
from strata.plan.pool import StateRoom

RESERVE_BYTES = 1 << 30
"""VRAM left alone unless asked otherwise: what else runs on the card, and what kernels work in, rows apart."""
CHUNKS = (8192, 4096, 2048, 1024, 512)
"""Prompt tokens of a step: experts are read once a step, so more is faster."""
SHARE_FOR_ROWS = 0.05
"""Of the free VRAM, what the rows of a step may work in when "auto" chooses their number."""
SHARE_TO_PIN = 0.8
"""Of the free host memory, at most: pinned memory cannot be swapped out."""
SHARE_FOR_STATES = 0.25
"""Of the VRAM behind weights and reserve, what "auto" gives to sequence states beside experts that do not all fit."""
SHARE_FOR_AHEAD = 0.06
"""Of the free VRAM, what a prompt's experts on their way may take from those that stay."""
GIB = 1 << 30


def reserve_bytes(wished_mib: int | None) -> int:
    """VRAM that is left alone."""
    return RESERVE_BYTES if wished_mib is None else wished_mib << 20


def choose_chunk(row_bytes: int, free_bytes: int) -> tuple[int, str]:
    """(prompt tokens of a step, why), each working in `row_bytes` of `free_bytes` of VRAM."""
    room = int(SHARE_FOR_ROWS * free_bytes)
    found = next((chunk for chunk in CHUNKS if chunk * row_bytes <= room), CHUNKS[-1])
    return found, f"default: rows work in {found * row_bytes >> 20} MiB of VRAM; every expert is read once a step"


def reserve_for(wished_mib: int | None, work_bytes: int) -> int:
    """MiB of VRAM that are left alone: as asked, or enough for the rows of a step too."""
    return (RESERVE_BYTES + work_bytes) >> 20 if wished_mib is None else wished_mib


def choose_state_room(
    free_bytes: int, dense_bytes: int, expert_bytes: int, wished_gib: float | None, reserve_mib: int | None
) -> StateRoom:
    """VRAM for sequence states, of `free_bytes` before anything is there; UsageError when there is none.

    `dense_bytes` are the weights that must be there, `expert_bytes` may be; those of a wish are set aside.
    """
    reserve = reserve_bytes(reserve_mib)
    room = free_bytes - reserve - dense_bytes
    wished = 0 if wished_gib is None else min(int(wished_gib * GIB), expert_bytes)
    if room - wished <= 0:
        asked = f" and {wished >> 20} MiB for experts" if wished else ""
        raise UsageError(
            f"the GPU's memory is too small: weights that every step reads need {dense_bytes >> 20} MiB{asked}, "
            f"{max(0, free_bytes - reserve) >> 20} MiB are free behind a reserve of {reserve >> 20} MiB",
            "ask for a smaller --vram-gib or --vram-reserve-mib, or use --device cpu",
        )
    most = room - wished
    return StateRoom(min(most, max(int(SHARE_FOR_STATES * room), room - expert_bytes)), most)


def choose_arena(
    free_bytes: int, expert_bytes: int, wished_gib: float | None, reserve_mib: int | None
) -> tuple[int, Choice]:
    """(bytes of VRAM for experts, the choice), of `free_bytes` that are left behind weights and states.

    UsageError for a wish that the card cannot meet.
    """
    reserve = reserve_bytes(reserve_mib)
    room = max(0, free_bytes - reserve)
    if wished_gib is None:
        if expert_bytes <= room:
            return _arena(expert_bytes, f"all experts fit: {room >> 20} MiB are left for them")
        return _arena(room, f"{room >> 20} MiB are left; the experts have {expert_bytes >> 20}")
    wished = int(wished_gib * GIB)
    if wished >= expert_bytes and expert_bytes <= room:
        return _arena(expert_bytes, "all experts, not more than asked")
    if wished > room:
        raise UsageError(
            f"--vram-gib {wished_gib:g}: {room / GIB:.1f} GiB are free behind a reserve of {reserve >> 20} MiB",
            "ask for less, or for a smaller --ctx-size or --vram-reserve-mib",
        )
    return _arena(wished, "as asked")


def ahead_bytes(free_bytes: int, expert_bytes: int, layer_bytes: int, reserve_mib: int | None) -> int:
    """VRAM for a prompt's experts on their way: of two layers, `layer_bytes` each, what the arena will not hold.

    None on a card where this would displace more than prompts gain.
    """
    room = max(0, free_bytes - reserve_bytes(reserve_mib))
    wanted = int(2 * layer_bytes * max(0.0, 1.0 - room / max(1, expert_bytes)))
    return wanted if wanted <= SHARE_FOR_AHEAD * free_bytes else 0


def _arena(nbytes: int, reason: str) -> tuple[int, Choice]:
    return nbytes, Choice("vram_experts_mib", nbytes >> 20, reason)


def choose_pinned(free_bytes: int, expert_bytes: int, all_in_vram: bool) -> tuple[int, Choice]:
    """(bytes of host memory to pin, the choice), so that the GPU reads misses in place and swaps are quick."""
    nbytes, reason = _pinned(free_bytes, expert_bytes, all_in_vram)
    return nbytes, Choice("pin_mib", nbytes >> 20, reason)


def _pinned(free_bytes: int, expert_bytes: int, all_in_vram: bool) -> tuple[int, str]:
    if all_in_vram:
        return 0, "all experts are in VRAM"
    room = int(SHARE_TO_PIN * free_bytes)
    if room >= expert_bytes:
        return expert_bytes, "all experts, as far as the system lets them be pinned"
    return room, f"{room >> 20} MiB of free memory; the others are computed by the CPU"
