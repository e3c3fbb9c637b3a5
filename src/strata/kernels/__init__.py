"""Pure functions on tensors: one folder per operation.

Owns: the Ops protocol; of every operation a naive twin (specification), a C++ form and device kernels; the devices.
May import: quant, core, torch, numpy.
Never: allocates memory that outlives what it is a copy or a result of, but for workspaces; knows models, files or
requests.
"""
