"""Where the time of steps went."""

from dataclasses import dataclass


@dataclass(slots=True)
class Spent:
    """Nanoseconds of all steps so far, as the host sees them."""

    reserve: int = 0
    run: int = 0
    """From the first operation to logits that can be read."""
    draw: int = 0
    commit: int = 0

    def since(self, before: "Spent") -> "Spent":
        """The difference."""
        return Spent(
            self.reserve - before.reserve,
            self.run - before.run,
            self.draw - before.draw,
            self.commit - before.commit,
        )
