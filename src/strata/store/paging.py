"""Pages of mapped experts: how many are missing, and bringing some in beside other work."""

import os
import random
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from strata.core.errors import EngineError
from strata.kernels import _native
from strata.kernels.views import ExpertBank
from strata.store.experts import ExpertStore
from strata.store.warm import READERS, Span, missing_bytes, spans_of

SAMPLE = 64
"""Experts that are looked at to tell how many pages are missing."""


class Paging:
    """Of one store. Readers start when something is asked for."""

    def __init__(self, store: ExpertStore) -> None:
        self.store = store
        self.asked = 0
        """Experts so far."""
        self._draw = random.Random(0)
        self._readers: ThreadPoolExecutor | None = None
        self._turn = 0
        self._under_way: list[Future[None]] = []

    def missing(self) -> float:
        """Bytes of an expert that are not in memory, the mean of some."""
        banks = list(self.store.banks.values())
        if not banks:
            return 0.0
        drawn = [self._draw.choice(banks) for _ in range(SAMPLE)]
        return sum(missing_bytes(expert_spans(bank, self._draw.randrange(len(bank.gate)))) for bank in drawn) / SAMPLE

    def ask(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Bring the pages of these (layer, expert) in, in this order, on other threads; what was asked for before and
        has not begun is forgotten.

        EngineError when a file could not be read, at the next call.
        """
        self.settle(wait=False)
        self._turn += 1
        self.asked += len(pairs)
        if self._readers is None:
            self._readers = ThreadPoolExecutor(READERS, "pages")
        turn = self._turn
        self._under_way = [
            self._readers.submit(self._read, turn, pairs[first::READERS]) for first in range(min(READERS, len(pairs)))
        ]

    def settle(self, wait: bool) -> None:
        """Raise what went wrong; `wait` for all that is under way first."""
        for future in self._under_way:
            if wait or future.done():
                future.result()

    def _read(self, turn: int, pairs: Sequence[tuple[int, int]]) -> None:
        for layer, expert in pairs:
            for span in expert_spans(self.store.bank(layer), expert):
                if turn != self._turn:
                    return
                if code := _native.populate(span.address, span.nbytes):
                    raise EngineError(f"the model's file cannot be read: {os.strerror(code)}", "was it changed or cut?")


def expert_spans(bank: ExpertBank, expert: int) -> tuple[Span, ...]:
    """The memory of one expert's planes."""
    weights = (bank.gate[expert], bank.up[expert], bank.down[expert])
    return spans_of(plane.view(-1).numpy().view("uint8") for weight in weights for plane in weight.planes)
