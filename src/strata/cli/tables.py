"""A table for people: ruled on a terminal, columns of text where something else reads along."""

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

Rows = Sequence[Sequence[str]]


def show_table(title: str, heads: Sequence[str], rows: Rows, right: Collection[int] = ()) -> None:
    """Print a table to stdout; columns numbered in `right` stand at the right. Without heads none are shown."""
    out = Console(soft_wrap=True, highlight=False)
    show = _ruled if out.is_terminal else _plain
    show(out, title, heads, rows, right)


def _ruled(out: Console, title: str, heads: Sequence[str], rows: Rows, right: Collection[int]) -> None:
    table = Table(title=title, title_justify="left", title_style="bold", show_header=bool(heads))
    columns = heads or [""] * (len(rows[0]) if rows else 1)
    for place, head in enumerate(columns):
        table.add_column(head, justify="right" if place in right else "left", overflow="fold")
    for row in rows:
        # Text, not str: values with brackets are no markup
        table.add_row(*(Text(cell) for cell in row))
    out.print(table)


def _plain(out: Console, title: str, heads: Sequence[str], rows: Rows, right: Collection[int]) -> None:
    lines = [*([heads] if heads else []), *rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    out.print(Text(title))
    for line in lines:
        cells = (
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        out.print(Text("  " + "  ".join(cells).rstrip()))
    out.print()
