"""What a sequence remembers.

Owns: KV pages, recurrent state, indexer keys, token history; reserve, commit, rollback, snapshot, restore; what is kept
of sequences that were read: prefix cache, parking in RAM, archive on disk.
May import: kernels and below.
Never: knows requests or text.
"""
