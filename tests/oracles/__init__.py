"""Tiny models with known answers, and a GGUF file of the same weights."""
