"""Errors as HTTP: status codes live here and nowhere else."""

from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse

from strata.core.errors import CapacityError, RequestError, StrataError, UnsupportedError
from strata.engine.request import DeadlineError, QueueFullError
from strata.server.departures import UNKNOWN_S
from strata.server.replies import EngineAwayError

ANTHROPIC_PATH = "/v1/messages"
_ANTHROPIC = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Anthropic's names of errors by status."""


@dataclass
class ApiError(Exception):
    """An answer that is an error, in the form of whoever asked."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    retry_after_s: int | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def kind(self) -> str:
        """OpenAI's `type`."""
        kind = "invalid_request_error" if 400 <= self.status < 500 else "server_error"
        return {401: "authentication_error", 429: "rate_limit_error"}.get(self.status, kind)

    def body(self) -> dict[str, Any]:
        """`{"error": ...}`, OpenAI's."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def anthropic_body(self, request_id: str | None = None) -> dict[str, Any]:
        """`{"type": "error", "error": ...}`, Anthropic's; the field's name and the code stand beside its own fields."""
        kind = _ANTHROPIC.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
        error = {"type": kind, "message": self.message, "param": self.param, "code": self.code}
        return {"type": "error", "error": error, "request_id": request_id}

    def response(self, path: str = "", request_id: str | None = None) -> JSONResponse:
        """The HTTP answer to a request for `path`, which tells whose form is expected."""
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        body = self.anthropic_body(request_id) if path.startswith(ANTHROPIC_PATH) else self.body()
        return JSONResponse(body, self.status, headers)


def as_api_error(error: StrataError) -> ApiError:
    """The HTTP form of one of the project's errors."""
    text = f"{error.message} ({error.hint})" if error.hint else error.message
    match error:
        case EngineAwayError():
            return ApiError(503, text, code="engine_unavailable", retry_after_s=2)
        case QueueFullError():
            return ApiError(429, text, code="queue_full", retry_after_s=error.after_s or UNKNOWN_S)
        case DeadlineError():
            return ApiError(504, text, code="deadline_exceeded")
        case CapacityError():
            return ApiError(400, text, error.param, "context_length_exceeded")
        case RequestError():
            return ApiError(400, text, error.param, "invalid_value")
        case UnsupportedError():
            return ApiError(400, text, code="unsupported")
    return ApiError(500, text, code="engine_failed")
