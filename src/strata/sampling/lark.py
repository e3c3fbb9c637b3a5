"""How much text the rules of a grammar in llguidance's Lark take at least, and which words they contain."""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from strata.sampling.sizes import NEVER, Size, in_turn, literal, of_pattern, one_of, repeated
from strata.sampling.smallest import Smallest

LARGEST = 1 << 18
"""Characters of a grammar that is looked at."""
PASSES = 16
"""How often sizes are carried outwards: through so many rules, one within the other."""
_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r\n]+|//[^\n]*|\#[^\n]*|->\s*\w+|%(?!json|regex|llguidance)[^\n]*)
    |(?P<text>"(?:[^"\\]|\\.)*")i?|(?P<pattern>/(?:[^/\\\n]|\\.)+/)[imslux]*|(?P<value>%(?:json|regex|llguidance)\s*)
    |(?P<name>@?[A-Za-z_][\w.-]*)|(?P<special><[^<>\s]*>)|(?P<mark>\.\.|.)""",
    re.VERBOSE,
)
_UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)
_Token = tuple[str, Any]


def _tokens(text: str) -> list[_Token]:
    """(kind, what it is): texts and values are read, names and marks are as written."""
    found: list[_Token] = []
    at = 0
    while at < len(text) and (match := _TOKEN.match(text, at)):
        kind, at = str(match.lastgroup), match.end()
        if kind == "value":
            value, at = json.JSONDecoder().raw_decode(text, at)
            found.append((match.group().strip(), value))
        elif kind == "text":
            found.append((kind, json.loads(match.group("text"), strict=False)))
        elif kind == "pattern":
            found.append((kind, match.group("pattern")[1:-1].replace("\\/", "/")))
        elif kind != "skip":
            found.append((kind, match.group()))
    return found


class _Rules:
    """The rules of one grammar, and what is known of their sizes so far."""

    def __init__(self, text: str, others: Mapping[str, Size]) -> None:
        """`others`: sizes of the grammars that it refers to as @name."""
        if len(text) > LARGEST:
            raise ValueError(f"a grammar of {len(text)} characters is not looked at")
        self._tokens: list[_Token] = [
            ("size", of_schema(value)) if kind == "%json" else (kind, value) for kind, value in _tokens(text)
        ]
        self._at = 0
        self._known: dict[str, Size] = {f"@{name}": size for name, size in others.items()}
        for _ in range(PASSES):
            before = dict(self._known)
            self._pass()
            if self._known == before:
                break

    def of(self, name: str) -> Size:
        """Of one rule; of one that is unknown, nothing that ends."""
        return self._known.get(name, Size(NEVER))

    def _pass(self) -> None:
        self._at = 0
        while self._at < len(self._tokens):
            head = self._head()
            if head is None:
                self._at += 1
                continue
            name, suffix, self._at = head
            self._known[name] = in_turn([self._branches(), suffix])

    def _head(self) -> tuple[str, Size, int] | None:
        """(name, what its attributes add, the place after the colon), where a rule begins here."""
        tokens, at = self._tokens, self._at
        if tokens[at][0] != "name" or tokens[at][1].startswith("@"):
            return None
        end, suffix = at + 1, Size()
        if tokens[end : end + 1] == [("mark", "[")]:
            end += 1
            while end < len(tokens) and tokens[end] != ("mark", "]"):
                if tokens[end - 2 : end] == [("name", "suffix"), ("mark", "=")]:
                    suffix = self._of_token(*tokens[end])
                end += 1
            end += 1
        return (tokens[at][1], suffix, end + 1) if tokens[end : end + 1] == [("mark", ":")] else None

    def _mark(self) -> str:
        """The mark here; empty where there is none."""
        kind, value = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        return str(value) if kind == "mark" else ""

    def _branches(self) -> Size:
        found = [self._sequence()]
        while self._mark() == "|":
            self._at += 1
            found.append(self._sequence())
        return one_of(found)

    def _sequence(self) -> Size:
        parts: list[Size] = []
        while self._at < len(self._tokens) and self._mark() not in ("|", ")", "]") and self._head() is None:
            parts.append(self._repeated(self._item()))
        return in_turn(parts)

    def _item(self) -> Size:
        kind, value = self._tokens[self._at]
        self._at += 1
        if kind == "mark" and value in "([":
            inner = self._branches()
            self._at += 1
            return inner if value == "(" else repeated(inner, 0, 1)
        if self._mark() == "..":
            self._at += 2
            return Size(1)
        return self._of_token(kind, value)

    def _of_token(self, kind: str, value: Any) -> Size:
        match kind:
            case "text":
                return literal(value)
            case "pattern":
                return of_pattern(value)
            case "name":
                return self.of(value)
            case "size":
                return cast("Size", value)
            case "special" | "%regex":
                return Size(1)
        return Size()

    def _repeated(self, part: Size) -> Size:
        mark = self._mark()
        if mark in ("*", "+", "?") and mark:
            self._at += 1
            return self._repeated(repeated(part, int(mark == "+"), 1 if mark == "?" else None))
        if mark in ("~", "{") and mark:
            return self._counted(part)
        return part

    def _counted(self, part: Size) -> Size:
        """`part ~ n`, `part ~ n..m`, `part{n,m}`: digits are single marks."""
        closed, text = self._mark() == "{", ""
        self._at += 1
        while (mark := self._mark()) and (mark.isdigit() or mark in ("..", ",")):
            text, self._at = text + mark, self._at + 1
        self._at += closed
        low, comma, high = text.replace("..", ",").partition(",")
        return repeated(part, int(low or 0), int(high) if high else None if comma else int(low or 0))


def of_schema(schema: Any) -> Size:
    """Of the instances of a JSON schema."""
    smallest = Smallest(schema)
    return Size(smallest.of(schema), smallest.largest_choice())


def of_grammar(grammar: str) -> Size:
    """Of a Lark grammar's answers, or of the first of several (in JSON); nothing is known of what cannot be read."""
    sizes: dict[str, Size] = {}
    found = Size()
    try:
        for each in reversed(_listed(grammar)):  # a grammar refers to later ones
            if "json_schema" in each:
                found = of_schema(each["json_schema"])
            else:
                found = _Rules(each["lark_grammar"], sizes).of("start")
            sizes[each.get("name", "")] = found
    except _UNREADABLE:
        return Size()
    return found


def schemas_of(grammar: str) -> list[Any]:
    """The JSON schemas in a grammar, or in several; none in what cannot be read."""
    try:
        found = [each["json_schema"] for each in _listed(grammar) if "json_schema" in each]
        texts = [each.get("lark_grammar", "") for each in _listed(grammar)]
        return [*found, *(value for text in texts for kind, value in _tokens(text) if kind == "%json")]
    except _UNREADABLE:
        return []


def _listed(grammar: str) -> list[dict[str, Any]]:
    if not grammar.lstrip().startswith("{"):
        return [{"lark_grammar": grammar}]
    found: list[dict[str, Any]] = json.loads(grammar)["grammars"]
    return found
