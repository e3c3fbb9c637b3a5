"""What an answer must look like, from a request's words to the grammar that a mask follows from its first token on."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import any_to_lark

from strata.chat.calls import Tool, ToolDialect
from strata.chat.excluded import home_of
from strata.chat.json_text import NO_PARAMETERS, spaced
from strata.chat.narrowed import known_draft, narrowed, without_patterns
from strata.chat.reasoning import CLOSE, OPEN
from strata.core.errors import RequestError
from strata.sampling.constraint import Constraint
from strata.sampling.smallest import least_of

Thinking = Literal["no", "open", "may"]
"""Whether an answer reasons first: not at all, the prompt has begun to, or it may begin itself."""

JSON_MARKS = '{}[],:"'
_THOUGHT = f'thought[suffix="{CLOSE}"]: /(?s:.*)/\ngap: /\\n{{0,4}}/\n'
_STARTS: Mapping[Thinking, str] = {
    "no": "start: body\n",
    "open": "start: thought gap body\n" + _THOUGHT,
    "may": f'start: (/[ \\n]{{0,8}}/ "{OPEN}" thought gap)? body\n' + _THOUGHT,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What has to come after any reasoning: a rule `body`, and the grammars that it refers to."""

    rules: str
    others: Sequence[Mapping[str, Any]] = ()
    ends: Literal["never", "tried", "surely"] = "tried"
    """Whether answers are brought to their end in time: not at all, where a way is found, or so that a length which is
    too short for any answer can be refused.
    """
    marks: str = ""
    closings: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """See Constraint for these three."""


def of_schema(schema: Mapping[str, Any] | bool, strict: bool) -> Shape:
    """JSON that fits a schema; without `strict` keywords that no grammar can follow do not count."""
    made = spaced(known_draft(schema), strict)
    return Shape("body: @json\n", ({"name": "json", "json_schema": made},), ends="surely", marks=JSON_MARKS)


def of_loose_schema(schema: Mapping[str, Any] | bool) -> tuple[Shape, ...]:
    """The same without `strict`, in several ways: the first that can be compiled is right.

    Before keywords do not count, they are replaced by others that leave fewer choices.
    """
    loose = loosened(schema, home_of(schema))
    narrow, wider = narrowed(loose), narrowed(loose, branches=False)
    forms = [narrow, without_patterns(narrow), wider, without_patterns(wider), loose, narrowed(loosened(schema))]
    return tuple(of_schema(form, strict=False) for number, form in enumerate(forms) if form not in forms[:number])


_BRACE = re.compile(r"(?<!\\)(?<!\\[pPxu])\{(?!\d+(,\d*)?\})")
"""One that repeats nothing, which scripts take for itself."""
_AROUND = re.compile(r"\(\?(?:[=!]|<[=!])|\\[1-9]")


def loosened(schema: Any, home: str = "") -> Any:
    """The schema without what no automaton can follow: references elsewhere, look-around and back-references.

    `home`: the schema's own address; references to it stay.
    """
    if isinstance(schema, list):
        return [loosened(item, home) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {}
    for name, value in schema.items():
        if name == "pattern" and isinstance(value, str):
            value = _BRACE.sub(r"\{", value)
        if isinstance(value, str):
            elsewhere = name == "$ref" and not value.startswith(("#", f"{home}#") if home else "#") and value != home
            if elsewhere or (name == "pattern" and _AROUND.search(value)):
                continue
        if name == "patternProperties" and isinstance(value, Mapping):
            value = {pattern: item for pattern, item in value.items() if not _AROUND.search(pattern)}
        kept[name] = loosened(value, home)
    return kept


def of_regex(pattern: str) -> Shape:
    """Text that a regular expression matches whole."""
    (grammar,) = json.loads(LLMatcher.grammar_from_regex(pattern))["grammars"]
    return Shape("body: @regex\n", ({"name": "regex", "lark_grammar": grammar["lark_grammar"]},))


def of_grammar(text: str) -> Shape:
    """Text of a grammar in Lark (its rule `start`) or in GBNF (its rule `root`)."""
    try:
        lark = any_to_lark(text)
    except Exception as error:
        raise RequestError(f"the grammar is neither Lark nor GBNF: {error}", param="grammar") from error
    return Shape("body: @grammar\n", ({"name": "grammar", "lark_grammar": lark},))


def of_calls(dialect: ToolDialect, tools: Sequence[Tool], several: bool) -> Shape:
    """One call of one of these tools, or several."""
    smallest = sorted(tools, key=lambda tool: least_of(tool.parameters or NO_PARAMETERS))
    names = tuple(f"{tool.name}{dialect.after_name}" for tool in smallest)
    rules = "body: calls\n" + dialect.grammar(tools, several) + "\n"
    return Shape(rules, ends="surely", marks=JSON_MARKS + dialect.marks, closings=dialect.closings, names=names)


def of_strict_calls(dialect: ToolDialect, tools: Sequence[Tool], several: bool) -> Shape:
    """Any text; whatever begins like a call is one of these tools."""
    opener = json.dumps(dialect.opener)
    before = f"before[suffix={opener}]: /(?s:.*)/\n"
    # The call's own opener is what `before` ends with.
    rules = dialect.grammar(tools, False).replace(opener[:-1], '"')
    text = "tail: /(?s:.*)/\n"
    return Shape(f"body: (before calls){'*' if several else '?'} tail\n{before}{text}{rules}\n", ends="never")


def either(first: Shape, second: Shape) -> Shape:
    """One or the other."""
    rules = first.rules.replace("body:", "first:", 1) + second.rules.replace("body:", "second:", 1)
    return Shape(
        "body: first | second\n" + rules,
        (*first.others, *second.others),
        ends=first.ends if first.ends == second.ends else "tried",
        marks=first.marks + second.marks if first.marks and second.marks else "",
        closings=(*first.closings, *second.closings),
        names=(*first.names, *second.names),
    )


def constraint(
    shape: Shape | None, thinking: Thinking, budget: int | None, most: int | None = None
) -> Constraint | None:
    """What a request carries; None when nothing is asked for. A `budget` counts tokens of reasoning.

    It is brought to its end within the `most` tokens that the answer may have, as far as its shape can be.
    """
    budget = None if thinking == "no" else budget
    if shape is None:
        return None if budget is None else Constraint(budget=budget, opened=thinking == "open")
    outer = {"name": "answer", "lark_grammar": "%llguidance {}\n" + _STARTS[thinking] + shape.rules}
    grammar = json.dumps({"grammars": [outer, *shape.others]}, ensure_ascii=False)
    return Constraint(
        grammar,
        budget,
        most=None if shape.ends == "never" else most or None,
        opened=thinking == "open",
        marks=shape.marks,
        closings=shape.closings,
        names=shape.names,
    )


_VALUES = frozenset(("pattern", "$ref", "type", "format"))
"""Keywords whose values compilers quote."""


def place_of(schema: Any, said: str) -> str:
    """Where in a schema the trouble is that a compiler's message `said` tells of: a path, empty for the root."""
    for path, value in _walk(schema, ""):
        name = path.rpartition(".")[2]
        if f'"{name}"' in said or f"'{name}'" in said:
            return path
        if isinstance(value, str) and value and name in _VALUES and value in said:
            return path
        if said.startswith(f"{name} must be"):
            return path
    return ""


def _walk(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    if depth > 64:
        return
    if isinstance(value, Mapping):
        for name, item in value.items():
            inner = f"{path}.{name}" if path else str(name)
            yield inner, item
            yield from _walk(item, inner, depth + 1)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _walk(item, f"{path}[{number}]", depth + 1)
