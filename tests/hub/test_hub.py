"""Downloads from a hub on this machine: whole, again, broken off, wrong, refused."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoint.files import small_gguf
from hub.fake_hub import FakeHub, serving
from strata.checkpoint.locate import open_checkpoint
from strata.core.errors import CheckpointError, StrataError, UsageError
from strata.hub.cached import find, held, remove
from strata.hub.headers import headers_of
from strata.hub.hub import Hub
from strata.hub.name import HubName
from strata.hub.resolve import local_path

MODEL = small_gguf() + bytes(50_000_000)
NAME = HubName("org/tiny")
SOLE = HubName("org/sole")


def quiet(_: str, __: int, ___: int) -> None:
    """Nobody listens."""


@pytest.fixture(name="fake")
def make_fake() -> FakeHub:
    several = {"t-Q4_0.gguf": MODEL[:1000], "t-Q8_0.gguf": MODEL[:2000], "README.md": b"hello"}
    return FakeHub({"org/tiny": several, "org/sole": {"m.gguf": MODEL}})


@pytest.fixture(name="hub")
def make_hub(fake: FakeHub, tmp_path: Path) -> Iterator[Hub]:
    with serving(fake) as address:
        yield Hub(address, tmp_path / "cache")


def test_pulled_once(hub: Hub, fake: FakeHub) -> None:
    told: list[tuple[str, int, int]] = []
    path = hub.pull(SOLE, lambda at, done, total: told.append((at, done, total)))
    assert path.read_bytes() == MODEL
    assert ("m.gguf", len(MODEL), len(MODEL)) in told
    assert told[-1] == ("checking m.gguf", len(MODEL), len(MODEL))
    fake.asked.clear()
    assert local_path("org/sole", quiet, hub) == path
    assert fake.asked == []  # what is here needs no network


def test_going_on_where_it_broke_off(hub: Hub, fake: FakeHub) -> None:
    half = len(MODEL) // 2
    path = hub.pull(SOLE, quiet)
    blob = path.resolve()
    part = blob.with_name(blob.name + ".incomplete")
    part.write_bytes(MODEL[:half])
    path.unlink()
    blob.unlink()
    fake.asked.clear()
    again = hub.pull(SOLE, quiet)
    assert again.read_bytes() == MODEL
    assert f"bytes={half}-" in [wanted for method, _, wanted in fake.asked if method == "GET"]


def test_wrong_bytes_are_not_kept(hub: Hub, fake: FakeHub) -> None:
    fake.wrong["t-Q4_0.gguf"] = b"x" * 1000
    wanted = HubName("org/tiny", "Q4_0")
    with pytest.raises(CheckpointError, match="expected bytes with the SHA-256"):
        hub.pull(wanted, quiet)
    assert find(hub.cache, wanted) is None
    fake.wrong.clear()
    assert hub.pull(wanted, quiet).read_bytes() == MODEL[:1000]


def test_listed_found_and_removed(hub: Hub) -> None:
    assert held(hub.cache) == []
    paths = [hub.pull(HubName("org/tiny", quant), quiet) for quant in ("Q4_0", "Q8_0")]
    assert [(m.name, m.nbytes) for m in held(hub.cache)] == [("org/tiny:t-Q4_0", 1000), ("org/tiny:t-Q8_0", 2000)]
    assert find(hub.cache, HubName("org/tiny", "t-Q8_0")) == paths[1]
    assert remove(hub.cache, HubName("org/tiny", "Q4_0")) == 1000
    assert [m.name for m in held(hub.cache)] == ["org/tiny:t-Q8_0"]
    assert remove(hub.cache, NAME) > 0
    assert held(hub.cache) == []
    with pytest.raises(UsageError, match="has no such model"):
        remove(hub.cache, NAME)


def test_half_a_split_is_not_found(tmp_path: Path) -> None:
    parts = {f"s-0000{n}-of-00002.gguf": bytes([n]) * 100 for n in (1, 2)}
    with serving(FakeHub({"org/split": parts})) as address:
        hub, name = Hub(address, tmp_path), HubName("org/split")
        path = hub.pull(name, quiet)
    assert path.name == "s-00001-of-00002.gguf"
    assert find(tmp_path, name) == path
    (path.parent / "s-00002-of-00002.gguf").unlink()
    assert find(tmp_path, name) is None
    assert [m.complete for m in held(tmp_path)] == [False]


def test_refusals_in_one_sentence(hub: Hub, fake: FakeHub) -> None:
    with pytest.raises(UsageError, match="org/none: the hub has no such model"):
        hub.pull(HubName("org/none"), quiet)
    fake.gated.add("org/sole")
    with pytest.raises(StrataError, match="owners ask for their conditions"):
        hub.pull(SOLE, quiet)
    with pytest.raises(StrataError, match="cannot be reached"):
        Hub("http://127.0.0.1:9", hub.folder).pull(SOLE, quiet)


def test_a_disk_that_is_too_small(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strata.hub.hub.SPARE_BYTES", 1 << 62)
    with pytest.raises(StrataError, match="GB are missing"):
        hub.pull(SOLE, quiet)


def test_headers_take_no_weights(hub: Hub, fake: FakeHub) -> None:
    with headers_of("org/sole", hub) as path:
        assert path.stat().st_size == len(MODEL)
        assert path.stat().st_blocks * 512 < len(MODEL) // 2
        with open_checkpoint(path) as checkpoint:
            assert checkpoint.tensors
    assert not path.exists()
    ranges = [wanted for method, _, wanted in fake.asked if method == "GET" and wanted]
    assert ranges == ["bytes=0-8388607"]
    assert held(hub.cache) == []


def test_the_commands(fake: FakeHub, tmp_path: Path) -> None:
    def strata(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "strata", *words]
        return subprocess.run(command, check=False, capture_output=True, text=True, env=environ)

    with serving(fake) as address:
        environ = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path)}
        offered = json.loads(strata("list", "org/tiny", "--json").stdout)
        assert offered["models"][0] == {"name": "org/tiny:t-Q4_0", "bytes": 1000}
        pulled = strata("pull", "org/tiny:Q8_0")
        assert pulled.returncode == 0, pulled.stderr
        assert Path(pulled.stdout.strip()).read_bytes() == MODEL[:2000]
        assert "org/tiny:t-Q8_0" in strata("list").stdout
        refused = strata("rm", "org/tiny")
        assert refused.returncode == 2
        assert "say --yes" in refused.stderr
        again = json.loads(strata("pull", "org/tiny:Q8_0", "--json").stdout)
        assert again == {"name": "org/tiny:Q8_0", "path": pulled.stdout.strip(), "downloaded": False}
        assert json.loads(strata("rm", "org/tiny", "--yes", "--json").stdout)["freed_bytes"] >= 2000
        assert json.loads(strata("list", "--json").stdout)["models"] == []


def test_a_file_is_opened_without_the_client() -> None:
    code = (
        "import sys; import strata.hub.resolve as r; r.local_path(None, print); print('huggingface_hub' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
