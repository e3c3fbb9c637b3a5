"""`strata launch`: a coding agent with its environment set for a server that runs here."""

import json
import os
import shlex
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from strata.cli.output import note
from strata.core.errors import StrataError, UsageError

TIMEOUT_S = 5.0
NO_KEY = "none"
"""Agents insist on a key; a server without one takes any."""


@dataclass(frozen=True, slots=True)
class Start:
    """How an agent is started."""

    program: str
    arguments: tuple[str, ...]
    environ: Mapping[str, str]


def claude(url: str, model: str, key: str) -> Start:
    """Claude Code speaks /v1/messages; every size of model it asks for is the one that is served."""
    names = ("ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL")
    models = dict.fromkeys((*names, "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"), model)
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    return Start("claude", (), {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": key, **models, **quiet})


def codex(url: str, model: str, key: str) -> Start:
    """Codex speaks /v1/responses to a provider of its configuration, given on its command line."""
    provider = {"name": "Strata", "base_url": f"{url}/v1", "env_key": "STRATA_KEY", "wire_api": "responses"}
    settings = {"model": model, "model_provider": "strata"}
    settings |= {f"model_providers.strata.{name}": value for name, value in provider.items()}
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={json.dumps(value)}")]
    return Start("codex", tuple(words), {"STRATA_KEY": key})


def opencode(url: str, model: str, key: str) -> Start:
    """OpenCode speaks /v1/chat/completions; its configuration travels in a variable."""
    options = {"baseURL": f"{url}/v1", "apiKey": key}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Strata",
        "options": options,
        "models": {model: {"name": model}},
    }
    settings = {"provider": {"strata": provider}, "model": f"strata/{model}", "small_model": f"strata/{model}"}
    return Start("opencode", (), {"OPENCODE_CONFIG_CONTENT": json.dumps(settings)})


AGENTS: Mapping[str, Callable[[str, str, str], Start]] = {"claude": claude, "codex": codex, "opencode": opencode}


def launch(
    context: typer.Context,
    agent: Annotated[str, typer.Argument(metavar="|".join(AGENTS), help="The agent, which has to be installed here.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Passed on to the agent, after --.")] = None,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="Where the server is.")] = "http://127.0.0.1:8080",
    api_key: Annotated[
        str | None, typer.Option("--api-key", metavar="KEY", help="The server's key, if it has one.")
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="Show what would be started, and start nothing.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="The same as one JSON object; nothing is started.")] = False,
) -> None:
    """Start a coding agent on the model that a running `strata serve` offers."""
    if agent not in AGENTS:
        raise UsageError(f"unknown agent {agent!r:.40}", hint=f"one of {', '.join(AGENTS)}")
    environ: Mapping[str, str] = context.obj
    key = api_key or environ.get("STRATA_API_KEY") or NO_KEY
    base = url.rstrip("/").removesuffix("/v1")
    start = AGENTS[agent](base, served_model(base, key), key)
    command = [start.program, *start.arguments, *(arguments or [])]
    if json_:
        sys.stdout.write(json.dumps({"command": command, "environment": dict(start.environ)}) + "\n")
        return
    if show:
        words = [f"{name}={shlex.quote(value)}" for name, value in start.environ.items()]
        sys.stdout.write(" ".join([*words, shlex.join(command)]) + "\n")
        return
    program = shutil.which(start.program, path=environ.get("PATH"))
    if program is None:
        raise UsageError(f"{start.program} is not installed here", hint="install it, or see what it needs with --print")
    note(f"starting {start.program} on {base}")
    os.execve(program, command, {**environ, **start.environ})


def served_model(url: str, key: str) -> str:
    """The name of the model that the server has loaded, or loads first; StrataError when it cannot be asked."""
    asked = urllib.request.Request(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
            models = json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        hint = "give its key with --api-key" if error.code == 401 else None
        raise StrataError(f"{url}: the server answered with status {error.code}", hint) from error
    except (OSError, ValueError, KeyError) as error:
        raise StrataError(
            f"{url}: expected a server, found none: {str(error)[:120]}", "start one with strata serve"
        ) from error
    loaded = [model for model in models if model.get("status", {}).get("value") == "loaded"]
    return str((loaded or models)[0]["id"])
