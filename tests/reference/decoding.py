"""What a request says when it has the whole engine for itself: one token after the other, nothing shared."""

from fakes import next_token
from strata.engine.events import Reason
from strata.engine.request import Request


def alone(request: Request, context: int, vocabulary: int = 50) -> tuple[list[int], Reason, int | None]:
    """(answer, reason, stop id) of an undisturbed request."""
    budget = context - len(request.tokens) if request.max_new is None else request.max_new
    text, answer = list(request.tokens), list[int]()
    while len(answer) < budget:
        token = next_token(text, request.params, vocabulary)
        text.append(token)
        if token in request.stop_ids:
            if request.echo_stop:
                answer.append(token)
            return answer, Reason.STOP, token
        answer.append(token)
    return answer, Reason.LENGTH, None
