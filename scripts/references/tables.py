"""Markdown that every page is made of."""

from collections.abc import Iterable, Sequence

NOTICE = "<!-- Written by scripts/reference from the code; do not edit. -->"


def page(title: str, *parts: str) -> str:
    """A whole page."""
    return "\n\n".join([f"# {title}", NOTICE, *(part.strip("\n") for part in parts if part)]) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells may hold anything but line breaks."""
    lines = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str) -> str:
    """A word as it is typed."""
    return f"`{text}`"


def flowing(text: str) -> str:
    """Paragraphs of a docstring, each in one line."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))
