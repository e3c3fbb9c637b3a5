"""Ctrl-C is never lost, wherever it comes up."""

import contextlib
import signal
import threading

import pytest

from strata.cli.interrupts import noticed


def test_ctrl_c_is_raised_at_once_and_again_where_it_was_swallowed() -> None:
    before = signal.getsignal(signal.SIGINT)
    with noticed() as check:
        check()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with noticed() as check:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            check()
    with noticed() as check:
        check()  # of another time
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_leaves_signals_alone() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with noticed() as check:
            check()
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
