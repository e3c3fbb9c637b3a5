"""Whether drafts are made, and how many. Pure."""

from dataclasses import dataclass

from strata.core.errors import UsageError
from strata.plan.plan import Choice

MOST_DRAFTS = 16
"""Drafts of a window."""


@dataclass(frozen=True, slots=True)
class DraftChoice:
    """What `--draft` was resolved to."""

    drafts: bool
    depth: int | None
    """Drafts of every slot and step; None: as many as pay."""
    choice: Choice


def choose_draft(asked: str, device: str, traced: bool) -> DraftChoice:
    """`asked` is auto, off or a number; with `traced` routing comes from a file, which knows the trunk's layers only.

    UsageError for anything else, and for drafts beside such a file.
    """
    if asked == "off":
        return DraftChoice(False, None, Choice("draft", "off", "as asked"))
    if asked == "auto":
        if traced:
            return DraftChoice(
                False, None, Choice("draft", "off", "routing comes from a file, drafts would not follow")
            )
        if device != "cpu":
            return DraftChoice(
                False, None, Choice("draft", "off", "default on a GPU, where drafts were not measured yet")
            )
        return DraftChoice(True, None, Choice("draft", "auto", "as many for each slot and step as pay"))
    if not asked.isdecimal() or not 1 <= int(asked) <= MOST_DRAFTS:
        raise UsageError(f"--draft {asked}: expected auto, off or a number from 1 to {MOST_DRAFTS}")
    if traced:
        raise UsageError(f"--draft {asked}: not beside --routing-trace, which knows no drafting head", "leave one out")
    return DraftChoice(True, int(asked), Choice("draft", int(asked), "as asked, whether or not they pay"))
