"""Pools of the C++ extension that the tests of kernels share."""

import atexit
from functools import cache

import pytest

from strata.core.errors import UsageError
from strata.kernels.native import Isa, Native


@cache
def native(isa: Isa, threads: int = 2) -> Native:
    """One pool per way for the whole run; skips what this CPU cannot run."""
    try:
        return Native(threads, isa)
    except UsageError as error:
        pytest.skip(str(error))


atexit.register(native.cache_clear)
"""What pytest keeps of parametrised tests outlives the interpreter, and with it all that their modules hold."""
