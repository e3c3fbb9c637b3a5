"""How steps are divided, and how long anybody waits."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """How the scheduler divides a step."""

    chunk_tokens: int | None = None
    """Prompt chunks end at multiples of this; None = the largest power of two up to 512 that leaves each slot a row."""
    queue_limit: int = 256
    """Sessions that may wait for a slot."""
    draft_limit: int = 16
    """Drafts per window at most, where a request names no number of its own."""
    max_gap_s: float = 0.25
    """Prompts beside decoding sessions are read in steps that end within this (or three decode steps, if longer)."""
    max_wait_s: float = 30.0
    """Who has waited this long is overtaken no more and goes first."""
