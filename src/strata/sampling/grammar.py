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
from strata.sampling.mask import TokenMask

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


@dataclass(frozen=True, slots=True)
class Hurry:
    """Brings JSON to its end in time: which tokens go before all others, from a token of the answer on."""

    after: int
    letters: NDArray[np.bool_]
    """Where one of these is allowed, a string is open: they are part of no number, and begin no true, false or null."""
    inside: Sequence[NDArray[np.bool_]]
    """Within a string: of what is allowed, the first of these sets that is not empty."""
    outside: Sequence[NDArray[np.bool_]]
    """The same elsewhere."""

    def of(self, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """What goes before the rest of `allowed`."""
        sets = self.inside if (allowed & self.letters).any() else self.outside
        return next((both for each in sets if (both := allowed & each).any()), allowed)


class GrammarMask:
    """A TokenMask by a compiled grammar."""

    def __init__(self, matcher: LLMatcher, stops: frozenset[int], size: int, hurry: "Hurry | None" = None) -> None:
        """`size`: ids of the vocabulary; `matcher` is this mask's own."""
        self._matcher = matcher
        self._stops = stops
        self._size = size
        self._hurry = hurry
        self._made = 0
        self._ended = 0
        """Tokens from the stop on: what comes then is of no matter."""

    def mask(self) -> NDArray[np.bool_] | None:
        """See TokenMask."""
        if self._ended:
            return None
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._check()
        allowed = np.unpackbits(bits, count=self._size, bitorder="little").view(np.bool_)
        if self._hurry is None or self._made < self._hurry.after:
            return allowed
        return self._hurry.of(allowed)

    def advance(self, token: int) -> None:
        """See TokenMask."""
        self._made += 1
        if self._ended or token in self._stops:
            self._ended += 1
        elif not self._matcher.consume_token(token):
            self._check()
            raise EngineError(f"token {token} does not fit the grammar")

    def rollback(self, count: int) -> None:
        """See TokenMask."""
        self._made -= count
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


class MaskMaker:
    """Masks for the requests of one model. Thread-safe."""

    def __init__(self, vocabulary: Callable[[], Vocabulary], size: int) -> None:
        """`vocabulary` is asked for once, when the first mask is; `size`: logits of a row."""
        self._source = vocabulary
        self._size = size
        self._known: tuple[Vocabulary, LLTokenizer] | None = None
        self._closers: tuple[NDArray[np.bool_], Sequence[NDArray[np.bool_]], Sequence[NDArray[np.bool_]]] | None = None
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()

    def prepare(self, constraint: Constraint) -> None:
        """Compile what is not compiled yet; RequestError when it cannot be."""
        if constraint.grammar:
            self._matcher(constraint.grammar)

    def make(self, constraint: Constraint) -> TokenMask:
        """A mask at the beginning of an answer; RequestError when the grammar cannot be compiled."""
        vocabulary, _ = self._vocabulary()
        inner: TokenMask | None = None
        if constraint.grammar:
            matcher = self._matcher(constraint.grammar).deep_copy()
            hurry = None if constraint.hurry is None else self._ending(vocabulary, constraint.hurry)
            inner = GrammarMask(matcher, frozenset(vocabulary.stops), self._size, hurry)
        if constraint.budget is None:
            if inner is None:
                raise RequestError("a constraint has a grammar, a budget, or both", param="mask")
            return inner
        closing = vocabulary.encode(constraint.closing)
        return Budgeted(inner, constraint, closing, vocabulary.pieces, self._size)

    def _ending(self, vocabulary: Vocabulary, after: int) -> Hurry:
        """First the end itself, then what closes something, then what separates."""
        if self._closers is None:
            sets = np.zeros((5, self._size), dtype=np.bool_)
            letters, ends, brackets, quotes, separators = sets
            ends[list(vocabulary.stops)] = True
            for token, piece in enumerate(vocabulary.pieces):
                if token in vocabulary.control or not piece:
                    continue
                letters[token] = len(piece) == 1 and piece.isalpha() and piece not in b"tfneE"
                brackets[token] = not piece.strip(b"]}")
                quotes[token] = piece == b'"'
                separators[token] = piece in (b",", b":")
            self._closers = letters, (quotes,), (ends, brackets, quotes, separators)
        return Hurry(after, *self._closers)

    def _vocabulary(self) -> tuple[Vocabulary, LLTokenizer]:
        with self._lock:
            if self._known is None:
                vocabulary = self._source()
                wrapped: Any = _Wrapped(vocabulary)
                self._known = vocabulary, LLTokenizer(wrapped, eos_token=list(vocabulary.stops))
            return self._known

    def _matcher(self, grammar: str) -> LLMatcher:
        """The compiled grammar, which is never advanced itself."""
        _, tokenizer = self._vocabulary()
        with self._lock:
            if grammar in self._compiled:
                self._compiled.move_to_end(grammar)
                return self._compiled[grammar]
        matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits())
        if matcher.is_error():
            raise RequestError(f"the grammar cannot be compiled: {matcher.get_error()[:600]}", param="mask")
        with self._lock:
            self._compiled[grammar] = matcher
            while len(self._compiled) > KEPT:
                self._compiled.popitem(last=False)
        return matcher
