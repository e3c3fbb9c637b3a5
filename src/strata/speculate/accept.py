"""Which drafts become part of the answer."""

from collections.abc import Sequence


def accepted(drafts: Sequence[int], drawn: Sequence[int]) -> int:
    """How many leading `drafts` equal the tokens that their rows drew.

    drawn[i] is the draw after i drafts, so it has at least one token per draft (and one more for the row after the
    last). A row's draw depends on its prefix and position only; so keeping drafts while they equal it, then taking the
    first draw that differs, gives the tokens of one-by-one decoding, for greedy and sampled rows alike.
    """
    if len(drawn) < len(drafts):
        raise ValueError(f"{len(drafts)} drafts need as many draws, found {len(drawn)}")
    count = 0
    while count < len(drafts) and drafts[count] == drawn[count]:
        count += 1
    return count
