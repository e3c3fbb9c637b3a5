"""Files in, files out.

Owns: converting safetensors to GGUF, requantising, importance data, random models of published shapes.
May import: assemble and below.
Never: runs a server; changes its input files.
"""
