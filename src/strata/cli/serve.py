"""`strata serve`: the HTTP server, with the engine of the model that is loaded as a child process."""

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from strata.chat.conversation import load_conversation
from strata.chat.defaults import defaults_from, recommended
from strata.checkpoint.demo import DEMO_NAME
from strata.checkpoint.locate import open_checkpoint
from strata.cli.arguments import ModelsArgument
from strata.cli.flags import Given, to_flags, unknown_variables, with_settings
from strata.cli.output import make_log
from strata.core.errors import EngineError, UsageError
from strata.core.log import Log
from strata.hub.resolve import local_path, logged
from strata.plan.wishes import Wishes
from strata.server.app import create_app
from strata.server.catalog import Model
from strata.server.engine_child import Patience
from strata.server.engine_process import EngineProcess, RestartPolicy
from strata.server.listen import Listener, take_socket, url_of
from strata.server.models import Models, Terms
from strata.server.served import DEFAULT_NAME, ServedModel
from strata.server.settings import ServerSettings

SAVE_S = 30.0
"""For conversations to reach the disk, where --state-disk-gib gives them one, before an engine ends."""


@with_settings(Wishes, ServerSettings)
def serve(
    given: Given,
    models: ModelsArgument = None,
) -> None:
    """Serve models over HTTP: OpenAI's and Anthropic's APIs, and a page for a browser at /.

    Of several models one is loaded at a time, as requests ask for them.
    """
    wishes, settings = given.resolve(Wishes), given.resolve(ServerSettings)
    log = make_log(wishes)
    warn_of_unknown(given.environ, log)
    if settings.insecure and not settings.loopback and settings.api_key is None:
        log.warning("open server", host=settings.host, reason="anybody who reaches it may use it (--insecure)")
    asked: list[str | None] = [*models] if models else [None]
    names = names_of(settings, len(asked))
    if len(asked) > 1 and wishes.mtp is not None:
        raise UsageError("--mtp: one file of a drafting head cannot belong to several models", "serve that model alone")
    found = [described(model, name, wishes, log) for model, name in zip(asked, names, strict=True)]
    with take_socket(settings) as taken:
        terms = Terms(wishes.queue_limit, settings.idle_unload)
        served = Models(found, log, terms, {"url": url_of(taken)})
        interrupted = asyncio.run(_serve(served, settings, taken, log))
    if served.failure:
        raise EngineError(served.failure)
    if interrupted:
        raise KeyboardInterrupt


def names_of(settings: ServerSettings, count: int) -> Sequence[str | None]:
    """The name that --alias gives each model; UsageError when it names more or fewer."""
    if settings.alias is None:
        return [None] * count
    names = [name.strip() for name in settings.alias.split(",")]
    if len(names) != count or not all(names):
        raise UsageError(f"--alias: expected {count} names, found {settings.alias!r:.100}", "commas part them")
    return names


def described(asked: str | None, name: str | None, wishes: Wishes, log: Log) -> Model:
    """A model that can be loaded: its files are found (or downloaded), their headers read."""
    path = local_path(asked, logged(log))
    policy = RestartPolicy(
        # The engine's own watchdog, which knows more, goes first.
        patience=Patience(silence_s=1.1 * wishes.stall_s),
        save_s=SAVE_S if wishes.state_disk_gib else 0.0,
    )
    served = describe(asked, path, wishes, name, log)
    return Model(served, lambda: EngineProcess(engine_command(path, wishes), log, policy))


def engine_command(path: Path, wishes: Wishes) -> list[str]:
    """The child's command line."""
    return [sys.executable, "-m", "strata", "engine", *to_flags(wishes), "--", str(path)]


def warn_of_unknown(environ: Mapping[str, str], log: Log) -> None:
    """Say which STRATA_ variables set nothing."""
    for name in unknown_variables(environ):
        log.warning("environment variable ignored", name=name, reason="no setting has this name")


def describe(model: str | None, path: Path, wishes: Wishes, name: str | None, log: Log) -> ServedModel:
    """The model as clients see it, from its files' headers: by its file's name, what was asked for, or `name`."""
    with open_checkpoint(path) as checkpoint:
        conversation = load_conversation(checkpoint, log)
        defaults = defaults_from(wishes, recommended(checkpoint))
    file_name = DEMO_NAME if model is None else path.resolve().name.removesuffix(".gguf")
    aliases = frozenset({DEFAULT_NAME, file_name, model or DEMO_NAME})
    return ServedModel(
        name or file_name, conversation, defaults, int(time.time()), wishes.max_tokens, wishes.seed, aliases
    )


async def _serve(models: Models, settings: ServerSettings, taken: socket.socket, log: Log) -> bool:
    """Until a signal, or until no model can be loaded; True after an interrupt."""
    listener = Listener(create_app(models, settings, log), models, log, settings.drain_seconds)
    watcher = asyncio.create_task(models.failed())

    def leave(_: "asyncio.Task[None]") -> None:
        listener.should_exit = True

    watcher.add_done_callback(leave)
    await listener.serve([taken])
    watcher.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watcher
    return listener.interrupted
