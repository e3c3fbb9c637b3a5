"""Hashes of the last tokens.

Owns: ngram_rows: naive (specification) and C++.
May import: kernels.views, kernels.native, torch, numpy.
Never: reads the table.
"""
