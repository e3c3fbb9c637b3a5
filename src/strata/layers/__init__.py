"""The math, once, readable beside the papers.

Owns: linear, norm, rope, attention, sparse attention, delta net, MoE, hyper-connections, n-gram embedding.
May import: experts, state, kernels and below.
Never: places anything on a device; branches on a quantisation format.
"""
