"""`strata bench ab --draft A,B`: what drafts gain on texts of several kinds."""

import dataclasses
import json
from collections.abc import Mapping, Sequence

from strata.assemble import Loaded, load
from strata.chat.tokenizer import load_tokenizer
from strata.checks.draft_rates import DraftRates, Workload
from strata.checks.draft_works import asked, edit, random_text, rehearsed
from strata.checks.facts import facts
from strata.cli.flags import Given
from strata.cli.output import make_log, note, say
from strata.core.errors import CheckpointError, UnsupportedError, UsageError
from strata.plan.wishes import Wishes

CONTEXT, TOKENS = 2048, 96
"""Tokens of a conversation, and of every answer."""
NAMES = ("rehearsed", "random", "edit", "story", "json")
"""Of the workloads; the last three need the model's tokenizer."""


def drafts_ab(
    environ: Mapping[str, str],
    model: str | None,
    draft: str,
    slots: int,
    rounds: int,
    names: Sequence[str],
    both: Sequence[str],
    json_: bool,
) -> None:
    """The named workloads through both settings in turn: one line each, or one JSON object of all."""
    for name in names:
        if name not in NAMES:
            raise UsageError(f"--workload {name}: unknown", hint=f"one of {', '.join(NAMES)}")
    flags = {"draft": "auto", "parallel": str(slots), "ctx_size": str(CONTEXT), **pairs(both)}
    wishes = Given(environ, flags, {}).resolve(Wishes)
    loaded = load(model, wishes, make_log(dataclasses.replace(wishes, log_level="warning")))
    rates = DraftRates(loaded, draft.split(","), slots, rounds)
    found = []
    for work in workloads(names, loaded, slots):
        note(f"{work.name} ...")
        found.append(rates.compare(work))
        if not json_:
            say(line(found[-1]) + "\n")
    if json_:
        about = facts(loaded) | {"slots": slots, "rounds": rounds, "workloads": found}
        say(json.dumps({"bench": "ab", "draft": draft, **about}) + "\n")


def pairs(both: Sequence[str]) -> dict[str, str]:
    """`--name value` words as settings."""
    if len(both) % 2 or any(not name.startswith("--") for name in both[::2]):
        raise UsageError(f"--both {' '.join(both)}: expected pairs of a flag and its value")
    names = [name.removeprefix("--").replace("-", "_") for name in both[::2]]
    return dict(zip(names, both[1::2], strict=True))


def workloads(names: Sequence[str], loaded: Loaded, slots: int) -> list[Workload]:
    """The named ones, in their order; of all of them those that the model can read."""
    vocabulary, found = loaded.model.shape.vocabulary, []
    texts = [name for name in names if name not in ("rehearsed", "random")]
    try:
        tokenizer = load_tokenizer(loaded.checkpoint) if texts else None
    except (CheckpointError, UnsupportedError):
        if tuple(names) != NAMES:
            raise
        tokenizer = None
    for name in names:
        if name == "rehearsed":
            found.append(rehearsed(vocabulary, slots, TOKENS))
        elif name == "random":
            found.append(random_text(vocabulary, slots, TOKENS))
        elif tokenizer is not None:
            found.append(edit(tokenizer, slots) if name == "edit" else asked(tokenizer, name, slots, TOKENS))
    return found


def line(found: Mapping[str, object]) -> str:
    """One workload for people."""
    sides, between = found["sides"], found["ratio_95"]
    assert isinstance(sides, list) and isinstance(between, list)
    said = ", ".join(f"{s['draft']} {s['tokens_per_second']} tok/s ({s['tokens_per_step']} a step)" for s in sides)
    return f"{found['workload']}: {said}; ratio {found['ratio']} ({between[0]} to {between[1]} at 95%)"
