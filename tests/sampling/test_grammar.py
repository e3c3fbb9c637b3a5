"""Masks: against a twin that spells out every text of a small language, with rollback, and the budget of reasoning."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.core.errors import EngineError, RequestError
from strata.sampling.constraint import Constraint, read_constraint
from strata.sampling.grammar import MaskMaker, Vocabulary
from strata.sampling.mask import TokenMask

CONTROL = [b"<end>", b"<turn>"]
PIECES = [
    *CONTROL,
    *(bytes([i]) for i in range(256)),
    b"ab",
    b"abc",
    b"bc",
    b"<think>",
    b"</think>",
    b"\n\n",
    "é".encode(),
]
STOP, SIZE = 0, len(PIECES) + 3
"""A row of logits is longer than the vocabulary."""


LONGER = sorted(range(258, len(PIECES)), key=lambda token: -len(PIECES[token]))


def encode(text: str) -> list[int]:
    """Longest pieces first."""
    data, ids = text.encode(), []
    while data:
        ids.append(next((token for token in LONGER if data.startswith(PIECES[token])), 2 + data[0]))
        data = data[len(PIECES[ids[-1]]) :]
    return ids


MAKER = MaskMaker(lambda: Vocabulary(PIECES, frozenset((0, 1)), [STOP], encode), SIZE)
WORDS = ["abc", "abcabc", "ab\n", "bé", "b", ""]


def words(*texts: str) -> Constraint:
    return Constraint("start: " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts))


def allowed(mask: TokenMask) -> list[int]:
    found = mask.mask()
    assert found is not None and found.shape == (SIZE,)
    return [int(i) for i in np.flatnonzero(found)]


def twin(texts: Sequence[str], made: bytes) -> list[int]:
    """Tokens after `made`, by spelling out the language."""
    tokens = [i for i, p in enumerate(PIECES) if i > 1 and any(t.encode().startswith(made + p) for t in texts)]
    return sorted(
        [*tokens, *([STOP] if made.decode(errors="ignore") in texts and made in [t.encode() for t in texts] else [])]
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), max_size=12))
def test_a_mask_is_the_language_and_goes_back(steps: list[tuple[int, int]]) -> None:
    mask = MAKER.make(words(*WORDS))
    made: list[int] = []
    for choice, back in steps:
        text = b"".join(PIECES[i] for i in made)
        expected = twin(WORDS, text)
        found = allowed(mask)
        assert set(found) <= set(expected)
        for other in set(expected) - set(found):  # where only one text is left, it is spelled in one way
            assert any(PIECES[token].startswith(PIECES[other]) for token in found)
        assert not mask.fitting([2 + ord("z")]) and mask.fitting([STOP]) == (STOP in expected)
        expected = found
        token = expected[choice % len(expected)]
        mask.advance(token)
        made.append(token)
        if token == STOP:
            assert mask.mask() is None, "what comes after the end is of no matter"
            mask.advance(5)
            mask.rollback(2)
            made.pop()
        gone = min(back, len(made))
        mask.rollback(gone)
        del made[len(made) - gone :]


def test_another_language_is_another_mask() -> None:
    """The comparison above is not blind."""
    assert allowed(MAKER.make(words("abc"))) != twin(["abd"], b"ab")


def test_how_many_drafts_fit() -> None:
    mask = MAKER.make(words("abcabc", "ab"))
    a, b, c = (2 + ord(letter) for letter in "abc")
    assert mask.fitting([a, b, STOP, 7]) == 3
    assert mask.fitting([a, b, c, STOP]) == 3
    assert mask.fitting([a, c]) == 1
    assert mask.fitting([]) == 0
    mask.advance(a)
    assert mask.fitting([b, c]) == 2
    with pytest.raises(EngineError, match=r"does not fit the grammar|cannot be followed"):
        mask.advance(c)


@pytest.mark.parametrize("grammar", ["start: nowhere", 'start: "a', "x", "{", "start: /(/"])
def test_what_cannot_be_compiled_is_refused(grammar: str) -> None:
    with pytest.raises(RequestError, match="cannot be compiled"):
        MAKER.make(Constraint(grammar))


def run(mask: TokenMask, wanted: Sequence[int], count: int) -> str:
    """The text when these tokens are taken as long as they are allowed, else the first that is."""
    made = []
    for number in range(count):
        found = mask.mask()
        token = wanted[number % len(wanted)]
        if found is not None and not found[token]:
            token = int(np.flatnonzero(found)[0])
        mask.advance(token)
        made.append(token)
        if token == STOP:
            break
    return b"".join(PIECES[i] for i in made).decode()


def test_reasoning_is_closed_when_its_budget_is_used_up() -> None:
    assert run(MAKER.make(Constraint(budget=3)), encode("a"), 9) == "aaa\n</think>\n\naaa"
    assert run(MAKER.make(Constraint(budget=0)), encode("a"), 4) == "\n</think>\n\na"
    ended = [*encode("a</think>"), *encode("b")]
    assert run(MAKER.make(Constraint(budget=2)), ended, 6) == "a</think>ba</think>b", "who ends in time is let be"
    split = [2 + byte for byte in b"</think>"]
    assert run(MAKER.make(Constraint(budget=9)), [*split, *encode("b")], 12) == "</think>b</t", "in pieces too"


def test_an_answer_that_does_not_reason_has_no_budget() -> None:
    own = Constraint(budget=3, opened=False)
    assert run(MAKER.make(own), encode("a"), 6) == "aaaaaa"
    thinking = [*encode("\n<think>"), *encode("aaaa")]
    assert run(MAKER.make(own), thinking, 6) == "\n<think>a\n</think>\n\n"


def test_a_budget_beside_a_grammar_and_back() -> None:
    grammar = 'start: thought gap "b"\nthought[suffix="</think>"]: /(?s:.*)/\ngap: /\\n{0,2}/'
    mask = MAKER.make(Constraint(grammar, budget=2))
    assert run(mask, encode("a"), 20) == "aa\n</think>\n\nb<end>"
    mask.rollback(5)
    assert allowed(mask) == encode("\n")
    assert mask.fitting(encode("\n</think>\n\nb")) == 4
    assert mask.fitting(encode("a")) == 0


CONSTRAINTS = st.builds(
    Constraint,
    st.text(max_size=20),
    st.none() | st.integers(0, 10**9),
    st.just("</t>"),
    st.just("x</t>"),
    most=st.none() | st.integers(1, 10**9),
    opened=st.booleans(),
)


@given(CONSTRAINTS)
def test_a_constraint_is_one_word(value: Constraint) -> None:
    word = value.written()
    assert word.split() == [word] and "=" not in word.rstrip("=")
    assert read_constraint(word) == value


@pytest.mark.parametrize("word", ["", "x", "!!", "bnVsbA==", "e30", "eyJncmFtbWFyIjogM30="])
def test_another_word_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="constraint"):
        read_constraint(word)


def test_a_constraint_asks_for_something() -> None:
    with pytest.raises(RequestError, match="grammar, a budget"):
        MAKER.make(Constraint())
    with pytest.raises(RequestError, match="0 tokens or more"):
        Constraint(budget=-1)
