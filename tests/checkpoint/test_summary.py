"""Figures of a model from its headers."""

import json
from pathlib import Path

import pytest

from checkpoint.files import entry, safetensors, small_gguf, write_folder
from strata.checkpoint.locate import open_checkpoint
from strata.checkpoint.summary import FormatRow, Summary, summarize
from strata.checkpoint.typed import ValueType, array, string, u32
from strata.checkpoint.writer import TensorSource, write_gguf
from strata.core.errors import CheckpointError
from strata.quant.formats import FORMATS


def summary_of(path: Path) -> Summary:
    with open_checkpoint(path) as checkpoint:
        return summarize(checkpoint)


def test_figures_of_a_gguf(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(small_gguf())
    summary = summary_of(path)
    assert (summary.kind, summary.architecture, summary.parameters, summary.nbytes) == ("gguf", "tiny", 70, 92)
    assert summary.formats == (FormatRow("Q8_0", 1, 64, 68), FormatRow("F32", 1, 6, 24))
    assert summary.bits_per_weight == 8 * 92 / 70
    assert summary.files == ((path, len(small_gguf())),)
    assert summary.tokenizer is None and summary.templates == ()


def test_tokenizer_and_templates_of_a_gguf(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    keys = {
        "general.architecture": string("tiny"),
        "tokenizer.ggml.model": string("gpt2"),
        "tokenizer.ggml.pre": string("qwen2"),
        "tokenizer.ggml.tokens": array(ValueType.STRING, ["a", "b"]),
        "tokenizer.ggml.eos_token_id": u32(1),
        "tokenizer.chat_template": string("{{ x }}"),
        "tokenizer.chat_template.tools": string("{{ y }}"),
        "tokenizer.chat_templates": array(ValueType.STRING, ["tools"]),
    }
    write_gguf(path, keys, [])
    summary = summary_of(path)
    assert summary.tokenizer is not None
    assert (summary.tokenizer.model, summary.tokenizer.pre, summary.tokenizer.size) == ("gpt2", "qwen2", 2)
    assert summary.tokenizer.special_ids == {"eos": 1}
    assert summary.templates == ("tokenizer.chat_template", "tokenizer.chat_template.tools")
    assert (summary.parameters, summary.bits_per_weight) == (0, 0.0)


def test_data_is_no_parameter(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tensors = [
        TensorSource("w", (8,), FORMATS["F16"], bytes(16)),
        TensorSource("ids", (100,), FORMATS["I64"], bytes(800)),
    ]
    write_gguf(path, {}, tensors)
    summary = summary_of(path)
    assert (summary.parameters, summary.nbytes, summary.bits_per_weight) == (8, 816, 16.0)
    assert summary.architecture is None


def test_folder_with_tokenizer_files(tmp_path: Path) -> None:
    data = safetensors({"model.language_model.w": entry("BF16", [4], 0, 8)}, bytes(8))
    write_folder(tmp_path, data, {"model_type": "tiny", "eos_token_id": 3, "bos_token_id": None})
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 1]}))
    tokenizer = {
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}},
        "added_tokens": [{"content": "b"}, {"content": "c"}],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ x }}"}))
    (tmp_path / "chat_template.jinja").write_text("{{ x }}")
    summary = summary_of(tmp_path)
    assert summary.architecture == "tiny"
    assert summary.tokenizer is not None
    assert (summary.tokenizer.model, summary.tokenizer.size) == ("BPE", 3)
    assert summary.tokenizer.special_ids == {"eos": 3, "generation.eos": (3, 1)}
    assert summary.templates == ("chat_template.jinja", "tokenizer_config.json")
    assert list(summary.tensors) == ["model.w"]
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: expected JSON"):
        summary_of(tmp_path)
