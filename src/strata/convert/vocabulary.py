"""tokenizer.json and its neighbours -> GGUF's tokenizer keys."""

import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strata.chat.tokenizer import (
    END_OF_TURN,
    LLAMA3_SPLIT,
    QWEN2_SPLIT,
    QWEN35_SPLIT,
    Tokenizer,
    from_folder,
    special_texts,
)
from strata.checkpoint.jsonfile import read_object
from strata.checkpoint.metadata import Metadata
from strata.checkpoint.typed import Typed, ValueType, array, flag, string, u32
from strata.core.errors import CheckpointError, UnsupportedError

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
LARGEST_JSON = 1 << 28


SPLITS = {QWEN2_SPLIT: "qwen2", QWEN35_SPLIT: "qwen35", LLAMA3_SPLIT: "llama-bpe"}
"""GGUF's names of the split expressions."""


def pre_tokenizer(tokenizer: Mapping[str, Any], path: Path) -> str:
    """GGUF's name of the split rule; UnsupportedError when it is none of the known ones to the letter."""
    top = tokenizer.get("pre_tokenizer") or {}
    steps = top.get("pretokenizers", [top])
    kinds = [step.get("type") for step in steps]
    by_regex = kinds[-1:] == ["ByteLevel"] and steps[-1].get("use_regex", True)
    if kinds == ["Split", "ByteLevel"] and not by_regex:
        found = SPLITS.get(str((steps[0].get("pattern") or {}).get("Regex")))
        if found is not None:
            return found
    if kinds == ["Digits", "ByteLevel"] and by_regex and steps[0].get("individual_digits"):
        return "smollm"
    if kinds == ["ByteLevel"] and by_regex:
        return "gpt-2"
    raise UnsupportedError(
        f"{path}: key pre_tokenizer: expected one of qwen2, qwen35, llama-bpe, smollm, gpt-2, found {reprlib.repr(top)}"
    )


def token_lists(tokenizer: Mapping[str, Any], size: int, path: Path) -> tuple[list[str], list[int], list[str]]:
    """(tokens, their types, merges); ids beyond the tokenizer's are unused padding up to `size`."""
    model = tokenizer.get("model") or {}
    if model.get("type") != "BPE":
        raise UnsupportedError(f"{path}: expected a BPE model, found {model.get('type')!r}")
    tokens = [f"[PAD{i}]" for i in range(size)]
    types = [UNUSED] * size
    for text, i in model["vocab"].items():
        _put(tokens, types, i, text, NORMAL, path)
    for added in tokenizer.get("added_tokens", []):
        _put(tokens, types, added["id"], added["content"], CONTROL if added["special"] else USER_DEFINED, path)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    return tokens, types, merges


def _put(tokens: list[str], types: list[int], i: int, text: str, kind: int, path: Path) -> None:
    if not 0 <= i < len(tokens):
        raise CheckpointError(f"{path}: token id {i} is outside the embedding's {len(tokens)} rows")
    tokens[i], types[i] = text, kind


def vocabulary_keys(folder: Path, meta: Metadata, size: int) -> dict[str, Typed]:
    """All tokenizer keys; none when the folder has no tokenizer.json."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return {}
    definition = read_object(path, LARGEST_JSON)
    tokens, types, merges = token_lists(definition, size, path)
    loaded = from_folder(folder, meta)
    keys = {
        "tokenizer.ggml.model": string("gpt2"),
        "tokenizer.ggml.pre": string(pre_tokenizer(definition, path)),
        "tokenizer.ggml.tokens": array(ValueType.STRING, tokens),
        "tokenizer.ggml.token_type": array(ValueType.INT32, types),
        "tokenizer.ggml.merges": array(ValueType.STRING, merges),
        "tokenizer.ggml.add_bos_token": flag(loaded.bos is not None),
    }
    texts = {name: text for name, text in special_texts(folder).items() if text is not None}
    ids = {text: i for i, text in enumerate(tokens)}
    if loaded.bos is not None:
        keys["tokenizer.ggml.bos_token_id"] = u32(loaded.bos)
    elif texts.get("bos_token") in ids:
        keys["tokenizer.ggml.bos_token_id"] = u32(ids[texts["bos_token"]])
    if texts.get("pad_token") in ids:
        keys["tokenizer.ggml.padding_token_id"] = u32(ids[texts["pad_token"]])
    ends = _ends(loaded, texts, ids)
    for name, token in zip(("eos_token_id", "eot_token_id", "eom_token_id"), ends, strict=False):
        keys[f"tokenizer.ggml.{name}"] = u32(token)
    if len(ends) > 3:
        keys["tokenizer.ggml.eos_token_ids"] = array(ValueType.UINT32, ends)
    template = chat_template(folder)
    if template is not None:
        keys["tokenizer.chat_template"] = string(template)
    return keys


def chat_template(folder: Path) -> str | None:
    """The template's text: its own file, or tokenizer_config.json's key."""
    template = folder / "chat_template.jinja"
    config = folder / "tokenizer_config.json"
    if template.is_file():
        return template.read_text("utf-8")
    text = read_object(config, LARGEST_JSON).get("chat_template") if config.is_file() else None
    return text if isinstance(text, str) else None


def _ends(loaded: Tokenizer, texts: Mapping[str, str], ids: Mapping[str, int]) -> list[int]:
    """Tokens that end an answer, the tokenizer's own first; those that readers know by their names come last."""
    own = ids.get(texts.get("eos_token", ""))
    by_name = {loaded.ids[name] for name in END_OF_TURN if name in loaded.ids}
    others = sorted((i for i in loaded.stop_ids if i != own), key=lambda i: (i in by_name, i))
    return others if own is None else [own, *others]
