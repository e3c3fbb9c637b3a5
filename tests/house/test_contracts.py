"""The import contracts go red for what they forbid: each planted import breaks exactly the contract that names it."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from house.checkout import ROOT

LINT = "import sys; from importlinter.cli import lint_imports_command as run; sys.argv[0] = 'lint-imports'; run()"
LAYERS = "A package imports only lower ones"
PURE = "Pure packages never import torch, not even indirectly"
ARCHITECTURES = "Architectures do not know each other"
WIRE = "Wire dialects do not know each other"
TOOLS = "Tool dialects do not know each other"

PLANTS = {
    "upwards": ({"core/planted.py": "import strata.quant.format"}, LAYERS),
    "undeclared package": ({"planted/__init__.py": ""}, LAYERS),
    "sideways": ({"engine/planted.py": "import strata.runtime"}, LAYERS),
    "torch": ({"server/planted.py": "import torch"}, PURE),
    "torch behind another": ({"engine/planted.py": "import strata.kernels.views"}, PURE),
    "type only": (
        {"chat/planted.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"},
        PURE,
    ),
    "another architecture": ({"models/llama.py": "import strata.models.qwen3moe"}, ARCHITECTURES),
    "another wire dialect": ({"server/openai_completions.py": "import strata.server.openai_chat"}, WIRE),
    "another tool dialect": (
        {"chat/tools/planted.py": "", "chat/tools/planted_too.py": "import strata.chat.tools.planted"},
        TOOLS,
    ),
}


def lint(folder: Path) -> str:
    """Contract lines of lint-imports over the copy in `folder`."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "NO_COLOR": "1"}
    command = [sys.executable, "-c", LINT, "--no-cache"]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert "Contracts:" in result.stdout, result.stdout + result.stderr
    return result.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("csrc", "*.so", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_import_breaks_its_contract(copy: Path, name: str) -> None:
    files, contract = PLANTS[name]
    for path, line in files.items():
        file = copy / "src/strata" / path
        file.parent.mkdir(exist_ok=True)
        file.write_text((file.read_text() if file.exists() else '"""Planted."""\n') + "\n" + line + "\n")
    assert f"{contract} BROKEN" in lint(copy)


def test_nothing_is_broken_without_a_plant(copy: Path) -> None:
    assert "BROKEN" not in lint(copy)


def test_every_registered_architecture_is_under_the_contract() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = {contract["id"]: contract for contract in data["tool"]["importlinter"]["contracts"]}
    declared = {module.rpartition(".")[2] for module in contracts["architectures"]["modules"]}
    models = ROOT / "src/strata/models"
    builders = {file.stem for file in models.glob("*.py") if "def build(" in file.read_text()} - {"registry"}
    assert declared == builders
