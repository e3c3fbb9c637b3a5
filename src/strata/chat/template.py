"""A model's chat template: messages to prompt text, bounded in time and size."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError

from strata.chat.sandbox import Refused, RenderLimits, TemplateEnvironment
from strata.checkpoint.checkpoint import Checkpoint
from strata.checkpoint.jsonfile import read_object
from strata.core.errors import CheckpointError, RequestError

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Used only for a model without a template whose vocabulary has ChatML's markers."""

_LARGEST_SOURCE = 1 << 20

# What a template's own code can raise besides jinja's errors.
_FAULTS = (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError)


class ChatTemplate:
    """A compiled template. Rendering is safe from several threads (one at a time)."""

    def __init__(
        self,
        source: str,
        origin: str,
        special: Mapping[str, str | None] | None = None,
        limits: RenderLimits | None = None,
    ) -> None:
        """Compile `source`; `origin` is named in errors; `special` are bos_token and the like for the template."""
        if len(source) > _LARGEST_SOURCE:
            raise CheckpointError(f"{origin}: a chat template of {len(source)} characters, at most {_LARGEST_SOURCE}")
        self.source = source
        self.origin = origin
        self.special = {name: text for name, text in (special or {}).items() if text is not None}
        self._lock = threading.Lock()
        self._environment = TemplateEnvironment(limits or RenderLimits())
        try:
            self._template = self._environment.from_string(source)
        except TemplateSyntaxError as error:
            raise CheckpointError(f"{origin}, line {error.lineno}: {error.message}") from error
        except (TemplateError, RecursionError, ValueError, SyntaxError) as error:
            raise CheckpointError(f"{origin}: cannot be compiled: {error}") from error

    def render(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool, options: Mapping[str, Any]
    ) -> str:
        """The prompt text; RequestError with the template's reason and line when it refuses or fails."""
        with self._lock:
            self._environment.meter = type(self._environment.meter)(self._environment.limits)
            try:
                return self._template.render(
                    self.special
                    | {"tools": None, "documents": None}
                    | dict(options)
                    | {"messages": messages, "add_generation_prompt": add_generation_prompt}
                )
            except Refused as error:
                raise RequestError(f"the chat template refuses: {error.message}", param="messages") from error
            except SecurityError as error:
                raise self._failure("not allowed", error) from error
            except _FAULTS as error:
                raise self._failure("failed", error) from error

    def _failure(self, what: str, error: Exception) -> RequestError:
        line = _line(error.__traceback__)
        where = f", line {line}" if line else ""
        return RequestError(f"{self.origin}{where}: {what}: {error}", param="messages")


def _line(trace: TracebackType | None) -> int | None:
    """The innermost line of the template in a traceback (jinja rewrites its frames to template lines)."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def template_source(checkpoint: Checkpoint) -> tuple[str, str] | None:
    """(source, origin) of the model's template, or None when it has none."""
    if checkpoint.kind == "gguf":
        if "tokenizer.chat_template" not in checkpoint.metadata:
            return None
        origin = f"{checkpoint.path.name}: tokenizer.chat_template"
        return checkpoint.metadata.string("tokenizer.chat_template"), origin
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    own_file = folder / "chat_template.jinja"
    if own_file.is_file():
        return own_file.read_text(encoding="utf-8"), str(own_file)
    source = _from_config(folder / "tokenizer_config.json")
    return (source, f"{folder / 'tokenizer_config.json'}: chat_template") if source is not None else None


def _from_config(file: Path) -> str | None:
    if not file.is_file():
        return None
    found = read_object(file).get("chat_template")
    if isinstance(found, list):
        named = {item.get("name"): item.get("template") for item in found if isinstance(item, dict)}
        found = named.get("default")
    if found is not None and not isinstance(found, str):
        raise CheckpointError(f"{file}: key chat_template: expected a string, found {type(found).__name__}")
    return found
