"""The room a chat template runs in: no attribute walks, a step budget, a text budget and a clock.

A template comes with a model file and is untrusted. Jinja's immutable sandbox stops attribute walks; what it leaves
open (nested loops, doubling strings and lists, huge pads and powers) is metered here: loops, calls, concatenations
and container literals are rewritten when the template is parsed so that each of them passes through the meter.
"""

import functools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2 import Undefined, nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """What one rendering may cost."""

    steps: int = 2_000_000
    """Loop turns, calls and container items."""
    text: int = 256 << 20
    """Characters produced in all, intermediate strings included."""
    output: int = 32 << 20
    """Characters of one string or container, the result included."""
    nodes: int = 200_000
    """Values in one container, nested ones included."""
    seconds: float = 5.0


class Refused(TemplateError):
    """The template itself called raise_exception."""


class Meter:
    """Counts what one rendering has used; raises SecurityError beyond its limits."""

    def __init__(self, limits: RenderLimits) -> None:
        self.limits = limits
        self.steps = 0
        self.text_made = 0
        self.deadline = time.monotonic() + limits.seconds

    def step(self, count: int = 1) -> None:
        """Charge `count` steps and look at the clock."""
        self.steps += count
        if self.steps > self.limits.steps:
            raise SecurityError(f"rendering takes more than {self.limits.steps} steps")
        if time.monotonic() > self.deadline:
            raise SecurityError(f"rendering takes more than {self.limits.seconds:g} s")

    def text(self, length: int) -> None:
        """Charge a string of `length` characters before it is built."""
        if length > self.limits.output:
            raise SecurityError(f"a text of {length} characters, at most {self.limits.output} are allowed")
        self.text_made += length
        if self.text_made > self.limits.text:
            raise SecurityError(f"rendering builds more than {self.limits.text} characters in all")
        self.step()

    def weigh(self, value: object) -> int:
        """Values inside `value`, counted as a tree (shared parts count each time); bounded."""
        stack, count, length = [value], 0, 0
        while stack:
            item = stack.pop()
            count += 1
            if isinstance(item, str):
                length += len(item)
            elif isinstance(item, Mapping):
                stack.extend(item.keys())
                stack.extend(item.values())
            elif isinstance(item, list | tuple):
                stack.extend(item)
            if count + len(stack) > self.limits.nodes or length > self.limits.output:
                raise SecurityError(
                    f"a value of more than {self.limits.nodes} parts or {self.limits.output} characters"
                )
        self.step()
        return count


class SafeNamespace(Namespace):
    """`namespace(...)` that stores no underscore names."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"attribute {name!r} is not allowed")
        super().__setitem__(name, value)


class _Metered(NodeTransformer):
    """Routes loops, concatenations and container literals through filters that charge the meter."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_each")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "_concat")

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return node if _constant(node.items) else _filtered(node, "_sized")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return node if node.ctx != "load" or _constant(node.items) else _filtered(node, "_sized")

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return node if _constant([p.value for p in node.items]) else _filtered(node, "_sized")

    def _no_files(self, node: nodes.Node) -> nodes.Node:
        raise TemplateSyntaxError(f"{type(node).__name__.lower()} of other templates is not allowed", node.lineno)

    visit_Include = visit_Import = visit_FromImport = visit_Extends = _no_files


def _constant(items: Iterable[nodes.Node]) -> bool:
    return all(isinstance(item, nodes.Const) for item in items)


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _Generation(Extension):
    """`{% generation %}` marks training text; rendering passes it through."""

    tags = {"generation"}  # noqa: RUF012 (jinja reads the plain attribute)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ATTRIBUTES: dict[type, frozenset[str]] = {
    str: _words(
        "split rsplit strip lstrip rstrip startswith endswith replace upper lower title capitalize join splitlines"
        " find rfind index count partition rpartition removeprefix removesuffix isdigit isalpha isalnum isspace"
        " isupper islower isnumeric isdecimal swapcase casefold"
    ),
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("index", "count")),
    tuple: frozenset(("index", "count")),
    int: frozenset(),
    float: frozenset(),
}
"""Attributes a template may use, by type; those left out (pads, format, bytes) can allocate without bound."""

_FILTERS = _words(
    "abs attr capitalize count d default dictsort e escape first float groupby indent int items last length list lower"
    " map max min reject rejectattr reverse round safe select selectattr sort string title trim truncate"
    " unique upper wordcount"
)

_LARGEST_ARGUMENT = 10_000
"""Of whole-number filter arguments (indents, precisions): more is a memory bomb, not a layout."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """One template's environment. Not re-entrant: `meter` belongs to the rendering in progress."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "**", "%"))

    def __init__(self, limits: RenderLimits) -> None:
        # Without the optimiser constants are not folded at compile time, outside the meter.
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[_Generation, loopcontrols], cache_size=0
        )
        self.limits = limits
        self.meter = Meter(limits)
        self.filters = {name: self._guarded(self.filters[name]) for name in _FILTERS}
        self.filters |= {
            "tojson": self._guarded(self._to_json),
            "join": self._join,
            "replace": self._replace,
            "sum": self._sum,
            "_each": self._each,
            "_concat": self._concat_all,
            "_sized": self._sized,
        }
        cycler, joiner = self.globals["cycler"], self.globals["joiner"]
        self.globals.clear()
        self.globals.update(
            range=self._range,
            dict=self._dict,
            namespace=SafeNamespace,
            cycler=cycler,
            joiner=joiner,
            raise_exception=self._raise_exception,
            strftime_now=self._strftime_now,
        )

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Metered().visit(tree)
        return tree

    def concat(self, parts: Iterable[str]) -> str:
        """Join output pieces; the compiled template calls it for every buffer and for the result."""
        kept: list[str] = []
        total = 0
        for part in parts:
            total += len(part)
            if total > self.limits.output:
                self.meter.text(total)
            kept.append(part)
        self.meter.text(total)
        return "".join(kept)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Underscore names never; of plain values only the listed methods."""
        if not super().is_safe_attribute(obj, attr, value):
            return False
        return all(attr in allowed for kind, allowed in _ATTRIBUTES.items() if isinstance(obj, kind))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """No format methods at all (a width in a format string allocates without bound)."""
        return None

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """Refuse at once, instead of a value that fails only when used."""
        raise SecurityError(f"attribute {attribute!r} of {type(obj).__name__!r} is not allowed")

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call from a template: charged; text methods that can grow are checked first."""
        self = __self
        self.meter.step()
        if isinstance(__obj, LoopContext) and args:
            args = (self._each(args[0]), *args[1:])
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            self.meter.text(len(owner))
            name = __obj.__name__
            if name == "join" and len(args) == 1 and not kwargs:
                return self._join(args[0], owner)
            if name == "replace" and len(args) in (2, 3):
                return self._replace(owner, *args, **kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic with bounded results."""
        self.meter.step()
        if operator == "%" and isinstance(left, str):
            raise SecurityError("the % operator on text is not allowed")
        if operator == "+":
            self._check_sum(left, right)
        if operator == "*":
            self._check_product(left, right)
        if operator == "**" and not (_small(left, 1 << 64) and _small(right, 64)):
            raise SecurityError(f"power of {left!r} to {right!r} is not allowed")
        return super().call_binop(context, operator, left, right)

    def _check_sum(self, left: Any, right: Any) -> None:
        if isinstance(left, str) and isinstance(right, str):
            self.meter.text(len(left) + len(right))
        elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
            self.meter.weigh((left, right))

    def _check_product(self, left: Any, right: Any) -> None:
        for value, factor in ((left, right), (right, left)):
            if isinstance(value, str) and isinstance(factor, int):
                self.meter.text(len(value) * max(factor, 0))
            elif isinstance(value, list | tuple) and isinstance(factor, int):
                if self.meter.weigh(value) * max(factor, 0) > self.limits.nodes:
                    raise SecurityError(f"a list repeated {factor} times has more than {self.limits.nodes} parts")
            elif isinstance(value, int) and value.bit_length() > 256:
                raise SecurityError("a whole number of more than 256 bits")

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` as a filter: sized inputs and results are charged, huge whole-number arguments refused."""

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            for value in (*args[1:], *kwargs.values()):
                if isinstance(value, int) and abs(value) > _LARGEST_ARGUMENT:
                    raise SecurityError(f"filter argument {value}, at most {_LARGEST_ARGUMENT} is allowed")
            self.meter.step(1 + sum(len(a) for a in args if isinstance(a, Sized) and not isinstance(a, str | Context)))
            result = function(*args, **kwargs)
            if isinstance(result, str):
                self.meter.text(len(result))
            elif isinstance(result, list | tuple | dict):
                self.meter.weigh(result)
            return result

        return guarded

    def _each(self, values: Any) -> Iterator[Any]:
        for value in values:
            self.meter.step()
            yield value

    def _sized(self, value: Any) -> Any:
        self.meter.weigh(value)
        return value

    def _concat_all(self, parts: Iterable[Any]) -> str:
        return self.concat([str(part) for part in parts])

    def _dict(self, *args: Any, **kwargs: Any) -> Any:
        return self._sized(dict(*args, **kwargs))

    def _range(self, *args: int) -> range:
        values = range(*args)
        if len(values) > self.limits.nodes:
            raise SecurityError(f"range of {len(values)} values, at most {self.limits.nodes} are allowed")
        return values

    def _join(self, values: Any, d: str = "", attribute: str | int | None = None) -> str:
        """`join` with the length known before the text is built."""
        items = list(self._each(values))
        if attribute is not None:
            items = [self.getitem(item, attribute) for item in items]
        texts = [str(item) for item in items]
        self.meter.text(sum(map(len, texts)) + len(d) * max(len(texts) - 1, 0))
        return d.join(texts)

    def _replace(self, text: Any, old: str, new: str, count: int | None = None) -> str:
        """`replace` with the length known before the text is built."""
        value = str(text)
        found = value.count(old)
        if count is not None and count >= 0:
            found = min(found, count)
        self.meter.text(max(len(value) + found * (len(new) - len(old)), len(value)))
        return value.replace(old, new, -1 if count is None else count)

    def _sum(self, values: Any, attribute: str | int | None = None, start: float = 0) -> float:
        """`sum` of numbers only."""
        total = start
        for value in self._each(values):
            number = self.getitem(value, attribute) if attribute is not None else value
            if not isinstance(number, int | float) or not isinstance(total, int | float):
                raise SecurityError("sum of values that are not numbers")
            total += number
        return total

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """JSON with Hugging Face's meaning: no HTML escapes, letters as they are."""
        self.meter.weigh(value)
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def _raise_exception(self, message: str) -> str:
        raise Refused(message)

    def _strftime_now(self, form: str) -> str:
        self.meter.text(len(form) * 32)
        return datetime.now().strftime(form)


def _small(value: object, bound: int) -> bool:
    return isinstance(value, int | float) and abs(value) <= bound
