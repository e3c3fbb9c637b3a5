"""Drafts for the slots of a runner: the drafters, what they are told of every step, and who decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from strata.core.window import Window
from strata.kernels.ops import Ops
from strata.models.base import Model
from strata.models.drafting import DraftHead
from strata.runtime.head_drafter import Choose, HeadDrafter
from strata.runtime.head_steps import HeadSteps
from strata.speculate.chooser import Chooser
from strata.speculate.costs import Costs, Routing
from strata.speculate.drafter import Drafter
from strata.speculate.lookup import LookupDrafter
from strata.state.sequence import SequenceStates

HEAD = "mtp"
SELDOM = 16
"""Of the steps before which nothing was proposed, one of so many is learned from: learning takes some of it, too."""
OFTEN = 4
"""The same of steps with drafts, where it is known already what such steps cost."""
MOST_UNTOLD = 16
"""Tokens of a window that drafters hear of later: a long prompt reaches them chunk by chunk."""
FRESH = 64
"""Steps after which what is shown of drafts is counted anew."""


@dataclass(frozen=True, slots=True)
class Drafting:
    """What drafts are made with."""

    head: DraftHead | None = None
    """The model's own; without one drafts come from the conversation alone."""
    depth: int | None = None
    """Drafts of every slot and step, as far as they fit; None: as many as pay."""
    price_s: float = 0.0
    """Seconds that each distinct expert of a step is taken to cost beside what steps are measured to take."""
    drafters: Mapping[str, Drafter] | None = None
    """In the place of lookup and head (checks: a drafter that is right as often as it is told to be)."""


class Drafts:
    """What the runner tells of sequences and steps, and asks before one; all of it idle without `drafting`."""

    def __init__(
        self, drafting: Drafting | None, model: Model, ops: Ops, states: SequenceStates, choose: Choose
    ) -> None:
        self.states = states
        self.head: HeadDrafter | None = None
        self.chooser: Chooser | None = None
        self.told: dict[int, int] = {}
        """By slot: tokens of its sequence that drafters were told of; of the others they hear when they are asked."""
        self.steps = 0
        self._values: dict[str, object] = {}
        self._fresh_at = 0
        if drafting is None:
            return
        drafters: dict[str, Drafter] = {"lookup": LookupDrafter()}
        if drafting.head is not None:
            steps = HeadSteps(drafting.head, model.experts, ops, states)
            self.head = HeadDrafter(steps, len(model.layouts), choose)
            drafters[HEAD] = self.head
        if drafting.drafters is not None:
            drafters = {**drafting.drafters}
        shape = model.shape
        routing = Routing(len(model.store.banks), shape.experts, shape.top_k, drafting.price_s)
        self.chooser = Chooser(drafters, Costs(routing), HEAD if HEAD in drafters else None, drafting.depth)

    @property
    def workspace_bytes(self) -> int:
        """What the head's passes hold of the host's memory for their results."""
        return 0 if self.head is None else self.head.steps.workspace.nbytes

    def begin(self, slot: int, tokens: Sequence[int]) -> None:
        """A sequence that begins with `tokens` was seated; the states hold the first of them, perhaps none."""
        if self.chooser is not None:
            self.told[slot] = 0
            self.chooser.begin(slot, tokens)

    def forget(self, slot: int) -> None:
        """The slot holds no sequence any more."""
        self._fresh_at = 0
        if self.chooser is not None:
            self.told.pop(slot, None)
            self.chooser.forget(slot)

    def settle(self, slot: int) -> None:
        """The slot's memory is about to be kept: make it whole."""
        if self.head is not None:
            self.head.settle(slot)

    def committed(self, window: Window, rows: torch.Tensor, first: int, count: int) -> None:
        """The first `count` tokens of a window, one or more, are part of its slot's sequence now.

        They left the trunk `rows` [T, width] from `first` on.
        """
        slot = window.slot
        if self.head is not None and self.head.knows(slot):
            self.head.take(slot, rows[first : first + count])
        if count > MOST_UNTOLD:
            self.tell(slot)

    def tell(self, slot: int) -> None:
        """Tell the drafters what is new of the slot's sequence."""
        told, length = self.told.get(slot), self.states.length[slot]
        if self.chooser is not None and told is not None and told < length:
            self.chooser.extend(slot, self.states.tokens[slot, told:length].tolist())
            self.told[slot] = length

    def stepped(self, windows: Sequence[Window], seconds: float) -> None:
        """A recorded step of these windows took so long."""
        self.steps += 1
        if self.chooser is None or (self.chooser.last is None and self.steps % SELDOM):
            return
        rows = sum([len(window.tokens) for window in windows])
        if self.steps % OFTEN and not self.chooser.needs(rows):
            return
        if all(window.score == len(window.tokens) for window in windows):
            self.chooser.stepped(len(windows), rows, seconds)

    def idle(self) -> bool:
        """Whether there are no drafts for the next step, as nobody need even be asked."""
        return self.chooser is None or self.chooser.naps()

    def propose(self, caps: Mapping[int, int], pending: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
        """Drafts for the next step; see `Chooser.propose`."""
        assert self.chooser is not None
        for slot in caps:
            self.tell(slot)
        return self.chooser.propose(caps, pending)

    def status(self) -> Mapping[str, object]:
        """Plain values, at most a few steps old."""
        if self.chooser is not None and self.steps >= self._fresh_at:
            self._values, self._fresh_at = self.chooser.values(), self.steps + FRESH
        return self._values
