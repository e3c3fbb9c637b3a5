"""Errors as HTTP: status codes live here and nowhere else."""

from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse

from strata.core.errors import CapacityError, RequestError, StrataError, UnsupportedError
from strata.engine.request import DeadlineError, QueueFullError
from strata.server.engine_process import EngineAwayError


@dataclass
class ApiError(Exception):
    """An answer that is an error, in OpenAI's form."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    retry_after_s: int | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)

    def body(self) -> dict[str, Any]:
        """`{"error": ...}`."""
        kind = "invalid_request_error" if 400 <= self.status < 500 else "server_error"
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(self.status, kind)
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """The HTTP answer."""
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(self.body(), self.status, headers)


def as_api_error(error: StrataError) -> ApiError:
    """The HTTP form of one of the project's errors."""
    text = f"{error.message} ({error.hint})" if error.hint else error.message
    match error:
        case EngineAwayError():
            return ApiError(503, text, code="engine_unavailable", retry_after_s=2)
        case QueueFullError():
            return ApiError(429, text, code="queue_full", retry_after_s=2)
        case DeadlineError():
            return ApiError(504, text, code="deadline_exceeded")
        case CapacityError():
            return ApiError(400, text, error.param, "context_length_exceeded")
        case RequestError():
            return ApiError(400, text, error.param, "invalid_value")
        case UnsupportedError():
            return ApiError(400, text, code="unsupported")
    return ApiError(500, text, code="engine_failed")
