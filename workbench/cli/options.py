"""Settings as command-line flags: one flag per setting, made from its declaration and grouped by section in `--help`.

Long lists start with the flags that people change most. Without a flag, a setting comes from `--config`, then from its
default. The settings check their own values, so the shell reports errors in the same words as the page.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from workbench.cli import WORKSPACE_HELP
from workbench.cli.printing import visible
from workbench.errors import ConfigError
from workbench.form_rules import owners
from workbench.settings import Settings, Spec, from_text, parse, read_values, specs
from workbench.workspace import Workspace

S = TypeVar("S", bound=Settings)
Command = Callable[..., Any]
MANY = 24  # from this many flags on, the help starts with those that are not advanced
FIRST, GENERAL = "Most used", "Options"


class SettingOption(click.Option):
    """A flag that stands for a setting."""

    def __init__(self, *args: Any, spec: Spec, **more: Any) -> None:
        super().__init__(*args, **more)
        self.spec = spec

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Suggest the choices that the forms offer."""
        from workbench.choices import choices_of

        try:
            found = choices_of(self.spec, Workspace.open(_workspace_of(ctx)), ctx.params)
        except ConfigError:
            return []
        fitting = [one for one in found if one.value.startswith(incomplete) and one.value == visible(one.value)]
        return [CompletionItem(one.value, help=visible(one.title)) for one in fitting]


class SettingsCommand(click.Command):
    """A command whose help lists the flags of settings by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = self.get_params(ctx)
        many = sum(isinstance(option, SettingOption) for option in options) >= MANY
        sections: dict[str, list[tuple[str, str]]] = {FIRST: [], GENERAL: []} if many else {}
        for option in options:
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)) is not None:
                section = GENERAL
                if isinstance(option, SettingOption):
                    section = FIRST if many and not option.spec.advanced else option.spec.section or GENERAL
                sections.setdefault(section, []).append(record)
        general = sections.pop(GENERAL, [])
        last = [] if many else [(GENERAL, general)]
        for title, records in [*([(GENERAL, general)] if many else []), *sections.items(), *last]:
            with formatter.section(title):
                formatter.write_dl(records)


def settings_flags(
    cls: type[Settings],
    leave_out: Collection[str] = (),
    only: Collection[str] = (),
    short: Mapping[str, str] = {},
) -> Callable[[Command], Command]:
    """Return a decorator that adds a flag for every setting of a class, which the command receives by keyword.

    Args:
        leave_out, only: Settings that get no flag; the only ones that get one.
        short: Setting to a second name of its flag.
    """

    def decorate(command: Command) -> Command:
        for spec in reversed(specs(cls)):
            if spec.name not in leave_out and (not only or spec.name in only):
                names = [*_names(spec), *filter(None, [short.get(spec.name)])]
                command = click.option(*names, cls=SettingOption, spec=spec, **_option_attributes(spec))(command)
        return command

    return decorate


def settings_from(
    cls: type[S],
    config: Sequence[Path],
    flags: Mapping[str, Any],
    base: S | None = None,
    filled: Collection[str] = (),
    **fixed: Any,
) -> S:
    """Return settings from, in increasing priority, `base`, JSON files, given flags and `fixed`. Raises ConfigError.

    Args:
        flags: All flags of the command. Those of other settings are ignored.
        filled: Settings in the files to ignore.
    """
    values: dict[str, Any] = {} if base is None else base.model_dump(mode="json")
    for path in config:
        values.update({name: value for name, value in read_values(path).items() if name not in filled})
    known = {spec.name: spec for spec in specs(cls)}
    for name in given_flags(flags):
        if name in known:
            values[name] = _value(known[name], flags[name])
    context = click.get_current_context(silent=True)
    if context is not None and isinstance(model := values.get("model"), str) and "/" in model:
        values["model"] = Workspace.open(_workspace_of(context)).model(model)
    return parse(cls, {**values, **fixed})


def given_flags(flags: Mapping[str, Any]) -> list[str]:
    """Return the names of the flags that were given."""
    return [name for name, raw in flags.items() if raw is not None and raw != ()]


def _names(spec: Spec) -> list[str]:
    """Return the parameter's name and the spellings of its flag."""
    flag = "--" + spec.name.replace("_", "-")
    if spec.kind == "switch":
        return [spec.name, f"{flag}/--no-{flag[2:]}"]
    if spec.many:
        return [spec.name, *dict.fromkeys((flag.removesuffix("s"), flag))]  # "--train-also" is both
    return [spec.name, flag]


def _option_attributes(spec: Spec) -> dict[str, Any]:
    notes = [f"only {owners(spec.name)}"] if spec.own else []
    notes += [] if spec.kind in ("switch", "choice", "text", "texts", "numbers") else [spec.rule]
    if spec.default not in (None, "", ()):
        default = {True: "on", False: "off"}[spec.default] if spec.kind == "switch" else spec.default
        notes.append(f"default: {default}")
    help = spec.help + (f"  [{'; '.join(notes)}]" if notes else "")
    if spec.kind == "switch":
        return {"default": None, "help": help}
    words = {"integer": "N", "number": "X", "choice": "|".join(spec.choices)}
    words |= {"texts": "TEXT|@FILE", "numbers": "X"}  # a file with one per line
    more = {"multiple": True} if spec.many else {}
    return {"type": str, "default": None, "metavar": words.get(spec.kind, "TEXT"), "help": help, **more}


def _value(spec: Spec, raw: Any) -> Any:
    """Return the flag's text as a JSON value. Wrong numbers stay text, for the settings to refuse."""
    if spec.many:
        # An empty text clears the values of a file or another run.
        texts = [text for given in raw for text in file_lines(spec.name, given) if text]
        return [from_text(spec, text) for text in texts] if spec.kind == "numbers" else texts
    return from_text(spec, raw) if isinstance(raw, str) else raw


def file_lines(name: str, given: str) -> list[str]:
    """Return the given text, or the lines of the file for @FILE. Raises ConfigError."""
    if not given.startswith("@"):
        return [given]
    try:
        lines = Path(given[1:]).expanduser().read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name} is {given}, not a UTF-8 text file: give the path of one after @") from error
    return [line.strip() for line in lines]


# ---- shared by commands


workspace_flag = click.option("--workspace", metavar="FOLDER", help=WORKSPACE_HELP)
dry_run_flag = click.option("--dry-run", is_flag=True, help="Show the upload plan (every file, the README) and stop.")
yes_flag = click.option("--yes", is_flag=True, help="Skip the confirmation.")
json_flag = click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
detach_flag = click.option("--detach", is_flag=True, help="Start it and return at once.")
target_flag = click.option(
    "--target",
    metavar="NAME",
    help="Train on this target (workbench targets), or on this machine (local). A run keeps its target.",
)


def config_flag(help: str = "Settings from a JSON file") -> Callable[[Command], Command]:
    """Return the repeatable flag --config FILE."""
    more = ". May be repeated: later files win, and flags win over files."
    return click.option("--config", type=click.Path(path_type=Path), metavar="FILE", multiple=True, help=help + more)


def with_workspace(command: Command) -> Command:
    """Pass the command its workspace as the first argument: --workspace, of the command or a group before it."""

    @workspace_flag
    @click.pass_context
    @functools.wraps(command)
    def opened(context: click.Context, /, *args: Any, workspace: str | None, **keywords: Any) -> Any:
        return command(Workspace.open(_workspace_of(context)), *args, **keywords)

    return opened


def _workspace_of(context: click.Context) -> str | None:
    """Return the value of --workspace, of the command or a group before it."""
    here: click.Context | None = context
    while here is not None:
        if (found := here.params.get("workspace")) is not None:
            return str(found)
        here = here.parent
    return None
