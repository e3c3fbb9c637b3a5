"""The thread that computes a GPU's missing experts with the CPU's kernels (csrc/answerer.h)."""

from collections.abc import Mapping
from typing import NamedTuple

from strata.kernels import _native
from strata.kernels.native import Native
from strata.kernels.rendezvous.mailbox import Mailbox
from strata.kernels.views import ExpertBank

SPIN_US = 2000
"""How long the thread polls without a pause after a request: longer than the layers between two of them take."""


class Answer(NamedTuple):
    """One answered request."""

    layer: int
    rows: int
    entries: int
    """(row, rank) pairs computed."""
    experts: int
    """Distinct ones, each read once."""
    nanoseconds: int


class Answerer:
    """Answers requests until it is closed. It runs on the pool of `native` and makes no call to a device."""

    def __init__(self, native: Native, mailbox: Mailbox, banks: Mapping[int, ExpertBank]) -> None:
        self.native = native
        self.mailbox = mailbox
        self.banks = dict(banks)
        described = {layer: native.bank(bank) for layer, bank in banks.items()}
        self._thread: _native.Answerer | None = _native.Answerer(
            native.handle,
            described,
            mailbox.head.data_ptr(),
            mailbox.ids.data_ptr(),
            mailbox.x.data_ptr(),
            mailbox.answers.data_ptr(),
            mailbox.most_rows,
            mailbox.most_entries,
            mailbox.hidden,
            SPIN_US,
        )

    @property
    def thread(self) -> _native.Answerer:
        """The running thread."""
        assert self._thread is not None, "closed"
        return self._thread

    def use(self, layer: int, bank: ExpertBank) -> None:
        """The layer's experts moved; no step may be under way."""
        self.thread.use(layer, self.native.bank(bank))
        self.banks[layer] = bank

    def drain(self) -> list[Answer]:
        """What was answered since the last call."""
        return [Answer(*done) for done in self.thread.drain()]

    def failure(self) -> str:
        """Why a request failed since the last call; empty when none did."""
        return self.thread.failure()

    def stall(self, on: bool) -> None:
        """While on, nothing is answered: how a test sees the time limit."""
        self.thread.stall(on)

    def close(self) -> None:
        """End the thread."""
        self._thread = None
