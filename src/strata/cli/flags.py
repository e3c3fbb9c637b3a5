"""Flags generated from settings, and where a setting's value comes from: flag > environment > file > default."""

import functools
import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from strata.cli.panels import example_of, panel_of
from strata.core.errors import UsageError
from strata.plan.setting import Setting, flag_of, settings_of
from strata.plan.wishes import Wishes
from strata.server.settings import ServerSettings

T = TypeVar("T")

GROUPS: tuple[type, ...] = (Wishes, ServerSettings)
"""Everything that an environment variable or a configuration file may set."""

PREFIX = "STRATA_"


@dataclass(frozen=True, slots=True)
class Given:
    """What the user gave, by source."""

    environ: Mapping[str, str]
    flags: Mapping[str, str | bool | None]
    file: Mapping[str, object]
    file_name: str = ""

    def resolve(self, group: type[T]) -> T:
        """The settings of `group`, each from its strongest source."""
        chosen: dict[str, Any] = {}
        for name, rule in settings_of(group).items():
            source, value = self._find(name, rule)
            if source:
                chosen[name] = rule.read(value, source)
        return group(**chosen)

    def _find(self, name: str, rule: Setting) -> tuple[str, object]:
        """(source, raw value); an empty source when nobody set it."""
        flag = self.flags.get(name)
        if flag is not None:
            return flag_of(name), str(flag).lower() if isinstance(flag, bool) else flag
        for key in (name, *rule.aliases):
            variable = PREFIX + key.upper()
            if variable in self.environ:
                return variable, self.environ[variable]
        found = [key for key in (name, *rule.aliases) if key in self.file]
        if len(found) > 1:
            raise UsageError(f"{self.file_name}: {found[0]} and {found[1]} are the same setting")
        return (f"{self.file_name}: {found[0]}", self.file[found[0]]) if found else ("", None)


def known_names() -> dict[str, Setting]:
    """Every setting by each of its names."""
    names: dict[str, Setting] = {}
    for group in GROUPS:
        for name, rule in settings_of(group).items():
            names |= dict.fromkeys((name, *rule.aliases), rule)
    return names


def read_file(path: Path) -> dict[str, object]:
    """The settings in a TOML file, names with dashes or underscores; a name that no setting has is refused."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--config {path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"--config {path}: not TOML: {error}") from error
    known = known_names()
    found: dict[str, object] = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in known:
            raise UsageError(f"--config {path}: unknown key {key!r:.60}", hint=f"known are {', '.join(sorted(known))}")
        if name in found:
            raise UsageError(f"--config {path}: key {key!r:.60} is given twice")
        found[name] = value
    return found


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """STRATA_ variables that set nothing (misspelled ones, most likely)."""
    known = {PREFIX + name.upper() for name in known_names()} | {PREFIX + "CONFIG"}
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in known)


def to_flags(settings: object) -> list[str]:
    """Settings as a command line that gives the same ones; every one is written, so nothing else can set it."""
    words = []
    for name, rule in settings_of(type(settings)).items():
        value = getattr(settings, name)
        if rule.kind == "switch":
            words.append(flag_of(name) if value else flag_of("no_" + name))
        else:
            words += [flag_of(name), rule.absent if value is None else str(value)]
    return words


def with_settings(*groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command `--config` and the flags of `groups`; it gets them as its argument `given`."""

    def decorate(body: Callable[..., None]) -> Callable[..., None]:
        names = [name for group in groups for name in settings_of(group)]
        own = [p for p in inspect.signature(body).parameters.values() if p.name not in {"given", "context"}]
        context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        added = [_config(), *(_flag(group, name) for group in groups for name in settings_of(group))]

        @functools.wraps(body)
        def command(context: typer.Context, **arguments: Any) -> None:
            environ: Mapping[str, str] = context.obj
            flags = {name: arguments.pop(name) for name in names}
            path: str | None = arguments.pop("config") or environ.get(PREFIX + "CONFIG")
            file = read_file(Path(path)) if path else {}
            body(given=Given(environ, flags, file, path or ""), **arguments)

        parameters = [context, *own, *added]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def _config() -> inspect.Parameter:
    text = f"TOML file with settings by the names of their flags. [e.g. {example_of('config')}]"
    option = typer.Option("--config", metavar="FILE", help=text, show_default=False, rich_help_panel=panel_of("config"))
    return inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str, option])


def _flag(group: type, name: str) -> inspect.Parameter:
    option = flag(group, name)
    kind: Any = bool | None if settings_of(group)[name].kind == "switch" else str | None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def flag(group: type, name: str) -> typer.models.OptionInfo:
    """The flag of one setting: its help, its default and a value that one could give."""
    rule = settings_of(group)[name]
    default = next(field.default for field in fields(group) if field.name == name)
    panel = panel_of(name)
    if rule.kind == "switch":
        names = [f"{flag_of(name)}/{flag_of('no_' + name)}"]
        text, metavar = f"{rule.help} [default: {'on' if default else 'off'}]", None
    else:
        names = [flag_of(word) for word in (name, *rule.aliases)]
        written = f"{default:g}" if isinstance(default, float) else str(default)
        shown, example = rule.absent if default is None else written, example_of(name)
        facts = [f"default: {shown}"] if shown else []
        facts += [f"e.g. {example}"] if example else []
        text, metavar = f"{rule.help} [{'; '.join(facts)}]" if facts else rule.help, rule.metavar
    option: typer.models.OptionInfo = typer.Option(
        *names, metavar=metavar, help=text, show_default=False, rich_help_panel=panel
    )
    return option
