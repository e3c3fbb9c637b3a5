"""What a sequence remembers.

Owns: KV pages, recurrent state, indexer keys, token history; reserve, commit, rollback, snapshot, restore.
May import: kernels and below.
Never: knows requests or text.
"""
