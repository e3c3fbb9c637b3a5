"""Where each expert is computed now.

Owns: the Experts protocol and the CPU implementation of it.
May import: store and below.
Never: knows attention, requests or files.
"""
