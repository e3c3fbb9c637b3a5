"""Root-mean-square norm, alone and behind a gate, l2 norm and the plain dot product, all by the lane rule.

Owns: rms_norm, gated_norm, l2_norm, row_dot: naive (specification) and C++.
May import: kernels.activate, kernels.exact, kernels.native, torch, numpy.
Never: knows which norm of a model it is; adds one to a zero-centred weight.
"""
