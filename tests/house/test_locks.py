"""The lock files: complete, hashed, free of addresses, and in step with pyproject.toml and with torch."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from house.checkout import ROOT

GPU_RUNTIME = ("nvidia-", "cuda-", "triton", "pytorch-triton", "rocm")


def read(name: str) -> str:
    return (ROOT / "requirements" / name).read_text()


def problems(text: str) -> list[str]:
    """What is wrong with a lock: lines that are neither comment, pin nor hash, and pins without a hash."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        if (
            line
            and not line.startswith("#")
            and not re.fullmatch(r"[\w.-]+==[\w.+!-]+( +--hash=sha256:[0-9a-f]{64})+", line)
        ):
            found.append(line)
    return found + re.findall(r"\S*://\S*", text)


def pins(text: str) -> dict[str, str]:
    return {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)}


def unmet(requirements: list[str], locked: dict[str, str]) -> list[str]:
    """Those requirements that apply here and that the lock does not fulfil."""
    found = []
    for text in requirements:
        requirement = Requirement(text)
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        version = locked.get(canonicalize_name(requirement.name))
        if applies and (version is None or version not in requirement.specifier):
            found.append(text)
    return found


@pytest.mark.parametrize("name", ["run.txt", "test.txt"])
def test_a_lock_holds_hashed_pins_and_nothing_else(name: str) -> None:
    assert problems(read(name)) == []
    assert "torch" not in pins(read(name))


@pytest.mark.parametrize(
    "line", ["numpy==2.0", "numpy>=2.0 --hash=sha256:" + "0" * 64, "--index-url https://example.org/simple", "# a://b"]
)
def test_a_line_that_does_not_belong_is_found(line: str) -> None:
    assert problems(f"# A lock.\n{line}\n") != []


def test_the_test_lock_holds_the_run_lock() -> None:
    run, test = pins(read("run.txt")), pins(read("test.txt"))
    assert run.items() <= test.items()
    assert len(test) > len(run) > 20


def test_the_locks_fulfil_what_pyproject_asks_for() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = data["dependency-groups"]
    runtime = data["project"]["dependencies"] + data["build-system"]["requires"] + groups["build"] + groups["torch"]
    torch = [line for line in runtime if Requirement(line).name == "torch"]
    assert unmet([line for line in runtime if line not in torch], pins(read("run.txt"))) == []
    assert unmet(torch, pins(read("torch.txt"))) == []
    assert unmet(groups["test"], pins(read("test.txt"))) == []


def test_torch_adds_only_itself_to_the_locked_set() -> None:
    needed = [
        line
        for line in importlib.metadata.requires("torch") or []
        if not Requirement(line).name.startswith(GPU_RUNTIME)
    ]
    assert len(needed) >= 5
    assert unmet(needed, pins(read("run.txt"))) == []


def test_every_locked_package_finds_its_own_requirements_in_the_lock() -> None:
    locked = pins(read("test.txt"))
    torch = pins(read("torch.txt"))
    lacking = {name: unmet(importlib.metadata.requires(name) or [], {**locked, **torch}) for name in locked}
    assert {name: lines for name, lines in lacking.items() if lines} == {}


def test_a_requirement_that_is_not_met_is_found() -> None:
    locked = {"numpy": "1.26.4"}
    assert unmet(["numpy>=2.0", "rich", 'tomli; python_version < "3"', "numpy"], locked) == ["numpy>=2.0", "rich"]


def imported(source: Path) -> set[str]:
    """Distributions that the modules below `source` import, the standard library and the package itself left out."""
    names: set[str] = set()
    for file in source.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return {canonicalize_name(name) for name in names - set(sys.stdlib_module_names) - {"strata"}}


def declared() -> set[str]:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {canonicalize_name(Requirement(line).name) for line in data["project"]["dependencies"]}


WITH_TORCH = {"cuda"}
"""What torch's CUDA builds bring: imported only where one of them is."""

BEHIND = {"httptools"}
"""What a library takes up where it is there, and must have here: uvicorn's reader of HTTP."""


def test_what_is_imported_is_what_is_declared() -> None:
    assert imported(ROOT / "src") - WITH_TORCH == declared() - BEHIND


def test_an_undeclared_import_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import os\nimport strata.core\nfrom six.moves import x\nfrom . import y\n")
    assert imported(tmp_path) == {"six"}
