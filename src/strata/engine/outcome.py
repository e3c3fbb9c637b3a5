"""What a step, or an end, means for one session."""

from dataclasses import dataclass

from strata.core.errors import EngineError
from strata.core.window import Window
from strata.engine.events import Event, Finished, Reason
from strata.engine.runner import Stepped
from strata.engine.session import Session, Timeline


@dataclass(frozen=True, slots=True)
class Phases:
    """How a prompt came to its first token, in phases: waiting, finding state, restoring it, reading."""

    slot: int
    prompt: int
    reused: int
    tier: str
    queue_s: float
    match_s: float
    restore_s: float
    read_s: float

    def fields(self) -> dict[str, object]:
        """For one log line; milliseconds."""
        phases = {
            "queue_ms": self.queue_s,
            "match_ms": self.match_s,
            "restore_ms": self.restore_s,
            "read_ms": self.read_s,
        }
        first = {**phases, "first_token_ms": sum(phases.values())}
        counts = {"slot": self.slot, "prompt": self.prompt, "reused": self.reused, "tier": self.tier or "none"}
        return {**counts, **{name: round(1000 * seconds, 1) for name, seconds in first.items()}}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened to a session; `release` is the slot that it left."""

    session: Session
    events: tuple[Event, ...]
    release: int | None = None
    admission: Phases | None = None
    """With the step that ended its prompt."""


def admitted(slot: int, prompt: int, line: Timeline) -> Phases:
    """The phases of a session whose prompt has just been read."""
    first = line.arrived_s if line.first_s is None else line.first_s
    seated = first if line.seated_s is None else line.seated_s
    match_s = line.looked_s + line.match_s
    queue_s = seated - line.restore_s - match_s - line.arrived_s
    return Phases(slot, prompt, line.reused, line.tier, queue_s, match_s, line.restore_s, first - seated)


def check(window: Window, result: Stepped) -> None:
    """EngineError when `result` cannot be what `window` led to."""
    drawn, score = len(result.drawn), window.score
    if result.error and result.slot == window.slot:
        return
    if result.slot != window.slot or not min(score, 1) <= drawn <= score:
        raise EngineError(f"slot {result.slot} with {drawn} tokens answers slot {window.slot} with score {score}")
    length = window.end - score + drawn
    if result.length != length:
        raise EngineError(f"slot {window.slot} holds {result.length} tokens after a step that leads to {length}")
    drafts = window.tokens[len(window.tokens) - score + 1 :] if score else ()
    taken = tuple(token.token for token in result.drawn[:-1])
    if taken != drafts[: len(taken)]:
        raise EngineError(f"slot {window.slot} accepted {taken}, the drafts were {drafts}")


def last(events: tuple[Event, ...]) -> Finished:
    """The Finished that ends the events of a session that left."""
    event = events[-1]
    if not isinstance(event, Finished):
        raise EngineError(f"a session left its slot with {event}")
    return event


def finished(
    session: Session,
    line: Timeline,
    reason: Reason,
    now: float,
    *,
    stop_id: int | None = None,
    code: str = "",
    error: str = "",
) -> Finished:
    """How `session` ended, with its counts and times so far."""
    seated = now if line.seated_s is None else line.seated_s
    first = now if line.first_s is None else line.first_s
    return Finished(
        reason=reason,
        prompt=len(session.request.tokens),
        reused=line.reused,
        generated=len(line.answer),
        drafted=line.drafted,
        accepted=line.accepted,
        steps=line.steps,
        stop_id=stop_id,
        queue_s=seated - line.arrived_s,
        prompt_s=first - seated,
        decode_s=now - first,
        code=code,
        error=error,
    )
