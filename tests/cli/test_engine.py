"""What the engine's client hears while a model loads."""

import io

from strata.cli.engine import Percent


def test_every_whole_percent_is_said_once() -> None:
    out = io.StringIO()
    percent = Percent(out)
    for done in range(0, 1001):
        percent("reading ahead", done, 1000)
    percent("pinning experts", 5, 0)
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["INFO loading=reading_ahead percent=0", "INFO loading=reading_ahead percent=1"]
    assert lines[-2:] == ["INFO loading=reading_ahead percent=100", "INFO loading=pinning_experts percent=100"]
    assert len(lines) == 102
