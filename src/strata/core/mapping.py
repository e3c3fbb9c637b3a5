"""Memory in pages of its own."""

import mmap


def mapped(nbytes: int) -> mmap.mmap:
    """So many zeros, one or more, that go back to the system as soon as nothing refers to them.

    A heap cannot promise that: what lives long and lies between temporary blocks keeps their pages from going back.
    """
    return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
