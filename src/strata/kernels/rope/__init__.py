"""Rotary embedding.

Owns: rope: naive (specification) and C++.
May import: kernels.exact, kernels.native, torch, numpy.
Never: computes angles; knows positions.
"""
