"""`check interleave`: a prompt is read beside streams, short ones overtake it, and a next turn goes on in its slot.

What is checked is counted in steps, never in seconds: who took part in each of them, and what was read twice; and that
every stream says what it says alone.
"""

from collections.abc import Iterator, Mapping, Sequence

from strata.assemble import Loaded
from strata.checks.crowd import Answer, Crowd, Moment, Part, Tell, difference
from strata.checks.engines import Finding, alone, next_turns, running, said
from strata.checks.runners import keeping, spoil
from strata.checks.watched import Note, Seating, Watched, harmless
from strata.engine.engine import EngineSettings
from strata.engine.request import Request
from strata.engine.settings import Settings

STREAMS = 4
CHUNK = 64
"""Tokens of a chunk: small, so that a prompt is read in many steps."""


class Interleave:
    """Runs the parts of the check on one loaded model."""

    def __init__(self, loaded: Loaded, prompts: Sequence[Sequence[int]], long: Sequence[int], broken: bool) -> None:
        """`prompts`: short ones for the streams; `long`: several chunks; `broken`: the negative control."""
        self.loaded = loaded
        self.harm = reader_harm if broken else harmless
        self.settings = EngineSettings(scheduler=Settings(chunk_tokens=CHUNK, max_gap_s=0.0))
        answer = len(long) // CHUNK + 12
        tokens = [(*prompts[i % len(prompts)], i + 1) for i in range(STREAMS)]
        self.streams = [Part(Request(f"stream-{i}", tokens[i], max_new=answer)) for i in range(STREAMS)]
        self.long = Request("long", tuple(long), max_new=8)
        self.short = Request("short", tuple(prompts[0]), max_new=6)
        self.questions = [prompt[:8] for prompt in prompts]

    def findings(self, tell: Tell | None = None) -> Iterator[Finding]:
        """Every part's, one by one; `tell` hears of the answers that are there."""
        solo = alone(self.loaded, [*self.streams, Part(self.long), Part(self.short)], tell)
        again = next_turns(self.streams, solo, self.questions)
        solo |= alone(self.loaded, again, tell)
        yield from self.beside(solo, again, tell)
        yield self.overtaking(solo, 2, tell)
        yield self.overtaking(solo, 1, tell)

    def beside(self, solo: Mapping[str, Answer], again: Sequence[Part], tell: Tell | None) -> Iterator[Finding]:
        """A long prompt comes while four streams decode; then every stream goes on."""
        watched = Watched(keeping(self.loaded, STREAMS + 1), self.harm, spoil)
        parts = [*self.streams, Part(self.long, comes=Moment("stream-0", said=3))]
        with running(watched, self.settings) as engine:
            found = Crowd(engine, parts, tell, watched).run()
            shared, problem = shared_steps(watched)
            wrong = difference(solo, found, parts) or problem
            yield Finding("a long prompt beside streams", len(parts), said(found), wrong, {"shared_steps": shared})
            turns = Crowd(engine, again, tell, watched).run()
        wrong = difference(solo, turns, again) or self.moved(found, turns)
        reused = sum(answer.reused for answer in turns.values())
        yield Finding("next turns from their slots", len(again), said(turns), wrong, {"reused": reused})

    def moved(self, found: Mapping[str, Answer], turns: Mapping[str, Answer]) -> str:
        """Whose next turn read something again, or sat elsewhere; "" when nobody's."""
        for part in self.streams:
            name = part.request.id
            before, after = found[name], turns[f"{name}.2"]
            known = len(part.request.tokens) + len(before.tokens) - 1  # the answer's last token never ran
            if after.reused != known or after.slot != before.slot:
                return (
                    f"request {name}.2: {after.reused} tokens reused in slot {after.slot},"
                    f" expected {known} in slot {before.slot}"
                )
        return ""

    def overtaking(self, solo: Mapping[str, Answer], slots: int, tell: Tell | None) -> Finding:
        """A short prompt comes while a long one is read; with one slot the long one makes room and goes on after it."""
        watched = Watched(keeping(self.loaded, slots), self.harm, spoil)
        parts = [Part(self.long), Part(self.short, comes=Moment("long", read=1))]
        with running(watched, self.settings) as engine:
            found = Crowd(engine, parts, tell, watched).run()
        wrong = difference(solo, found, parts)
        firsts = [found[name].steps[0] for name in ("short", "long")]
        if not wrong and firsts[0] >= firsts[1]:
            wrong = f"request short: its first token came in step {firsts[0]}, the long one's in step {firsts[1]}"
        read, total = watched.read(self.long.tokens), len(self.long.tokens)
        if not wrong and read != total:
            wrong = f"request long: {read} tokens were read of a prompt of {total}"
        name = "a short prompt overtakes" if slots > 1 else "a short prompt overtakes, one slot"
        return Finding(name, len(parts), said(found), wrong, {"first_token_steps": firsts})


def shared_steps(watched: Watched) -> tuple[int, str]:
    """In how many steps a prompt was read beside streams, and which stream was left out of a step ("": none)."""
    shared = sum(bool(note.reading and note.decoding) for note in watched.notes)
    last: dict[int, int] = {}
    for step, note in enumerate(watched.notes):
        for number in note.decoding:
            if step - last.get(number, step - 1) > 1:
                return shared, f"slot {watched.slot(number)} got no token from step {last[number] + 1} to {step - 1}"
            last[number] = step
    return shared, "" if shared > 1 else f"{shared} steps were shared, so nothing was interleaved (least 2)"


def reader_harm(watched: Watched, seen: Seating | Note) -> Sequence[int]:
    """The negative control: who shares a step of reading and decoding is damaged, and who goes on from something.

    Not the reader alone: what a long prompt reads afterwards may make it forget.
    """
    if isinstance(seen, Seating):
        return [watched.latest] if seen.held.tokens else []
    return [*seen.reading, *seen.decoding] if seen.reading and seen.decoding else []
