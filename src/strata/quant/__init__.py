"""How bytes become numbers.

Owns: QuantFormat, the literal table of formats, reference decoding, encoding.
May import: core, numpy, libgguf.
Never: knows tensor names, devices or torch.
"""
