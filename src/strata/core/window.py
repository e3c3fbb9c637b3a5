"""The unit of work."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """A run of consecutive tokens of one slot; the last `score` of them get logits and a draw.

    A prompt chunk is long with score 0 or 1, plain decode is one token with score 1, verifying k drafts is
    1 + k tokens with score 1 + k. There is no prefill or decode flag anywhere.
    """

    slot: int
    start: int
    tokens: tuple[int, ...]
    score: int

    def __post_init__(self) -> None:
        if not self.tokens or self.slot < 0 or self.start < 0:
            raise ValueError(f"window needs tokens, a slot and a start: {self}")
        if not 0 <= self.score <= len(self.tokens):
            raise ValueError(f"score {self.score} of a window of {len(self.tokens)} tokens")

    @property
    def checks_drafts(self) -> bool:
        """Whether its last rows are drafts, which may turn out wrong: not all of its rows may come to count."""
        return self.score > 1

    @property
    def end(self) -> int:
        """First position after the window."""
        return self.start + len(self.tokens)
