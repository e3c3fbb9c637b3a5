"""Who sits, who waits and by which settings, as plain values for STAT and /v1/status."""

from collections.abc import Mapping

from strata.engine.admission import Admission
from strata.engine.scheduler import Scheduler

MOST_WAITING = 32
"""Of those who wait, the first ones are told one by one."""


def facts(scheduler: Scheduler, requested: int | None, reason: str, now: float) -> Mapping[str, object]:
    """Everything the scheduler knows of itself; `requested` slots were asked for (None: as many as there are)."""
    admission = scheduler.admission
    slots, settings, limits = admission.slots, admission.settings, admission.limits
    return {
        "slots": {
            "requested": limits.slots if requested is None else requested,
            "serving": limits.slots,
            "reason": reason,
        },
        "seats": [slot.facts() for slot in slots],
        "running": sum(slot.running for slot in slots),
        "reading": sum(slot.reading for slot in slots),
        "waiting": len(admission.waiting),
        "queue": queue(admission, now),
        "context": limits.context,
        "step_tokens": limits.step_tokens,
        "chunk_tokens": scheduler.chunk_tokens,
        "queue_limit": settings.queue_limit,
        "max_gap_ms": round(1000 * settings.max_gap_s, 3),
        "max_wait_s": settings.max_wait_s,
        **admission.tally.values(),
    }


def queue(admission: Admission, now: float) -> list[Mapping[str, object]]:
    """The first of those who wait, in the order in which they would be seated."""
    return [
        {
            "request": session.request.id,
            "prompt": len(session.request.tokens),
            "left": line.left,
            "waited_s": round(now - line.arrived_s, 3),
            "priority": session.request.priority,
            "late": line.late,
            "lacks": line.lacks,
        }
        for session, line in admission.line_up()[:MOST_WAITING]
    ]
