"""The section of docs/performance.md about several requests at once: bench join, turns, serve and soak."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def crowds_section(lines: Sequence[Line], origin: Callable[[Iterable[Line]], str], none: str) -> str:
    """Every kind of result that there is; `origin` names machine and commits, `none` says that there is nothing."""
    if not lines:
        return none
    parts = [origin(lines)]
    for bench, table in TABLES.items():
        found = [line for line in lines if line["bench"] == bench]
        parts += [*table(found), ""] if found else []
    return "\n".join(parts).rstrip("\n") + "\n"


def model_of(line: Line) -> str:
    """Its file's name."""
    return Path(line["model"]).stem


def grouped(lines: Iterable[Line], *keys: str) -> list[list[Line]]:
    """Lines of equal settings, in the order of their first ones."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(str([model_of(line), *(line[key] for key in keys)]), []).append(line)
    return list(found.values())


def between(values: Iterable[float], form: str) -> str:
    """Least and most."""
    line_up = sorted(values)
    least, most = (format(value, form) for value in (line_up[0], line_up[-1]))
    return least if least == most else f"{least} to {most}"


def join_table(lines: Sequence[Line]) -> list[str]:
    """Gaps of streams while prompts are read, and the prompts' times to first token."""
    parts = ["| model | streams | prompts that join | longest gap, ms | allowed | first token, s | alone, s |"]
    parts.append("|---|---|---|---|---|---|---|")
    for runs in grouped(lines, "streams", "prompts"):
        one = runs[0]
        firsts, alones = (
            ", ".join(between((run[key][i] for run in runs), ".2f") for i in range(len(one["prompts"])))
            for key in ("together_s", "alone_s")
        )
        gaps, bounds = (between((1e3 * run[key] for run in runs), ".0f") for key in ("longest_gap_s", "bound_s"))
        prompts = ", ".join(map(str, one["prompts"]))
        parts.append(f"| {model_of(one)} | {one['streams']} | {prompts} | {gaps} | {bounds} | {firsts} | {alones} |")
    return parts


def overtake_table(lines: Sequence[Line]) -> list[str]:
    """A question behind a long prompt."""
    parts = ["| model | question behind | slots | first token, ms | of the prompt's read |", "|---|---|---|---|---|"]
    for runs in grouped(lines, "long", "slots"):
        one = runs[0]
        first, share = (
            between((1e3 * run["first_s"] for run in runs), ".0f"),
            between((x["share"] for x in runs), ".1%"),
        )
        parts.append(f"| {model_of(one)} | {one['long']} tokens | {one['slots']} | {first} | {share} |")
    return parts


def turns_table(lines: Sequence[Line]) -> list[str]:
    """Next turns on a history that is held."""
    parts = ["| model | next turn | tokens | reused of what is common | first token, ms | of the cold one |"]
    parts.append("|---|---|---|---|---|---|")
    for runs in grouped(lines, "name", "prompt"):
        one = runs[0]
        kept, share = (between((run[key] for run in runs), ".1%") for key in ("kept", "share"))
        first = between((1e3 * run["first_s"] for run in runs), ".0f")
        parts.append(f"| {model_of(one)} | {one['name']} | {one['prompt']} | {kept} | {first} | {share} |")
    return parts


def serve_table(lines: Sequence[Line]) -> list[str]:
    """Clients against a server."""
    parts = ["| model | clients | slots | tok/s of all | streams per step | first token, ms | gap, ms | 95%, ms |"]
    parts.append("|---|---|---|---|---|---|---|---|")
    for runs in grouped(lines, "clients", "slots"):
        one = runs[0]
        rate = between((run["rate"] for run in runs), ".0f")
        streams = between(map(mean, runs), ".1f")
        first, gap, late = (
            between((1e3 * run[key][name] for run in runs), ".0f")
            for key, name in (("first_token_s", "p50"), ("gap_s", "p50"), ("gap_s", "p95"))
        )
        parts.append(
            f"| {one['model']} | {one['clients']} | {one['slots']['serving']} | {rate} | {streams} |"
            f" {first} | {gap} | {late} |"
        )
    return parts


def mean(line: Line) -> float:
    """Decoding streams of the steps in which any decoded."""
    steps = {int(n): count for n, count in line["streams_per_step"].items() if int(n)}
    return sum(n * count for n, count in steps.items()) / max(1, sum(steps.values()))


def soak_table(lines: Sequence[Line]) -> list[str]:
    """Random load: what was lost, wrong, left behind."""
    parts = [
        "| model | clients | minutes | requests | left early | compared | lost | wrong | leaked | MiB middle, end |"
    ]
    parts.append("|---|---|---|---|---|---|---|---|---|---|")
    for x in lines:
        leaked = sum(x["leaked"].values()) if x["leaked"] else "-"
        sizes = ", ".join(f"{x['memory'][when]['bytes'] >> 20}" for when in ("middle", "end"))
        parts.append(
            f"| {x['model']} | {x['clients']} | {x['seconds'] / 60:.0f} | {x['asked']} | {x['left']} |"
            f" {x['compared']} | {x['lost']} | {x['wrong']} | {leaked} | {sizes} |"
        )
    return parts


TABLES: dict[str, Callable[[Sequence[Line]], list[str]]] = {
    "join": join_table,
    "overtake": overtake_table,
    "turns": turns_table,
    "serve": serve_table,
    "soak": soak_table,
}
