"""Checks and benchmarks a user can run against the engine.

Owns: the equalities, decode and prompt rates, JSON results.
May import: assemble and below.
Never: times anything inside a test.
"""
