"""`strata bench serve` and `bench soak`: clients against a server, which is started for it or already there."""

import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from strata.checks.client import Client
from strata.checks.facts import origin
from strata.checks.loading import Load, load, mean
from strata.checks.serving import Server, memory, served
from strata.checks.soaked import Soaked, growth_words, steps_words
from strata.checks.soaking import Soak
from strata.cli.arguments import ModelArgument
from strata.cli.check import Json
from strata.cli.output import note, say
from strata.cli.progress import progress, telling

Url = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="A server that runs already; default: one is started.")
]
Key = Annotated[str | None, typer.Option("--api-key", metavar="KEY", help="What that server wants to see.")]
Flags = Annotated[str, typer.Option("--flags", metavar="FLAGS", help='Of the server that is started: "--parallel 8".')]


def serve(
    context: typer.Context,
    model: ModelArgument = None,
    url: Url = None,
    key: Key = None,
    clients: Annotated[int, typer.Option("--clients", min=1, max=256, help="Clients at once.")] = 4,
    requests: Annotated[int, typer.Option("--requests", min=1, help="Requests of each client.")] = 4,
    prompt: Annotated[int, typer.Option("--prompt", min=1, help="Prompt tokens, about; no two prompts alike.")] = 256,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Answer tokens at most.")] = 64,
    flags: Flags = "",
    json_: Json = False,
) -> None:
    """Time to first token, gaps between tokens, tokens of all clients per second, and how far steps were shared."""
    with asked(context, model, url, flags) as server:
        client = Client(server.url, key)
        with progress("bench serve") as said:
            found = load(client, clients, requests, prompt, tokens, telling(said, "answers"))
        facts = about(client, flags)
    settings = {"prompt": prompt, "answer": tokens, "requests_each": requests}
    say(result("serve", found, {"rate": found.rate, "asked": settings}, facts) if json_ else load_lines(found))
    if found.failed:
        note(f"bench serve: {found.failed} of {found.requests} requests failed, the first with {found.first_error}")
        raise typer.Exit(1)


def soak(
    context: typer.Context,
    model: ModelArgument = None,
    url: Url = None,
    key: Key = None,
    minutes: Annotated[float, typer.Option("--minutes", min=0.01, help="How long.")] = 10.0,
    clients: Annotated[int, typer.Option("--clients", min=1, max=256, help="Clients at once.")] = 16,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of what is asked when.")] = 0,
    flags: Flags = "",
    json_: Json = False,
) -> None:
    """Random load with clients that leave; exit 1 when something is lost, wrong, leaked, or memory grows."""
    with asked(context, model, url, flags) as server:
        client = Client(server.url, key)
        run = Soak(client, clients, 60 * minutes, seed, lambda: None if server.pid is None else memory(server.pid))
        with progress("bench soak") as said:
            found = run.run(said)
        facts = about(client, flags)
    more = {"growth": found.growth, "failure": found.failure, "seed": seed}
    say(result("soak", found, more, facts) if json_ else soak_lines(found))
    if found.failure:
        note(f"bench soak: {found.failure}")
        raise typer.Exit(1)


@contextmanager
def asked(context: typer.Context, model: str | None, url: str | None, flags: str) -> Iterator[Server]:
    """The server that was named, or one that is started for it."""
    if url is not None:
        yield Server(url)
        return
    note("starting the server ...")
    with served(model, shlex.split(flags), context.obj) as server:
        yield server


def about(client: Client, flags: str) -> dict[str, object]:
    """Machine, commit, model and settings; what the server does not tell is left out."""
    status: Any = client.get("/v1/status") or {}
    engine = status.get("engine") or {}
    settings = {name: choice["value"] for name, choice in (engine.get("plan") or {}).items()}
    facts = {"model": status.get("model"), **origin(settings.get("threads"), settings.get("isa"))}
    return {**facts, "settings": settings, "flags": flags, "slots": engine.get("slots")}


def result(bench: str, found: Load | Soaked, more: Mapping[str, object], facts: Mapping[str, object]) -> str:
    """One line of JSON with everything that was measured and set."""
    return json.dumps({"bench": bench, **dataclasses.asdict(found), **more, **facts}) + "\n"


def load_lines(found: Load) -> str:
    """Rates and times; the steps beside them."""
    streams = mean(found.streams_per_step)
    return (
        f"{found.clients} clients, {found.requests} requests: {found.rate:.1f} tok/s of all, first token"
        f" {found.first_token_s.words()}, gaps {found.gap_s.words()} (median / 95% / most);"
        f" {found.prompt_tokens} prompt tokens, {found.reused_tokens} of them held already, {found.tokens} answered\n"
        f"  {'?' if streams is None else f'{streams:.2f}'} streams per step on average;"
        f" steps by rows: {steps_words(found.rows_per_step)}\n"
    )


def soak_lines(found: Soaked) -> str:
    """Counts, times, memory."""
    leaked = ", ".join(f"{count} {name}" for name, count in found.leaked.items()) or "not told by the server"
    problems = "".join(f"  {problem}\n" for problem in found.problems)
    return (
        f"{found.clients} clients for {found.seconds:.0f} s: {found.asked} requests, {found.whole} answered whole,"
        f" {found.left} left early, {found.refused} refused, {found.lost} lost; {found.compared} answers compared,"
        f" {found.wrong} wrong ({found.rechecked} of them were new prompts asked again)\n"
        f"  still taken at the end: {leaked}\n  memory: {growth_words(found.memory)}\n"
        f"  {found.rate:.1f} tok/s of whole answers, first token {found.first_token_s.words()}, gaps"
        f" {found.gap_s.words()} (median / 95% / most)\n"
        f"  steps by rows: {steps_words(found.rows_per_step)}\n"
        f"  steps by streams: {steps_words(found.streams_per_step)}\n{problems}"
    )
