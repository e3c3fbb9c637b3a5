"""Who runs next. Pure: no I/O, no thread, no clock (`now` is passed in, in seconds); the engine calls it under a lock.

Each step has one window for every decoding slot and prompt chunks for the slots that read, up to `Limits.step_tokens`
rows. Slots are served longest-waiting first, so when not all fit they take turns and nobody waits for more than one
round. While sessions decode, chunks are cut (at multiples of `GRAIN`) so that the step ends within the longest gap
(pace.py). A prompt under half as long as what another has left goes before it (turns.py), and takes its slot when there
is no other: the long read waits, what it read stays known.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from strata.core.errors import EngineError, RequestError, UsageError
from strata.core.held import Held
from strata.core.limits import Limits
from strata.core.window import Window
from strata.engine.commands import DEADLINE, FAILED
from strata.engine.events import Event, Progress, Reason, Reused, Token, Yielded
from strata.engine.outcome import Outcome, admitted, check, finished, last
from strata.engine.pace import Pace
from strata.engine.request import QueueFullError
from strata.engine.runner import Stepped
from strata.engine.session import Session, Timeline
from strata.engine.slot import Slot, choose_slot
from strata.engine.tally import Tally
from strata.engine.turns import Turn, in_turn, overtakes

GRAIN = 32
"""Prompt chunks that must be short end at multiples of this."""
_CHUNK_TOKENS = 512


def _default_chunk(limits: Limits) -> int:
    room = max(1, min(_CHUNK_TOKENS, limits.step_tokens - limits.slots))
    return 1 << (room.bit_length() - 1)


@dataclass(frozen=True, slots=True)
class Settings:
    """How the scheduler divides a step."""

    chunk_tokens: int | None = None
    """Prompt chunks end at multiples of this; None = the largest power of two up to 512 that leaves each slot a row."""
    queue_limit: int = 256
    """Sessions that may wait for a slot."""
    draft_limit: int = 16
    """Drafts per window at most, where a request names no number of its own."""
    max_gap_s: float = 0.25
    """Prompts beside decoding sessions are read in steps that end within this (or three decode steps, if longer)."""
    max_wait_s: float = 30.0
    """Who has waited this long is overtaken no more and goes first."""


class Scheduler:
    """Sessions waiting and seated.

    Order of calls per step: sweep, admit (then seated or fail for each), draft_caps, next_windows, settle.
    """

    def __init__(self, limits: Limits, settings: Settings, tally: Tally) -> None:
        chunk = _default_chunk(limits) if settings.chunk_tokens is None else settings.chunk_tokens
        if not 0 < chunk <= limits.step_tokens:
            raise UsageError(f"a prompt chunk is from 1 to {limits.step_tokens} tokens (one step), found {chunk}")
        counts = (settings.queue_limit, settings.draft_limit, settings.max_gap_s, settings.max_wait_s)
        if limits.slots < 1 or limits.context < 1 or min(counts) < 0:
            raise UsageError(f"slots and context must be 1 or more, other sizes 0 or more: {limits}, {settings}")
        self.limits = limits
        self.settings = settings
        self.chunk_tokens = chunk
        self.tally = tally
        self.pace = Pace(settings.max_gap_s)
        self.slots = [Slot(index) for index in range(limits.slots)]
        self.waiting: dict[str, tuple[Session, Timeline]] = {}
        self.full = False
        """Whether the first in line found no room; nobody is tried again before somebody leaves or comes."""
        self._arrivals = 0
        self._freed = 0
        self._step = 0
        self._turn = 0
        self._chosen: dict[int, int] = {}
        """Slot -> first position after its window, drafts not counted, of the step being built."""
        self._caps: dict[int, int] = {}
        self._began_s = 0.0

    # --- sessions in and out ---------------------------------------------------------------------------------

    def find(self, request_id: str) -> Session | None:
        """The live session with this id."""
        if request_id in self.waiting:
            return self.waiting[request_id][0]
        seated = (slot.session for slot in self.slots if slot.session is not None)
        return next((session for session in seated if session.request.id == request_id), None)

    def has_work(self) -> bool:
        """Whether any session lives."""
        return bool(self.waiting) or any(slot.session is not None for slot in self.slots)

    def enqueue(self, session: Session, now: float) -> None:
        """Take `session` in; CapacityError, QueueFullError or RequestError (its id lives already) refuse it."""
        request = session.request
        try:
            budget = request.budget(self.limits)
            if self.find(request.id) is not None:
                raise RequestError(f"a request {request.id} is already under way", param="id")
            free = sum(slot.session is None for slot in self.slots)
            if len(self.waiting) >= self.settings.queue_limit + free:
                raise QueueFullError(
                    f"{len(self.waiting)} requests wait already (at most {self.settings.queue_limit} may)",
                    hint="send it again later",
                )
        except RequestError:
            self.tally.refused += 1
            raise
        self.tally.submitted += 1
        self.full = False
        self._arrivals += 1
        self.waiting[request.id] = (
            session,
            Timeline(budget, self._arrivals, now, served_s=now, left=len(request.tokens)),
        )

    def sweep(self, now: float) -> list[Outcome]:
        """End the sessions that were cancelled, are past their deadline, or give way; set a long read aside."""
        outcomes = []
        reading = [slot.occupied() for slot in self.slots if slot.reading]
        for _, line in (*self.waiting.values(), *reading):
            line.late = line.late or now - line.served_s >= self.settings.max_wait_s
        for session, line in list(self.waiting.values()):
            if events := self._called_off(session, line, None, now):
                del self.waiting[session.request.id]
                outcomes.append(Outcome(session, events))
        for slot in self.slots:
            if slot.session is None:
                continue
            session, line = slot.occupied()
            if events := self._called_off(session, line, slot, now):
                outcomes.append(self._leave(slot, events))
        return [*outcomes, *self._set_aside()]

    def line_up(self) -> list[tuple[Session, Timeline]]:
        """Who waits for a slot, in order."""
        turns = [
            Turn((session, line), line.left, line.late, (session.request.priority, line.arrival))
            for session, line in self.waiting.values()
        ]
        return in_turn(turns)

    def _set_aside(self) -> list[Outcome]:
        """With every slot taken, the longest read leaves its slot to a prompt under half as long as what it has left.

        It waits where it was in line. Who has waited too long, has a higher priority or asked for a slot stays.
        """
        if not self.waiting or any(slot.session is None for slot in self.slots):
            return []
        first, line = self.line_up()[0]
        longest, left = None, 0
        for slot in self.slots:
            if not slot.reading or first.request.slot not in (None, slot.index):
                continue
            session, other = slot.occupied()
            fixed = session.request.slot is not None or session.request.priority < first.request.priority
            if not (fixed or other.late) and overtakes(line.left, other.left) and other.left > left:
                longest, left = slot, other.left
        if longest is None:
            return []
        session, other = longest.occupied()
        self._freed += 1
        longest.leave(self._freed, keeps_state=True)
        self.full = False
        self.waiting[session.request.id] = (session, other)
        self.tally.set_aside += 1
        return [Outcome(session, (), longest.index)]

    def admit(self) -> list[tuple[int, Session]]:
        """Seat waiting sessions in free slots, by priority, then arrival, short prompts before much longer ones.

        Each is then due a `seated` or a `fail`.
        """
        free = [slot for slot in self.slots if slot.session is None]
        if not free or not self.waiting or self.full:
            return []
        seats = []
        for session, line in self.line_up():
            wanted = session.request.slot
            open_to = free if wanted is None else [slot for slot in free if slot.index == wanted]
            if not open_to:
                continue
            slot = choose_slot(open_to, session.request.tokens)
            free.remove(slot)
            slot.sit(session, line)
            self._turn += 1
            # As if served in the last step: who comes goes behind those who wait, whenever this slot was used before.
            slot.last_step, slot.turn = self._step, self._turn
            del self.waiting[session.request.id]
            seats.append((slot.index, session))
        return seats

    def seated(self, index: int, held: Held, now: float, began: float | None = None) -> Outcome:
        """The runner prepared slot `index`, as `held` says; it did so since `began` (None: at once)."""
        slot = self.slots[index]
        session, line = slot.occupied()
        total = len(session.request.tokens)
        if not 0 <= held.tokens < total:
            raise EngineError(f"slot {index} came back with {held.tokens} tokens held of a prompt of {total}")
        slot.length = held.tokens
        slot.stops = held.stops
        line.left, line.lacks = total - held.tokens, ""
        if line.seated_s is not None:  # a read that was set aside finds what it read itself
            return Outcome(session, ())
        line.reused, line.tier = held.tokens, held.tier if held.tokens else ""
        line.seated_s = line.served_s = now
        line.seat_s = 0.0 if began is None else now - began
        self.tally.reused_tokens += held.tokens
        return Outcome(session, (Reused(held.tokens, held.tier),) if held.tokens else ())

    def unmeasured(self) -> list[tuple[Session, Timeline]]:
        """Those who wait and may hold part of their prompt already, without anybody having looked."""
        fresh = [(session, line) for session, line in self.waiting.values() if not line.measured]
        return [(session, line) for session, line in fresh if session.request.sharing.cached]

    def unseat(self, index: int, lacks: str) -> bool:
        """Send a session that was just admitted back to wait; False, with nothing done, when nobody could make room."""
        if sum(slot.session is not None for slot in self.slots) == 1:
            return False
        slot = self.slots[index]
        session, line = slot.occupied()
        line.lacks, self.full = lacks, True
        self.waiting[session.request.id] = (session, line)
        slot.session, slot.line = None, None
        return True

    def fail(self, indexes: Iterable[int], code: str, error: str, now: float) -> list[Outcome]:
        """End the sessions in these slots with an error; what their states hold is not relied on."""
        outcomes = []
        for index in indexes:
            slot = self.slots[index]
            session, line = slot.occupied()
            done = finished(session, line, Reason.ERROR, now, code=code, error=error)
            outcomes.append(self._leave(slot, (done,), keeps_state=False))
        return outcomes

    def end_all(self, reason: Reason, code: str, error: str, now: float) -> list[Outcome]:
        """End every session, waiting ones too."""
        outcomes = []
        for session, line in self.waiting.values():
            done = finished(session, line, reason, now, code=code, error=error)
            self.tally.add_finished(done)
            outcomes.append(Outcome(session, (done,)))
        self.waiting.clear()
        for slot in self.slots:
            if slot.session is not None:
                session, line = slot.occupied()
                done = finished(session, line, reason, now, code=code, error=error)
                outcomes.append(self._leave(slot, (done,), keeps_state=reason is not Reason.ERROR))
        return outcomes

    def _called_off(self, session: Session, line: Timeline, slot: Slot | None, now: float) -> tuple[Event, ...]:
        request = session.request
        late = request.deadline_s is not None and now - line.arrived_s >= request.deadline_s
        yields = session.yielding and (slot is None or slot.reading)
        if not (session.cancelled or late or yields):
            return ()
        code, text = (DEADLINE, f"the deadline of {request.deadline_s:g} s has passed") if late else ("", "")
        done = finished(session, line, Reason.CANCEL, now, code=code, error=text)
        if slot is None:
            self.tally.add_finished(done)
        gave_way = yields and not session.cancelled and not late
        return (Yielded(slot.length if slot else 0), done) if gave_way else (done,)

    def _leave(self, slot: Slot, events: tuple[Event, ...], keeps_state: bool = True) -> Outcome:
        session, _ = slot.occupied()
        self.tally.add_finished(last(events))
        self._freed += 1
        self.full = False
        slot.leave(self._freed, keeps_state)
        return Outcome(session, events, slot.index)

    # --- one step --------------------------------------------------------------------------------------------

    def draft_caps(self, now: float) -> dict[int, int]:
        """Choose who takes part in the next step; returns how many drafts fit for each decoding slot (0 left out)."""
        self._began_s = now
        rows = self.limits.step_tokens
        busy = [slot for slot in self.slots if slot.session is not None]
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
        for slot in self.slots:
            slot.short = slot.index in slots
        self.tally.short += len(slots)
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
        self._step += 1
        windows = []
        for index, end in self._chosen.items():
            slot = self.slots[index]
            session, line = slot.occupied()
            prompt = session.request.tokens
            self._turn += 1
            slot.last_step, slot.turn = self._step, self._turn
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
        decoding = sum(self.slots[window.slot].running for window in windows)
        self.tally.add_step(windows, decoding)
        read = sum(len(window.tokens) for window in windows if self.slots[window.slot].reading)
        self.pace.observe(read, decoding > 0, now - self._began_s)
        pairs = zip(windows, results, strict=True)
        return [self._settle(self.slots[window.slot], window, result, now) for window, result in pairs]

    def _draft_wish(self, slot: Slot) -> int:
        session, line = slot.occupied()
        limit = self.settings.draft_limit if session.request.draft is None else session.request.draft
        return max(0, min(limit, line.budget - len(line.answer) - 1))

    def _settle(self, slot: Slot, window: Window, result: Stepped, now: float) -> Outcome:
        session, line = slot.occupied()
        if result.error:
            return self.fail([slot.index], FAILED, result.error, now)[0]
        total = len(session.request.tokens)
        events: list[Event] = []
        offered = 0
        admission = None
        if slot.reading:
            self.tally.prompt_tokens += len(window.tokens)
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
        self.tally.add_drafts(offered, accepted)
        self.tally.generated_tokens += added
        if done is None:
            return Outcome(session, tuple(events), None, admission)
        reason, stop_id = done
        ended = self._leave(slot, (*events, finished(session, line, reason, now, stop_id=stop_id)))
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
