"""What tests of a running engine share."""

from collections.abc import Iterator

import pytest

from engine.live import Started


@pytest.fixture
def started() -> Iterator[Started]:
    start = Started()
    yield start
    for engine in start.engines:
        engine.stop()
