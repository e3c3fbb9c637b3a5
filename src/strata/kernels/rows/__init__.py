"""Copies of rows, and what follows from the rows' positions alone.

Owns: join, take_rows, completed_blocks: naive (specification) and C++.
May import: kernels.native, torch, numpy.
Never: computes on values.
"""
