"""Binding a thread: what it is asked, what the system refuses."""

import os
import threading
from pathlib import Path

from strata.kernels.binding import bind_thread

REFUSED = 1 << 12
"""A number that no processor has."""


def in_thread(cpus: list[int], nodes: list[int]) -> tuple[tuple[str, ...], set[int], str]:
    """(what was refused, affinity afterwards, memory policy) of a thread that binds itself alone."""
    found: list[tuple[tuple[str, ...], set[int], str]] = []

    def run() -> None:
        refused = bind_thread(cpus, nodes)
        maps = Path(f"/proc/self/task/{threading.get_native_id()}/numa_maps")
        policy = maps.read_text().split()[1] if maps.is_file() else ""
        found.append((refused, os.sched_getaffinity(0), policy))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_keeps_to_its_processors_and_its_node() -> None:
    one = min(os.sched_getaffinity(0))
    refused, mask, policy = in_thread([one], [0])
    assert mask == {one}
    assert (refused == () and policy in ("prefer:0", "")) or "memory of node 0" in refused[0]


def test_nothing_asked_changes_nothing() -> None:
    refused, mask, policy = in_thread([], [])
    assert (refused, mask) == ((), os.sched_getaffinity(0)) and policy in ("default", "")


def test_what_the_system_refuses_is_said() -> None:
    refused, mask, _ = in_thread([REFUSED], [900])
    assert mask == os.sched_getaffinity(0)
    assert refused[0].startswith(f"processors {REFUSED}..{REFUSED}: ") and refused[1].startswith("memory of node 900: ")
