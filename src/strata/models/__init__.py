"""One file per architecture.

Owns: configuration keys, blocks, tensor names of both containers.
May import: layers and below.
Never: knows devices, batching, servers or files.
"""
