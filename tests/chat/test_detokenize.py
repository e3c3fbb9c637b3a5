"""Bytes come through whole."""

from hypothesis import given, settings
from hypothesis import strategies as st

from chat.tiny_tokenizer import tiny
from strata.chat.detokenize import Detokenizer
from strata.chat.tokenizer import BYTE_OF_LETTER

FAMILY = "A😀漢é🇨🇭👨‍👩‍👧"


def byte_ids(text: str) -> list[int]:
    tokenizer = tiny()
    letter = {byte: letter for letter, byte in BYTE_OF_LETTER.items()}
    single = {text: i for i, text in enumerate(tokenizer._pieces)}
    return [single[letter[byte]] for byte in text.encode()]


def test_characters_of_several_tokens_are_never_split() -> None:
    detokenizer = Detokenizer(tiny())
    deltas = [detokenizer.push(i) for i in byte_ids(FAMILY)]
    assert "".join(deltas) + detokenizer.flush() == FAMILY
    assert all("\ufffd" not in delta for delta in deltas)


def test_a_cut_character_shows_once_at_the_end() -> None:
    detokenizer = Detokenizer(tiny())
    assert [detokenizer.push(i) for i in byte_ids("😀")[:2]] == ["", ""]
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""


def test_control_tokens_are_no_text() -> None:
    tokenizer = tiny()
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.push(tokenizer.ids["<|im_end|>"]) == ""
    assert detokenizer.push(tokenizer.ids["<think>"]) == "<think>"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, tiny().size - 1), max_size=40))
def test_joined_deltas_are_the_text_of_the_bytes(ids: list[int]) -> None:
    tokenizer = tiny()
    detokenizer = Detokenizer(tokenizer)
    deltas = [detokenizer.push(i) for i in ids] + [detokenizer.flush()]
    assert "".join(deltas) == tokenizer.decode(ids)
    for delta in deltas:
        assert delta.encode().decode() == delta
