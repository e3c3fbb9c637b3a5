"""How often drafts are right and how many tokens a step brings: counts, which nothing that runs beside them changes.

    python benchmarks/acceptance.py answers [MODEL] --draft 1 --draft 3 --draft-vocab full --draft-vocab auto
    python benchmarks/acceptance.py edit [MODEL] --draft 3 --draft 8
    python benchmarks/acceptance.py repeat MODEL --draft 8
    python benchmarks/acceptance.py answers --draft auto --rounds 8

`answers`: greedy ones to prompts that training/demo/prompts.py draws, by the model's head and by lookup. `edit`: a
file with some names changed, said in the place of the model's answers, by lookup alone. `repeat`: the model goes on,
greedy, behind that file twice over, by lookup alone. Prints a JSON line for each setting. With `--draft N` the counts
are the same on every machine; those of `auto` follow what steps take. With `--rounds` time is measured instead, `off`
and the setting in turns as `strata bench ab --draft` has it: for a machine on which nothing else runs.
"""

import argparse
import json
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from strata.assemble import Loaded, load
from strata.chat.tokenizer import Tokenizer, load_tokenizer
from strata.checks.crowd import Crowd, Part
from strata.checks.draft_rates import DraftRates, Workload
from strata.checks.draft_works import CODE, edit
from strata.checks.engines import running, said
from strata.checks.facts import facts
from strata.core.log import Level, Log
from strata.plan.wishes import Wishes
from strata.runtime.drafts import Drafting

DEMO = Path(__file__).resolve().parents[1] / "training" / "demo"
CONTEXT = 2048
MOST = 256
"""Tokens of an answer, at most."""


def answers(tokenizer: Tokenizer, count: int, seed: int) -> Workload:
    """Questions of the kind that the demo model was trained for, in the form of ChatML."""
    words = json.loads((DEMO / "words.json").read_text())["words"]
    drawn = runpy.run_path(str(DEMO / "prompts.py"))["make"](count, words, seed=seed)
    return chats(tokenizer, [prompt for _, prompt in drawn])


def repeat(tokenizer: Tokenizer, count: int, _seed: int) -> Workload:
    """A file twice over: models that copy say it a third time. A little differently marked for each request."""
    texts = (f"# version {i}\n{CODE}\n# again\n{CODE}\n# again\n" for i in range(count))
    return Workload("repeat", [tokenizer.encode(text) for text in texts], MOST, stop_ids=stops(tokenizer))


def chats(tokenizer: Tokenizer, texts: Sequence[str]) -> Workload:
    """Each text as the only one of a conversation, to be answered until the answer ends."""
    forms = (f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in texts)
    return Workload("answers", [tokenizer.encode(form) for form in forms], MOST, stop_ids=stops(tokenizer))


def stops(tokenizer: Tokenizer) -> tuple[int, ...]:
    """What ends an answer."""
    return tuple(sorted(tokenizer.stop_ids))


WORKS = {"answers": answers, "edit": lambda tokenizer, count, _: edit(tokenizer, count), "repeat": repeat}


def counted(loaded: Loaded, work: Workload, draft: str, slots: int) -> dict[str, object]:
    """One run: tokens, steps and drafts by depth, in all and of each drafter."""
    rates = DraftRates(loaded, (draft, draft), slots, 1)
    runner = rates.runner(draft, work, ())
    with running(runner) as engine:
        found = Crowd(engine, [Part(request) for request in rates.requests(work, "a")]).run()
        depths = engine.status()["drafts_by_depth"]
    assert isinstance(depths, Mapping)
    drafters = {} if runner.drafts.chooser is None else runner.drafts.chooser.counts
    ended = [answer.finished for answer in found.values() if answer.finished is not None]
    steps = sum(end.steps + 1 for end in ended)
    return {
        "draft": draft,
        "tokens": said(found),
        "tokens_per_step": round(said(found) / steps, 3),
        **depths,
        "right": right(depths["offered"], depths["accepted"]),
        "drafters": {name: counts.values() for name, counts in drafters.items()},
    }


def right(offered: Mapping[str, int], accepted: Mapping[str, int]) -> list[float]:
    """Share of drafts that were right, depth by depth: of the windows whose drafts before it were."""
    reached = [offered.get("1", 0), *(accepted.get(depth, 0) for depth in offered)]
    return [round(accepted.get(depth, 0) / most, 3) for depth, most in zip(offered, reached, strict=False) if most]


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("model", nargs="?", help="the demo model when left out")
    parser.add_argument("--draft", action="append", metavar="N|auto|off", help="one or more, in turn; 1 when left out")
    parser.add_argument("--draft-vocab", action="append", help="one or more; full when left out")
    parser.add_argument("--prompts", type=int, default=40, help="requests")
    parser.add_argument("--seed", type=int, default=12345, help="of the prompts of `answers`")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=0, help="rounds of `off` beside each setting, for their rates")
    asked = parser.parse_args()
    for vocabulary in asked.draft_vocab or ["full"]:
        wishes = Wishes(parallel=asked.slots, ctx_size=CONTEXT, draft_vocab=vocabulary)
        loaded = load(asked.model, wishes, Log(Level.WARNING))
        if asked.work != "answers":
            loaded = replace(loaded, drafting=Drafting())
        work = WORKS[asked.work](load_tokenizer(loaded.checkpoint), asked.prompts, asked.seed)
        about = {"bench": "acceptance", "work": work.name, "prompts": asked.prompts, "slots": asked.slots}
        if asked.work == "answers":
            about |= {"seed": asked.seed, "draft_vocab": vocabulary}
        named = {"model": loaded.checkpoint.path.name}
        for draft in asked.draft or ["1"]:
            if asked.rounds:
                found = DraftRates(loaded, ("off", draft), asked.slots, asked.rounds).compare(work)
                found["rounds"] = asked.rounds
            else:
                found = counted(loaded, work, draft, asked.slots)
            sys.stdout.write(json.dumps(about | found | facts(loaded) | named) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
