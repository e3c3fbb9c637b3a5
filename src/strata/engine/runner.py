"""All the engine sees of the device side: ids and counts, no tensors. The runtime fits this protocol."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from strata.core.held import Held
from strata.core.limits import Limits
from strata.core.order import Order
from strata.core.sharing import SHARED, Sharing
from strata.core.stepped import Drawn, Stepped
from strata.core.window import Window
from strata.sampling.params import SamplingParams

__all__ = ["Drawn", "Held", "Runner", "Stepped"]


class Runner(Protocol):
    """Runs windows on a device and keeps the slots' states."""

    @property
    def limits(self) -> Limits:
        """Fixed sizes."""
        ...

    def known(self, tokens: Sequence[int]) -> int:
        """How many leading tokens are already held somewhere and need no reading."""
        ...

    def seat(
        self,
        slot: int,
        tokens: Sequence[int],
        params: SamplingParams,
        most: int | None = None,
        sharing: Sharing = SHARED,
    ) -> Held:
        """Prepare `slot` for a sequence that starts with `tokens` and may grow to `most` tokens (None: the context).

        `sharing` says where its state is worth keeping. At most len(tokens) - 1 are held: the last one has to run so
        that it can be scored. The pages of the prompt, and of some tokens more, are certain from then on; for those up
        to `most` the sequence may have to wait (`short`). CapacityError: it finds no room beside the others now.
        Another RequestError (a token id beyond the vocabulary, a bias that does not fit) fails this request only. When
        it raises, the slot stays empty and is not released.
        """
        ...

    def release(self, slot: int) -> None:
        """The slot's request is over; its state may be kept or dropped."""
        ...

    def short(self, lengths: Mapping[int, int]) -> frozenset[int]:
        """Slots that sit the next step out: no page is left for the length they would have after it, draft included.

        They are asked in order. Once all that is on the way to disk is there, not every seated slot is short.
        """
        ...

    def draft(self, caps: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
        """Proposed next tokens per slot, at most caps[slot] of them; slots without a proposal may be missing."""
        ...

    def step(self, windows: Sequence[Window]) -> list[Stepped]:
        """Run the windows (at most one per slot) and return one result per window, in order.

        Of a window with score 1 + k its last k tokens are drafts: they are accepted while each equals the row's own
        draw. What concerns one window only (its logits leave no choice) is said in `Stepped.error` and ends that
        session; the slot is released, and what it held must not be offered again. When it raises, the engine fails the
        sessions of these windows, releases their slots and goes on; the runner must not offer what such a slot holds
        beyond its last committed length.
        """
        ...

    def order(self, order: Order) -> Mapping[str, Any]:
        """Carry out an order; counts of what was done, or plain values. UnsupportedError: it cannot be."""
        ...

    def close(self) -> None:
        """The engine has ended: finish what is being written."""
        ...

    def status(self) -> Mapping[str, object]:
        """Plain values for STAT and /v1/status; asked for between steps, some times a second."""
        ...
