"""config.json as flat metadata."""

import json
from pathlib import Path

import pytest

from strata.checkpoint.config import flatten, read_config
from strata.core.errors import CheckpointError


def write(folder: Path, config: object, generation: object = None) -> Path:
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def test_text_config_goes_over_the_outer_object(tmp_path: Path) -> None:
    outer = {
        "model_type": "outer",
        "image_token_id": 9,
        "text_config": {"model_type": "inner", "rope_parameters": {"rope_theta": 1e7, "mrope_section": [11, 11, 10]}},
        "rope_parameters": {"rope_theta": 1.0, "rope_type": "default"},
    }
    metadata = read_config(write(tmp_path, outer, {"eos_token_id": [2, 0], "top_p": None}))
    assert dict(metadata.values) == {
        "model_type": "inner",
        "image_token_id": 9,
        "rope_parameters.rope_theta": 1e7,
        "rope_parameters.rope_type": "default",
        "rope_parameters.mrope_section": (11, 11, 10),
        "generation.eos_token_id": (2, 0),
        "generation.top_p": None,
    }
    assert metadata.file == tmp_path / "config.json"


def test_lists_of_objects_get_indices() -> None:
    nested = {"groups": [{"name": "a"}, {"name": "b"}], "grid": [[1, 2], [3]], "gaps": [1, None], "empty": []}
    assert flatten(nested, Path("c")) == {
        "groups.0.name": "a",
        "groups.1.name": "b",
        "grid.0": (1, 2),
        "grid.1": (3,),
        "gaps.0": 1,
        "gaps.1": None,
        "empty": (),
    }


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"text_config": 3}, "key text_config: expected an object, found int"),
        ({"a.b": 1, "a": {"b": 2}}, "key 'a.b': expected once, found twice"),
        ("[1]", "expected a JSON object, found list"),
        ("{", "expected JSON"),
        ('{"a": Infinity}', "found Infinity"),
        ('{"a": ' + "9" * 5000 + "}", "expected JSON"),
        ('{"a":' * 70 + "1" + "}" * 70, "within 64 levels"),
        ({"generation": {"top_k": 1}}, "key generation.top_k: expected only in generation_config.json"),
    ],
)
def test_damaged_config(tmp_path: Path, config: object, says: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_config(write(tmp_path, config, {"top_k": 2}))
    assert str(tmp_path / "config.json") in caught.value.message
    assert says in caught.value.message
