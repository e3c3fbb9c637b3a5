"""Attention over a chosen set of positions, and the choice of them.

Owns: select_blocks, sparse_attention: naive (specification) and C++.
May import: kernels.attention, kernels.exact, kernels.views, kernels.native, torch, numpy.
Never: writes the cache; norms or rotates index keys.
"""
