"""Proposals, how many of them are worth checking, and the acceptance rule.

Owns: the Drafter protocol, drafts from the conversation itself, learned acceptance and costs, depth; accepting drafts.
May import: sampling and below.
Never: runs a model; knows requests or tensors.
"""
