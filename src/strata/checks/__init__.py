"""Checks and benchmarks a user can run against the engine.

Owns: the equalities, rates of decoding, prompts and single kernels, comparisons of two sides, JSON results.
May import: assemble and below.
Never: times anything inside a test.
"""
