"""The reference is what the code says, and nothing in the documentation points nowhere."""

import importlib.machinery
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from house.checkout import ROOT


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    """scripts/reference as a module; it has no suffix, so it is loaded by path."""
    loader = importlib.machinery.SourceFileLoader("strata_reference", str(ROOT / "scripts/reference"))
    spec = importlib.util.spec_from_loader("strata_reference", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_the_reference_is_up_to_date(reference: ModuleType) -> None:
    assert reference.stale(ROOT) == [], "run scripts/reference and commit the result"


def test_a_page_that_was_changed_or_is_missing_is_stale(reference: ModuleType, tmp_path: Path) -> None:
    pages = {"docs/a.md": lambda: "a\n", "docs/b.md": lambda: "b\n"}
    reference.write(tmp_path, pages)
    assert reference.stale(tmp_path, pages) == []
    (tmp_path / "docs/a.md").write_text("changed\n")
    (tmp_path / "docs/b.md").unlink()
    assert reference.stale(tmp_path, pages) == ["docs/a.md", "docs/b.md"]


def test_pages_have_what_they_are_for() -> None:
    text = {path.name: path.read_text() for path in (ROOT / "docs/reference").iterdir()}
    assert "### strata bench kernels" in text["cli.md"] and "`STRATA_CTX_SIZE`" in text["cli.md"]
    assert "| `max_completion_tokens` | whole number |" in text["http.md"]
    assert "`strata_expert_hits_total` | counter | `layer` |" in text["metrics.md"]
    assert "`context_length_exceeded`" in text["errors.md"]
    assert "GEN <id> <max_new>" in text["engine-protocol.md"]
    man = (ROOT / "docs/man/strata.1").read_text()
    assert ".SS strata serve" in man and not re.search(r"^(?!\.[A-Z\\]|\.br)[.']", man, re.MULTILINE)


def links(text: str) -> list[str]:
    """Files that a page points to."""
    found = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    return [link for link in found if "://" not in link]


def test_links_lead_somewhere() -> None:
    assert links("[a](b.md#c) [d](https://e) ![f](g.png)") == ["b.md", "g.png"]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in links(page.read_text())
        if not (page.parent / link).exists()
    ]
    assert broken == []


def test_commands_that_the_guide_names_exist() -> None:
    table = json.loads((ROOT / "src/strata/cli/completion.json").read_text())
    firsts = {name.partition(" ")[0] for name in table} | {"test", "help"}
    wrong = []
    for page in [ROOT / "README.md", *(ROOT / "docs/guide").glob("*.md")]:
        for line in page.read_text().splitlines():
            match = re.match(r" {4}(?:\$ )?(?:\./)?strata (\S+)", line)
            if match and match[1] not in firsts and not match[1].startswith("-"):
                wrong.append(f"{page.name}: {line.strip()}")
    assert wrong == []
