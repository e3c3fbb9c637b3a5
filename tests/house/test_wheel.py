"""What a wheel has to hold. scripts/wheel builds a whole one, with the native modules, and starts it: for releases."""

import importlib.machinery
import importlib.util
import subprocess
import sys
import zipfile
from types import ModuleType

import pytest

from house.checkout import ROOT


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("strata_wheel", str(ROOT / "scripts/wheel"))
    spec = importlib.util.spec_from_loader("strata_wheel", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of a wheel whose extension was not compiled, which takes minutes."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    command += ["--config-settings", "wheel.cmake=false", "--config-settings", "build-dir=", "--wheel-dir", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, timeout=120)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return wheel.namelist()


def test_it_holds_the_package_and_nothing_else(script: ModuleType, members: list[str]) -> None:
    assert script.faults(members, ROOT, native=()) == []
    for part in ("py.typed", "data/demo.gguf", "server/web/index.html", "cli/completion.json"):
        assert f"strata/{part}" in members
    assert not any(name.startswith(("tests/", "benchmarks/", "training/")) for name in members)
    (about,) = {name.partition("/")[0] for name in members} - {"strata"}
    assert {f"{about}/licenses/LICENSE", f"{about}/entry_points.txt", f"{about}/METADATA"} <= set(members)


def test_the_native_modules_are_missed(script: ModuleType, members: list[str]) -> None:
    assert script.faults(members, ROOT) == ["lacks the module _native", "lacks the module _simt"]
    modules = [f"strata/kernels/{name}.cpython-311-x86_64-linux-gnu.so" for name in script.NATIVE]
    assert script.faults([*members, *modules], ROOT) == []


@pytest.mark.parametrize(
    ("without", "plus", "said"),
    [
        ("strata/py.typed", "", "lacks strata/py.typed"),
        ("strata/data/demo.gguf", "", "lacks strata/data/demo.gguf"),
        ("licenses/LICENSE", "", "lacks the licence LICENSE"),
        ("", "tests/test_a.py", "has tests/test_a.py, which is outside the package"),
        ("", "strata/notes.txt", "has strata/notes.txt, which is no file of the package"),
    ],
)
def test_what_is_wrong_is_named(script: ModuleType, members: list[str], without: str, plus: str, said: str) -> None:
    changed = [name for name in members if not (without and name.endswith(without))] + ([plus] if plus else [])
    assert script.faults(changed, ROOT, native=()) == [said]
