"""Files in, files out.

Owns: converting safetensors to GGUF, requantising, random models of published shapes.
May import: models and below.
Never: runs a server; changes its input files.
"""
