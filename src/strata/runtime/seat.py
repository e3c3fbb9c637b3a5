"""The request that sits in a slot: what its tokens are drawn by."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from strata.core.stepped import Drawn
from strata.core.window import Window
from strata.runtime.outcome import Outcome, needs_logits
from strata.sampling.history import TokenCounts
from strata.sampling.mask import TokenMask
from strata.sampling.params import SamplingParams
from strata.sampling.sample import Choose, sample
from strata.speculate.accept import accepted


@dataclass(slots=True)
class Seat:
    """The request that sits in a slot."""

    params: SamplingParams
    counts: TokenCounts
    openers: frozenset[int] = frozenset()
    """Tokens that begin what may be written differently later."""
    pending: int = 0
    """The token that was drawn last, which the states do not hold yet."""
    mask: TokenMask | None = None
    """What is allowed after `pending` (None: everything), and after drafts while they are made."""
    ahead: int = 0
    """Drafts that the mask has followed."""
    ahead_of: int = 0
    """Position of the first of them."""
    free: bool = field(init=False)
    """Whether a row's draw asks for nothing but its logits, so that all rows of a window can be drawn at once."""

    def __post_init__(self) -> None:
        self.free = not needs_logits(self.params)

    def allowed(self, position: int) -> npt.NDArray[np.bool_] | None:
        """What is allowed at `position`, where drafts up to it were told by `follow`."""
        if self.mask is None:
            return None
        if not self.ahead:
            self.ahead_of = position
        self.back_to(position - self.ahead_of)
        return self.mask.mask()

    def follow(self, token: int) -> None:
        """A draft, if it is allowed."""
        if self.mask is not None and self.mask.fitting([token]):
            self.mask.advance(token)
            self.ahead += 1

    def back_to(self, ahead: int) -> None:
        """Take drafts back, so that no more than `ahead` are left."""
        if self.mask is not None and self.ahead > ahead:
            self.mask.rollback(self.ahead - ahead)
            self.ahead = ahead

    def draw(self, window: Window, outcome: Outcome, first: int, choose: Choose) -> tuple[Drawn, ...]:
        """The tokens after the window's scored rows, `first` and following, in order, as long as each equals the draft
        that follows it.
        """
        if not window.score:
            return ()
        drafts = window.tokens[len(window.tokens) - window.score + 1 :]
        found = outcome.chosen(first, window.score, self.params) if self.free else None
        if found is None:
            return self._draw(window, drafts, outcome, first, choose)
        found = found[: accepted(drafts, found) + 1]
        if self.openers:
            found = found[: next((i for i, token in enumerate(found, 1) if token in self.openers), len(found))]
        self.pending = found[-1]
        return tuple([Drawn(token) for token in found])

    def _draw(
        self, window: Window, drafts: tuple[int, ...], outcome: Outcome, first: int, choose: Choose
    ) -> tuple[Drawn, ...]:
        """Row by row: each may depend on the tokens before it."""
        drawn: list[Drawn] = []
        for i in range(window.score):
            position = window.end - window.score + i + 1
            allowed = None if self.mask is None else self.mask.mask()
            draw = sample(outcome.row(first + i), self.params, position, self.counts, choose, allowed)
            drawn.append(Drawn(draw.token, draw.logprob, draw.top))
            self.counts.append(draw.token)
            if self.mask is not None:
                self.mask.advance(draw.token)
            self.pending = draw.token
            opens = draw.token in self.openers  # the state before it is to be kept, so the window ends here
            if opens or (i < len(drafts) and not accepted(drafts[i : i + 1], [draw.token])):
                break
        return tuple(drawn)
