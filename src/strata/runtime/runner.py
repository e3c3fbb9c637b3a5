"""The runner: fits the engine's Runner protocol without importing it."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from strata.core.errors import EngineError, RequestError, StrataError
from strata.core.held import Held
from strata.core.limits import Limits
from strata.core.order import Order
from strata.core.sharing import SHARED, Sharing
from strata.core.stepped import Drawn, Stepped
from strata.core.window import Window
from strata.kernels.ops import Ops
from strata.kernels.views import KvType
from strata.layers.batch import Tap
from strata.models.base import Model
from strata.runtime.apart import Apart
from strata.runtime.drafts import Drafting, Drafts
from strata.runtime.foresight import Foresight
from strata.runtime.host_memory import HostMemory
from strata.runtime.keeping import Keeping, prefix_cache
from strata.runtime.outcome import Outcome, wish_of
from strata.runtime.pack import Wish
from strata.runtime.seat import Seat
from strata.runtime.spent import Spent
from strata.runtime.stages import Stages
from strata.runtime.steps import Steps
from strata.sampling.grammar import MaskMaker
from strata.sampling.history import TokenCounts
from strata.sampling.mask import TokenMask
from strata.sampling.params import SamplingParams
from strata.speculate.drawn import drafted
from strata.state.memory import HOST
from strata.state.sequence import SequenceStates


class DeviceRunner:
    """Runs windows through a model on one device and keeps the slots' states."""

    def __init__(  # noqa: PLR0913 - all but three have defaults and are given by name
        self,
        model: Model,
        ops: Ops,
        limits: Limits,
        tap: Tap | None = None,
        kv_type: KvType = "f32",
        keeping: Keeping | None = None,
        apart: Apart | None = None,
        drafting: Drafting | None = None,
        masks: MaskMaker | None = None,
    ) -> None:
        """`ops` run in the host's memory, or `apart` from it. Without `drafting` nothing is proposed; without `masks`
        requests with a constraint are refused.
        """
        self.model = model
        self.ops = ops
        self.apart = apart
        self.host_ops = ops if apart is None else apart.host_ops
        self.limits = limits
        layouts = [*model.layouts, *(drafting.head.layouts if drafting is not None and drafting.head else ())]
        self.states = SequenceStates(
            layouts,
            limits.slots,
            limits.context,
            kv_type,
            HOST if apart is None else apart.memory,
            keeping.pages if keeping else None,
        )
        self.cache, self.contents = prefix_cache(self.states, keeping or Keeping())
        self.forwarder = Steps(model, ops, self.states, tap)
        self.drafts = Drafts(drafting, model, ops, self.states, self.draft_token)
        self.foresight = Foresight(model.experts, [layer for layer in model.store.banks if layer < len(model.layouts)])
        self.masks = masks
        self.seats: dict[int, Seat] = {}
        self.steps = 0
        self.rows = 0
        self.spent = Spent()
        self.stages = Stages()
        self.memory = HostMemory(self.held_bytes)

    def held_bytes(self) -> dict[str, int]:
        """What is held of the host's memory, by use: pages that were written to once stay."""
        return {
            **self.contents.host_bytes(),
            "kept": self.cache.tiers.ram(),
            "steps": self.forwarder.workspace.nbytes + self.drafts.workspace_bytes + self.states.recurrences.host_bytes,
        }

    def known(self, tokens: Sequence[int]) -> int:
        """See `Runner.known`."""
        return self.cache.known(tokens)

    def seat(
        self,
        slot: int,
        tokens: Sequence[int],
        params: SamplingParams,
        most: int | None = None,
        sharing: Sharing = SHARED,
    ) -> Held:
        """See `Runner.seat`; RequestError for token ids (also of a bias) outside the vocabulary, before all else."""
        self.check_ids(tokens, params)
        mask = self.mask_of(params)
        self.forget(slot)
        held, state = self.cache.seat(slot, tokens, most or len(tokens), sharing)
        self.contents.begin(slot, np.asarray(tokens[: held.tokens], np.int64), state)
        self.seats[slot] = Seat(params, TokenCounts(tokens), frozenset(sharing.openers), mask=mask)
        self.drafts.begin(slot, tokens)
        return held

    def mask_of(self, params: SamplingParams) -> TokenMask | None:
        """The mask of a request's answer; RequestError when its constraint cannot be honoured."""
        if params.constraint is None:
            return None
        if self.masks is None:
            raise RequestError("masks need the model's vocabulary, which this engine does not have", param="mask")
        return self.masks.make(params.constraint)

    def forget(self, slot: int) -> None:
        """Empty the slot; what was kept of its sequence stays."""
        self.cache.forget(slot)
        self.states.clear(slot)
        self.drafts.forget(slot)

    def check_ids(self, tokens: Sequence[int], params: SamplingParams) -> None:
        """RequestError when an id is outside the vocabulary."""
        size = self.model.shape.vocabulary
        for field, ids in (("tokens", tokens), ("logit_bias", [t for t, _ in params.logit_bias])):
            bad = next((t for t in ids if not 0 <= t < size), None)
            if bad is not None:
                raise RequestError(f"ids of {field} must be from 0 to {size - 1}, found {bad}", param=field)

    def release(self, slot: int) -> None:
        """See `Runner.release`: what it holds is kept, for any sequence that goes on from it."""
        self.seats.pop(slot, None)
        if slot not in self.states.open:  # a window that never finished leaves a torn state behind
            self.drafts.settle(slot)
            self.cache.release(slot, self.sequence(slot))
        self.forget(slot)

    def sequence(self, slot: int) -> npt.NDArray[np.int64]:
        """The tokens that the slot holds."""
        return self.states.tokens[slot, : self.states.length[slot]]

    def short(self, lengths: Mapping[int, int]) -> frozenset[int]:
        """See `Runner.short`."""
        return self.cache.short(lengths)

    def draft(self, caps: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
        """See `Runner.draft`."""
        if not caps or self.drafts.idle():
            return {}
        seats = {slot: self.seats[slot] for slot in caps}
        proposed = self.drafts.propose(caps, {slot: seat.pending for slot, seat in seats.items()})
        for slot, seat in seats.items():
            if seat.mask is None:
                continue
            seat.back_to(0)
            if slot in proposed:
                proposed[slot] = proposed[slot][: seat.mask.fitting(proposed[slot])]
        return {slot: tokens for slot, tokens in proposed.items() if tokens}

    def draft_token(
        self, slot: int, logits: npt.NDArray[np.float32], position: int, tokens: npt.NDArray[np.int64] | None
    ) -> tuple[int, float]:
        """See `head_drafter.Choose`. A draft is right when the model's own draw gives the same: so it is made with the
        same seed, penalties and limits.
        """
        seat = self.seats[slot]
        size, mask = self.model.shape.vocabulary, seat.allowed(position)
        token, share = drafted(logits, seat.params, position, seat.counts, self.choose, tokens, size, mask)
        seat.follow(token)
        return token, share

    def step(self, windows: Sequence[Window]) -> list[Stepped]:
        """See `Runner.step`."""
        try:
            return self._step(windows)
        except BaseException:
            for window in windows:
                self._tear(window.slot)
            raise

    def _step(self, windows: Sequence[Window]) -> list[Stepped]:
        wishes = self.wishes(windows) if self.states.memory.apart else ()
        self.foresight.before(windows)
        began, ran = time.perf_counter_ns(), self.spent.run
        outcome = self._run(windows, wishes)
        results = self._settle(windows, outcome)
        self.stages.step(self.forwarder.alike, self.spent.run - ran, time.perf_counter_ns() - began)
        self.foresight.after(windows, outcome.routed)
        if self.forwarder.replayed:
            self.drafts.stepped(windows, 1e-9 * (time.perf_counter_ns() - began))
        self.steps += 1
        self.rows += sum(len(w.tokens) for w in windows)
        return results

    def _settle(self, windows: Sequence[Window], outcome: Outcome) -> list[Stepped]:
        """Draw and commit all windows."""
        began, first = time.perf_counter_ns(), 0
        drawn: dict[int, tuple[Drawn, ...]] = {}
        failed: dict[int, str] = {}
        for window in windows:
            try:
                drawn[window.slot] = self.draw(window, outcome, first)
            except StrataError as error:  # of this sequence, such as logits that leave no choice: the others go on
                self._tear(window.slot)
                failed[window.slot] = error.message
            first += window.score
        self.spent.draw += (drew := time.perf_counter_ns()) - began
        kept = {w.slot: len(w.tokens) - w.score + len(drawn[w.slot]) for w in windows if w.slot in drawn}
        self.states.commit_all(kept, self.ops)
        results, row = [], 0
        for window in windows:
            slot = window.slot
            if slot in failed:
                results.append(Stepped(slot, (), 0, failed[slot]))
            else:
                self._committed(window, outcome.rows, row, kept[slot], drawn[slot])
                results.append(Stepped(slot, drawn[slot], self.states.length[slot]))
            row += len(window.tokens)
        self.spent.commit += time.perf_counter_ns() - drew
        return results

    def _committed(self, window: Window, rows: torch.Tensor, first: int, count: int, drawn: Sequence[Drawn]) -> None:
        """The window's first `count` tokens are of its slot's sequence; they left the trunk `rows` from `first` on."""
        slot = window.slot
        if self.drafts.chooser is not None and count:
            self.drafts.committed(window, rows, first, count)
            if self.drafts.chooser.offers:
                self.drafts.chooser.checked(slot, [each.token for each in drawn])
        opens = bool(drawn) and drawn[-1].token in self.seats[slot].openers
        if self.cache.keeps(slot, self.states.length[slot], opens):
            self.drafts.settle(slot)
        self.cache.committed(slot, self.sequence(slot), opens)

    def _tear(self, slot: int) -> None:
        """What the slot holds cannot be relied on, nor what its sequence left behind."""
        self.cache.fail(slot)
        self.states.clear(slot)
        self.drafts.forget(slot)

    def wishes(self, windows: Sequence[Window]) -> list[Wish]:
        """How the tokens after all scored rows are chosen, where the device does it."""
        return [
            wish_of(self.seats[window.slot].params, position)
            for window in windows
            for position in range(window.end - window.score + 1, window.end + 1)
        ]

    def forward(self, windows: Sequence[Window]) -> npt.NDArray[np.float32]:
        """Reserve and run the windows -> logits of their scored rows [N, vocabulary]; nothing is committed yet."""
        return self._run(windows, ()).all().copy()

    def _run(self, windows: Sequence[Window], wishes: Sequence[Wish]) -> Outcome:
        began, first = time.perf_counter_ns(), 0
        for window in windows:
            if window.start != self.states.length[window.slot]:
                raise EngineError(
                    f"slot {window.slot}: window starts at {window.start}, the state holds "
                    f"{self.states.length[window.slot]} tokens"
                )
            self.states.reserve(window.slot, window.tokens, first, keep=window.checks_drafts)
            first += len(window.tokens)
        self.spent.reserve += (reserved := time.perf_counter_ns()) - began
        outcome = Outcome(self.forwarder.scored(windows, wishes), self.states.memory)
        self.spent.run += time.perf_counter_ns() - reserved
        return outcome

    def draw(self, window: Window, outcome: Outcome, first: int) -> tuple[Drawn, ...]:
        """The tokens after the window's scored rows, `first` and following, in order, as long as each equals the draft
        that follows it.
        """
        return self.seats[window.slot].draw(window, outcome, first, self.choose)

    def choose(
        self,
        logits: npt.NDArray[np.float32],
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        uniform: float,
    ) -> int:
        """See `sampling.sample.Choose`."""
        return self.host_ops.choose(torch.from_numpy(logits), temperature, top_k, top_p, min_p, uniform)

    def order(self, order: Order) -> Mapping[str, Any]:
        """See `Runner.order`."""
        if order.verb == "experts":
            return self.model.experts.map().values()
        if order.verb == "vram":
            return {"arena_mib": self.model.experts.resize(order.mib << 20) >> 20}
        return self.cache.order(order)

    def close(self) -> None:
        """See `Runner.close`."""
        self.cache.close()
        if self.apart is not None:
            self.apart.close()

    def status(self) -> Mapping[str, object]:
        """See `Runner.status`."""
        return {
            "device": "cpu" if self.apart is None else self.apart.name,
            "kv_type": self.states.kv_type,
            "steps": self.steps,
            "rows": self.rows,
            "held_tokens": list(self.states.length),
            "kept": self.cache.status(),
            "experts": self.model.experts.status(),
            "drafts": self.drafts.status(),
            "foresight": self.foresight.values(),
            "seconds": self.stages.seconds(self.spent.draw),
            "timed_steps": self.stages.timed,
            "memory": self.memory.values(),
            **({} if self.apart is None else {"device_state_bytes": self.contents.nbytes}),
        }
