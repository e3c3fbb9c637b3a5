"""docs/reference/errors.md: exit codes, HTTP statuses, codes."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import strata.core.errors
import strata.server
from references.cli import EXITS
from references.tables import code, page, table
from strata.engine.commands import CODES
from strata.engine.events import Reason
from strata.server.errors import ANTHROPIC_PATH, ApiError

INTRODUCTION = """
An error says what happened, with what was expected and what was found, and where there is a next step a hint. On a
command line it is two lines on stderr, `error:` and `hint:`, without a traceback.
"""

FORMS = """
    {"error": {"message": "...", "type": "invalid_request_error", "param": "top_p", "code": "invalid_value"}}

`param` is the field that cannot be honoured, `code` what is wrong with it. Paths below `/v1/messages` answer in
Anthropic's form, with both beside it:

    {"type": "error", "error": {"type": "invalid_request_error", "message": "...", "param": "top_p", ...}}

429 and 503 have `Retry-After`. An error after a stream has begun is its last event, in the dialect's own form; the
status was sent before.
"""

MEANINGS = {
    400: "What is asked for cannot be honoured; the same request will fail again.",
    401: "The key is missing or wrong.",
    403: "The request comes by a name or from an origin that is not allowed.",
    404: "No such path, or no such model.",
    405: "The path takes another method.",
    409: "It contradicts what goes on.",
    413: "The body is larger than `--body-mib`.",
    415: "The body is not JSON.",
    429: "As many requests wait as may (`--queue-limit`); `Retry-After` says when to come again.",
    500: "An error in the server or the engine; the log has more.",
    501: "It is not built.",
    503: "The engine is loading, restarting or gone, or the server ends; `Retry-After` says when to come again.",
    504: "The request's deadline passed before its first token.",
}


def errors() -> str:
    """The page."""
    tree = inspect.cleandoc(strata.core.errors.__doc__ or "").partition("\n\n")[2]
    indented = "\n".join(f"    {line}".rstrip() for line in tree.splitlines())
    return page(
        "Errors",
        INTRODUCTION,
        "## On a command line",
        table(("exit code", "when"), EXITS),
        "In Python they are one tree (`strata.core.errors`):",
        indented,
        "## Over HTTP",
        FORMS,
        table(("status", "type", "Anthropic's type", "codes", "when"), _statuses()),
        "## Of the engine",
        "In `ERR` and `DONE ... code=` lines of the [line protocol](engine-protocol.md).",
        table(("code", "when"), [(code(name), f"{text[0].upper()}{text[1:]}.") for name, text in CODES.items()]),
        "## How answers end",
        table(("reason", "when"), _reasons()),
    )


def _statuses() -> Iterator[tuple[str, ...]]:
    found = raised(Path(inspect.getfile(strata.server)).parent)
    for status, codes in sorted(found.items()):
        error = ApiError(status, "")
        kind, anthropic = error.body()["error"]["type"], error.anthropic_body()["error"]["type"]
        yield str(status), code(kind), code(anthropic), ", ".join(map(code, sorted(codes))), MEANINGS[status]


def raised(folder: Path) -> dict[int, set[str]]:
    """Codes by status, of every ApiError that is made in `folder`."""
    found: dict[int, set[str]] = {}
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ApiError"):
                continue
            if not (node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, int)):
                continue
            named = [word.value for word in node.keywords if word.arg == "code"] + node.args[3:4]
            codes = {str(value.value) for value in named if isinstance(value, ast.Constant) and value.value}
            found.setdefault(node.args[0].value, set()).update(codes)
    return found


def _reasons() -> list[tuple[str, str]]:
    """The members of Reason with the line below each."""
    source = inspect.getsource(Reason)
    pairs = re.findall(r'= "(\w+)"\n\s+"""(.+?)"""', source, re.DOTALL)
    return [(code(name), " ".join(text.split())) for name, text in pairs]


assert ANTHROPIC_PATH in FORMS
