"""Reasoning over borders."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.chat.reasoning import ReasoningSplitter


def run(pieces: list[str], opened: bool) -> tuple[str, str]:
    splitter = ReasoningSplitter(opened)
    parts = [part for piece in pieces for part in splitter.push(piece)] + splitter.flush()
    assert all(part.text for part in parts)
    return (
        "".join(p.text for p in parts if p.reasoning),
        "".join(p.text for p in parts if not p.reasoning),
    )


CASES = [
    ("<think>\nhm\n\nso\n</think>\n\nHello", False, ("hm\n\nso", "Hello")),
    ("\nhm\n</think>\n\nHello\n", True, ("hm", "Hello\n")),
    ("  <think>a</think>b", False, ("a", "b")),
    ("Hello <think>x</think>", False, ("", "Hello <think>x</think>")),
    ("<think>cut short", False, ("cut short", "")),
    ("<think>half a </thi", False, ("half a </thi", "")),
    ("<thin", False, ("", "<thin")),
    ("<thing>", False, ("", "<thing>")),
    ("", True, ("", "")),
    ("</think>ok", True, ("", "ok")),
    ("\n\n</think>\n\n", True, ("", "")),
    ("  plain", False, ("", "  plain")),
    ("<think>a</think><think>b</think>", False, ("a", "<think>b</think>")),
]


@pytest.mark.parametrize(("text", "opened", "expected"), CASES)
def test_split_whole_and_letter_by_letter(text: str, opened: bool, expected: tuple[str, str]) -> None:
    assert run([text], opened) == expected
    assert run(list(text), opened) == expected


@given(st.sampled_from(CASES), st.lists(st.integers(0, 40), max_size=5))
def test_cuts_change_nothing(case: tuple[str, bool, tuple[str, str]], cuts: list[int]) -> None:
    text, opened, expected = case
    borders = sorted({0, len(text), *(min(c, len(text)) for c in cuts)})
    assert run([text[a:b] for a, b in pairwise(borders)], opened) == expected
