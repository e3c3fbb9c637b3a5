"""HTTP in, events out.

Owns: wire dialects, the engine child process and which model it has, status and metrics.
May import: chat and below, without torch.
Never: decides anything; imports torch.
"""
