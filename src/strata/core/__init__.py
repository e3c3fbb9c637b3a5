"""Nouns shared by every package, and the error tree.

Owns: Window, Limits, the error tree, logging, progress.
May import: the standard library only.
Never: torch; helpers without a noun (a "utils" does not exist).
"""
