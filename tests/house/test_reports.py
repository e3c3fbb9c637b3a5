"""Every report of a class that is done is named by a test, or has a reason why not."""

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from house.checkout import ROOT
from house.reports import REPORTS, WITHOUT_TEST

NUMBER = re.compile(r"\bO-\d{3}\b")


def named(files: Iterable[Path]) -> dict[str, list[str]]:
    """Test functions by the numbers that their docstrings name."""
    found: dict[str, list[str]] = {}
    for file in files:
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if NUMBER.search(text) else ():
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for number in NUMBER.findall(ast.get_docstring(node) or ""):
                    found.setdefault(number, []).append(f"{file.stem}::{node.name}")
    return found


def faults(reports: Iterable[str], without: Mapping[str, str], tests: Mapping[str, object]) -> list[str]:
    """What does not add up."""
    known = set(reports)
    return [
        *(f"{number}: no test names it" for number in sorted(known - tests.keys() - without.keys())),
        *(f"{number}: has a test, and a reason for none" for number in sorted(without.keys() & tests.keys())),
        *(f"{number}: no such report" for number in sorted((tests.keys() | without.keys()) - known)),
        *(f"{number}: a reason of one word" for number, why in without.items() if len(why.split()) < 2),
    ]


def test_every_report_has_its_test() -> None:
    tests = named(sorted((ROOT / "tests").rglob("test_*.py")))
    assert faults(REPORTS, WITHOUT_TEST, tests) == []


def test_what_does_not_add_up_is_said(tmp_path: Path) -> None:
    number = "O-0" + "01"
    file = tmp_path / "test_planted.py"
    file.write_text(
        f'def test_planted() -> None:\n    """{number}: planted."""\n\ndef helper() -> None:\n    """O-0' + '02"""\n'
    )
    tests = named([file])
    assert tests == {number: ["test_planted::test_planted"]}
    assert faults([number], {}, tests) == []
    assert faults([number, "O-999"], {}, tests) == ["O-999: no test names it"]
    assert faults([number], {number: "why ever"}, tests) == [f"{number}: has a test, and a reason for none"]
    assert faults([], {}, tests) == [f"{number}: no such report"]
    assert faults(["O-999"], {"O-999": "later"}, {}) == ["O-999: a reason of one word"]
