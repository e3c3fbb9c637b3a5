"""Compiled kernels on disk, the sources they come from, and devices by name."""

import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

from strata.core.errors import UsageError
from strata.kernels import _simt, cubins, device_source
from strata.kernels.devices import open_device
from strata.kernels.host_device import HostDevice
from strata.kernels.residency import Residency


def test_a_kernel_is_made_once(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> bytes:
        made.append(1)
        return b"code"

    assert [cubins.cached(tmp_path / "new", "key", make) for _ in range(3)] == [b"code"] * 3
    assert len(made) == 1
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["key"]


@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 32 + b"code"])
def test_a_damaged_file_is_made_again(tmp_path: Path, damage: bytes) -> None:
    cubins.cached(tmp_path, "key", lambda: b"old")
    (tmp_path / "key").write_bytes(damage)
    assert cubins.cached(tmp_path, "key", lambda: b"new") == b"new"
    assert cubins.cached(tmp_path, "key", lambda: b"newer") == b"new"


def test_a_folder_that_cannot_be_made_only_costs_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert cubins.cached(tmp_path / "file" / "folder", "key", lambda: b"code") == b"code"


def test_the_folder_follows_the_environment() -> None:
    assert cubins.default_folder({"XDG_CACHE_HOME": "/somewhere"}) == Path("/somewhere/strata/kernels")
    assert cubins.default_folder({}) == Path.home() / ".cache" / "strata" / "kernels"


def test_a_digest_follows_every_header_and_define(tmp_path: Path) -> None:
    folder = tmp_path / "csrc" / "device"
    folder.mkdir(parents=True)
    (folder / "a.h").write_text('#include "../b.h"\n')
    (folder.parent / "b.h").write_text("int b;\n")
    with (
        mock.patch.object(device_source, "FOLDER", folder),
        mock.patch.object(device_source, "STRATA_INCLUDES", (folder, folder.parent)),
    ):
        assert device_source.source("a X=1 Y") == '#define X 1\n#define Y\n#include "a.h"\n'
        before = [device_source.digest(unit) for unit in ("a", "a X=1")] + [device_source.digest("a", "sm_90")]
        assert len(set(before)) == 3
        (folder.parent / "b.h").write_text("int c;\n")
        assert device_source.digest("a") != before[0]


def test_every_unit_is_built_for_the_host() -> None:
    assert {unit for unit, _ in _simt.kernels()} == set(device_source.units())
    assert all(device_source.files(unit) for unit in device_source.units())


def test_devices_by_name(tmp_path: Path) -> None:
    assert isinstance(open_device("emulator", tmp_path), HostDevice)
    with pytest.raises(UsageError, match="--device tpu: no such device"):
        open_device("tpu", tmp_path)
    with mock.patch.dict(sys.modules, {"strata.kernels.cuda_device": None}), pytest.raises(UsageError, match="cuda:1"):
        open_device("cuda:1", tmp_path)


def test_a_copy_is_made_once_and_lives_as_long_as_its_original() -> None:
    here = Residency(torch.device("meta"))
    x = torch.zeros(5)
    assert here.tensor(x) is here.tensor(x)
    assert here.nbytes == 20
    assert here.tensor(torch.empty(3, device="meta")).device.type == "meta"
    assert here.constants([1, 2]) is here.constants((1, 2))
    del x
    assert here.nbytes == 0
