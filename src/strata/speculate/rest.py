"""Whether a drafter that costs time reads along with new sequences. Pure.

Reading along costs about a layer's work for every row, prompts too, whether or not it is ever asked. Where it has not
been worth asking for a long while, it rests: only every so many sequences are read by it, to see whether it has become.
"""

from dataclasses import dataclass

FADE = 1 / 64
"""Weight of a step in what is remembered."""
START = 0.2
"""Before anything is known: it has about a hundred steps to show what it is worth."""
LEAST_USE = 0.05
"""Share of steps in which it must be worth asking."""
EVERY = 16
"""Of the sequences that begin while it rests, one of so many is read all the same."""


@dataclass(slots=True)
class Rest:
    """Of one drafter."""

    use: float = START
    sequences: int = 0

    @property
    def rests(self) -> bool:
        """Whether it is hardly ever worth asking."""
        return self.use < LEAST_USE

    def reads_next(self) -> bool:
        """Whether it reads along with the sequence that begins now."""
        self.sequences += 1
        return not self.rests or self.sequences % EVERY == 0

    def step(self, worth: int, known: int) -> None:
        """In a step it was worth asking for `worth` of the `known` sequences that it reads along with."""
        if known:
            self.use += (worth / known - self.use) * FADE
