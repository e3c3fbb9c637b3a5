"""What becomes of a row's heads before attention, and of an indexer's.

Owns: attention_inputs, index_inputs, complete_blocks on a device; kernels/joined.py is their specification, and their
form elsewhere.
May import: kernels.device, kernels.ops, kernels.views, torch.
Never: projects or attends.
"""
