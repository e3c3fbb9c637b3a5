"""A plot of a few panels as SVG text, without any library."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, GAP, LEFT, TOP, BOTTOM = 250, 150, 70, 56, 34, 44
COST, SHARE = "#1f5fa8", "#c4621a"


@dataclass(frozen=True, slots=True)
class Panel:
    """Milliseconds (left axis, from 0) and shares of the memory's rate (right axis, 0 to 100%) at a few sizes."""

    title: str
    at: Sequence[float]
    milliseconds: Sequence[float]
    shares: Sequence[float]


def svg(panels: Sequence[Panel], caption: str) -> str:
    """All panels in one row."""
    each = WIDTH + LEFT + GAP
    width, height = each * len(panels), HEIGHT + TOP + BOTTOM + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for index, panel in enumerate(panels):
        parts += draw(panel, index * each + LEFT)
    parts.append(text(LEFT, height - 8, caption, "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def draw(panel: Panel, left: float) -> list[str]:
    """One panel with its left edge at `left`; sizes are evenly spaced, as they double."""
    top, bottom = TOP, TOP + HEIGHT
    most = rounded_up(max(panel.milliseconds))
    x = [left + WIDTH * (i + 0.5) / len(panel.at) for i in range(len(panel.at))]
    cost = [bottom - HEIGHT * value / most for value in panel.milliseconds]
    share = [bottom - HEIGHT * min(1.0, value) for value in panel.shares]
    parts = [
        f'<rect x="{left:.0f}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999999"/>',
        text(left + WIDTH / 2, top - 12, panel.title, "middle", bold=True),
    ]
    for part in (0, 0.25, 0.5, 0.75, 1):
        y = bottom - HEIGHT * part
        if 0 < part < 1:
            parts.append(f'<path d="M{left:.0f} {y:.1f}h{WIDTH}" stroke="#e4e4e4"/>')
        parts.append(text(left - 5, y + 4, f"{most * part:g}", "end", COST))
        parts.append(text(left + WIDTH + 5, y + 4, f"{part:.0%}", "start", SHARE))
    for value, place in zip(panel.at, x, strict=True):
        parts.append(text(place, bottom + 15, f"{value:g}", "middle"))
    parts += curve(x, share, SHARE, dashed=True)
    parts += curve(x, cost, COST)
    return parts


def curve(x: Sequence[float], y: Sequence[float], colour: str, dashed: bool = False) -> list[str]:
    """A line with a dot at every point."""
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    dots = [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in zip(x, y, strict=True)]
    return [f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>', *dots]


def text(x: float, y: float, words: str, anchor: str, colour: str = "#222222", bold: bool = False) -> str:
    """One line of text."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(words)}</text>'


def rounded_up(value: float) -> float:
    """The next of 1, 2, 4 or 8 times a power of ten."""
    scale = 1.0
    while scale * 10 < value:
        scale *= 10
    while scale > value:
        scale /= 10
    return next(scale * step for step in (1, 2, 4, 8, 10) if scale * step >= value)
