"""From a path to an open checkpoint."""

import os
from pathlib import Path

import pytest

from checkpoint.files import full_gguf, small_safetensors, write_folder, write_split
from strata.checkpoint.locate import gguf_models, open_checkpoint
from strata.core.errors import CheckpointError


def refused(path: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    return caught.value


def test_file_and_folder_with_one_gguf(tmp_path: Path) -> None:
    file = tmp_path / "модель ü a b.gguf"
    file.write_bytes(full_gguf())
    for path in (file, tmp_path):
        with open_checkpoint(path) as checkpoint:
            assert (checkpoint.kind, checkpoint.path) == ("gguf", file)


def test_folder_with_a_split(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.files == tuple(paths)
    paths[0].unlink()
    assert "missing: m-00001-of-00003.gguf" in refused(tmp_path).message


def test_safetensors_folder(tmp_path: Path) -> None:
    with open_checkpoint(write_folder(tmp_path)) as checkpoint:
        assert (checkpoint.kind, checkpoint.path) == ("safetensors", tmp_path)


def test_folder_with_two_models(tmp_path: Path) -> None:
    write_split(tmp_path)
    (tmp_path / "other.gguf").write_bytes(full_gguf())
    assert [p.name for p in gguf_models(tmp_path)] == ["m-00001-of-00003.gguf", "other.gguf"]
    error = refused(tmp_path)
    assert "found 2: m-00001-of-00003.gguf, other.gguf" in error.message
    assert error.hint == "name the file"


def test_what_is_no_model(tmp_path: Path) -> None:
    assert "found nothing" in refused(tmp_path / "none").message
    assert "found no .gguf and no .safetensors file" in refused(tmp_path).message
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(small_safetensors())
    assert "model-00001-of-00002.safetensors without model.safetensors.index.json" in refused(tmp_path).message
    one = refused(tmp_path / "model-00001-of-00002.safetensors")
    assert "one file of a folder" in one.message and one.hint == f"name the folder: {tmp_path}"
    assert "found nothing" in refused(tmp_path / "a\0b").message
    assert "cannot be opened" in refused(tmp_path / ("x" * 300)).message


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    assert "neither a file nor a folder" in refused(tmp_path / "m.gguf").message
