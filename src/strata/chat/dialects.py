"""The literal table of tool-call dialects."""

from strata.chat.calls import ToolDialect
from strata.chat.tools import qwen_json, qwen_xml

DIALECTS = (qwen_xml.DIALECT, qwen_json.DIALECT)
"""In the order in which their marks are looked for."""


def dialect_of(source: str) -> ToolDialect | None:
    """The dialect that a chat template teaches; None when it teaches none of these."""
    return next((each for each in DIALECTS if each.mark in source and each.opener in source), None)
