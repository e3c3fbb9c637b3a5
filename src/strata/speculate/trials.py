"""How much time may go into steps whose cost nobody knows. Pure.

What rows cost is learned from steps that ran. Beyond the most that ever ran a line may be far off: a step of sixteen
rows may take hardly longer than one of eight, because by then all experts are read. Only a trial shows it.
"""

from dataclasses import dataclass

START = 8.0
"""At the beginning, and at most."""
SHARE = 0.01
"""Of the time, that trials may take later."""


@dataclass(slots=True)
class Trials:
    """An allowance, counted in steps without drafts."""

    left: float = START

    def step(self) -> None:
        """One more step is about to run."""
        self.left = min(START, self.left + SHARE)

    def take(self, extra: float) -> bool:
        """Whether a step may be tried that probably takes `extra` steps longer; then it is taken off."""
        if extra > self.left:
            return False
        self.left -= max(0.0, extra)
        return True
