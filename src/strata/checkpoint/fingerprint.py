"""Which model a checkpoint is, without reading all of it."""

from hashlib import blake2b

from strata.checkpoint.checkpoint import Checkpoint

SAMPLE = 4096
"""Bytes read from the middle of each tensor."""


def fingerprint(checkpoint: Checkpoint) -> str:
    """A digest of the metadata, every tensor's name, shape and format, and a sample of its bytes.

    Files that differ only in bytes outside the samples look alike; a model that was trained further does not.
    """
    found = blake2b(digest_size=16)
    for key, value in sorted(checkpoint.metadata.values.items()):
        found.update(f"{key}={value!r}\n".encode())
    for name, ref in sorted(checkpoint.tensors.items()):
        found.update(f"{name} {ref.shape} {ref.format.name} {ref.nbytes}\n".encode())
        middle = max(0, ref.nbytes - SAMPLE) // 2
        found.update(checkpoint.bytes_of(ref)[middle : middle + SAMPLE].tobytes())
    return found.hexdigest()
