"""Logits to tokens.

Owns: SamplingParams, penalties and bias, counter-based draws, token masks.
May import: core, numpy, llguidance (params and constraint are pure).
Never: knows drafts, sessions or models.
"""
