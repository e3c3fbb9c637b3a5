"""Mixing of residual streams (hyper-connections).

Owns: stream_mix, stream_add: naive (specification) and C++; stream_add_norm on a device.
May import: kernels.activate, kernels.exact, kernels.native, torch, numpy.
Never: computes gates or weights.
"""
