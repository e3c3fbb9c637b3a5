r"""Patterns that say how a text ends (`\.css$`, `\.(html|htm)$`), by which two of them can be told apart."""

import re
from collections.abc import Iterator

_LITERAL = r"(?:[\w\-/@ ]|\\[.\-/])+"
_ENDING = re.compile(rf"(?P<tail>(?:{_LITERAL})?)(?:\((?:\?:)?(?P<group>{_LITERAL}(?:\|{_LITERAL})*)\))?\$\Z")


def endings(pattern: str) -> frozenset[str] | None:
    """How every text that fits ends; None where that cannot be read from the pattern."""
    found = set[str]()
    for branch in _branches(pattern):
        match = _ENDING.search(branch)
        if match is None or not match.group():
            return None
        # Letters behind a mark or a class may be part of it.
        before = branch[: match.start()]
        if before.endswith("\\") or before.count("[") > before.count("]") or before.count("(") > before.count(")"):
            return None
        tail, group = _plain(match.group("tail")), match.group("group")
        found |= {tail + _plain(part) for part in group.split("|")} if group else {tail}
    return frozenset(found) if found and "" not in found else None


def apart(one: str, other: str) -> bool:
    """Whether it is certain that no text fits both patterns."""
    first, second = endings(one), endings(other)
    if first is None or second is None:
        return False
    return not any(a.endswith(b) or b.endswith(a) for a in first for b in second)


def _branches(pattern: str) -> Iterator[str]:
    """The alternatives of a whole pattern."""
    depth, start, at = 0, 0, 0
    while at < len(pattern):
        letter = pattern[at]
        depth += (letter in "([") - (letter in ")]")
        if letter == "|" and depth == 0:
            yield pattern[start:at]
            start = at + 1
        at += 2 if letter == "\\" else 1
    yield pattern[start:]


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
