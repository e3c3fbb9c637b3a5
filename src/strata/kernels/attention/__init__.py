"""Causal attention over a paged cache.

Owns: attention: naive (specification) and C++.
May import: kernels.exact, kernels.activate, kernels.views, kernels.native, torch, numpy.
Never: writes the cache; projects, rotates or gates.
"""
