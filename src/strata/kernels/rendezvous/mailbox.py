"""Host memory in which a GPU and the answering thread leave each other word (csrc/mailbox.h)."""

import torch

from strata.kernels import _native

FIELDS = ("request", "layer", "rows", "top_k")
REPLY, FAILED, POISON = 16, 17, 32
"""Places of the other fields, in words of 8 bytes."""


class Mailbox:
    """The head and its arrays (ids int32, x and answers float32), for `most_rows` rows with `most_entries` entries."""

    def __init__(self, most_rows: int, most_entries: int, hidden: int, pinned: bool) -> None:
        """`pinned`: memory that a CUDA or HIP device sees at the same address."""
        self.most_rows, self.most_entries, self.hidden = most_rows, most_entries, hidden
        self.head = torch.zeros(_native.mailbox_bytes // 8, dtype=torch.int64, pin_memory=pinned)
        self.ids = torch.full((most_entries,), -1, dtype=torch.int32, pin_memory=pinned)
        self.x = torch.zeros(most_rows, hidden, pin_memory=pinned)
        self.answers = torch.zeros(most_entries, hidden, pin_memory=pinned)
        self._words = self.head.numpy()  # a look through torch takes 10 us

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(t.nbytes for t in (self.head, self.ids, self.x, self.answers))

    def take_poison(self) -> int:
        """The request that the GPU gave up waiting for, or 0; it is forgotten here."""
        found = int(self._words[POISON])
        if found:
            self._words[POISON] = 0
        return found
