"""Keeps the calling thread, and the threads it starts from then on, on some processors and memory nodes."""

import os
from collections.abc import Sequence

from strata.kernels import _native


def bind_thread(cpus: Sequence[int], nodes: Sequence[int]) -> tuple[str, ...]:
    """Run on `cpus` only and take new memory from `nodes`; an empty list leaves its part as it is.

    Returns what the system refused, in words: results do not depend on it, so nothing is raised.
    """
    refused = []
    if cpus:
        try:
            os.sched_setaffinity(0, cpus)
        except (OSError, AttributeError) as error:
            refused.append(f"processors {cpus[0]}..{cpus[-1]}: {error}")
    if nodes:
        code = _native.set_memory_policy(list(nodes))
        if code:
            refused.append(f"memory of node {', '.join(map(str, nodes))}: {os.strerror(code)}")
    return tuple(refused)
