"""The pure packages work where torch cannot be imported at all: proved by importing every module of them."""

import os
import subprocess
import sys
import tomllib

import pytest

from house.checkout import ROOT

PROBE = """
import importlib, pkgutil, sys
for blocked in {blocked!r}:
    sys.modules[blocked] = None
count = 0
for name in {names!r}:
    module = importlib.import_module(name)
    count += 1
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), name + "."):
        importlib.import_module(found.name)
        count += 1
print(count)
"""


def contract() -> dict[str, list[str]]:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: dict[str, list[str]]
    for found in data["tool"]["importlinter"]["contracts"]:
        if str(found["id"]) == "pure":
            return found
    raise AssertionError("no contract with the id 'pure'")


def import_all(names: list[str]) -> "subprocess.CompletedProcess[str]":
    """Import `names` and all modules below them, with what the contract forbids made unimportable."""
    code = PROBE.format(names=names, blocked=contract()["forbidden_modules"])
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", contract()["source_modules"])
def test_a_pure_package_imports_without_torch(name: str) -> None:
    result = import_all([name])
    assert result.returncode == 0, result.stderr
    package = ROOT / "src" / name.replace(".", "/")
    expected = len(list(package.rglob("*.py"))) if package.is_dir() else 1
    assert int(result.stdout) == expected


def test_the_probe_sees_torch_where_it_is_used() -> None:
    result = import_all(["strata.kernels.views"])
    assert result.returncode == 1
    assert "import of torch halted" in result.stderr
