"""Lines to the engine: parsed into commands, and written from a Request. Pure; protocol.py has the grammar."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from strata.core.errors import CapacityError, RequestError
from strata.core.order import Order
from strata.core.sharing import Sharing
from strata.engine.request import QueueFullError, Request, check_id
from strata.sampling.constraint import Constraint, read_constraint
from strata.sampling.params import SamplingParams

USAGE = "usage"
BAD_REQUEST = "bad_request"
TOO_LONG = "too_long"
BUSY = "busy"
UNSUPPORTED = "unsupported"
UNKNOWN = "unknown"
DEADLINE = "deadline"
FAILED = "failed"
CODES = {
    USAGE: "the line is not part of the protocol",
    BAD_REQUEST: "a value that cannot be honoured",
    TOO_LONG: "prompt and answer do not fit the context",
    BUSY: "the queue is full; send it again later",
    UNSUPPORTED: "understood, but not built",
    UNKNOWN: "no live request has this id",
    DEADLINE: "cancelled, because its deadline passed",
    FAILED: "the engine failed",
}
"""Codes on ERR lines, in DONE error, and (the deadline) in DONE cancel."""


class LineError(RequestError):
    """A line that cannot be honoured; `id` is its request ("-" when it has none), `code` one of CODES."""

    def __init__(self, request_id: str, code: str, message: str) -> None:
        super().__init__(message)
        self.id = request_id
        self.code = code


def code_of(error: RequestError) -> str:
    """The code under which `error` is reported."""
    if isinstance(error, LineError):
        return error.code
    if isinstance(error, QueueFullError):
        return BUSY
    return TOO_LONG if isinstance(error, CapacityError) else BAD_REQUEST


@dataclass(frozen=True, slots=True)
class Gen:
    """GEN or BGEN; a BGEN's request has the id `@<slot>` and its slot set."""

    request: Request


@dataclass(frozen=True, slots=True)
class Stop:
    """STOP or BSTOP (id `@<slot>`)."""

    id: str


@dataclass(frozen=True, slots=True)
class Yield:
    """YIELD or BYIELD (id `@<slot>`)."""

    id: str


@dataclass(frozen=True, slots=True)
class Stat:
    """STAT."""


@dataclass(frozen=True, slots=True)
class Quit:
    """QUIT."""


@dataclass(frozen=True, slots=True)
class Keep:
    """PARK, RESTORE, SAVE, CLEAR, VRAM or EXPERTS."""

    order: Order


Command: TypeAlias = Gen | Stop | Yield | Stat | Keep | Quit


def whole(text: str) -> int:
    """The ASCII whole number `text`; ValueError otherwise."""
    if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > 21:
        raise ValueError(f"not a whole number: {text[:40]!r}")
    return int(text)


_WHOLES = re.compile(r"-?[0-9]{1,20}(?: -?[0-9]{1,20})*")


def wholes(words: Sequence[str]) -> tuple[int, ...]:
    """Many whole numbers, a prompt's thousands of ids looked at together; ValueError names one that is none."""
    if _WHOLES.fullmatch(" ".join(words)):
        return tuple(map(int, words))
    return tuple(map(whole, words))


def _ids(text: str) -> tuple[int, ...]:
    return wholes(text.split(",")) if text else ()


def _bias(text: str) -> tuple[tuple[int, float], ...]:
    pairs = [part.partition(":") for part in text.split(",")] if text else []
    return tuple((whole(token), float(bias)) for token, _, bias in pairs)


def _flag(text: str) -> bool:
    if text not in {"0", "1"}:
        raise ValueError(f"not 0 or 1: {text[:40]!r}")
    return text == "1"


def _write_bias(value: tuple[tuple[int, float], ...]) -> str:
    return ",".join(f"{token}:{bias!r}" for token, bias in value)


def _write_ids(value: tuple[int, ...]) -> str:
    return ",".join(map(str, value))


@dataclass(frozen=True, slots=True)
class _Key:
    read: Callable[[str], Any]
    write: Callable[[Any], str]
    field: str
    part: Literal["params", "sharing", ""] = ""
    """Which part of the request has the field; empty: the request itself."""

    def of(self, request: Request) -> Any:
        """Its value in a request."""
        return getattr(getattr(request, self.part) if self.part else request, self.field)


def _sampling(name: str, read: Callable[[str], Any], write: Callable[[Any], str] = repr) -> _Key:
    return _Key(read, write, name, "params")


def _shared(name: str, read: Callable[[str], Any], write: Callable[[Any], str]) -> _Key:
    return _Key(read, write, name, "sharing")


KEYS: Mapping[str, _Key] = {
    "temperature": _sampling("temperature", float),
    "top_p": _sampling("top_p", float),
    "top_k": _sampling("top_k", whole),
    "min_p": _sampling("min_p", float),
    "repeat_penalty": _sampling("repeat_penalty", float),
    "presence_penalty": _sampling("presence_penalty", float),
    "frequency_penalty": _sampling("frequency_penalty", float),
    "logit_bias": _sampling("logit_bias", _bias, _write_bias),
    "seed": _sampling("seed", whole),
    "logprobs": _sampling("logprobs", whole),
    "mask": _sampling("constraint", read_constraint, Constraint.written),
    "stop": _Key(_ids, _write_ids, "stop_ids"),
    "echo_stop": _Key(_flag, lambda value: str(int(value)), "echo_stop"),
    "priority": _Key(whole, str, "priority"),
    "deadline": _Key(float, repr, "deadline_s"),
    "draft": _Key(whole, str, "draft"),
    "stream_from": _Key(whole, str, "stream_from"),
    "marks": _shared("marks", _ids, _write_ids),
    "openers": _shared("openers", _ids, _write_ids),
    "cache": _shared("cached", _flag, lambda value: str(int(value))),
}
"""The keys of GEN and BGEN."""

_IDS = msgspec.json.Encoder()
_DEFAULTS = Request(id="default", tokens=(0,))


def slot_id(text: str) -> str:
    """The id of the session addressed by slot `text`."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 6):
        raise ValueError(f"a slot is a small whole number, found {text[:40]!r}")
    return f"@{int(text)}"


def _gen_id(text: str) -> str:
    if text.startswith("@"):
        raise ValueError(f"ids that start with '@' belong to the slot forms, found {text[:40]!r}")
    return text


def _parse_keys(words: list[str]) -> tuple[dict[str, dict[str, Any]], int]:
    """(fields by part of the request, words read)."""
    parts: dict[str, dict[str, Any]] = {"params": {}, "sharing": {}, "": {}}
    count = 0
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            break
        count += 1
        key = KEYS.get(name)
        if key is None:
            raise ValueError(f"unknown key {name[:40]!r}; known are {', '.join(KEYS)}")
        fields = parts[key.part]
        if key.field in fields:
            raise ValueError(f"key {name} is given twice")
        try:
            fields[key.field] = key.read(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return parts, count


def _parse_gen(request_id: str, slot: int | None, words: list[str], default_stop: tuple[int, ...]) -> Gen:
    if not words:
        raise LineError(request_id, USAGE, "<max_new> and token ids are missing")
    try:
        max_new = whole(words[0])
        parts, count = _parse_keys(words[1:])
        tokens = wholes(words[1 + count :])
        parts[""].setdefault("stop_ids", default_stop)
        request = Request(
            id=request_id,
            tokens=tokens,
            max_new=None if max_new == -1 else max_new,
            params=SamplingParams(**parts["params"]),
            sharing=Sharing(**parts["sharing"]),
            slot=slot,
            **parts[""],
        )
    except RequestError as error:
        raise LineError("-" if error.param == "id" else request_id, code_of(error), error.message) from error
    except ValueError as error:
        raise LineError(request_id, BAD_REQUEST, str(error)) from error
    return Gen(request)


_FORMS = {"GEN": _gen_id, "STOP": _gen_id, "YIELD": _gen_id, "BGEN": slot_id, "BSTOP": slot_id, "BYIELD": slot_id}
_UNBUILT = {
    "GENI": "images need a vision model, none is built",
    "BGENI": "images need a vision model, none is built",
}


MOST_MIB = 1 << 24
"""Of VRAM: 16 TiB."""
_ORDERS: Mapping[str, Literal["park", "restore", "save", "clear", "experts"]] = {
    "PARK": "park",
    "RESTORE": "restore",
    "SAVE": "save",
    "CLEAR": "clear",
    "EXPERTS": "experts",
}


def _parse_order(verb: str, words: list[str]) -> Keep:
    try:
        tokens = wholes(words)
    except ValueError as error:
        raise LineError("-", USAGE, f"{verb}: {error}") from error
    if bool(tokens) != (verb == "RESTORE"):
        raise LineError("-", USAGE, f"{verb} takes {'token ids' if verb == 'RESTORE' else 'no words'}")
    return Keep(Order(_ORDERS[verb], tokens))


def _parse_vram(words: list[str]) -> Keep:
    try:
        (mib,) = map(whole, words)
    except ValueError as error:
        raise LineError("-", USAGE, f"VRAM takes one whole number of MiB: {error}") from error
    if not 0 <= mib <= MOST_MIB:
        raise LineError("-", BAD_REQUEST, f"VRAM takes 0 to {MOST_MIB} MiB, found {mib}")
    return Keep(Order("vram", mib=mib))


def _image_id(verb: str, words: list[str]) -> str:
    """The request of a GENI or BGENI line; "-" for the others, whose words may be the name of a live request."""
    try:
        if verb == "GENI" and words:
            check_id(words[0])
            return _gen_id(words[0])
        return slot_id(words[0]) if verb == "BGENI" and words else "-"
    except (RequestError, ValueError):
        return "-"


def parse_command(line: str, default_stop: tuple[int, ...] = ()) -> Command:
    """The command on `line`; LineError for anything else, never another exception."""
    words = line.split()
    verb = words[0] if words else ""
    if verb in {"STAT", "QUIT"} and len(words) == 1:
        return Stat() if verb == "STAT" else Quit()
    if verb == "VRAM":
        return _parse_vram(words[1:])
    if verb in _ORDERS:
        return _parse_order(verb, words[1:])
    if verb in _UNBUILT:
        raise LineError(_image_id(verb, words[1:]), UNSUPPORTED, _UNBUILT[verb])
    if verb not in _FORMS or len(words) < 2:
        known = "GEN, BGEN, STOP, BSTOP, YIELD, BYIELD, STAT, PARK, RESTORE, SAVE, CLEAR, VRAM, EXPERTS or QUIT"
        raise LineError("-", USAGE, f"expected {known}, found {line[:60]!r}")
    try:
        request_id = _FORMS[verb](words[1])
    except ValueError as error:
        raise LineError("-", USAGE, f"{verb}: {error}") from error
    if verb in {"GEN", "BGEN"}:
        return _parse_gen(request_id, int(words[1]) if verb == "BGEN" else None, words[2:], default_stop)
    if len(words) > 2:
        raise LineError("-", USAGE, f"{verb} takes one word, found {len(words) - 1}")
    return Stop(request_id) if verb in {"STOP", "BSTOP"} else Yield(request_id)


def format_gen(request: Request) -> str:
    """The GEN (or, with a slot, BGEN) line of `request`; every setting that is not the default is written out."""
    keys = []
    for name, key in KEYS.items():
        value = key.of(request)
        if name == "stop" or value != key.of(_DEFAULTS):
            keys.append(f"{name}={key.write(value)}")
    head = f"GEN {request.id}" if request.slot is None else f"BGEN {request.slot}"
    max_new = -1 if request.max_new is None else request.max_new
    # The library writes a thousand ids in a seventh of the time that str and join take.
    ids = _IDS.encode(request.tokens)[1:-1].replace(b",", b" ").decode()
    return " ".join([head, str(max_new), *keys, ids])
