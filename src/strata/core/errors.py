"""The error tree.

StrataError                 what happened, with the values; an optional hint for the next step
  UsageError                a command line or setting that cannot be honoured (exit code 2)
  CheckpointError           a model file that cannot be read
  UnsupportedError          understood, but not built (or a convention that cannot be known)
  RequestError              a request that cannot be honoured; names the field
  CapacityError             does not fit; carries both numbers in its text
  EngineError               the engine failed or is gone
"""


class StrataError(Exception):
    """Base of every error a user can see: one sentence, and one hint on how to go on."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class UsageError(StrataError):
    """A command line or setting that cannot be honoured."""

    exit_code = 2


class CheckpointError(StrataError):
    """A model file is damaged, incomplete or inconsistent; names file, tensor or key."""


class UnsupportedError(StrataError):
    """Understood, but not built, or a convention that the file does not settle (fail closed)."""


class RequestError(StrataError):
    """A request that cannot be honoured; `param` is the field's name."""

    def __init__(self, message: str, param: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.param = param


class CapacityError(RequestError):
    """A request that can never fit; the text carries what was asked and what there is."""


class EngineError(StrataError):
    """The engine failed, or is gone."""
