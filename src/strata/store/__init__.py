"""Bytes below VRAM.

Owns: ExpertStore: the experts' bytes in mapped files or a RAM arena; n-gram rows.
May import: kernels, checkpoint, quant, core.
Never: knows VRAM, routing or requests.
"""
