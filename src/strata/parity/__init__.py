"""The engine against a second, plain implementation, op by op.

Owns: the float64 reference forward pass and the comparison.
May import: assemble and below.
Never: shares code with layers.
"""
