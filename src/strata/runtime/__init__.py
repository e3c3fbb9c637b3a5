"""Makes a Plan real and runs windows.

Owns: packing windows into a batch, the runner that fits the Runner protocol.
May import: models, plan, speculate and below.
Never: decides who runs next; imports engine.
"""
