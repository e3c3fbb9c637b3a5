"""Whether a drafter that costs time reads along with sequences. Pure.

It has an account, in steps without drafts: what it brings goes in, and all its time goes out, also that of reading
along, which costs about a layer's work for every row whether or not it is ever asked. So where it does not pay it can
lose what it was given to begin with and no more. Then it rests: only every so many sequences are read by it, on a small
loan, to see whether it has become worth it.
"""

from dataclasses import dataclass

START = 4.0
"""Steps that it may lose at first."""
LOAN = 1.0
"""The same of a sequence that is read while it rests."""
MOST = 12.0
"""What it can have at most: a text that nothing can be foreseen of is left soon, whatever there was before."""
EVERY = 16
"""Of the sequences that begin while it rests, one of so many is read all the same."""


@dataclass(slots=True)
class Rest:
    """Of one drafter."""

    balance: float = START
    rests: bool = False
    sequences: int = 0

    def reads_next(self) -> bool:
        """Whether it reads along with the sequence that begins now."""
        self.sequences += 1
        if self.rests and self.sequences % EVERY == 0:
            self.balance = LOAN
            return True
        return not self.rests

    def add(self, steps: float) -> bool:
        """So much came in, or went out (below 0) -> whether it has to stop reading whatever it reads."""
        self.balance = min(MOST, self.balance + steps)
        if self.balance >= 0:
            self.rests = self.rests and self.balance < LOAN + START
            return False
        self.balance, self.rests = 0.0, True
        return True
