"""The checks on a GPU are found by their names, also when the tests' folder is searched first."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "device"))

import all as device_checks

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "device"


def found(name: str) -> Path:
    """The file that a topic's process imports for this name, with the path that all.py sets."""
    code = (
        f"import sys, importlib.util; sys.path[:0] = [{str(ROOT / 'src')!r}, {str(ROOT / 'tests')!r}, {str(FOLDER)!r}];"
        f"print(importlib.util.find_spec({name!r}).origin)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return Path(ran.stdout.strip())


@pytest.mark.parametrize("topic", device_checks.TOPICS)
def test_a_topic_is_the_module_beside_the_script(topic: str) -> None:
    assert found(topic) == FOLDER / f"{topic}.py"


def test_a_name_that_tests_have_too_would_be_found_there() -> None:
    assert found("engine") == ROOT / "tests" / "engine" / "__init__.py"
