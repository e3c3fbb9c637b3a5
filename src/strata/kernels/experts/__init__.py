"""The routed experts of one layer on the rows of a step.

Owns: gate, up, silu, down and the combination in rank order (docs/numerics.md, rules 5 and 6).
May import: quant, kernels.linear, kernels.activate, kernels.exact, kernels.views, torch, numpy.
Never: knows where an expert's bytes come from.
"""
