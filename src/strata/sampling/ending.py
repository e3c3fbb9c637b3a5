"""How an answer of a grammar can be brought to its end from any state, in few tokens: JSON above all."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
SEARCHED = 40
"""States that are looked at for the way out of a string with a pattern, or of a number."""
REPEATS = 4
"""So often a way is taken before another one is tried: what it begins may contain itself."""
_LIKELY = "0a.A-:/@_"
"""Where many characters may come, these stand for their kind."""


class Closers:
    """Tokens of a vocabulary by what they do to JSON."""

    def __init__(self, pieces: Sequence[bytes], control: frozenset[int], stops: Sequence[int], size: int) -> None:
        """`pieces`: the bytes of every token; `size`: ids of the vocabulary."""
        flags = np.zeros((4, size), dtype=np.bool_)
        self.letters, self.brackets, self.quotes, self.separators = flags
        self.lengths = np.zeros(size, dtype=np.int64)
        """How much of a string that has to go on they are: words, then other characters, white space last."""
        self.single: dict[str, int] = {}
        """Printable ASCII characters."""
        self.stops = frozenset(stops)
        self.pieces = pieces
        self._having: dict[str, Flags] = {}
        for token, piece in enumerate(pieces):
            if token in control or not piece:
                continue
            self.letters[token] = len(piece) == 1 and piece.isalpha() and piece not in b"tfneE"
            self.brackets[token] = not piece.strip(b"]}")
            self.quotes[token] = piece == b'"'
            self.separators[token] = piece in (b",", b":")
            self.lengths[token] = _worth(piece)
            if len(piece) == 1 and 32 <= piece[0] < 127:
                self.single[piece.decode()] = token
        self.exits = self.brackets | self.quotes | self.separators
        """What ends a value, or begins the next thing after one."""

    def having(self, marks: str) -> Flags:
        """Tokens that contain one of these characters; all, if there are none."""
        if marks not in self._having:
            codes = set(marks.encode())
            flags = np.zeros(self.letters.size, dtype=np.bool_)
            flags[: len(self.pieces)] = [not codes or not codes.isdisjoint(piece) for piece in self.pieces]
            self._having[marks] = flags
        return self._having[marks]

    def likely(self, allowed: Flags) -> list[int]:
        """Single characters to try: all where they are few, else some of each kind."""
        found = [(letter, token) for letter, token in self.single.items() if allowed[token]]
        if len(found) > 2 * len(_LIKELY):
            found = [(letter, token) for letter, token in found if letter in _LIKELY]
        return [token for letter, token in sorted(found, key=lambda item: _order(item[0]))]

    def longest(self, allowed: Flags) -> int | None:
        """The token that takes a string furthest; None where there is none."""
        lengths = np.where(allowed, self.lengths, -1)
        lengths[list(self.stops)] = -1
        token = int(np.argmax(lengths))
        return token if lengths[token] >= 0 else None


def _worth(piece: bytes) -> int:
    if piece.isalnum() and piece.isascii():
        return 2 * len(piece)
    return int(len(piece) == 1 and not piece.isspace())


@dataclass(slots=True)
class _Walk:
    """A way that is being gone: a matcher of its own, and the tokens so far."""

    matcher: LLMatcher
    made: list[int] = field(default_factory=list)

    def go(self, tokens: Sequence[int]) -> bool:
        """Whether the grammar went along."""
        self.made += tokens
        return self.matcher.consume_tokens(list(tokens))


@dataclass(slots=True)
class _Known:
    """Ways out that were found on one walk, by what was allowed where they begin."""

    ways: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    taken: Counter[tuple[bytes, tuple[int, ...]]] = field(default_factory=Counter)

    def tired(self, seen: bytes) -> set[tuple[int, ...]]:
        """Those that were taken so often that they may lead into themselves."""
        return {way for (place, way), times in self.taken.items() if place == seen and times >= REPEATS}


class ShortestEnd:
    """Finds short ways to an end of one grammar's answers. The same state always gives the same way."""

    def __init__(
        self, closers: Closers, names: Sequence[str], closings: Sequence[str], encode: Callable[[str], list[int]]
    ) -> None:
        """`names`: of tools, of members that objects must have, and other likely strings, up to what ends them;
        `closings`: what ends reasoning, and other free text. The first that fits is taken.
        """
        self._closers = closers
        self._names = [encode(name) for name in names]
        self._closings = [encode(closing) for closing in closings]
        self._encode = encode

    def path(self, matcher: LLMatcher, limit: int) -> tuple[int, ...] | None:
        """Tokens from the state of `matcher`, which stays there, to one in which the answer may end; None: no such way
        was found within `limit` tokens.
        """
        walk = _Walk(matcher.deep_copy())
        known = _Known()
        while len(walk.made) <= limit:
            if walk.matcher.is_error():
                return None
            if walk.matcher.is_accepting():
                return self._merged(matcher, walk.made)
            tokens = walk.matcher.compute_ff_tokens() or self._choice(walk, known)
            if not tokens or not walk.go(tokens):
                return None
        return None

    def _merged(self, matcher: LLMatcher, made: Sequence[int]) -> tuple[int, ...]:
        """The same text in the fewer tokens that it is usually written in, where the grammar takes them."""
        try:
            usual = self._encode(b"".join(self._closers.pieces[token] for token in made).decode())
        except UnicodeDecodeError:  # it begins within a character
            return tuple(made)
        ahead = matcher.deep_copy()
        shorter = len(usual) < len(made) and matcher.validate_tokens(usual) == len(usual)
        return tuple(usual if shorter and ahead.consume_tokens(usual) and ahead.is_accepting() else made)

    def _fits(self, walk: _Walk, tokens: Sequence[int]) -> bool:
        return bool(tokens) and walk.matcher.validate_tokens(list(tokens)) == len(tokens)

    def _choice(self, walk: _Walk, known: _Known) -> Sequence[int]:
        """What to write where several tokens may come; none: there is nothing."""
        closers = self._closers
        seen = walk.matcher.compute_bitmask()
        for closing in self._closings:
            if self._fits(walk, closing) and _changes(walk.matcher, closing, seen):
                return closing
        allowed = flags_of(seen, closers.letters.size)
        inside = bool((allowed & closers.letters).any())
        for each in (closers.quotes,) if inside else (closers.brackets, closers.quotes, closers.separators):
            if (both := allowed & each).any():
                return [int(np.argmax(np.where(both, closers.lengths, -1)))]
        if inside:
            name = next((name for name in self._names if self._fits(walk, name)), None)
            if name is not None:
                return name
        way = known.ways.get(seen, ())
        tired = known.taken[seen, way] >= REPEATS
        if tired or not self._fits(walk, way):
            other = self._way_out(walk.matcher, closers.quotes if inside else closers.exits, known.tired(seen))
            way = known.ways[seen] = other or way
        if self._fits(walk, way):
            known.taken[seen, way] += 1
            return way
        longest = closers.longest(allowed)
        return [] if longest is None else [longest]

    def _way_out(self, matcher: LLMatcher, exits: Flags, tired: Collection[tuple[int, ...]]) -> tuple[int, ...]:
        """The fewest characters after which one of `exits` may come, or the end, and which are not `tired`; none where
        none is in sight.

        Two ways are the same where the same tokens were allowed one after the other, repetitions left out.
        """
        trail: tuple[bytes, ...] = (matcher.compute_bitmask(),)
        left: deque[tuple[LLMatcher, list[int], tuple[bytes, ...]]] = deque([(matcher, [], trail)])
        seen = {trail}
        for _ in range(SEARCHED):
            if not left:
                break
            state, made, trail = left.popleft()
            for token in self._closers.likely(flags_of(trail[-1], exits.size)):
                ahead = state.deep_copy()
                if not ahead.consume_token(token):
                    continue
                bits = ahead.compute_bitmask()
                if ahead.is_error():
                    continue
                out = ahead.is_accepting() or bool((flags_of(bits, exits.size) & exits).any())
                if out and (*made, token) not in tired:
                    return (*made, token)
                longer = trail if bits == trail[-1] else (*trail, bits)
                if longer not in seen:
                    seen.add(longer)
                    left.append((ahead, [*made, token], longer))
        return ()


def _changes(matcher: LLMatcher, tokens: Sequence[int], seen: bytes) -> bool:
    """Whether other tokens than those `seen` may come after these: in free text they would be more of it."""
    ahead = matcher.deep_copy()
    return ahead.consume_tokens(list(tokens)) and bytes(ahead.compute_bitmask()) != seen


def _order(letter: str) -> tuple[int, str]:
    return (_LIKELY.index(letter) if letter in _LIKELY else len(_LIKELY), letter)


def flags_of(bits: bytes, size: int) -> Flags:
    """[size], True for the tokens of a matcher's bitmask."""
    return np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=size, bitorder="little").view(np.bool_)
