"""Where each expert is computed now.

Owns: the Experts protocol and the CPU implementation of it; frames in VRAM and who gets one, how misses are split
    between CPU and PCIe, learned profiles, routing traces.
May import: store and below.
Never: knows attention or requests; reads a model's files.
"""
