"""A folder's tokenizer as GGUF keys reads every text as the folder does."""

import json
from pathlib import Path
from typing import Any

import pytest

from chat.tiny_tokenizer import tokenizer_json
from strata.chat.tokenizer import Tokenizer, from_folder, from_metadata
from strata.checkpoint.metadata import Metadata
from strata.checkpoint.typed import Typed
from strata.convert.vocabulary import vocabulary_keys
from strata.core.errors import CheckpointError, UnsupportedError

TEXTS = (
    "Straße naïve e\u0301 1234567 <|im_start|>user\nwe'll see<|im_end|>\n\n\n  def f(x):\r\n\treturn 漢字 😀👨‍👩‍👧",
    "  leading, trailing  \n",
    "<think>x</think>  <tool_call>",
    "",
)
SIZE = 720


def folder(tmp_path: Path, definition: dict[str, Any] | str, **config: Any) -> tuple[Path, Metadata]:
    text = definition if isinstance(definition, str) else json.dumps(definition)
    (tmp_path / "tokenizer.json").write_text(text)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path, Metadata(tmp_path / "config.json", {"eos_token_id": 0})


def read(keys: dict[str, Typed]) -> Tokenizer:
    return from_metadata(Metadata(Path("m.gguf"), {k: t.value for k, t in keys.items()}))


@pytest.mark.parametrize("pre", ["qwen2", "qwen35", "llama-bpe", "smollm", "gpt-2"])
def test_same_ids_as_the_folder(tmp_path: Path, pre: str) -> None:
    path, meta = folder(tmp_path, tokenizer_json(pre), eos_token="<|im_end|>", chat_template="{{ x }}")
    keys = vocabulary_keys(path, meta, SIZE)
    assert keys["tokenizer.ggml.pre"].value == pre
    ours, theirs = read(keys), from_folder(path, meta)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text)
        assert ours.decode(ours.encode(text), control=True) == theirs.decode(theirs.encode(text), control=True)
    assert (ours.stop_ids, ours.bos, ours.control) == (theirs.stop_ids, theirs.bos, theirs.control)
    assert keys["tokenizer.ggml.eos_token_id"].value == ours.ids["<|im_end|>"]
    assert keys["tokenizer.chat_template"].value == "{{ x }}"
    tokens, types = keys["tokenizer.ggml.tokens"].value, keys["tokenizer.ggml.token_type"].value
    assert isinstance(tokens, tuple) and isinstance(types, tuple)
    assert len(tokens) == len(types) == SIZE and types[SIZE - 1] == 5 and types[ours.ids["<think>"]] == 4


def test_a_begin_token_that_the_tokenizer_puts_first(tmp_path: Path) -> None:
    definition = json.loads(tokenizer_json("llama-bpe"))
    definition["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}},
    }
    path, meta = folder(tmp_path, definition)
    keys = vocabulary_keys(path, meta, SIZE)
    assert keys["tokenizer.ggml.add_bos_token"].value is True
    assert read(keys).encode("the fox") == from_folder(path, meta).encode("the fox")


def test_the_template_has_a_file_of_its_own(tmp_path: Path) -> None:
    path, meta = folder(tmp_path, tokenizer_json("qwen2"), chat_template="old")
    (path / "chat_template.jinja").write_text("new")
    assert vocabulary_keys(path, meta, SIZE)["tokenizer.chat_template"].value == "new"


def test_many_ends(tmp_path: Path) -> None:
    path, _ = folder(tmp_path, tokenizer_json("qwen2"), eos_token="<|im_end|>")
    meta = Metadata(path / "config.json", {"eos_token_id": 0, "generation.eos_token_id": (2, 7, 9)})
    assert read(vocabulary_keys(path, meta, SIZE)).stop_ids == from_folder(path, meta).stop_ids == (0, 2, 7, 9)


def test_no_tokenizer_no_keys(tmp_path: Path) -> None:
    assert vocabulary_keys(tmp_path, Metadata(tmp_path / "config.json", {}), 10) == {}


def test_refusals(tmp_path: Path) -> None:
    definition = json.loads(tokenizer_json("qwen2"))
    path, meta = folder(tmp_path, definition)
    with pytest.raises(CheckpointError, match=r"tokenizer.json: token id \d+ is outside the embedding's 300 rows"):
        vocabulary_keys(path, meta, 300)
    # one letter of the expression differs: other tokens, so it is not guessed
    definition["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] += "|x"
    path, meta = folder(tmp_path, definition)
    with pytest.raises(UnsupportedError, match=r"key pre_tokenizer: expected one of qwen2"):
        vocabulary_keys(path, meta, SIZE)
