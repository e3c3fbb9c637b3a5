"""Matrix-vector products with weights in file formats.

Owns: y = x W^T by the canonical lane rule (docs/numerics.md, sections 1 and 2).
May import: quant, kernels.exact, kernels.views, torch, numpy.
Never: a library's matrix product whose result depends on shape or threads.
"""
