"""scripts/sizes and scripts/architecture on small trees, where it is known what they have to say."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from house.checkout import ROOT


def run(script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "scripts" / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def function(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize(
    ("path", "text", "code", "said"),
    [
        ("src/strata/core/a.py", "x = 1\n" * 400, 0, ""),
        ("src/strata/core/a.py", "x = 1\n" * 401, 0, "warning: src/strata/core/a.py: 401 lines, over 400"),
        ("src/strata/core/a.py", "x = 1\n" * 600, 0, "warning: src/strata/core/a.py: 600 lines, over 400"),
        ("src/strata/core/a.py", "x = 1\n" * 601, 1, "error: src/strata/core/a.py: 601 lines, over 600"),
        ("src/strata/kernels/csrc/a.cpp", "//\n" * 601, 1, "error: src/strata/kernels/csrc/a.cpp: 601 lines, over 600"),
        ("src/strata/kernels/csrc/grids.h", "//\n" * 5000, 0, ""),
        ("src/strata/kernels/csrc/a.h", "/" * 120 + "\n", 0, ""),
        (
            "src/strata/kernels/csrc/a.h",
            "\n" + "/" * 121 + "\n",
            1,
            "error: src/strata/kernels/csrc/a.h:2: 121 columns, over 120",
        ),
        ("src/strata/kernels/csrc/grids.h", "/" * 121 + "\n", 0, ""),
        ("src/strata/kernels/csrc/device/a.h", "/" * 121 + "\n", 0, ""),
        ("tests/core/test_a.py", function(60), 0, ""),
        ("tests/core/test_a.py", "\n" + function(61), 1, "error: tests/core/test_a.py:2: f has 61 lines, over 60"),
        ("scripts/a", function(61), 1, "error: scripts/a:1: f has 61 lines, over 60"),
    ],
)
def test_sizes_warns_and_fails_at_its_limits(tmp_path: Path, path: str, text: str, code: int, said: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    result = run("sizes", str(tmp_path))
    assert result.returncode == code
    remarks = [line for line in result.stdout.splitlines() if line.startswith(("warning:", "error:"))]
    assert remarks == ([said] if said else [])


def test_sizes_adds_up_per_package(tmp_path: Path) -> None:
    for path, lines in {"core/a.py": 3, "core/b.py": 4, "kernels/csrc/c.cpp": 5, "d.py": 6}.items():
        file = tmp_path / "src/strata" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x = 1\n" * lines)
    rows = [line.split() for line in run("sizes", str(tmp_path)).stdout.splitlines()]
    assert ["strata/core", "2", "files", "7", "lines", "longest", "4"] in rows
    assert ["strata/kernels", "(C++)", "1", "files", "5", "lines", "longest", "5"] in rows
    assert ["total", "4", "files", "18", "lines"] in rows


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("csrc", "*.so", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs/architecture.md", tmp_path / "docs")
    assert run("architecture", str(tmp_path)).returncode == 0
    return tmp_path


def test_a_written_document_is_up_to_date_and_keeps_its_introduction(copy: Path) -> None:
    assert run("architecture", "--check", str(copy)).returncode == 0
    text = (copy / "docs/architecture.md").read_text()
    assert text.startswith("# Architecture\n\n## The one idea\n")
    assert "### quant\n\nHow bytes become numbers.\n\n- Owns: " in text


def test_a_changed_charter_makes_the_document_stale(copy: Path) -> None:
    file = copy / "src/strata/quant/__init__.py"
    file.write_text(file.read_text().replace("How bytes become numbers", "How numbers become bytes"))
    stale = run("architecture", "--check", str(copy))
    assert (stale.returncode, stale.stdout.count("run scripts/architecture")) == (1, 1)


def test_a_changed_layer_makes_the_document_stale(copy: Path) -> None:
    file = copy / "pyproject.toml"
    file.write_text(file.read_text().replace('    "store",\n', ""))
    assert run("architecture", "--check", str(copy)).returncode == 1


@pytest.mark.parametrize(
    ("charter", "said"), [('"""Nothing said."""\n', "lacks the line 'Owns'"), ("", "no docstring")]
)
def test_a_package_without_a_full_charter_is_named(copy: Path, charter: str, said: str) -> None:
    (copy / "src/strata/quant/__init__.py").write_text(charter)
    refused = run("architecture", str(copy))
    assert refused.returncode == 1
    assert "quant/__init__.py" in refused.stdout and said in refused.stdout
