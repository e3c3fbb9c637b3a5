"""docs/reference/cli.md: every command, every flag, and where else a setting can be given."""

from collections.abc import Sequence

from references.tables import code, flowing, page, table
from strata.cli.commands import COMMANDS, GROUPS
from strata.cli.flags import GROUPS as SETTINGS
from strata.cli.flags import PREFIX
from strata.cli.pages import OPTIONS, Entry, Page, page_of
from strata.cli.panels import PANELS, panel_of
from strata.plan.setting import Setting, flag_of, settings_of

INTRODUCTION = """
`strata COMMAND --help` shows the same in a terminal, `man docs/man/strata.1` as a manual. Answers and results go to
stdout, logs, figures and questions to stderr. Commands with `--json` write JSON, and nothing else, to stdout.
"""

SOURCES = """
A setting is taken from its flag, else from the environment variable, else from the file of `--config`, else it is the
default. The file is TOML with the flags' names, `ctx-size = 8192` or `ctx_size = 8192`; a name that no setting has is
refused. A variable that begins with `STRATA_` and sets nothing is a warning of `serve`. What cannot be honoured is
refused with what was expected and found; nothing is changed silently.
"""

OTHERS = (
    ("HF_HOME, HF_HUB_CACHE", "Where the hub's cache is, which other tools share."),
    ("HF_TOKEN", "Opens gated models."),
    ("NO_COLOR", "No colours."),
    ("XDG_STATE_HOME", "Where `strata chat` keeps what was typed (strata/chat-history); else ~/.local/state."),
    ("CUDA_VISIBLE_DEVICES", "Chooses the GPU: the first that CUDA shows is used."),
)

EXITS = (
    ("0", "Done."),
    (
        "1",
        "Failed: the reason is on stderr as `error:`, and `hint:` says what can be done. Or a check found a fault.",
    ),
    ("2", "Usage: a command line, variable or file that cannot be honoured."),
    ("130", "Interrupted by Ctrl-C."),
)


def cli() -> str:
    """The page."""
    pages = {name: page_of(name) for name in COMMANDS}
    parts = [INTRODUCTION]
    for title, group in GROUPS.items():
        parts += [f"## {title}", *(_command(pages[name]) for name in group)]
    parts += ["## Settings", SOURCES, *(_panel(panel) for panel in PANELS)]
    parts += ["## Environment", table(("variable", "what"), [(code(name), text) for name, text in OTHERS])]
    parts += ["## Exit codes", table(("code", "when"), EXITS)]
    return page("Commands", *parts)


def own_flags(found: Page) -> list[Entry]:
    """The flags that are no settings with a section of their own."""
    whole = set(settings_panels(found))
    return [entry for panel, entries in found.panels.items() if panel not in whole for entry in entries]


def settings_panels(found: Page) -> Sequence[str]:
    """The panels of settings that a command has as a whole, which one section describes."""
    return [
        panel
        for panel, entries in found.panels.items()
        if panel != OPTIONS and {e.names[0] for e in entries} >= {flag_of(name) for name in PANELS[panel]}
    ]


def _command(found: Page) -> str:
    lines = [f"### strata {found.name}", flowing(found.text), f"    {found.usage}"]
    if found.arguments:
        lines.append(table(("argument", "what"), [(code(each.shown), each.help) for each in found.arguments]))
    lines.append(table(("flag", "what"), [(code(each.shown), each.help) for each in own_flags(found)]))
    whole = settings_panels(found)
    if whole:
        links = ", ".join(f"[{panel}](#{panel.lower().replace(' ', '-')})" for panel in whole)
        lines.append(f"and the settings of {links}.")
    lines.append("\n".join(f"    strata {words}\n        # {what}" for words, what in found.examples))
    return "\n\n".join(lines)


def _panel(panel: str) -> str:
    rows = []
    for group in SETTINGS:
        for name, rule in settings_of(group).items():
            if panel_of(name) == panel:
                rows.append(_setting(group, name, rule))
    if panel == panel_of("config"):
        rows.append((code("--config FILE"), "TOML file with settings.", "", "none", code("STRATA_CONFIG")))
    return f"### {panel}\n\n" + table(("flag", "what", "values", "default", "variable"), rows)


def _setting(group: type, name: str, rule: Setting) -> tuple[str, ...]:
    default = getattr(group(), name)
    shown = rule.absent if default is None else written(default)
    flag = flag_of(name) if rule.kind != "switch" else f"{flag_of(name)} / {flag_of('no_' + name)}"
    words = ", ".join(code(each) for each in (flag, *map(flag_of, rule.aliases)))
    return words, rule.help, rule.values, shown or "none", code(PREFIX + name.upper())


def written(default: object) -> str:
    """A default as one would type it."""
    if isinstance(default, bool):
        return "on" if default else "off"
    return f"{default:g}" if isinstance(default, float) else str(default)
