"""Settings as command-line flags: one flag a setting, made from its declaration, grouped by section in `--help`.

Where there are many, the handful that people change comes first.

A flag that is not given leaves the setting to `--config`, and that to the default. Values are checked by the settings
themselves, so the shell says the same sentences as the page.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from workbench.cli.printing import visible
from workbench.errors import ConfigError
from workbench.form_rules import owners
from workbench.settings import Settings, Spec, from_text, parse, specs
from workbench.workspace import Workspace, read_json

S = TypeVar("S", bound=Settings)
Command = Callable[..., Any]
MANY = 24  # settings: from here on the help begins with those that are not advanced
FIRST, GENERAL = "Most used", "Options"


class SettingOption(click.Option):
    """A flag that stands for a setting."""

    def __init__(self, *args: Any, spec: Spec, **more: Any) -> None:
        super().__init__(*args, **more)
        self.spec = spec

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """What the shell suggests for the flag: the same choices as the forms'."""
        from workbench.choices import choices_of

        try:
            found = choices_of(self.spec, Workspace.open(_workspace_of(ctx)), ctx.params)
        except ConfigError:
            return []
        fitting = [one for one in found if one.value.startswith(incomplete) and one.value == visible(one.value)]
        return [CompletionItem(one.value, help=visible(one.title)) for one in fitting]


class SettingsCommand(click.Command):
    """A command whose help lists the settings' flags by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = self.get_params(ctx)
        many = sum(isinstance(option, SettingOption) for option in options) >= MANY
        sections: dict[str, list[tuple[str, str]]] = {FIRST: [], GENERAL: []} if many else {}
        for option in options:
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)) is not None:
                sections.setdefault(_section(option, many), []).append(record)
        general = sections.pop(GENERAL, [])
        last = [] if many else [(GENERAL, general)]
        for title, records in [*([(GENERAL, general)] if many else []), *sections.items(), *last]:
            with formatter.section(title):
                formatter.write_dl(records)


def _section(option: click.Parameter, many: bool) -> str:
    """Under which heading of the help an option stands."""
    if not isinstance(option, SettingOption):
        return GENERAL
    return FIRST if many and not option.spec.advanced else option.spec.section


def settings_flags(
    cls: type[Settings],
    leave_out: Collection[str] = (),
    only: Collection[str] = (),
    short: Mapping[str, str] = {},
) -> Callable[[Command], Command]:
    """A decorator that adds a flag for every setting of the class; the command gets the given ones as keywords.

    leave_out, only: settings without a flag, and the only ones with one; short: setting -> another name of its flag
    """

    def decorate(command: Command) -> Command:
        for spec in reversed(specs(cls)):
            if spec.name not in leave_out and (not only or spec.name in only):
                names = [*_names(spec), *filter(None, [short.get(spec.name)])]
                command = click.option(*names, cls=SettingOption, spec=spec, **_looks(spec))(command)
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
    """Settings from others, JSON files in order and the flags that were given, later ones winning. Raises ConfigError.

    flags: those of other settings are left out;  filled: settings that the files may have and that nobody reads
    """
    values: dict[str, Any] = {} if base is None else base.model_dump(mode="json")
    for path in config:
        loaded = read_json(path)
        if not isinstance(loaded, dict):
            raise ConfigError(f"{path.name} must hold a JSON object of settings: write it as {{...}}")
        values.update({name: value for name, value in loaded.items() if name not in filled})
    known = {spec.name: spec for spec in specs(cls)}
    for name in given_flags(flags):
        if name in known:
            values[name] = _value(known[name], flags[name])
    context = click.get_current_context(silent=True)
    if context is not None and isinstance(model := values.get("model"), str) and "/" in model:
        values["model"] = Workspace.open(_workspace_of(context)).model(model)
    return parse(cls, {**values, **fixed})


def given_flags(flags: Mapping[str, Any]) -> list[str]:
    """The names of the flags that were given."""
    return [name for name, raw in flags.items() if raw is not None and raw != ()]


def _names(spec: Spec) -> list[str]:
    """The flag's spellings; the first of the plain names is the keyword that the command gets."""
    flag = "--" + spec.name.replace("_", "-")
    if spec.kind == "switch":
        return [spec.name, f"{flag}/--no-{flag[2:]}"]
    if spec.many:
        return [spec.name, *dict.fromkeys((flag.removesuffix("s"), flag))]  # "--train-also" is both
    return [spec.name, flag]


def _looks(spec: Spec) -> dict[str, Any]:
    notes = [f"only {owners(spec.name)}"] if spec.own else []
    notes += [] if spec.kind in ("switch", "choice", "text", "texts", "numbers") else [spec.rule]
    if spec.default not in (None, "", ()):
        default = {True: "on", False: "off"}[spec.default] if spec.kind == "switch" else spec.default
        notes.append(f"default: {default}")
    help = spec.help + (f"  [{'; '.join(notes)}]" if notes else "")
    if spec.kind == "switch":
        return {"default": None, "help": help}
    words = {"integer": "N", "number": "X", "choice": "|".join(spec.choices)}
    words |= {"texts": "TEXT|@FILE", "numbers": "X"}  # a file has one a line
    more = {"multiple": True} if spec.many else {}
    return {"type": str, "default": None, "metavar": words.get(spec.kind, "TEXT"), "help": help, **more}


def _value(spec: Spec, raw: Any) -> Any:
    """The flag's text as JSON would have it; what is not a number stays text, for the settings to refuse."""
    if spec.many:
        # An empty one takes away what a file or another run had.
        texts = [text for given in raw for text in file_lines(spec.name, given) if text]
        return [from_text(spec, text) for text in texts] if spec.kind == "numbers" else texts
    return from_text(spec, raw) if isinstance(raw, str) else raw


def file_lines(name: str, given: str) -> list[str]:
    """A text that is given where several can be; of @FILE the lines of the file. Raises ConfigError."""
    if not given.startswith("@"):
        return [given]
    try:
        lines = Path(given[1:]).expanduser().read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name} is {given}, no file of text in UTF-8: give the path of one after @") from error
    return [line.strip() for line in lines]


# ---- what commands share


workspace_flag = click.option(
    "--workspace", metavar="FOLDER", help="The workspace's folder. Else $WORKBENCH_HOME, else ./workspace."
)
yes_flag = click.option("--yes", is_flag=True, help="Do not ask.")
json_flag = click.option("--json", "as_json", is_flag=True, help="For programs: all that is known, as JSON.")
detach_flag = click.option("--detach", is_flag=True, help="Start it and return at once.")


target_flag = click.option(
    "--target",
    metavar="NAME",
    help="Train on a target (workbench targets), or local. A run stays where it is until it is sent elsewhere.",
)


def config_flag(help: str = "Settings from a JSON file") -> Callable[[Command], Command]:
    """--config FILE, as often as wanted."""
    more = "; given again, a later file wins over an earlier one. Flags win over all."
    return click.option("--config", type=click.Path(path_type=Path), metavar="FILE", multiple=True, help=help + more)


def with_workspace(command: Command) -> Command:
    """Give the command the opened workspace as its first argument: --workspace, here or on a group before it."""

    @workspace_flag
    @click.pass_context
    @functools.wraps(command)
    def opened(context: click.Context, /, *args: Any, workspace: str | None, **keywords: Any) -> Any:
        return command(Workspace.open(_workspace_of(context)), *args, **keywords)

    return opened


def with_opened(open: Callable[[Workspace, str], object]) -> Callable[[Command], Command]:
    """A decorator that gives the command what its first argument, NAME, names. open: Run.open, Dataset.open ..."""

    def decorate(command: Command) -> Command:
        @click.argument("name")
        @with_workspace
        @functools.wraps(command)
        def opened(workspace: Workspace, *args: Any, name: str, **keywords: Any) -> Any:
            return command(open(workspace, name), *args, **keywords)

        return opened

    return decorate


def _workspace_of(context: click.Context) -> str | None:
    """What --workspace says, here or on a group before."""
    here: click.Context | None = context
    while here is not None:
        if (found := here.params.get("workspace")) is not None:
            return str(found)
        here = here.parent
    return None
