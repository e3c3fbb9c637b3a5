"""A real server on a free loopback port around the fake engine child."""

import asyncio
import contextlib
import io
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx

from chat.tiny_tokenizer import tiny
from strata.chat.conversation import Conversation
from strata.chat.template import CHATML, ChatTemplate
from strata.core.log import Log
from strata.sampling.params import SamplingParams
from strata.server.app import create_app
from strata.server.catalog import Model
from strata.server.engine_child import Patience
from strata.server.engine_process import EngineProcess, RestartPolicy, State
from strata.server.listen import Listener, take_socket, url_of
from strata.server.models import Models, Terms
from strata.server.served import ServedModel
from strata.server.settings import ServerSettings

Client = TypeVar("Client")
FAKE = Path(__file__).with_name("fake_engine.py")
TEMPLATE = CHATML + "{% if enable_thinking is defined and enable_thinking %}{{ '<think>\n' }}{% endif %}"
QUICK = RestartPolicy(limit=3, first_wait_s=0.05, longest_wait_s=0.1, patience=Patience(stop_s=2.0))


def ids(text: str) -> list[int]:
    """Token ids of `text`."""
    return tiny().encode(text)


def command(**script: Any) -> list[str]:
    """The fake engine's command line."""
    return [sys.executable, str(FAKE), json.dumps(script)]


def fake_process(policy: RestartPolicy = QUICK, **script: Any) -> EngineProcess:
    """An EngineProcess around the fake."""
    return process_of(command(**script), policy)


def process_of(words: Sequence[str], policy: RestartPolicy = QUICK) -> EngineProcess:
    """An EngineProcess around any command; its import path comes from the environment."""
    root = Path(__file__).parents[2]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root / "src"), str(root / "tests")])
    return EngineProcess(words, Log(stream=io.StringIO()), policy)


def served(name: str = "tiny", **more: Any) -> ServedModel:
    """The model under test."""
    conversation = Conversation(tiny(), ChatTemplate(TEMPLATE, "test template"))
    return ServedModel(name, conversation, SamplingParams(), created=1, **more)


def models_of(engine: EngineProcess, model: ServedModel | None = None) -> Models:
    """One model, whose engine is `engine`."""
    return Models([Model(model or served(), lambda: engine)], Log(stream=io.StringIO()))


class Running:
    """A server in a thread of its own."""

    def __init__(self, models: Models, settings: ServerSettings, log: Log | None = None) -> None:
        log = log or Log(stream=io.StringIO())
        self.models = models
        self.server = Listener(create_app(models, settings, log), models, log, settings.drain_seconds)
        taken = take_socket(ServerSettings(port=0))
        self.url = url_of(taken)
        self.port = taken.getsockname()[1]
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([taken])), daemon=True)
        self.thread.start()
        while not self.server.started:
            self.thread.join(0.005)
        self.http = httpx.Client(base_url=self.url, timeout=20)
        self._clients: dict[type[Any], Any] = {}

    @property
    def engine(self) -> EngineProcess:
        """Of the model that is loaded, or loads."""
        assert self.models.engine is not None
        return self.models.engine

    def client(self, kind: type[Client], path: str = "") -> Client:
        """An official client of this server, closed with it."""
        if kind not in self._clients:
            self._clients[kind] = kind(base_url=self.url + path, api_key="none", max_retries=0)
        return cast(Client, self._clients[kind])

    def until(self, *states: State) -> None:
        """Wait for the engine."""
        while self.models.state not in states:
            self.thread.join(0.01)

    def stop(self) -> None:
        """Shut down in order."""
        for each in self._clients.values():
            each.close()
        self.http.close()
        self.server.should_exit = True
        self.thread.join(15)
        assert not self.thread.is_alive()


@contextlib.contextmanager
def running(
    settings: ServerSettings | None = None, model: ServedModel | None = None, wait: bool = True, **script: Any
) -> Iterator[Running]:
    """A server whose engine follows `script`."""
    with serving(fake_process(**script), settings, model, wait) as server:
        yield server


@contextlib.contextmanager
def serving(
    engine: EngineProcess,
    settings: ServerSettings | None = None,
    model: ServedModel | None = None,
    wait: bool = True,
) -> Iterator[Running]:
    """A server before `engine`."""
    with before(models_of(engine, model), settings, wait) as server:
        yield server


@contextlib.contextmanager
def several(
    scripts: Mapping[str, Mapping[str, Any]], settings: ServerSettings | None = None, terms: Terms | None = None
) -> Iterator[Running]:
    """A server of several models by name, each with the script of its engines."""

    def model(name: str) -> Model:
        return Model(served(name), lambda: fake_process(**scripts[name]))

    with before(Models([model(name) for name in scripts], Log(stream=io.StringIO()), terms), settings) as server:
        yield server


@contextlib.contextmanager
def before(models: Models, settings: ServerSettings | None = None, wait: bool = True) -> Iterator[Running]:
    """A server before `models`."""
    server = Running(models, settings or ServerSettings())
    try:
        if wait:
            server.until(State.READY)
        yield server
    finally:
        server.stop()


def sse(text: str) -> list[Any]:
    """The data of every event; "[DONE]" as it stands."""
    found = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [item if item == "[DONE]" else json.loads(item) for item in found]
