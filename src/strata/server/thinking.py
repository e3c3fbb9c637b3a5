"""Whether and how much a model is to think, said to its chat template."""

from collections.abc import Mapping
from typing import Any

from strata.chat.conversation import TemplateOptions
from strata.server.errors import ApiError
from strata.server.served import ServedModel

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def source_of(served: ServedModel) -> str:
    """The model's template; empty when it has none."""
    template = served.conversation.template
    return template.source if template is not None else ""


def by_effort(effort: str | None, field: str, source: str, extra: Mapping[str, Any]) -> TemplateOptions:
    """What the template (`source`) is told of an effort that was asked for in `field`, beside `extra`."""
    if effort is None:
        return TemplateOptions(extra=extra)
    if effort not in EFFORTS:
        raise ApiError(400, f"{field} must be one of {', '.join(EFFORTS)}, found {effort[:40]!r}", field)
    if "reasoning_effort" in source:
        return TemplateOptions(extra={**extra, "reasoning_effort": effort})
    if "enable_thinking" in source:
        return TemplateOptions(thinking=effort != "none", extra=extra)
    if effort == "none":
        return TemplateOptions(extra=extra)
    raise ApiError(400, "this model's chat template cannot turn reasoning on", field, "unsupported_parameter")


def switched(on: bool, field: str, source: str) -> TemplateOptions:
    """What the template is told to think or not to; 400 when it has no such switch."""
    if "enable_thinking" in source:
        return TemplateOptions(thinking=on)
    if not on:
        return TemplateOptions()
    raise ApiError(400, "this model's chat template cannot turn reasoning on", field, "unsupported_parameter")
