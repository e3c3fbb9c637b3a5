"""Writes the figures of docs/performance.md and its plot from benchmarks/results, so that none is typed by hand.

    PYTHONPATH=src python benchmarks/report.py [--check]

Reads peers.jsonl (compare_peers.py), server.jsonl (server_cost.py), slots.jsonl (strata bench decode --slots 1
--slots 4 --json), kernels.jsonl
(strata bench kernels --json), crowds.jsonl (strata bench join, turns, serve and soak, --json) and sweep.jsonl
(sweep.py); replaces what stands between `<!-- figures: NAME -->` and
`<!-- end -->` in the page. --check writes nothing and exits 1 when the page or the plot differ from what the results
give.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from compare_peers import read_lines, table
from crowds import crowds_section
from peers import ROOT
from plot import Panel, svg

Line = dict[str, Any]
RESULTS = ROOT / "benchmarks" / "results"
PAGE, PLOT = ROOT / "docs" / "performance.md", ROOT / "docs" / "performance.svg"
PANELS = ("context", "layers", "experts per token", "rows")
NONE = "Not measured yet.\n"


def origin(lines: Iterable[Line]) -> str:
    """Machine, threads and commits that the lines name."""
    machines = dict.fromkeys(f"{x['machine']['cpu']}, {x['machine']['threads']} threads" for x in lines)
    commits = dict.fromkeys(x["commit"] for x in lines if x["commit"])
    return f"{'; '.join(machines)}; commit {', '.join(commits) or 'unknown'}.\n"


def peers_section(lines: Sequence[Line]) -> str:
    """Ours beside the peers."""
    if not lines:
        return NONE
    counted = [x for x in lines if not x["disturbed"]]
    return f"{origin(counted)}\n{table(lines)}"


def slots_section(lines: Sequence[Line]) -> str:
    """What several slots reach of what their bytes allow; of every model and number of slots the last line."""
    if not lines:
        return NONE
    parts = [
        origin(lines),
        "| model | slots | tok/s | distinct experts per step | MB per step | of what the bytes allow |",
    ]
    parts.append("|---|---|---|---|---|---|")
    for x in {(x["model"], x["context"], x["slots"]): x for x in lines}.values():
        rate = x["tokens_per_second"]
        share = "-" if x["share_of_bytes"] is None else f"{x['share_of_bytes']:.0%}"
        parts.append(
            f"| {Path(x['model']).stem} | {x['slots']}"
            f" | {rate['median']:.1f} ({rate['min']:.1f} to {rate['max']:.1f}) |"
            f" {x['distinct_experts_per_step']:.1f} | {x['bytes_per_step'] / 1e6:.0f} | {share} |"
        )
    return "\n".join(parts) + "\n"


def kernels_section(lines: Sequence[Line]) -> str:
    """Products: formats by rows; the other kernels one per line."""
    if not lines:
        return NONE
    (read,) = {round(x["gb_per_second"], 1) for x in lines if x["kernel"] == "read"} or {None}
    products = [x for x in lines if x["kernel"] == "linear"]
    rows = sorted({x["rows"] for x in products})
    parts = [f"{origin(lines)[:-2]}; a plain read gives {read} GB/s.\n"]
    if products:
        head = " | ".join(f"{n} row{'s' if n > 1 else ''}" for n in rows)
        parts.append(f"| product | {head} |\n|---|{'---|' * len(rows)}")
        for shape in dict.fromkeys(x["shape"] for x in products):
            found = {x["rows"]: x for x in products if x["shape"] == shape}
            cells = [product_cell(found[n]) if n in found else "-" for n in rows]
            parts.append(f"| {shape} | {' | '.join(cells)} |")
        parts.append("")
    others = [x for x in lines if x["kernel"] not in ("read", "linear")]
    if others:
        parts.append("| kernel | on | rows | ms | GB/s | of the read |\n|---|---|---|---|---|---|")
        parts += [
            f"| {x['kernel']} | {x['shape']} | {x['rows']} | {x['milliseconds']['median']:.3f} |"
            f" {x['gb_per_second']:.1f} | {x['share_of_read']:.0%} |"
            for x in others
        ]
    return "\n".join(parts).rstrip("\n") + "\n"


def server_section(lines: Sequence[Line]) -> str:
    """What the server costs beside its engine; of every engine and dialect the last line."""
    if not lines:
        return NONE
    commits = ", ".join(dict.fromkeys(x["commit"] for x in lines))
    parts = [
        f"{lines[0]['machine']['cpu']}; commit {commits}.\n",
        "| engine | dialect | streams | tok/s of all | ms of processor time per token | added to the first token, ms |",
        "|---|---|---|---|---|---|",
    ]
    for x in {(x["engine"], x["dialect"]): x for x in lines}.values():
        cost, first = (
            f"{x[name]['median']:.{digits}f} ({x[name]['min']:.{digits}f} to {x[name]['max']:.{digits}f})"
            for name, digits in (("ms_per_token", 2), ("ttft_added_ms", 1))
        )
        rate = x["tokens_per_second"]["median"]
        parts.append(f"| {x['engine']} | {x['dialect']} | {x['streams']} | {rate:.0f} | {cost} | {first} |")
    return "\n".join(parts) + "\n"


def product_cell(line: Line) -> str:
    """GB/s and GMAC/s of one product."""
    return f"{line['gb_per_second']:.1f} GB/s, {line['gmac_per_second']:.0f} GMAC/s"


def panels_of(lines: Sequence[Line]) -> list[Panel]:
    """A panel for each curve that was measured."""
    found = []
    for name in PANELS:
        points = sorted((x for x in lines if x["sweep"] == name), key=lambda x: int(x["at"]))
        if points:
            cost = [1e3 * x["rows_per_step"] / x["tokens_per_second"]["median"] for x in points]
            shares = [x["gb_per_second"] / x["read_gb_per_second"] for x in points]
            found.append(Panel(name, [x["at"] for x in points], cost, shares))
    return found


def sweep_section(lines: Sequence[Line]) -> str:
    """The curves as numbers."""
    if not lines:
        return NONE
    parts = [origin(lines), "| over | at | ms per step | MB per step | GB/s | of the read |\n|---|---|---|---|---|---|"]
    for name in PANELS:
        for x in sorted((x for x in lines if x["sweep"] == name), key=lambda x: int(x["at"])):
            moved = (x["bytes_per_step"] + x["state_bytes_per_step"]) / 1e6
            step = 1e3 * x["rows_per_step"] / x["tokens_per_second"]["median"]
            share = x["gb_per_second"] / x["read_gb_per_second"]
            parts.append(f"| {name} | {x['at']} | {step:.2f} | {moved:.0f} | {x['gb_per_second']:.1f} | {share:.0%} |")
    return "\n".join(parts) + "\n"


def filled(page: str, sections: dict[str, str]) -> str:
    """The page with every section's figures; ValueError when it has no place for one."""
    for name, text in sections.items():
        place = re.compile(rf"(<!-- figures: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        page, count = place.subn(rf"\g<1>{text.replace(chr(92), chr(92) * 2)}\g<2>", page)
        if count != 1:
            raise ValueError(f"the page has {count} places for the figures of {name}")
    return page


def written(page: str, results: Path) -> tuple[str, str]:
    """(page, plot) of the results."""
    names = ("peers", "slots", "kernels", "crowds", "sweep", "server")
    lines = {name: read_lines(results / f"{name}.jsonl") for name in names}
    sections = {
        "peers": peers_section(lines["peers"]),
        "slots": slots_section(lines["slots"]),
        "kernels": kernels_section(lines["kernels"]),
        "crowds": crowds_section(lines["crowds"], origin, NONE),
        "sweep": sweep_section(lines["sweep"]),
        "server": server_section(lines["server"]),
    }
    caption = "solid: milliseconds per decode step; dashed: weights and state moved, by what a plain read gives"
    return filled(page, sections), svg(panels_of(lines["sweep"]), caption)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    page, plot = written(PAGE.read_text(), RESULTS)
    if options.check:
        stale = [p.name for p, new in ((PAGE, page), (PLOT, plot)) if not p.is_file() or p.read_text() != new]
        sys.stderr.write(f"stale: {', '.join(stale)}; run benchmarks/report.py\n" if stale else "")
        return 1 if stale else 0
    PAGE.write_text(page)
    PLOT.write_text(plot)
    sys.stdout.write(json.dumps({"page": str(PAGE), "plot": str(PLOT)}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
