"""`check early-close`: a client that leaves frees its slot at the next step, and nothing is computed for it any more.

Three leave: one in the middle of its answer, one while its prompt is read, one that still waits in the queue. Others
wait for the slots; those who stay say what they say alone. All is counted in steps.
"""

from collections.abc import Iterator, Mapping, Sequence

from strata.assemble import Loaded
from strata.checks.crowd import Answer, Crowd, Moment, Part, Tell, difference
from strata.checks.engines import Finding, alone, running, said
from strata.checks.interleave import CHUNK
from strata.checks.runners import keeping, spoil
from strata.checks.watched import Note, Seating, Watched, harmless
from strata.engine.engine import EngineSettings
from strata.engine.request import Request
from strata.engine.settings import Settings

SLOTS = 4
ANSWER = 24


class EarlyClose:
    """Runs the check on one loaded model."""

    def __init__(self, loaded: Loaded, prompts: Sequence[Sequence[int]], long: Sequence[int], broken: bool) -> None:
        """`prompts`: short ones; `long`: several chunks; `broken`: the negative control."""
        self.loaded = loaded
        self.broken = broken
        self.settings = EngineSettings(scheduler=Settings(chunk_tokens=CHUNK, max_gap_s=0.0))
        tokens = [(*prompts[i % len(prompts)], i + 1) for i in range(7)]
        streams = [Part(Request(f"stream-{i}", tokens[i], max_new=ANSWER)) for i in range(2)]
        answering = Request("left-answering", tokens[2], max_new=ANSWER)
        reading = Request("left-reading", tuple(long), max_new=4)
        queued = Request("left-queue", tokens[3], max_new=4)
        waiting = [Request(f"waiting-{i}", tokens[4 + i], max_new=ANSWER) for i in range(3)]
        self.leavers = ("left-answering", "left-reading", "left-queue")
        self.parts = [
            *streams,
            Part(answering, leaves=Moment(answering.id, said=9)),
            Part(reading, leaves=Moment(reading.id, read=CHUNK)),
            Part(queued, comes=Moment("stream-0", said=1), leaves=Moment("stream-0", said=1)),
            *(Part(request, comes=Moment("stream-0", said=1)) for request in waiting),
        ]

    def findings(self, tell: Tell | None = None) -> Iterator[Finding]:
        """The streams, and then what was done for those who left."""
        solo = alone(self.loaded, self.parts, tell)
        watched = Watched(keeping(self.loaded, SLOTS), Neighbour(self.parts) if self.broken else harmless, spoil)
        with running(watched, self.settings) as engine:
            found = Crowd(engine, self.parts, tell, watched).run()
            seats = engine.status()["seats"]
        busy = [seat for seat in seats if seat["state"] != "idle"] if isinstance(seats, list) else []
        wrong = difference(solo, found, self.parts) or (f"slots are still taken: {busy}" if busy else "")
        yield Finding("others go on unchanged", len(self.parts), said(found), wrong)
        if not self.broken:
            wrong = next(filter(None, (self.left_behind(name, found, watched) for name in self.leavers)), "")
            yield Finding("slots are free at the next step", len(self.leavers), 0, wrong)

    def left_behind(self, name: str, found: Mapping[str, Answer], watched: Watched) -> str:
        """What was done for a client after it left, or that its slot was not given away at once; "" = nothing."""
        tokens = next(part.request.tokens for part in self.parts if part.request.id == name)
        left, steps = found[name].left_step, watched.steps_of(tokens)
        assert left is not None
        if late := [step for step in steps if step >= left]:
            return f"request {name} in slot {found[name].slot} left after {left} steps, and took part in step {late[0]}"
        if name == "left-queue":
            return f"request {name} took part in step {steps[0]}" if steps else ""
        taken = [seating.step for seating in watched.seatings if seating.slot == found[name].slot]
        waited = any(seating.step > left for seating in watched.seatings)  # otherwise all had come in before it
        if left not in taken and waited:
            return f"request {name}: slot {found[name].slot} was free after {left} steps, and given away after {taken}"
        return ""


class Neighbour:
    """The negative control: a client that leaves takes something of its neighbour's with it."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.leaves = {part.request.tokens for part in parts if part.leaves is not None}

    def __call__(self, watched: Watched, seen: Seating | Note) -> Sequence[int]:
        """See `watched.Harm`: once the slot of somebody who left is given away, everybody else is damaged."""
        if isinstance(seen, Note):
            return []
        before = [other for other in watched.seatings[:-1] if other.slot == seen.slot]
        left = bool(before) and before[-1].tokens in self.leaves
        return [number for number in watched.sitting.values() if left and number != watched.latest]
