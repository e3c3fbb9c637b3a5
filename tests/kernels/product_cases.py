"""Shared by the tests of quantised products: instruction sets, and what product_data.py makes."""

from functools import cache

import pytest

from kernels.product_data import activations, bank_of, differing, weight
from strata.core.errors import UsageError
from strata.kernels.native import Isa, Native

__all__ = ["ISAS", "activations", "bank_of", "differing", "native", "weight"]

ISAS: tuple[Isa, ...] = ("portable", "avx2", "avx512")


@cache
def native(isa: Isa, threads: int = 2) -> Native:
    try:
        return Native(threads, isa)
    except UsageError as error:
        pytest.skip(str(error))
