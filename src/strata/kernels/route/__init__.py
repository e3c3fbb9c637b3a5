"""Choice of experts from router logits.

Owns: route: naive (specification) and C++.
May import: kernels.activate, kernels.exact, kernels.native, torch, numpy.
Never: computes logits; runs experts.
"""
