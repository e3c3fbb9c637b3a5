"""Writes into a paged cache, and block means of what it holds.

Owns: cache_write, pool_blocks: naive (specification) and C++.
May import: kernels.attention, kernels.exact, kernels.views, kernels.native, torch, numpy.
Never: hands out pages.
"""
