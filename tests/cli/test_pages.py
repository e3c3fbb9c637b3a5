"""What help says of commands and flags."""

import re
import shlex

import pytest

from strata.cli import pages
from strata.cli.commands import COMMANDS, GROUPS
from strata.cli.flags import GROUPS as SETTINGS
from strata.cli.main import run
from strata.cli.pages import Entry, Page, page_of
from strata.cli.panels import OTHER, PANELS, example_of, panel_of
from strata.plan.setting import settings_of

UNITS = {"_s": "second", "_ms": "ms", "_gib": "GiB", "_mib": "MiB"}


def entries(page: Page) -> list[Entry]:
    return [*page.arguments, *(entry for panel in page.panels.values() for entry in panel)]


@pytest.mark.parametrize("name", COMMANDS)
def test_everything_is_said_in_sentences(name: str) -> None:
    page = page_of(name)
    assert page.text.endswith(".")
    for entry in entries(page):
        said = re.sub(r"\s+\[[^\]]*\]$", "", entry.help)
        assert said.endswith(".") and len(said.split()) > 1, f"{name} {entry.shown}: {entry.help!r}"


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_lines_that_the_command_takes(name: str) -> None:
    assert COMMANDS[name].examples
    for line, what in COMMANDS[name].examples:
        words = shlex.split(re.sub(r" <.*", "", line))
        assert words[: len(name.split())] == name.split() and what
        pages.parse(name, words[len(name.split()) :])


def test_an_example_with_an_unknown_flag_would_be_seen() -> None:
    with pytest.raises(Exception, match="--no-such-flag"):
        pages.parse("serve", ["--no-such-flag"])


def test_every_setting_has_a_panel_an_example_and_its_unit() -> None:
    listed = [name for names in PANELS.values() for name in names]
    settings = {name: rule for group in SETTINGS for name, rule in settings_of(group).items()}
    assert sorted(listed) == sorted([*settings, "config"])
    for name, rule in settings.items():
        example = example_of(name)
        assert bool(example) == (rule.kind != "switch"), name
        if example:
            rule.read(example, name)
        unit = next((unit for ending, unit in UNITS.items() if name.endswith(ending)), "")
        assert unit.lower() in rule.help.lower(), name
    assert panel_of("no_such_setting") == OTHER and example_of("no_such_setting") == ""


def test_flags_stand_in_panels_and_examples_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--help"], {}) == 0
    shown = capsys.readouterr().out
    heads = re.findall(r"^(\w[\w ]*):$", shown, re.MULTILINE)
    assert heads[:2] == ["Arguments", "Options"] and heads[-1] == "Examples"
    assert set(PANELS) <= set(heads)
    server = shown[shown.index("Server:") : shown.index("Conversations:")]
    assert "--port N" in server and "[default: 8080; e.g. 9000]" in re.sub(r"\s+", " ", server)
    assert "--ctx-size" not in server
    assert all(len(line) <= 100 for line in shown.splitlines())
    assert "strata serve model.gguf --port 9000 --parallel 8" in shown


def test_help_by_another_word_and_for_a_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "doctor"], {}) == 0
    assert "Usage: strata doctor" in capsys.readouterr().out
    assert run(["help"], {}) == run(["help", "--help"], {}) == run(["-h"], {}) == 0
    shown = capsys.readouterr().out
    assert all(f"{title}:" in shown for title in GROUPS)
    assert run(["bench", "--help"], {}) == 0
    shown = capsys.readouterr().out
    assert "bench kernels" in shown and "check" not in shown
    assert run(["check"], {}) == 2
    assert "check parking" in capsys.readouterr().out
