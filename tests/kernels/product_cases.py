"""Shared by the tests of quantised products: instruction sets, and what product_data.py makes."""

from kernels.natives import native
from kernels.product_data import activations, bank_of, differing, weight
from strata.kernels.native import Isa

__all__ = ["ISAS", "activations", "bank_of", "differing", "native", "weight"]

ISAS: tuple[Isa, ...] = ("portable", "avx2", "avx512")
