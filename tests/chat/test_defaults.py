"""What a model's files recommend."""

from pathlib import Path
from typing import Any

import pytest

from strata.chat.defaults import recommended
from strata.checkpoint.metadata import Metadata
from strata.core.errors import CheckpointError


class Files:
    """Just enough of a Checkpoint."""

    def __init__(self, kind: str, **values: Any) -> None:
        self.kind = kind
        self.path = Path("x")
        self.metadata = Metadata(self.path, values)


def test_gguf_keys() -> None:
    files: Any = Files("gguf", **{"general.sampling.temp": 0.7, "general.sampling.top_k": 20})
    assert recommended(files) == {"temperature": 0.7, "top_k": 20}


def test_generation_config_counts_only_when_it_samples() -> None:
    values = {"generation.temperature": 0.6, "generation.repetition_penalty": 1.1}
    quiet: Any = Files("safetensors", **values)
    sampling: Any = Files("safetensors", **values, **{"generation.do_sample": True})
    assert recommended(quiet) == {}
    assert recommended(sampling) == {"temperature": 0.6, "repeat_penalty": 1.1}


def test_a_bad_value_is_named() -> None:
    files: Any = Files("gguf", **{"general.sampling.temp": -3.0})
    with pytest.raises(CheckpointError, match=r"general\.sampling\.temp"):
        recommended(files)
