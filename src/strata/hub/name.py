"""`org/name[:QUANT]`: how a model on the hub is named. Pure."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from strata.core.errors import UsageError

Said = Callable[[str, int, int], None]
"""Hears of progress: (what is being done, bytes done, bytes in all)."""

_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+?)(:(?P<quant>[\w.-]+))?")
_FILES = (".gguf", ".safetensors", ".json")


@dataclass(frozen=True, slots=True)
class HubName:
    """A model on the hub."""

    repo: str
    """`org/name`."""
    quant: str = ""
    """Part of the file's name, such as Q4_K_M; empty: the only one, or the usual one."""

    def __str__(self) -> str:
        return f"{self.repo}:{self.quant}" if self.quant else self.repo


def hub_name(text: str) -> HubName | None:
    """The name that `text` is; None when it has another form, or names a file or folder that is there."""
    match = _NAME.fullmatch(text)
    if match is None or text.endswith(_FILES) or text.startswith(".") or Path(text).exists():
        return None
    return HubName(match["repo"], match["quant"] or "")


def expect_name(text: str) -> HubName:
    """The name that `text` is; UsageError when it is none."""
    name = hub_name(text)
    if name is None:
        found = "a file or folder of that name" if Path(text).exists() else repr(text)[:60]
        raise UsageError(f"expected a model on the hub as org/name or org/name:QUANT, found {found}")
    return name
