"""docs/man/strata.1: the same as cli.md, as a manual page."""

from references.cli import EXITS, OTHERS, own_flags, settings_panels
from strata import __version__
from strata.cli.commands import GROUPS
from strata.cli.flags import GROUPS as SETTINGS
from strata.cli.flags import flag
from strata.cli.pages import Entry, Page, page_of
from strata.cli.panels import PANELS, panel_of
from strata.plan.setting import flag_of, settings_of


def man() -> str:
    """The page in roff's man macros."""
    lines = [
        '.\\" Written by scripts/reference from the code; do not edit.',
        f'.TH STRATA 1 "" "strata {__version__}" "User Commands"',
        ".SH NAME",
        "strata \\- runs Mixture\\-of\\-Experts language models larger than the GPU",
        ".SH SYNOPSIS",
        ".B strata",
        ".I COMMAND",
        "[ARGUMENTS]",
        ".SH DESCRIPTION",
        text(
            "Answers and results go to stdout, logs and figures to stderr. Commands with --json write JSON to stdout."
        ),
    ]
    for title, group in GROUPS.items():
        lines.append(f".SH {title.upper()}")
        for name in group:
            lines += command(page_of(name))
    lines += [".SH SETTINGS", text("From the flag, else the variable STRATA_NAME, else the file of --config.")]
    for panel in PANELS:
        lines += [f".SS {panel}", *setting_lines(panel)]
    lines.append(".SH ENVIRONMENT")
    for name, what in OTHERS:
        lines += [".TP", f".B {text(name)}", text(what)]
    lines.append(".SH EXIT STATUS")
    for number, what in EXITS:
        lines += [".TP", f".B {number}", text(what.replace("`", ""))]
    return "\n".join(lines) + "\n"


def text(words: str) -> str:
    """Words as roff takes them: no line begins with a dot or a quote, dashes stay dashes."""
    safe = words.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + safe if safe[:1] in {".", "'"} else safe


def command(found: Page) -> list[str]:
    """A command's section."""
    lines = [f".SS strata {text(found.name)}", *(text(line) for line in found.text.splitlines() if line)]
    lines += [".PP", f".B {text(found.usage)}"]
    for entry in (*found.arguments, *own_flags(found)):
        lines += item(entry)
    panels = settings_panels(found)
    if panels:
        lines += [".PP", text(f"And the settings of {', '.join(panels)}.")]
    for words, what in found.examples:
        lines += [".PP", ".RS", f".B {text(f'strata {words}')}", ".br", text(what), ".RE"]
    return lines


def item(entry: Entry) -> list[str]:
    """A flag with its words."""
    return [".TP", f".B {text(entry.shown)}", text(entry.help)]


def setting_lines(panel: str) -> list[str]:
    """The settings of a panel."""
    lines = []
    for group in SETTINGS:
        for name in settings_of(group):
            if panel_of(name) == panel:
                option = flag(group, name)
                metavar = f" {option.metavar}" if option.metavar else ""
                lines += [".TP", f".B {text(flag_of(name) + metavar)}", text(str(option.help))]
    return lines
