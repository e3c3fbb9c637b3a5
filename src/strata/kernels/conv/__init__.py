"""Depthwise causal convolution with a carried history.

Owns: causal_conv, carry_rows: naive (specification) and C++.
May import: kernels.activate, kernels.exact, kernels.views, kernels.native, torch, numpy.
Never: allocates or resets a history.
"""
