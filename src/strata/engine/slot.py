"""One seat in the batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from strata.engine.session import Session, Timeline


@dataclass(slots=True)
class Slot:
    """Holds one session or none, and remembers whose conversation its state last held."""

    index: int
    session: Session | None = None
    line: Timeline | None = None
    length: int = 0
    """Tokens in the runner's state, as it last reported."""
    last_step: int = 0
    """Number of the last step it took part in; the longest waiting is served first."""
    turn: int = 0
    """Counts up with every window, over all slots: among those of one step the first served is the first again."""
    held: tuple[int, ...] = ()
    """The conversation that the state held when its last session ended."""
    stops: tuple[int, ...] = ()
    """Positions of its prompt where windows end, as the runner asked."""
    short: bool = False
    """Whether it sat the last step out, for lack of pages."""
    freed: int = 0
    """Counts up with every release: the smallest is the slot used longest ago (0 = never)."""

    def occupied(self) -> tuple[Session, Timeline]:
        """Its session with its timeline; ValueError when it is empty."""
        if self.session is None or self.line is None:
            raise ValueError(f"slot {self.index} is empty")
        return self.session, self.line

    @property
    def reading(self) -> bool:
        """Whether part of the prompt is still to be read."""
        return self.session is not None and self.length < len(self.session.request.tokens)

    @property
    def running(self) -> bool:
        """Whether it decodes."""
        return self.session is not None and not self.reading

    @property
    def left(self) -> int:
        """Prompt tokens still to be read; 0 when it decodes or is empty."""
        return max(0, len(self.session.request.tokens) - self.length) if self.session is not None else 0

    def facts(self) -> dict[str, object]:
        """Plain values for the status."""
        if self.session is None or self.line is None:
            return {"id": self.index, "state": "idle", "held": len(self.held)}
        request = self.session.request
        does = "waiting for pages" if self.short else "reading" if self.reading else "decoding"
        state = {"state": does, "request": request.id}
        counts = {"prompt": len(request.tokens), "reused": self.line.reused, "generated": len(self.line.answer)}
        return {"id": self.index, **state, "held": self.length, **counts, "budget": self.line.budget}

    def sit(self, session: Session, line: Timeline) -> None:
        """Give the seat to `session`, its state still unknown."""
        self.session, self.line, self.length, self.stops = session, line, 0, ()

    def leave(self, freed: int, keeps_state: bool) -> None:
        """Empty the seat; without `keeps_state` what the state holds is not known."""
        session, line = self.occupied()
        self.held = (*session.request.tokens, *line.answer)[: self.length] if keeps_state else ()
        self.session, self.line, self.short, self.freed = None, None, False, freed

    def chunk_end(self, chunk_tokens: int, most: int | None, grain: int) -> int:
        """Where the next prompt window ends: at the next multiple of `chunk_tokens`, the next stop, or with the prompt.

        When that is more than `most` tokens away, at the last multiple of `grain` within them (or the next one, if
        there is none). Borders are absolute positions, so that a read taken up again makes the same windows.
        """
        session, _ = self.occupied()
        total = len(session.request.tokens)
        stop = next((stop for stop in self.stops if stop > self.length), total)
        end = min((self.length // chunk_tokens + 1) * chunk_tokens, stop, total)
        if most is None or end - self.length <= most:
            return end
        short = (self.length + most) // grain * grain
        return min(end, short if short > self.length else (self.length // grain + 1) * grain)


@dataclass(slots=True)
class Rounds:
    """Counts steps and windows, so that slots know how long ago they were served."""

    step: int = 0
    turn: int = 0

    def served(self, slot: Slot) -> None:
        """The slot takes part in the step under way."""
        self.turn += 1
        slot.last_step, slot.turn = self.step, self.turn


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading tokens are equal."""
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count


def choose_slot(free: Sequence[Slot], tokens: Sequence[int]) -> Slot:
    """The seat for a new session among `free` (not empty).

    The slot whose conversation `tokens` continues or edits (at least half of it is a common prefix, so that a short
    shared beginning does not destroy another conversation), else one never used, else the one used longest ago.
    """
    best, longest = None, 0
    for slot in free:
        common = common_prefix(slot.held, tokens)
        if common > longest and 2 * common >= len(slot.held):
            best, longest = slot, common
    return best or min(free, key=lambda slot: (bool(slot.held), slot.freed, slot.index))
