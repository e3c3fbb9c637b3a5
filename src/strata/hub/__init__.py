"""Models by name: what the hub has, what its cache on this machine holds.

Owns: `org/name[:QUANT]` names, the choice of a model's files, downloads, the cache's list, headers ahead of them.
May import: checkpoint, core, huggingface_hub.
Never: opens a model's tensors; leaves a half-read file where a model is looked for.
"""
