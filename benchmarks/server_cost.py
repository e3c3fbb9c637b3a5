"""What the server itself costs: processor time per streamed token, and what it adds to the time to first token.

    PYTHONPATH=src python benchmarks/server_cost.py >> benchmarks/results/server.jsonl
    PYTHONPATH=src python benchmarks/server_cost.py --engine demo --streams 16 --tokens 64

For each dialect `--streams` clients stream at once, `--repeat` times; counted is the processor time of the server
process, threads included, from the first request's byte to the last answer's, and not that of the engine, its child:
so it holds the reading of the requests too. Then one client after the other sends a prompt of about `--prompt` tokens;
of its time to first token what the engine took, from its line to its first token's, is taken off.

Engines (scripted_engine.py): `scripted` computes nothing and says `--rate` tokens a second to each stream, `demo` is
the real one with the demo model and a watch at its door. Processor time hardly changes with company on the machine;
`company` tells of it.
"""

import argparse
import http.client
import json
import os
import random
import re
import selectors
import shlex
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from strata.checks.company import Company
from strata.checks.facts import origin
from strata.checks.serving import END_S, Reader, Server, family

Body = Callable[[str, int], dict[str, Any]]
SCRIPTED = Path(__file__).with_name("scripted_engine.py")
WORDS = "the a small old red green ship house tree river man girl sees finds takes goes over under with and"
TOKENS = re.compile(rb'"(?:completion|output)_tokens":(\d+)')
PROMPT = re.compile(rb'"(?:prompt|input)_tokens":(\d+)')
OWN_MS = re.compile(rb'"prompt_ms":([0-9.]+).*?"queue_ms":([0-9.]+)')
SAID = re.compile(rb'"(?:content|text|delta)":"[^"]')
"""The first piece of an answer's text, in any dialect."""


def _chat(text: str, tokens: int) -> dict[str, Any]:
    said = {"messages": [{"role": "user", "content": text}], "stream_options": {"include_usage": True}}
    return {**said, "max_tokens": tokens, "ignore_eos": True}


DIALECTS: Mapping[str, tuple[str, Body]] = {
    "chat": ("/v1/chat/completions", _chat),
    "completions": (
        "/v1/completions",
        lambda text, tokens: {
            "prompt": text,
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream_options": {"include_usage": True},
        },
    ),
    "responses": ("/v1/responses", lambda text, tokens: {"input": text, "max_output_tokens": tokens}),
    "messages": (
        "/v1/messages",
        lambda text, tokens: {"messages": [{"role": "user", "content": text}], "max_tokens": tokens},
    ),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """Where and what every stream asks."""

    server: Server
    dialect: str
    tokens: int
    """Of every answer."""
    prompt: int
    """Of every prompt, about."""

    def request(self, seed: int) -> bytes:
        """As it goes over the wire; other seeds and dialects give other prompts, of which nothing is held."""
        path, body = DIALECTS[self.dialect]
        text = " ".join(random.Random(f"{self.dialect} {seed}").choices(WORDS.split(), k=self.prompt))
        sent = json.dumps({**body(text, self.tokens), "stream": True, "temperature": 0.0}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {self.address[0]}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(sent)}\r\nConnection: close\r\n\r\n".encode() + sent

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.server.url)
        assert parts.hostname is not None and parts.port is not None
        return parts.hostname, parts.port


def processor_s(pid: int) -> float:
    """Processor time of all threads of another process: its CPU clock, as clock_getcpuclockid(3) numbers it."""
    return time.clock_gettime((~pid << 3) | 2)


def checked(answer: bytes) -> bytes:
    """An answer that came whole."""
    if not answer.startswith(b"HTTP/1.1 200") or not answer.endswith(b"0\r\n\r\n"):
        raise RuntimeError(f"not a whole answer: {answer[:500]!r} ... {answer[-100:]!r}")
    return answer


def number(pattern: re.Pattern[bytes], answer: bytes) -> int:
    """What the last usage of an answer says."""
    return int(pattern.findall(answer)[-1])


def streamed(asked: Asked, count: int, seed: int) -> list[bytes]:
    """What `count` clients at once get."""
    waiting = selectors.DefaultSelector()
    answers: dict[socket.socket, bytearray] = {}
    for each in range(count):
        connection = socket.create_connection(asked.address)
        answers[connection] = bytearray()
        waiting.register(connection, selectors.EVENT_READ)
        connection.sendall(asked.request(seed + each))
    while waiting.get_map():
        for key, _ in waiting.select(60):
            assert isinstance(key.fileobj, socket.socket)
            read = key.fileobj.recv(1 << 16)
            answers[key.fileobj] += read
            if not read:
                waiting.unregister(key.fileobj)
                key.fileobj.close()
    return [checked(bytes(answer)) for answer in answers.values()]


def first_token_ms(asked: Asked, seed: int) -> tuple[float, float, int]:
    """(until the first piece of the answer came, what the engine says of its own part, prompt tokens)."""
    with socket.create_connection(asked.address) as connection:
        request = asked.request(seed)
        answer = bytearray()
        began = time.perf_counter()
        connection.sendall(request)
        while not SAID.search(answer):
            answer += connection.recv(1 << 16)
        waited = time.perf_counter() - began
        while read := connection.recv(1 << 16):
            answer += read
    whole = checked(bytes(answer))
    own = OWN_MS.findall(whole)[-1]
    return 1e3 * waited, sum(map(float, own)), number(PROMPT, whole)


class Others:
    """The share of processor time that went to neither this process nor the server and its engine, from now on."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.company = Company()
        self.began = time.perf_counter()
        self.family_s = self.family()

    def family(self) -> float:
        """Processor time of the server and its engine, which Company cannot know for its own while they run."""
        assert self.server.pid is not None
        known = {pid for child in family(self.server.pid) for pid in family(child)}
        return sum(map(processor_s, known))

    def share(self) -> float | None:
        """See `Company.share`."""
        found = self.company.share()
        available = (time.perf_counter() - self.began) * (os.cpu_count() or 1)
        return None if found is None else round(max(0.0, found - (self.family() - self.family_s) / available), 3)


def spread(values: Sequence[float], digits: int = 4) -> dict[str, float]:
    """Median and ends."""
    found = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: round(value, digits) for name, value in found.items()}


def tokens_cost(asked: Asked, streams: int, repeat: int) -> dict[str, Any]:
    """Processor time per token of `streams` answers at once; one run before warms up."""
    assert asked.server.pid is not None
    costs, rates, said = [], [], 0
    for run in range(repeat + 1):
        spent, began = processor_s(asked.server.pid), time.perf_counter()
        answers = streamed(asked, streams, 1000 * run)
        spent, lasted = processor_s(asked.server.pid) - spent, time.perf_counter() - began
        said = sum(number(TOKENS, answer) for answer in answers)
        if run:
            costs.append(1e3 * spent / said)
            rates.append(said / lasted)
    return {"tokens": said, "ms_per_token": spread(costs), "tokens_per_second": spread(rates, 1)}


def first_cost(asked: Asked, repeat: int) -> dict[str, Any]:
    """What the server adds to the time to first token, one client at a time."""
    found = [first_token_ms(asked, 10**6 + run) for run in range(repeat + 2)][2:]
    return {
        "prompt_tokens": found[-1][2],
        "ttft_ms": spread([waited for waited, _, _ in found], 3),
        "ttft_added_ms": spread([waited - own for waited, own, _ in found], 3),
    }


@contextmanager
def started(engine: Sequence[str], flags: Sequence[str]) -> Iterator[Server]:
    """The server before an engine of scripted_engine.py."""
    command = [sys.executable, str(SCRIPTED), "serve", *engine, "--port", "0", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0)
    reader = Reader(process)
    try:
        yield Server(reader.url(), process.pid)
    finally:
        process.terminate()
        process.wait(END_S)
        reader.thread.join(END_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("scripted", "demo"), default="scripted")
    parser.add_argument("--dialect", choices=list(DIALECTS), action="append", help="default: all")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256, help="of every answer")
    parser.add_argument("--rate", type=float, default=60.0, help="tokens a second of a stream; 0 = without limit")
    parser.add_argument("--prompt", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--firsts", type=int, default=20, help="prompts, of which the median counts")
    parser.add_argument("--flags", default="", help='of the server: "--threads 2"')
    options = parser.parse_args()
    flags = ["--parallel", str(options.streams), "--ctx-size", "2048", *shlex.split(options.flags)]
    engine = ["--rate", str(options.rate)] if options.engine == "scripted" else ["--watched"]
    rate = options.rate if options.engine == "scripted" else None
    settings = {"streams": options.streams, "rate": rate, "flags": options.flags}
    with started(engine, flags) as server:
        for dialect in options.dialect or DIALECTS:
            company = Others(server)
            found = tokens_cost(Asked(server, dialect, options.tokens, 32), options.streams, options.repeat)
            found |= first_cost(Asked(server, dialect, 4, options.prompt), options.firsts)
            facts = {**settings, **origin(None, None), "company": company.share()}
            line = {"bench": "server_cost", "engine": options.engine, "dialect": dialect, **found, **facts}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, http.client.HTTPException) as error:
        sys.exit(f"server_cost: {error}")
