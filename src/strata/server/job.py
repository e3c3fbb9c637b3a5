"""What is asked of the engine for one answer, whatever the wire dialect, and whether it can be asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from strata.chat.reader import Reading
from strata.chat.tokenizer import Tokenizer
from strata.core.errors import CapacityError, RequestError
from strata.core.limits import Limits
from strata.engine.request import Request
from strata.server.engine_process import EngineProcess

DEADLINE_HEADER = "X-Strata-Deadline-S"
"""For whoever stands between a client and the server, such as a proxy with a time limit of its own."""


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to make."""

    request: Request
    reading: Reading
    names: Mapping[str, str] = field(default_factory=dict)
    """What the dialect calls the engine's fields, where it has another word."""


def check_fits(engine: EngineProcess, job: Job, tokenizer: Tokenizer) -> None:
    """Refuse, with the numbers, what the engine would refuse or could not survive."""
    context = engine.require_ready().context
    try:
        job.request.budget(Limits(slots=1, context=context, step_tokens=1))
    except CapacityError as error:
        error.param = job.names.get(error.param or "", error.param)
        raise
    for name, ids in (("prompt", job.request.tokens), ("logit_bias", [t for t, _ in job.request.params.logit_bias])):
        worst = max(ids, default=0)
        if worst >= tokenizer.size or min(ids, default=0) < 0:
            raise RequestError(
                f"{name}: token ids are from 0 to {tokenizer.size - 1}, found {worst if worst > 0 else min(ids)}",
                param=name,
            )


def within(jobs: Sequence[Job], asked: str | None) -> list[Job]:
    """`jobs` with the deadline of the request's header `asked`; the sooner one where its body names another."""
    if asked is None:
        return list(jobs)
    try:
        seconds = float(asked)
        return [
            replace(job, request=replace(job.request, deadline_s=min(seconds, job.request.deadline_s or seconds)))
            for job in jobs
        ]
    except (ValueError, RequestError) as error:
        raise RequestError(f"{DEADLINE_HEADER} takes seconds above 0, found {asked[:40]!r}", DEADLINE_HEADER) from error
