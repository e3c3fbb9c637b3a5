"""How many prompt tokens a step may read while others wait for its end. Pure: seconds are passed in."""

from dataclasses import dataclass

SHARE = 0.8
"""Of the bound that a step is planned to take: what is learned of the last steps is not what the next one takes."""
STEPS = 3
"""Where a decode step alone is slow, a stream may wait for as many of them."""
NEW = 0.5
"""Weight of the last step in what is remembered."""


@dataclass(slots=True)
class Pace:
    """Learns what decode steps and prompt tokens cost, and keeps steps that streams wait for under a bound.

    A step of `n` prompt tokens beside decoding sessions is taken to cost decode_s + n * token_s. The cost of a token
    falls with the size of the chunk (its weights are read once for all), so the size closes in on the bound from below.
    """

    max_gap_s: float
    decode_s: float | None = None
    """A step in which sessions only decode."""
    token_s: float | None = None
    """A prompt token, in chunks as large as the last ones."""

    def bound_s(self) -> float:
        """The longest that a decoding session may wait for its next token."""
        return max(self.max_gap_s, STEPS * (self.decode_s or 0.0))

    def allowed(self, grain: int, chunk: int) -> int:
        """Prompt tokens that the next step may read beside decoding sessions: from `grain` to `chunk`."""
        if self.token_s is None:
            return grain
        seconds = SHARE * self.bound_s() - (self.decode_s or 0.0)
        return max(grain, min(chunk, int(seconds / self.token_s)))

    def observe(self, prompt_tokens: int, decoding: bool, seconds: float) -> None:
        """A step of `prompt_tokens` prompt tokens, beside decoding sessions or not, took `seconds`."""
        if seconds <= 0:
            return
        if not prompt_tokens:
            self.decode_s = seconds if self.decode_s is None else (1 - NEW) * self.decode_s + NEW * seconds
            return
        spent = max(seconds - (self.decode_s or 0.0), 0.1 * seconds) if decoding else seconds
        each = spent / prompt_tokens
        # A dearer token is believed at once, a cheaper one half.
        self.token_s = each if self.token_s is None or each > self.token_s else (1 - NEW) * self.token_s + NEW * each
