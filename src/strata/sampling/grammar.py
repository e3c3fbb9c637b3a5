"""Masks by grammar: llguidance on the model's vocabulary, compiled once and shared by requests."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from numpy.typing import NDArray

from strata.core.errors import EngineError, RequestError
from strata.sampling.budget import Budgeted
from strata.sampling.constraint import Constraint
from strata.sampling.ending import Closers, flags_of
from strata.sampling.mask import TokenMask
from strata.sampling.timely import Ends, TimelyMask, ends_of

KEPT = 64
"""Compiled grammars, the least recently used goes first."""


def limits() -> LLParserLimits:
    """Work that a grammar may cause at most: about 50 ms to compile it, 15 ms for one mask."""
    return LLParserLimits(
        initial_lexer_fuel=4_000_000, step_lexer_fuel=200_000, step_max_items=50_000, verbose_errors=False
    )


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What tokens stand for."""

    pieces: Sequence[bytes]
    """Bytes by id; of control tokens their name."""
    control: frozenset[int]
    """Never text."""
    stops: Sequence[int]
    """May end an answer where the grammar lets it end."""
    encode: Callable[[str], list[int]]


class _Wrapped:
    """A vocabulary in the form that LLTokenizer looks for."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._encode = vocabulary.encode
        # A byte that is no UTF-8 marks what a grammar's text can never spell.
        self.tokens = [
            b"\xff" + piece if token in vocabulary.control else piece for token, piece in enumerate(vocabulary.pieces)
        ]
        self.special_token_ids = sorted(vocabulary.control)
        self.eos_token_id = vocabulary.stops[0]

    def __call__(self, text: str | bytes) -> list[int]:
        return self._encode(text if isinstance(text, str) else text.decode(errors="replace"))


class GrammarMask:
    """A TokenMask by a compiled grammar."""

    def __init__(self, matcher: LLMatcher, stops: frozenset[int], size: int) -> None:
        """`size`: ids of the vocabulary; `matcher` is this mask's own."""
        self._matcher = matcher
        self._stops = stops
        self._size = size
        self._ended = 0
        """Tokens from the stop on: what comes then is of no matter."""

    def mask(self) -> NDArray[np.bool_] | None:
        """See TokenMask."""
        if self._ended:
            return None
        allowed = flags_of(self._matcher.compute_bitmask(), self._size)
        self._check()
        return allowed

    def advance(self, token: int) -> None:
        """See TokenMask."""
        if self._ended or token in self._stops:
            self._ended += 1
        elif not self._matcher.consume_token(token):
            self._check()
            raise EngineError(f"token {token} does not fit the grammar")

    def rollback(self, count: int) -> None:
        """See TokenMask."""
        after = min(count, self._ended)
        self._ended -= after
        if count > after:
            self._matcher.rollback(count - after)
            self._check()

    def fitting(self, tokens: Sequence[int]) -> int:
        """See TokenMask."""
        end = next((place for place, token in enumerate(tokens) if token in self._stops), len(tokens))
        fit = 0 if self._ended else self._matcher.validate_tokens(list(tokens[:end]))
        if fit < end or end == len(tokens):
            return fit
        return end + 1 if self._ends_after(tokens[:end]) else end

    def _ends_after(self, tokens: Sequence[int]) -> bool:
        if not tokens:
            return self._matcher.is_accepting()
        ahead = self._matcher.deep_copy()
        return ahead.consume_tokens(list(tokens)) and ahead.is_accepting()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise EngineError(f"the grammar cannot be followed any further: {self._matcher.get_error()[:300]}")


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A grammar in the form that masks are made from."""

    matcher: LLMatcher
    """Never advanced itself."""
    ends: Ends | None = None
    """Where an answer was asked to end in time."""


class MaskMaker:
    """Masks for the requests of one model. Thread-safe."""

    def __init__(self, vocabulary: Callable[[], Vocabulary], size: int) -> None:
        """`vocabulary` is asked for once, when the first mask is; `size`: logits of a row."""
        self._source = vocabulary
        self._size = size
        self._known: tuple[Vocabulary, LLTokenizer, Closers] | None = None
        self._compiled: OrderedDict[tuple[object, ...], _Compiled] = OrderedDict()
        """By grammar, and what leads to ends where they are known."""
        self._lock = threading.Lock()

    def prepare(self, constraint: Constraint) -> None:
        """Compile what is not compiled yet; RequestError when it cannot be."""
        if constraint.grammar:
            self._grammar(constraint)

    def short_answer(self, constraint: Constraint) -> Sequence[int] | None:
        """Tokens of a short answer to what has to end in time; None: none was found."""
        ends = self._grammar(constraint).ends
        return None if ends is None else ends.first

    def make(self, constraint: Constraint) -> TokenMask:
        """A mask at the beginning of an answer; RequestError when the grammar cannot be compiled."""
        vocabulary = self._vocabulary()[0]
        inner: TokenMask | None = None
        if constraint.grammar:
            compiled = self._grammar(constraint)
            matcher = compiled.matcher.deep_copy()
            inner = GrammarMask(matcher, frozenset(vocabulary.stops), self._size)
            if compiled.ends is not None and constraint.most is not None:
                inner = TimelyMask(inner, matcher, compiled.ends, constraint.most)
        if constraint.budget is None:
            if inner is None:
                raise RequestError("a constraint has a grammar, a budget, or both", param="mask")
            return inner
        closing = vocabulary.encode(constraint.closing)
        return Budgeted(inner, constraint, closing, vocabulary.pieces, self._size)

    def _vocabulary(self) -> tuple[Vocabulary, LLTokenizer, Closers]:
        with self._lock:
            if self._known is None:
                vocabulary = self._source()
                wrapped: Any = _Wrapped(vocabulary)
                closers = Closers(vocabulary.pieces, vocabulary.control, vocabulary.stops, self._size)
                self._known = vocabulary, LLTokenizer(wrapped, eos_token=list(vocabulary.stops)), closers
            return self._known

    def _grammar(self, constraint: Constraint) -> _Compiled:
        vocabulary, tokenizer, closers = self._vocabulary()
        ways = (constraint.closing, constraint.marks, constraint.closings, constraint.names)
        key = (constraint.grammar, () if constraint.most is None else ways)
        with self._lock:
            if key in self._compiled:
                self._compiled.move_to_end(key)
                return self._compiled[key]
        matcher = LLMatcher(tokenizer, constraint.grammar, log_level=0, limits=limits())
        if matcher.is_error():
            raise RequestError(f"the grammar cannot be compiled: {matcher.get_error()[:600]}", param="mask")
        ends = None if constraint.most is None else ends_of(constraint, matcher, closers, vocabulary.encode)
        with self._lock:
            self._compiled[key] = _Compiled(matcher, ends)
            while len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
            return self._compiled[key]
