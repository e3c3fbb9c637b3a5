"""Web tests name elements exactly: a part of a name also finds whatever another page shows for a moment."""

import ast
from collections.abc import Iterator

import pytest

from house.checkout import ROOT

WEB = ROOT / "tests" / "server" / "web"


def vague(source: str) -> Iterator[int]:
    """Lines that look for an element by a part of its label or name: neither `exact=True` nor a pattern."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        options = {word.arg: word.value for word in node.keywords}
        names = {"get_by_label": node.args[0] if node.args else None, "get_by_role": options.get("name")}
        name, exact = names.get(node.func.attr), options.get("exact")
        pattern = isinstance(name, ast.Call)
        if name is not None and not pattern and not (isinstance(exact, ast.Constant) and exact.value is True):
            yield node.lineno


def test_web_tests_name_elements_exactly() -> None:
    found = [f"{path.name}:{line}" for path in sorted(WEB.glob("*.py")) for line in vague(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    ("call", "is_vague"),
    [
        ('page.get_by_label("For")', True),
        ('page.get_by_label("For", exact=False)', True),
        ('page.get_by_label("For", exact=True)', False),
        ('page.get_by_label(re.compile("^For"))', False),
        ('page.get_by_role("img", name=f"{label}")', True),
        ('page.get_by_role("img", name="Slots", exact=True)', False),
        ('page.get_by_role("img", name=re.compile("^Slots"))', False),
        ('page.get_by_role("alert")', False),
    ],
)
def test_what_counts_as_vague(call: str, is_vague: bool) -> None:
    assert bool(list(vague(call))) is is_vague
