"""Checks and benchmarks a user can run against the engine.

Owns: the equalities, crowds of requests on live engines and servers, rates, comparisons of two sides, JSON results.
May import: assemble and below.
Never: times anything inside a test.
"""
