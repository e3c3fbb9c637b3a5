"""What becomes of a row's heads before attention.

Owns: attention_inputs on a device; kernels/joined.py is its specification, and its form elsewhere.
May import: kernels.device, kernels.ops, kernels.views, torch.
Never: projects or attends.
"""
