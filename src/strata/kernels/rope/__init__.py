"""Rotary embedding.

Owns: rope, rope_angles: naive (specification) and C++.
May import: kernels.exact, kernels.native, torch, numpy.
Never: keeps a table of angles.
"""
