"""Tool-call dialects, one file each.

Owns: parsing one dialect's tool calls.
May import: core.
Never: imports another dialect.
"""
