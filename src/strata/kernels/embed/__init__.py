"""Rows of an embedding table.

Owns: decoding chosen rows of a weight to float32.
May import: quant, kernels.views, torch, numpy.
Never: decodes rows that were not asked for.
"""
