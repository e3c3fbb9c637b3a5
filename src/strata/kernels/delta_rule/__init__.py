"""Gated delta rule, one row after the other.

Owns: delta_rule: naive (specification) and C++.
May import: kernels.norm, kernels.exact, kernels.views, kernels.native, torch, numpy.
Never: allocates or resets a state; computes beta or decay.
"""
