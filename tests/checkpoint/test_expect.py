"""What loaders ask of tensors."""

from pathlib import Path

import pytest

from checkpoint.files import entry, full_gguf, safetensors, write_folder
from strata.checkpoint.expect import expect, take
from strata.checkpoint.gguf import open_gguf
from strata.checkpoint.safetensors import open_folder
from strata.core.errors import CheckpointError


def test_tensor_of_the_right_shape(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(full_gguf())
    with open_gguf(path) as checkpoint:
        assert take(checkpoint, "two", (4, 4)) is checkpoint.tensors["two"]
        with pytest.raises(CheckpointError) as caught:
            take(checkpoint, "two", (16,))
        assert caught.value.message == f"{path}: tensor two: expected shape [16], found [4, 4]"
        with pytest.raises(CheckpointError) as caught:
            take(checkpoint, "three", (2, 8))
        assert caught.value.message == f"{path}: tensor three: expected shape [2, 8], found no such tensor"
    with pytest.raises(CheckpointError, match=r"^tensor x: expected shape \[1\], found no such tensor"):
        expect(None, "x", (1,))


def test_the_stored_name_is_told(tmp_path: Path) -> None:
    write_folder(tmp_path, safetensors({"model.language_model.a": entry("F32", [2], 0, 8)}, bytes(8)))
    with open_folder(tmp_path) as checkpoint, pytest.raises(CheckpointError) as caught:
        take(checkpoint, "model.a", (3,))
    assert "tensor model.a (in the file: model.language_model.a): expected shape [3], found [2]" in caught.value.message
