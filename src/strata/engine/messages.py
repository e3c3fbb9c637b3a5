"""Lines from the engine: written from events, and parsed back for its client. Pure; protocol.py has the grammar."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from strata.core.errors import RequestError
from strata.engine.commands import slot_id, whole
from strata.engine.events import Event, Finished, Progress, Reason, Reused, Token, Yielded


@dataclass(frozen=True, slots=True)
class Info:
    """INFO: plain facts about the engine."""

    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ready:
    """READY: the engine takes requests from now on."""

    context: int
    stop_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Of:
    """An event of the session `id` (`@<slot>` for the slot forms)."""

    id: str
    event: Event


@dataclass(frozen=True, slots=True)
class Admitted:
    """BADM: the prompt for `slot` was read and its tokens follow, or (False) it ended without one."""

    slot: int
    running: bool


@dataclass(frozen=True, slots=True)
class Error:
    """ERR: the request `id` was refused (or, with id "-", the line was)."""

    id: str
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Status:
    """STAT's answer."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Experts:
    """EXPERTS' answer."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fatal:
    """FATAL: the engine is going down."""

    text: str


@dataclass(frozen=True, slots=True)
class Kept:
    """KEPT: what a PARK, RESTORE, SAVE or VRAM has done."""

    verb: str
    counts: Mapping[str, int]


Message: TypeAlias = Info | Ready | Of | Admitted | Error | Status | Experts | Kept | Fatal


def one_line(text: str) -> str:
    """`text` with line breaks and runs of spaces made one space."""
    return " ".join(text.split())


def format_info(**fields: object) -> str:
    """INFO; spaces in a value become underscores."""
    return " ".join(["INFO", *(f"{name}={'_'.join(str(value).split())}" for name, value in fields.items())])


def format_ready(context: int, stop_ids: tuple[int, ...]) -> str:
    """READY."""
    return " ".join(["READY", str(context), *map(str, stop_ids)])


def format_error(request_id: str, code: str, text: str) -> str:
    """ERR."""
    return f"ERR {request_id} {code} {one_line(text)}"


def format_fatal(text: str) -> str:
    """FATAL."""
    return f"FATAL {one_line(text)}"


def format_kept(verb: str, counts: Mapping[str, int]) -> str:
    """KEPT."""
    return " ".join(["KEPT", verb, *(f"{name}={count}" for name, count in counts.items())])


def format_status(values: Mapping[str, object]) -> str:
    """STAT with one line of JSON."""
    return f"STAT {json.dumps(values, separators=(',', ':'))}"


def format_experts(values: Mapping[str, object]) -> str:
    """EXPERTS with one line of JSON."""
    return f"EXPERTS {json.dumps(values, separators=(',', ':'))}"


def _token_words(event: Token) -> list[str]:
    words = [str(event.token)]
    if event.logprob is not None:
        words += [repr(event.logprob), *(f"{token}:{logprob!r}" for token, logprob in event.top)]
    return words


_COUNTS = ("prompt", "reused", "generated", "drafted", "accepted", "steps")
_TIMES = ("queue_s", "prompt_s", "decode_s")


def _done_words(event: Finished) -> list[str]:
    words = [event.reason.value]
    words += [f"{name}={getattr(event, name)}" for name in _COUNTS]
    if event.stop_id is not None:
        words.append(f"stop={event.stop_id}")
    words += [f"{name.removesuffix('_s')}_ms={getattr(event, name) * 1000:.3f}" for name in _TIMES]
    if event.code:
        words += [f"code={event.code}", f"text={one_line(event.error)}"]
    return words


def format_event(request_id: str, event: Event) -> str:
    """The line of a session's event; an id `@<slot>` gives the slot-addressed form."""
    slot = request_id[1:] if request_id.startswith("@") else None
    match event:
        case Progress(read, total):
            return f"PP {request_id} {read} {total}"
        case Reused(tokens, tier):
            return f"REUSED {request_id} {tokens} {tier}"
        case Token():
            return " ".join([f"T {request_id}" if slot is None else f"BT {slot}", *_token_words(event)])
        case Yielded(read):
            return f"YIELDED {request_id if slot is None else slot} {read}"
        case Finished() if slot is None:
            return " ".join([f"DONE {request_id}", *_done_words(event)])
        case Finished():
            ms = 1000 * (event.queue_s + event.prompt_s + event.decode_s)
            return f"BDONE {slot} {event.generated} {event.reason.value} {ms:.3f}"


def format_admitted(slot: int, running: bool) -> str:
    """BADM."""
    return f"BADM {slot} {int(running)}"


def _parse_token(words: list[str]) -> Token:
    pairs = [word.partition(":") for word in words[2:]]
    top = tuple((whole(token), float(logprob)) for token, _, logprob in pairs)
    return Token(whole(words[0]), float(words[1]) if len(words) > 1 else None, top)


def _parse_done(words: list[str], text: str) -> Finished:
    fields = dict(word.split("=", 1) for word in words[1:])
    counts = {name: whole(fields[name]) for name in _COUNTS}
    times = {name: float(fields[f"{name.removesuffix('_s')}_ms"]) / 1000 for name in _TIMES}
    stop = fields.get("stop")
    return Finished(
        reason=Reason(words[0]),
        prompt=counts["prompt"],
        reused=counts["reused"],
        generated=counts["generated"],
        drafted=counts["drafted"],
        accepted=counts["accepted"],
        steps=counts["steps"],
        stop_id=None if stop is None else whole(stop),
        queue_s=times["queue_s"],
        prompt_s=times["prompt_s"],
        decode_s=times["decode_s"],
        code=fields.get("code", ""),
        error=text,
    )


def _parse_session_line(verb: str, words: list[str], text: str) -> Message | None:
    name = words[0]
    match verb, len(words) - 1:
        case "PP", 2:
            return Of(name, Progress(whole(words[1]), whole(words[2])))
        case "REUSED", 2:
            return Of(name, Reused(whole(words[1]), words[2]))
        case "T", count if count >= 1:
            return Of(name, _parse_token(words[1:]))
        case "DONE", count if count >= 1:
            return Of(name, _parse_done(words[1:], text))
        case "YIELDED", 1:
            return Of(f"@{name}" if name.isdecimal() else name, Yielded(whole(words[1])))
        case "BT", count if count >= 1:
            return Of(slot_id(name), _parse_token(words[1:]))
        case "BADM", 1:
            return Admitted(whole(name), words[1] == "1")
        case "BDONE", 3:
            done = Finished(Reason(words[2]), prompt=0, generated=whole(words[1]), decode_s=float(words[3]) / 1000)
            return Of(slot_id(name), done)
    return None


def parse_event(line: str) -> Message:
    """What the engine said; RequestError for a line that no engine writes.

    A YIELDED whose name is a number is read as the slot form, so a client of the id forms should not name
    requests by bare numbers if it uses YIELD. BDONE carries no prompt count: `prompt` is 0 there.
    """
    verb, _, rest = line.strip().partition(" ")
    head, _, text = rest.partition(" text=") if verb == "DONE" else (rest, "", "")
    words = head.split()
    try:
        if verb == "INFO":
            return Info(dict(word.split("=", 1) for word in words))
        if verb == "READY":
            return Ready(whole(words[0]), tuple(map(whole, words[1:])))
        if verb == "ERR":
            name, code, *said = rest.split(" ", 2)
            return Error(name, code, said[0] if said else "")
        if verb == "STAT":
            return Status(json.loads(rest))
        if verb == "EXPERTS":
            return Experts(json.loads(rest))
        if verb == "KEPT":
            return Kept(words[0], {name: whole(count) for name, count in (word.split("=", 1) for word in words[1:])})
        if verb == "FATAL":
            return Fatal(rest)
        message = _parse_session_line(verb, words, text) if words else None
    except (ValueError, LookupError, TypeError) as error:
        raise RequestError(f"not a line of the engine: {line[:80]!r}: {error}") from error
    if message is None:
        raise RequestError(f"not a line of the engine: {line[:80]!r}")
    return message
