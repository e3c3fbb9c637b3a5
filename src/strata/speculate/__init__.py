"""Proposals and the acceptance rule.

Owns: accepting drafts; drafters and depth.
May import: sampling and below.
Never: runs the main model.
"""
