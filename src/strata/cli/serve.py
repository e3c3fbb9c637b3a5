"""`strata serve`: the HTTP server, with the engine as a child process."""

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from strata.chat.conversation import load_conversation
from strata.chat.defaults import defaults_from, recommended
from strata.checkpoint.demo import DEMO_NAME
from strata.checkpoint.locate import open_checkpoint
from strata.cli.arguments import ModelArgument
from strata.cli.flags import Given, to_flags, unknown_variables, with_settings
from strata.cli.output import make_log
from strata.core.errors import EngineError
from strata.core.log import Log
from strata.hub.resolve import local_path, logged
from strata.plan.wishes import Wishes
from strata.server.app import create_app
from strata.server.engine_process import EngineProcess, RestartPolicy, State
from strata.server.listen import Listener, take_socket, url_of
from strata.server.served import ServedModel
from strata.server.settings import ServerSettings

PROGRESS_EVERY_S = 5.0


@with_settings(Wishes, ServerSettings)
def serve(
    given: Given,
    model: ModelArgument = None,
) -> None:
    """Serve a model over HTTP: OpenAI's and Anthropic's APIs, and a page for a browser at /."""
    wishes, settings = given.resolve(Wishes), given.resolve(ServerSettings)
    log = make_log(wishes)
    warn_of_unknown(given.environ, log)
    if settings.insecure and not settings.loopback and settings.api_key is None:
        log.warning("open server", host=settings.host, reason="anybody who reaches it may use it (--insecure)")
    path = local_path(model, logged(log))
    served = describe(model, path, wishes, settings, log)
    policy = RestartPolicy(silence_s=1.1 * wishes.stall_s)  # the engine's own watchdog, which knows more, goes first
    engine = EngineProcess(engine_command(path, wishes), log, policy)
    with take_socket(settings) as taken:
        interrupted = asyncio.run(_serve(served, engine, settings, taken, log))
    if engine.state is State.FAILED:
        raise EngineError(engine.reason)
    if interrupted:
        raise KeyboardInterrupt


def engine_command(path: Path, wishes: Wishes) -> list[str]:
    """The child's command line."""
    return [sys.executable, "-m", "strata", "engine", *to_flags(wishes), "--", str(path)]


def warn_of_unknown(environ: Mapping[str, str], log: Log) -> None:
    """Say which STRATA_ variables set nothing."""
    for name in unknown_variables(environ):
        log.warning("environment variable ignored", name=name, reason="no setting has this name")


def describe(model: str | None, path: Path, wishes: Wishes, settings: ServerSettings, log: Log) -> ServedModel:
    """The model as clients see it, from its files' headers."""
    with open_checkpoint(path) as checkpoint:
        conversation = load_conversation(checkpoint, log)
        defaults = defaults_from(wishes, recommended(checkpoint))
    file_name = DEMO_NAME if model is None else path.resolve().name.removesuffix(".gguf")
    name = settings.alias or file_name
    aliases = frozenset({"default", file_name})
    return ServedModel(name, conversation, defaults, int(time.time()), wishes.max_tokens, wishes.seed, aliases)


async def _serve(
    served: ServedModel, engine: EngineProcess, settings: ServerSettings, taken: socket.socket, log: Log
) -> bool:
    """Until a signal, or until the engine is beyond help; True after an interrupt."""
    listener = Listener(create_app(served, engine, settings), engine)
    watcher = asyncio.create_task(_watch(served, engine, url_of(taken), log))

    def leave(_: "asyncio.Task[None]") -> None:
        listener.should_exit = True

    watcher.add_done_callback(leave)
    await listener.serve([taken])
    watcher.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watcher
    return listener.interrupted


async def _watch(served: ServedModel, engine: EngineProcess, url: str, log: Log) -> None:
    """Say how the engine is doing, until it is beyond help or stopped."""
    began_s = time.monotonic()
    log.info("loading", model=served.name, url=url)
    while True:
        waiting = asyncio.ensure_future(engine.wait_for(State.READY, State.FAILED))
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=PROGRESS_EVERY_S)
            if not waiting.done():
                log.info(engine.state.value, model=served.name, seconds=round(time.monotonic() - began_s))
        if waiting.result() is State.FAILED:
            return
        ready = engine.require_ready()
        facts: dict[str, object] = dict(engine.info)
        facts |= {"url": url, "model": served.name, "context": ready.context}
        log.info("ready", **facts)
        await engine.wait_for(State.RESTARTING, State.FAILED, State.STOPPED)
        if engine.state is State.STOPPED:
            return
        began_s = time.monotonic()
