"""What kernels add to a step that starts them before their turn."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "device"))

from engine_trace import STEPS, adds, gaps

SPANS = [(0.0, 4.0, "a"), (1.0, 9.0, "b"), (2.0, 3.0, "within"), (10.0, 12.0, "a"), (11.0, 12.5, "b")]
"""(start, end, name): b waits for a inside its own time, and one is over before that."""


def test_what_kernels_add_sums_to_the_time_in_which_any_ran() -> None:
    found = adds(SPANS)
    assert found == {"within": 1.0, "a": 3.0 + 2.0, "b": 5.0 + 0.5}
    busy = gaps([span[:2] for span in SPANS])["busy us"] * STEPS
    assert sum(found.values()) == busy
    assert sum(end - start for start, end, _ in SPANS) > busy + 4.0, "what they take by themselves does not"
