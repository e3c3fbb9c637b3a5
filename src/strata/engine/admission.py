"""Who gets a slot, who waits for one, who leaves. Pure: no clock (`now` is passed in, in seconds), no thread.

By priority, then arrival; a prompt under half as long as what another has left goes before it (turns.py), and takes its
slot when there is no other: the long read waits, what it read stays known. Who waited too long is overtaken no more.
"""

from collections.abc import Iterable

from strata.core.errors import EngineError, RequestError, UsageError
from strata.core.held import Held
from strata.core.limits import Limits
from strata.engine.commands import DEADLINE
from strata.engine.events import Event, Reason, Reused, Yielded
from strata.engine.outcome import Outcome, finished, last
from strata.engine.request import QueueFullError
from strata.engine.session import Session, Timeline
from strata.engine.settings import Settings
from strata.engine.slot import Rounds, Slot, choose_slot
from strata.engine.tally import Tally
from strata.engine.turns import Turn, in_turn, overtakes


class Admission:
    """Sessions waiting and seated.

    Order of calls per step: sweep, admit, then seated, unseat or fail for each who was admitted.
    """

    def __init__(self, limits: Limits, settings: Settings, tally: Tally) -> None:
        counts = (settings.queue_limit, settings.draft_limit, settings.max_gap_s, settings.max_wait_s)
        if limits.slots < 1 or limits.context < 1 or min(counts) < 0:
            raise UsageError(f"slots and context must be 1 or more, other sizes 0 or more: {limits}, {settings}")
        self.limits = limits
        self.settings = settings
        self.tally = tally
        self.slots = [Slot(index) for index in range(limits.slots)]
        self.rounds = Rounds()
        self.waiting: dict[str, tuple[Session, Timeline]] = {}
        self.full = False
        """Whether the first in line found no room; nobody is tried again before somebody leaves or comes."""
        self._arrivals = 0
        self._freed = 0

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
                outcomes.append(self.leave(slot, events))
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
            # As if served in the last step: who comes goes behind those who wait, whenever this slot was used before.
            self.rounds.served(slot)
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
        seat_s = 0.0 if began is None else now - began
        line.match_s = min(held.match_s, seat_s)
        line.restore_s = seat_s - line.match_s
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
            outcomes.append(self.leave(slot, (done,), keeps_state=False))
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
                outcomes.append(self.leave(slot, (done,), keeps_state=reason is not Reason.ERROR))
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

    def leave(self, slot: Slot, events: tuple[Event, ...], keeps_state: bool = True) -> Outcome:
        """Empty a slot; `events` are its session's last ones."""
        session, _ = slot.occupied()
        self.tally.add_finished(last(events))
        self._freed += 1
        self.full = False
        slot.leave(self._freed, keeps_state)
        return Outcome(session, events, slot.index)
