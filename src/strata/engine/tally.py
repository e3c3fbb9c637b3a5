"""What the engine counts. Every token is counted once, where it is settled."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from strata.core.window import Window
from strata.engine.events import Finished


@dataclass(slots=True)
class Tally:
    """Counters since the start."""

    steps: int = 0
    failed_steps: int = 0
    submitted: int = 0
    refused: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    """Sessions by reason."""
    rows: Counter[int] = field(default_factory=Counter)
    """Steps by rows, all windows together."""
    decoding: Counter[int] = field(default_factory=Counter)
    """Steps by how many sessions decoded in them."""
    prompt_tokens: int = 0
    """Prompt tokens read."""
    reused_tokens: int = 0
    """Prompt tokens that were held already."""
    generated_tokens: int = 0
    short: int = 0
    """Windows that were left out of a step for lack of pages."""
    set_aside: int = 0
    """Long reads that left their slot to a short prompt for a while."""
    drafted: Counter[int] = field(default_factory=Counter)
    """Draft tokens that were checked, by depth."""
    accepted: Counter[int] = field(default_factory=Counter)
    """Those of them that became part of an answer."""

    def add_step(self, windows: Sequence[Window], decoding: int) -> None:
        """One step ran; `decoding` of its windows were not prompt chunks."""
        self.steps += 1
        self.rows[sum(len(window.tokens) for window in windows)] += 1
        self.decoding[decoding] += 1

    def add_drafts(self, offered: int, accepted: int) -> None:
        """A window had `offered` drafts, the first `accepted` of them were taken."""
        self.drafted.update(range(1, offered + 1))
        self.accepted.update(range(1, accepted + 1))

    def add_finished(self, finished: Finished) -> None:
        """One session ended."""
        self.finished[finished.reason.value] += 1

    def values(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "steps": self.steps,
            "failed_steps": self.failed_steps,
            "sessions": {
                "submitted": self.submitted,
                "refused": self.refused,
                "set_aside": self.set_aside,
                "short": self.short,
                "finished": dict(self.finished),
            },
            "rows_per_step": _histogram(self.rows),
            "decoding_per_step": _histogram(self.decoding),
            "tokens": {
                "prompt": self.prompt_tokens,
                "reused": self.reused_tokens,
                "generated": self.generated_tokens,
                "drafted": self.drafted.total(),
                "accepted": self.accepted.total(),
            },
            "drafts_by_depth": {"offered": _histogram(self.drafted), "accepted": _histogram(self.accepted)},
        }


def _histogram(counts: Counter[int]) -> dict[str, int]:
    return {str(value): counts[value] for value in sorted(counts)}
