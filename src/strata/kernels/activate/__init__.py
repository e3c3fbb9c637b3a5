"""Elementwise activations from one shared exponential.

Owns: exp, sigmoid, silu and softplus as sequences of written float32 operations.
May import: kernels.exact, torch, numpy.
Never: a library's exp or log.
"""
