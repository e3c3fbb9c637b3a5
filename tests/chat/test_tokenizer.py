"""Ids against the tokenizers library itself, reading the same vocabulary from tokenizer.json."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from chat.tiny_tokenizer import CORPUS, metadata_of, tiny, tokenizer_json
from strata.chat import tokenizer as chat_tokenizer
from strata.chat.tokenizer import from_folder, from_metadata
from strata.checkpoint.metadata import Metadata
from strata.core.errors import CheckpointError, RequestError, UnsupportedError

PRES = ("qwen2", "qwen35", "smollm", "llama-bpe", "gpt-2")

HARD = [
    "",
    " ",
    "\n\n  \n",
    "漢字かな交じり文、中文句子。",
    "😀👨‍👩‍👧🇨🇭 mixed 🎉!",
    "cafe\u0301 naïve e\u0301\u0300 क्षि नमस्ते",
    "def f(x):\n\treturn x**2  # it's 12345.678\r\n\r\n",
    "IT'S we'LL 'S 1234567 ٣٤٥ ²³",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\nhm</think>\n\nok<|endoftext|>",
    "a\u00a0b\u2003c \u200b end   ",
    "\x00\x01\x7f\ufeff\ufffd",
]


def words(count: int) -> list[str]:
    """Words of the corpus and made-up ones, half of them with a space in front."""
    draw = random.Random(5)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFéüßñçœ漢字かнж123'-_"
    made = ["".join(draw.choices(letters, k=draw.randint(1, 12))) for _ in range(count)]
    return [(" " if draw.random() < 0.5 else "") + word for word in [*CORPUS.split(), *made]][:count]


@pytest.mark.parametrize("pre", PRES)
def test_ids_from_gguf_metadata_equal_the_library(pre: str) -> None:
    ours, library = tiny(pre), Library.from_str(tokenizer_json(pre))
    for text in [*words(5000), *HARD, CORPUS]:
        assert ours.encode(text) == library.encode(text).ids, text


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60))
def test_any_text_encodes_as_the_library_and_comes_back(text: str) -> None:
    ours, library = tiny("gpt-2"), Library.from_str(tokenizer_json("gpt-2"))
    ids = ours.encode(text)
    assert ids == library.encode(text).ids
    assert ours.decode(ids, control=True) == text


def test_wrong_pre_tokenizer_is_noticed() -> None:
    # Negative control: the comparison above tells the splits apart.
    definition = json.loads(tokenizer_json("qwen2"))
    ours = from_metadata(metadata_of(definition, "gpt-2"))
    library = Library.from_str(tokenizer_json("qwen2"))
    assert any(ours.encode(text) != library.encode(text).ids for text in [*words(500), *HARD])


def test_the_qwen_splits_differ_on_combining_marks() -> None:
    definition = json.loads(tokenizer_json("qwen35"))
    old, new = (from_metadata(metadata_of(definition, pre)).encode("नमस्ते") for pre in ("qwen2", "qwen35"))
    assert old != new


def test_markers_are_one_id_each() -> None:
    tokenizer = tiny()
    ids = tokenizer.encode("<|im_start|>user\nhi<|im_end|>")
    assert ids[0] == tokenizer.ids["<|im_start|>"]
    assert ids[-1] == tokenizer.ids["<|im_end|>"]
    assert tokenizer.decode(ids) == "user\nhi"


def test_begin_token_appears_exactly_once() -> None:
    tokenizer = tiny(bos_token_id=0, add_bos_token=True)
    assert tokenizer.encode("hi")[0] == 0
    assert tokenizer.encode("<|endoftext|>hi").count(0) == 1
    assert tokenizer.encode("hi", bos=False)[0] != 0


def test_stop_ids_are_the_union_of_what_is_declared_and_known_by_name() -> None:
    tokenizer = tiny(eot_token_id=5)
    assert set(tokenizer.stop_ids) == {0, 2, 5}


@pytest.mark.parametrize(
    ("key", "value", "error", "said"),
    [
        ("model", "llama", UnsupportedError, "tokenizer.ggml.model: 'llama'"),
        ("pre", "tekken", UnsupportedError, "tokenizer.ggml.pre: 'tekken'"),
        ("tokens", ["a", "a"], CheckpointError, "different tokens"),
        ("tokens", [1, 2], CheckpointError, "expected a string"),
        ("token_type", [1, 2, 3], CheckpointError, "array of"),
        ("merges", ["a bc\u0000"], CheckpointError, r"merges\[0\]"),
        ("merges", ["ab"], CheckpointError, r"merges\[0\]"),
        ("eos_token_id", 10**9, CheckpointError, "eos_token_id"),
    ],
)
def test_bad_metadata_is_named(key: str, value: object, error: type[Exception], said: str) -> None:
    metadata = metadata_of(json.loads(tokenizer_json("qwen2")), "qwen2", **{key: value})
    with pytest.raises(error, match=said):
        from_metadata(metadata)


def test_folder_reads_all_declared_end_ids(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer_json("qwen2"), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<think>"}}')
    values: dict[str, Any] = {"eos_token_id": 9, "generation.eos_token_id": (7, 0)}
    tokenizer = from_folder(tmp_path, Metadata(tmp_path, values))
    assert {0, 2, 7, 9, tokenizer.ids["<think>"]} == set(tokenizer.stop_ids)
    library = Library.from_str(tokenizer_json("qwen2"))
    assert all(tokenizer.encode(t) == library.encode(t).ids for t in HARD)
    assert all(tokenizer.piece(i) == tiny().piece(i) for i in range(tokenizer.size))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("nope", CheckpointError),
        ('{"model": {"type": "Unigram"}}', UnsupportedError),
        ('{"model": {"type": "BPE", "vocab": {"a": 0}}, "decoder": {"type": "ByteLevel"}}', CheckpointError),
    ],
)
def test_bad_tokenizer_json_is_named(tmp_path: Path, content: str, error: type[Exception]) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(error, match=r"tokenizer\.json"):
        from_folder(tmp_path, Metadata(tmp_path, {}))


def test_missing_tokenizer_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: expected a file"):
        from_folder(tmp_path, Metadata(tmp_path, {}))


def test_lone_surrogates_are_refused() -> None:
    with pytest.raises(RequestError, match="not valid Unicode"):
        tiny().encode("a\ud800b")


def test_every_byte_has_a_letter() -> None:
    assert sorted(chat_tokenizer.BYTE_OF_LETTER.values()) == list(range(256))


def test_markers_of_reasoning_are_text_even_where_the_vocabulary_calls_them_control() -> None:
    definition = json.loads(tokenizer_json("qwen2"))
    for token in definition["added_tokens"]:
        token["special"] = True
    tokenizer = from_metadata(metadata_of(definition, "qwen2"))
    assert tokenizer.decode(tokenizer.encode("<think>a</think>b<|im_end|>")) == "<think>a</think>b"


def test_ids_beyond_the_vocabulary_are_no_text() -> None:
    tokenizer = tiny()
    assert tokenizer.piece(tokenizer.size + 3) == b""


def test_empty_metadata_names_the_key() -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.ggml\.model"):
        from_metadata(Metadata(Path("x.gguf"), {}))
