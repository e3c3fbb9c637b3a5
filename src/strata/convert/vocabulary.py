"""tokenizer.json and its neighbours -> GGUF's tokenizer keys."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strata.checkpoint.metadata import Metadata
from strata.checkpoint.typed import Typed, ValueType, array, flag, string, u32
from strata.core.errors import CheckpointError, UnsupportedError

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


def read_json(path: Path) -> Any:
    """A JSON file, or a CheckpointError that names it."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON: {error}") from error


def pre_tokenizer(tokenizer: Mapping[str, Any], path: Path) -> str:
    """GGUF's name of the split rule; UnsupportedError when the rule is not one of the known ones."""
    text = json.dumps(tokenizer.get("pre_tokenizer") or {})
    if r"\\p{L}\\p{M}" in text:
        return "qwen35"
    if r"\\p{L}+" in text and "(?i:'s|'t|'re" in text and r"\\p{N}{1,3}" not in text:
        return "qwen2"
    if '"Digits"' in text and "ByteLevel" in text:
        return "smollm"
    raise UnsupportedError(f"{path}: the pre_tokenizer is none that is known (qwen2, qwen35, smollm)")


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
    tokenizer = read_json(path)
    tokens, types, merges = token_lists(tokenizer, size, path)
    keys = {
        "tokenizer.ggml.model": string("gpt2"),
        "tokenizer.ggml.pre": string(pre_tokenizer(tokenizer, path)),
        "tokenizer.ggml.tokens": array(ValueType.STRING, tokens),
        "tokenizer.ggml.token_type": array(ValueType.INT32, types),
        "tokenizer.ggml.merges": array(ValueType.STRING, merges),
        "tokenizer.ggml.add_bos_token": flag(False),
    }
    ids = {text: i for i, text in enumerate(tokens)}
    config_path = folder / "tokenizer_config.json"
    config = read_json(config_path) if config_path.is_file() else {}
    for key, name in (("eos_token", "eos_token_id"), ("pad_token", "padding_token_id"), ("bos_token", "bos_token_id")):
        token = config.get(key)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str) and text in ids:
            keys[f"tokenizer.ggml.{name}"] = u32(ids[text])
    if "tokenizer.ggml.eos_token_id" not in keys and isinstance(meta.values.get("eos_token_id"), int):
        keys["tokenizer.ggml.eos_token_id"] = u32(meta.integer("eos_token_id", 0, size - 1))
    template = folder / "chat_template.jinja"
    text = template.read_text("utf-8") if template.is_file() else config.get("chat_template")
    if isinstance(text, str):
        keys["tokenizer.chat_template"] = string(text)
    return keys
