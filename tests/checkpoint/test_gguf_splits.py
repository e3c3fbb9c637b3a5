"""GGUF models split over several files."""

from pathlib import Path

import pytest

from checkpoint.files import DATA, Raw, gguf, key_text, split_keys, write_split
from strata.checkpoint.gguf import open_gguf, shard_of
from strata.core.errors import CheckpointError


def test_shard_names() -> None:
    shard = shard_of("a-b-00002-of-00010.gguf")
    assert shard is not None and (shard.stem, shard.number, shard.total) == ("a-b", 2, 10)
    assert shard.name(10) == "a-b-00010-of-00010.gguf"
    for name in (
        "a.gguf",
        "a-2-of-3.gguf",
        "a-00004-of-00003.gguf",
        "a-00000-of-00003.gguf",
        "a-00001-of-00003.gguf.part",
    ):
        assert shard_of(name) is None


def test_any_file_opens_the_split(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    for path in paths:
        with open_gguf(path) as checkpoint:
            assert checkpoint.path == paths[0]
            assert checkpoint.files == tuple(paths)
            assert checkpoint.metadata.string("general.architecture") == "tiny"
            for number in range(3):
                view = checkpoint.bytes_of(checkpoint.tensors[f"t{number}"])
                assert set(view.view("<f4")) == {float(number)}


def test_a_link_opens_the_split(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    paths = write_split(tmp_path / "real")
    link = tmp_path / paths[0].name
    link.symlink_to(paths[0])
    with open_gguf(link) as checkpoint:
        assert sorted(checkpoint.tensors) == ["t0", "t1", "t2"]


def test_missing_files_are_named(tmp_path: Path) -> None:
    paths = write_split(tmp_path, total=4)
    paths[2].rename(paths[2].with_suffix(".gguf.part"))
    paths[3].unlink()
    with pytest.raises(CheckpointError, match=r"found 2; missing: m-00003-of-00004\.gguf, m-00004-of-00004\.gguf"):
        open_gguf(paths[0])


def test_empty_file_of_a_split(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    paths[2].write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"m-00003-of-00003\.gguf: the file is empty"):
        open_gguf(paths[0])


def test_renamed_file_of_a_split(tmp_path: Path) -> None:
    renamed = write_split(tmp_path)[0].rename(tmp_path / "model.gguf")
    with pytest.raises(CheckpointError, match=r"key split\.count: .* one of 3.* found model\.gguf"):
        open_gguf(renamed)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (split_keys(1, 4, 3), r"key split\.count: expected 3, .* found 4"),
        (split_keys(2, 3, 3), r"key split\.no: expected 1, .* found 2"),
        (split_keys(1, 3, 5), r"key split\.tensors\.count: expected 3, .* found 5"),
        ([], r"key split\.count: expected .* found nothing"),
        ([*split_keys(1, 3, 3), key_text("general.architecture", "other")], r"belongs to another model"),
    ],
)
def test_foreign_file_in_a_split(tmp_path: Path, keys: list[bytes], says: str) -> None:
    paths = write_split(tmp_path)
    paths[1].write_bytes(gguf(keys, [Raw("t1", (8,), 0, 0)], DATA))
    with pytest.raises(CheckpointError, match=says) as caught:
        open_gguf(paths[0])
    assert paths[1].name in caught.value.message


def test_tensor_in_two_files(tmp_path: Path) -> None:
    paths = write_split(tmp_path)
    paths[1].write_bytes(gguf(split_keys(1, 3, 3), [Raw("t0", (8,), 0, 0)], DATA))
    with pytest.raises(CheckpointError, match="tensor t0: expected in one file"):
        open_gguf(paths[0])


def test_every_cut_of_a_split_is_refused(tmp_path: Path) -> None:
    paths = write_split(tmp_path, total=2)
    for path in paths:
        data = path.read_bytes()
        for length in range(len(data)):
            path.write_bytes(data[:length])
            with pytest.raises(CheckpointError, match=path.name):
                open_gguf(paths[0])
        path.write_bytes(data)
    open_gguf(paths[0]).close()
