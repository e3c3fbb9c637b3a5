"""Elementwise arithmetic between the larger operations.

Owns: add, divide, multiply, gate, signed_root, delta_rates, spread: naive (specification) and C++.
May import: kernels.activate, kernels.exact, kernels.native, torch, numpy.
Never: reduces anything; torch's own arithmetic would leave a recorded program.
"""
