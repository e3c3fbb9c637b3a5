"""One token of a row of logits, at a temperature.

Owns: choose: naive (specification) and C++.
May import: kernels.activate, kernels.exact, kernels.native, torch, numpy.
Never: knows penalties, seeds or history.
"""
