"""Oracles and their files, made once per session."""

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from oracles.build import Oracle, build
from oracles.gguf_writer import write

FORMS = ("saved", "fused", "gguf")
Files = Callable[[str, str], tuple[Oracle, Path]]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """(oracle name, form) -> the oracle and a checkpoint of it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("oracles")
    oracle = functools.cache(build)

    @functools.cache
    def make(name: str, form: str) -> tuple[Oracle, Path]:
        built, path = oracle(name), folder / f"{name}-{form}"
        if form == "gguf":
            return built, write(built, path.with_suffix(".gguf"))
        path.mkdir()
        if form == "saved":
            built.model.save_pretrained(path)
        else:
            save_fused(built, path)
        return built, path

    return make


def save_fused(oracle: Oracle, path: Path) -> None:
    """The multimodal form: experts in one tensor, names under language_model, sizes under text_config."""
    tensors = {
        name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name: t.contiguous()
        for name, t in oracle.model.state_dict().items()
    }
    tensors["model.visual.patch.weight"] = torch.zeros(2, 2)
    save_file(tensors, path / "model.safetensors")
    text = oracle.model.config.to_dict()
    outer = {"model_type": text["model_type"].removesuffix("_text"), "text_config": text}
    (path / "config.json").write_text(json.dumps(outer))
