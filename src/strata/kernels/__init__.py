"""Pure functions on tensors: one folder per operation.

Owns: the Ops protocol, a naive twin (specification) and a C++ form of every operation.
May import: quant, core, torch, numpy.
Never: allocates long-lived memory; knows models, files or requests.
"""
