"""The C++ thread pool: every chunk runs once, failures come out, threads end with their owner."""

import os
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from strata.core.errors import UsageError
from strata.kernels import _native
from strata.kernels.native import Native
from strata.kernels.topology import default_threads, read_topology


def run(native: Native, chunks: int, rounds: int = 1, fail: int = -1) -> np.ndarray:
    out = np.zeros(max(chunks, 1), np.int64)
    _native.exercise(native.handle, chunks, rounds, fail, out.ctypes.data)
    return out[:chunks]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("chunks", [0, 1, 2, 3, 64, 1000])
def test_every_chunk_runs_exactly_once_per_round(threads: int, chunks: int) -> None:
    assert np.array_equal(run(Native(threads), chunks, rounds=20), 20 * np.arange(1, chunks + 1))


@pytest.mark.parametrize("chunks", [2, 7, 8, 21])
@pytest.mark.parametrize("threads", [3, 8])
def test_many_short_rounds_lose_nothing(threads: int, chunks: int) -> None:
    """With more threads than processors, too: chunks of those that do not run are taken by others."""
    assert np.array_equal(run(Native(threads), chunks, rounds=2000), 2000 * np.arange(1, chunks + 1))


def test_more_chunks_than_can_be_counted_are_refused() -> None:
    with pytest.raises(ValueError, match="16777216 chunks, a pool counts to 16777215"):
        _native.exercise(Native(2).handle, 1 << 24, 1, -1, np.zeros(1 << 24, np.int64).ctypes.data)


@pytest.mark.parametrize("threads", [1, 4])
def test_the_failure_of_the_lowest_chunk_is_raised_and_the_pool_lives_on(threads: int) -> None:
    native = Native(threads)
    for _ in range(50):
        with pytest.raises(RuntimeError, match=r"^chunk 3 failed$"):
            run(native, 40, fail=3)
        assert run(native, 2).tolist() == [1, 2]


def test_two_python_threads_take_turns() -> None:
    native, results = Native(2), []

    def many() -> None:
        results.append(run(native, 50, rounds=200))

    callers = [threading.Thread(target=many) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(results) == 3
    assert all(np.array_equal(result, 200 * np.arange(1, 51)) for result in results)


def test_threads_end_with_their_owner() -> None:
    before = len(os.listdir("/proc/self/task"))
    native = Native(6)
    assert len(os.listdir("/proc/self/task")) == before + 5
    del native
    assert len(os.listdir("/proc/self/task")) == before


def wait_until(condition: Callable[[], bool]) -> bool:
    """Whether `condition` comes true within a time that no healthy machine needs."""
    end = time.monotonic() + 20
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def test_workers_without_work_sleep_and_wake_for_the_next_job() -> None:
    native = Native(3)
    for _ in range(3):
        assert wait_until(lambda: native.handle.asleep == 2)
        assert run(native, 9, rounds=10).tolist() == [10 * (i + 1) for i in range(9)]


def test_no_worker_sleeps_inside_a_hot_scope_and_all_do_after_it() -> None:
    native = Native(3)
    assert wait_until(lambda: native.handle.asleep == 2)
    # Pauses of 5 ms: outside of a hot scope a worker sleeps long before they end.
    assert _native.exercise_hot(native.handle, 5, 5000, True) == 0
    assert wait_until(lambda: native.handle.asleep == 2)


def test_the_count_of_sleepers_sees_them_without_a_hot_scope() -> None:
    native = Native(3)
    assert wait_until(lambda: _native.exercise_hot(native.handle, 5, 5000, False) == 2)


def test_the_default_is_one_thread_per_performance_core() -> None:
    assert Native().threads == default_threads(read_topology())


def test_wrong_settings_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="at least 1 is needed, got 0"):
        Native(0)
    with pytest.raises(UsageError, match="unknown instruction set 'sse9'; expected auto, portable, avx2 or avx512"):
        Native(1, isa="sse9")  # type: ignore[arg-type]
