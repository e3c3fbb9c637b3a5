"""Who runs next. Pure: no I/O, no thread, no clock (`now` is passed in, in seconds); the engine calls it under a lock.

Each step has one window for every decoding slot and prompt chunks for the slots that read, up to `Limits.step_tokens`
rows. Slots are served longest-waiting first, so when not all fit they take turns and nobody waits for more than one
round. While sessions decode, chunks are cut (at multiples of `GRAIN`) so that the step ends within the longest gap
(pace.py). Who sits in the slots is decided in admission.py.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from strata.core.errors import EngineError, UsageError
from strata.core.limits import Limits
from strata.core.window import Window
from strata.engine.admission import Admission
from strata.engine.commands import FAILED
from strata.engine.events import Event, Progress, Reason, Token
from strata.engine.outcome import Outcome, admitted, check, finished
from strata.engine.pace import Pace
from strata.engine.runner import Stepped
from strata.engine.session import Session, Timeline
from strata.engine.slot import Slot
from strata.engine.turns import Turn, in_turn

GRAIN = 32
"""Prompt chunks that must be short end at multiples of this."""
_CHUNK_TOKENS = 512


def _default_chunk(limits: Limits) -> int:
    room = max(1, min(_CHUNK_TOKENS, limits.step_tokens - limits.slots))
    return 1 << (room.bit_length() - 1)


class Scheduler:
    """The steps of those who are seated.

    Order of calls per step, after those of the admission: draft_caps, sit_out, next_windows, settle.
    """

    def __init__(self, admission: Admission) -> None:
        limits, settings = admission.limits, admission.settings
        chunk = _default_chunk(limits) if settings.chunk_tokens is None else settings.chunk_tokens
        if not 0 < chunk <= limits.step_tokens:
            raise UsageError(f"a prompt chunk is from 1 to {limits.step_tokens} tokens (one step), found {chunk}")
        self.admission = admission
        self.chunk_tokens = chunk
        self.pace = Pace(settings.max_gap_s)
        self._chosen: dict[int, int] = {}
        """Slot -> first position after its window, drafts not counted, of the step being built."""
        self._caps: dict[int, int] = {}
        self._began_s = 0.0

    def draft_caps(self, now: float) -> dict[int, int]:
        """Choose who takes part in the next step; returns how many drafts fit for each decoding slot (0 left out)."""
        self._began_s = now
        rows = self.admission.limits.step_tokens
        busy = [slot for slot in self.admission.slots if slot.session is not None]
        wanted = {slot.index: self._draft_wish(slot) for slot in busy if slot.running}
        reserve, chunks = sum(wanted.values()), 0
        pace = self.pace.allowed(GRAIN, self.chunk_tokens) if wanted else None
        self._chosen = {}
        for slot in self._in_order(busy):
            if slot.reading and chunks and pace is not None and pace < min(GRAIN, slot.left):
                continue
            end = slot.chunk_end(self.chunk_tokens, pace, GRAIN) if slot.reading else slot.length + 1
            needed = end - slot.length
            # The first chunk may take the rows of drafts, for it must go on; further chunks only what is to spare.
            if needed > rows - (reserve if slot.reading and chunks else 0):
                continue
            rows -= needed
            if slot.reading:
                chunks += 1
                pace = None if pace is None else pace - needed
            self._chosen[slot.index] = end
        decoding = [index for index in self._chosen if index in wanted]
        self._caps = {}
        for position, index in enumerate(decoding):
            cap = min(wanted[index], rows // (len(decoding) - position))
            rows -= cap
            if cap:
                self._caps[index] = cap
        return dict(self._caps)

    def _in_order(self, busy: Sequence[Slot]) -> list[Slot]:
        """Longest-waiting first; decoding before reading among equals, so that streams go on beside a long prompt.

        Those who read change places, for good, so that short prompts come before much longer ones: if a long one kept
        its place, a short one would be served there step after step, before those who decode.
        """
        order = sorted(busy, key=lambda slot: (slot.last_step, slot.reading, slot.turn, slot.index))
        turns = [
            Turn(slot, slot.left, slot.occupied()[1].late, (place,)) for place, slot in enumerate(order) if slot.reading
        ]
        reading = in_turn(turns)
        places = [(turn.who.last_step, turn.who.turn) for turn in turns]
        for slot, place in zip(reading, places, strict=True):
            slot.last_step, slot.turn = place
        readers = iter(reading)
        return [next(readers) if slot.reading else slot for slot in order]

    def lengths(self) -> dict[int, int]:
        """Slot -> its length after the step being built, all drafts accepted; longest-waiting first."""
        return {index: end + self._caps.get(index, 0) for index, end in self._chosen.items()}

    def sit_out(self, slots: Collection[int]) -> dict[int, int]:
        """Leave these slots out of the step being built; returns the drafts of the others."""
        for slot in self.admission.slots:
            slot.short = slot.index in slots
        self.admission.tally.short += len(slots)
        self._chosen = {index: end for index, end in self._chosen.items() if index not in slots}
        self._caps = {index: cap for index, cap in self._caps.items() if index not in slots}
        return dict(self._caps)

    def chosen(self) -> tuple[int, ...]:
        """Slots of the step being built."""
        return tuple(self._chosen)

    def next_windows(self, drafts: Mapping[int, Sequence[int]]) -> list[Window]:
        """The windows of the step that draft_caps chose; EngineError when a draft exceeds its cap."""
        for index, tokens in drafts.items():
            if len(tokens) > self._caps.get(index, 0):
                raise EngineError(f"{len(tokens)} drafts for slot {index}, at most {self._caps.get(index, 0)} fit")
        self.admission.rounds.step += 1
        windows = []
        for index, end in self._chosen.items():
            slot = self.admission.slots[index]
            session, line = slot.occupied()
            prompt = session.request.tokens
            self.admission.rounds.served(slot)
            if slot.reading:
                score = int(end == len(prompt) and line.budget > 0)
                windows.append(Window(index, slot.length, prompt[slot.length : end], score))
            else:
                tokens = (line.answer[-1], *drafts.get(index, ()))
                windows.append(Window(index, slot.length, tokens, len(tokens)))
        return windows

    def settle(self, windows: Sequence[Window], results: Sequence[Stepped], now: float) -> list[Outcome]:
        """Take in what the step led to; EngineError, and nothing changed, when it contradicts the windows."""
        if len(windows) != len(results):
            raise EngineError(f"{len(results)} results for {len(windows)} windows")
        for window, result in zip(windows, results, strict=True):
            check(window, result)
        decoding = sum(self.admission.slots[window.slot].running for window in windows)
        self.admission.tally.add_step(windows, decoding)
        read = sum(len(window.tokens) for window in windows if self.admission.slots[window.slot].reading)
        self.pace.observe(read, decoding > 0, now - self._began_s)
        pairs = zip(windows, results, strict=True)
        return [self._settle(self.admission.slots[window.slot], window, result, now) for window, result in pairs]

    def _draft_wish(self, slot: Slot) -> int:
        session, line = slot.occupied()
        limit = self.admission.settings.draft_limit if session.request.draft is None else session.request.draft
        return max(0, min(limit, line.budget - len(line.answer) - 1))

    def _settle(self, slot: Slot, window: Window, result: Stepped, now: float) -> Outcome:
        session, line = slot.occupied()
        if result.error:
            return self.admission.fail([slot.index], FAILED, result.error, now)[0]
        total = len(session.request.tokens)
        events: list[Event] = []
        offered = 0
        admission = None
        if slot.reading:
            self.admission.tally.prompt_tokens += len(window.tokens)
            events.append(Progress(result.length, total))
            if result.length == total:
                line.first_s = now
                admission = admitted(slot.index, total, line)
        else:
            offered = window.score - 1
            line.steps += 1
        slot.length = result.length
        line.left, line.served_s = slot.left, now
        before = len(line.answer)
        done = self._extend(session, line, result, events, now)
        added = len(line.answer) - before
        accepted = min(added, len(result.drawn) - 1) if offered else 0
        line.drafted += offered
        line.accepted += accepted
        self.admission.tally.add_drafts(offered, accepted)
        self.admission.tally.generated_tokens += added
        if done is None:
            return Outcome(session, tuple(events), None, admission)
        reason, stop_id = done
        ended = self.admission.leave(slot, (*events, finished(session, line, reason, now, stop_id=stop_id)))
        return replace(ended, admission=admission)

    def _extend(
        self, session: Session, line: Timeline, result: Stepped, events: list[Event], now: float
    ) -> tuple[Reason, int | None] | None:
        """Add the drawn tokens to the answer up to its end; returns how it ended, if it did."""
        request = session.request
        for drawn in result.drawn:
            stops = drawn.token in request.stop_ids
            if not stops or request.echo_stop:
                line.answer.append(drawn.token)
                if len(line.answer) > request.stream_from:
                    events.append(Token(drawn.token, drawn.logprob, drawn.top))
            if stops:
                return Reason.STOP, drawn.token
            if len(line.answer) == line.budget:
                return Reason.LENGTH, None
        return (Reason.LENGTH, None) if line.budget == 0 and line.first_s is not None else None
