"""The registry: an operation is a typed function, and its signature is its schema.

    @operation(changes=True)
    def star(workspace: Workspace, name: Name, *, off: Off = False) -> Lora:
        "Star a LoRA, which protects it from removal."

The module is the noun (NOUNS), the function name is the verb, and the docstring is the help text. The parameters after
the workspace are the input: in the shell, those before the `*` are positional arguments and those after it are flags;
the API takes all of them by name. A parameter of a Settings class expands to the fields of that class, or to those
that `Fields` selects. An `Opened` parameter is passed as a name: `def pause(run: LivingRun)` is called with
{"name": "cats"}. The input is validated like settings, so the shell, the page and the API report the same errors. The
return value is a snapshot, which documents its fields where they are declared.

From this, `api.operations` generates the routes, `cli.operations` the commands, `scripts/write_docs.py` docs/json.md.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, create_model

from workbench.errors import ConfigError
from workbench.jobs import quota
from workbench.settings import Settings, parse, specs
from workbench.snapshots import Snapshot
from workbench.workspace import Workspace

Visitors = Literal["never", "own session"]


@dataclass(frozen=True)
class Noun:
    """Where a noun's operations appear in the shell and the API.

    Attributes:
        shell: The command group.
        path: The API path before the verb.
        visitors: Whether visitors of the public demo may call them, unless an operation says otherwise.
        modules: The modules that declare them; by default the one with the noun's name.
    """

    shell: str
    path: str
    visitors: Visitors = "own session"
    modules: tuple[str, ...] = ()


NOUNS = {
    "overview": Noun("", ""),
    "home": Noun("", ""),
    "datasets": Noun("dataset", "/datasets/{name}", modules=("datasets", "dataset_tasks")),
    "clips": Noun("dataset", "/datasets/{name}", modules=("clips", "clip_plans", "companions")),
    "settings": Noun("", ""),
    "machine": Noun("", "", "never"),
    "runs": Noun("runs", "/runs/{name}", modules=("run_list", "runs", "what_if")),
    "progress": Noun("", "/runs/{name}"),
    "plans": Noun("", "/plans"),
    "targets": Noun("targets", "/targets/{name}", "never"),
    "samples": Noun("samples", "/samples/{ids}", modules=("samples", "sample_form", "causes")),
    "grids": Noun("grid", "/grids/{name}"),
    "loras": Noun("loras", "/loras"),
    "publishing": Noun("publish", "/publishing", "never"),
}
NOUN_OF = {module: name for name, noun in NOUNS.items() for module in noun.modules or (name,)}
Function = Callable[..., Any]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True)
class Fields:
    """Select the fields of a Settings class that an operation takes: Annotated[TrainSettings, Fields(only=("model",))].

    The operation fills in the rest itself.
    """

    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opened:
    """Take a parameter by name and open it: Annotated[Run, Opened(Run.open, Name)] adds an input `name` of type Name.

    Attributes:
        open: Maps (workspace, name) to the object; raises Unknown.
        name: The annotation of the input `name`.
    """

    open: Callable[[Workspace, str], Any]
    name: Any


@dataclass(frozen=True, kw_only=True)
class Marks:
    """Everything that is declared about an operation besides its signature.

    Attributes:
        arguments: The shell's positional arguments, if the input is a Settings class: "lora [target]".
        changes: Whether it changes anything. The API uses POST if it does and GET if not.
        visitors: Whether visitors of the public demo may call it, in a session of their own; None for the noun's value.
        job: For a long-running operation, the function of the operation that reads the job it starts.
        watch: For a result that changes over time: maps (workspace, **inputs) to a cheap function that reads it again;
            True to call the operation itself. The API streams a snapshot as server-sent events until it is `over`;
            the page can also watch lists.
        confirm: The function of the operation that previews this one. The shell prints the preview and asks.
        preview: The same without asking. With --dry-run, the shell prints all of the preview and stops.
        none: What the shell prints for an empty list.
        says: What the shell prints for each snapshot instead of its fields.
        afterwards: What the shell prints at the end: how to undo it, or a note.
        path: The API path, if it is not the noun's path and the verb. Fields in braces are inputs.
        status: HTTP status of a successful response; 202 for a job.
        exit_code: Maps the result to the command's exit code; None for 0.
        shell: Whether to generate a shell command.
        by_hand: The hand-written shell command that prints the same result with --json: "fit".
        section: The heading under which the shell lists the command.
    """

    arguments: str = ""
    changes: bool = False
    visitors: Visitors | None = None
    job: Function | None = None
    watch: Callable[..., Callable[[], Any]] | Literal[True] | None = None
    confirm: Function | None = None
    preview: Function | None = None
    none: str = ""
    says: Callable[[Any], str | Sequence[str]] | None = None
    afterwards: str | Callable[[Workspace], str] = ""
    path: str = ""
    status: int = 200
    exit_code: Callable[[Any], int] | None = None
    shell: bool = True
    by_hand: str = ""
    section: str = ""


@dataclass(frozen=True, kw_only=True)
class Operation(Marks):
    """One declared operation.

    Attributes:
        module: The module that declares it.
        inputs: The model that validates the input.
        opened: Parameters that are opened by the input `name`: parameter -> function that opens it.
        parts: Parameters that expand to fields of a Settings class: parameter -> (class, fields).
        places: Inputs that are positional in the shell: input -> whether it is optional.
        returns: The return annotation.
        job_reader: The operation that reads its job; None without one.
        planner: The operation that previews it; None without one.
    """

    module: str
    noun: str
    verb: str
    function: Function
    inputs: type[Settings]
    opened: dict[str, Callable[[Workspace, str], Any]]
    parts: dict[str, tuple[type[Settings], tuple[str, ...]]]
    places: dict[str, bool]
    returns: Any
    job_reader: Operation | None
    planner: Operation | None

    @property
    def command(self) -> str:
        """The shell command, without `workbench`."""
        return self.by_hand or f"{NOUNS[self.noun].shell} {self.verb}"

    @property
    def of_settings(self) -> bool:
        """Whether its input includes settings, which can come from a file."""
        return bool(self.parts) or not issubclass(self.inputs, OfSignature)

    @property
    def filled(self) -> set[str]:
        """Settings that the operation fills in itself, overriding a settings file."""
        return {name for kind, fields in self.parts.values() for name in kind.model_fields if name not in fields}

    @property
    def help(self) -> str:
        """The docstring."""
        return inspect.getdoc(self.function) or ""

    @property
    def many(self) -> bool:
        """Whether it returns a list of snapshots."""
        return get_origin(self.returns) is list

    @property
    def snapshot(self) -> type[Snapshot]:
        """The class of the snapshot that it returns, or of the list's items."""
        kind: type[Snapshot] = get_args(self.returns)[0] if self.many else self.returns
        return kind

    def __call__(self, workspace: Workspace, values: Mapping[str, Any]) -> Any:
        """Validate the input and run the operation.

        Args:
            values: Raw values as in JSON. Missing ones get their defaults.

        Raises:
            ConfigError: If the input is invalid, with a sentence for each field.
            WorkbenchError: Whatever the operation raises.
        """
        return self.call(workspace, parse(self.inputs, values))

    def call(self, workspace: Workspace, inputs: Settings) -> Any:
        """Run the operation with validated input."""
        self._check_visitor()
        if not issubclass(self.inputs, OfSignature):
            return self.function(workspace, inputs)
        given = {name: getattr(inputs, name) for name in self.inputs.model_fields}
        for parameter, open_ in self.opened.items():
            given[parameter] = open_(workspace, given.pop("name"))
        for parameter, (kind, fields) in self.parts.items():
            given[parameter] = parse(kind, {name: given.pop(name) for name in fields})
        if "workspace" in inspect.signature(self.function).parameters:
            given["workspace"] = workspace
        return self.function(**given)

    def reader(self, workspace: Workspace, values: Mapping[str, Any]) -> Callable[[], Any]:
        """Validate the input and return a function that reads the result again on each call. Raises ConfigError."""
        inputs = parse(self.inputs, values)
        self._check_visitor()
        if callable(self.watch):
            return self.watch(workspace, **dict(inputs))
        return lambda: self.call(workspace, inputs)

    def _check_visitor(self) -> None:
        if self.visitors == "never" and quota.current() is not None:
            raise ConfigError(f"{self.command} {quota.OFF}")

    def plain(self, value: Any) -> Any:
        """Convert a result to JSON-compatible values."""
        return TypeAdapter(self.returns).dump_python(value, mode="json")


class OfSignature(Settings):
    """Base class of input models that are generated from a signature."""

    model_config = ConfigDict(use_attribute_docstrings=False)


REGISTRY: dict[tuple[str, str], Operation] = {}


class operation(Marks):
    """Register the decorated function as an operation."""

    def __call__(self, function: F) -> F:
        module, verb = function.__module__.rpartition(".")[2], function.__name__.strip("_").replace("_", "-")
        name = NOUN_OF[module]
        own: dict[str, Any] = {
            **_signature(function),
            "visitors": self.visitors or NOUNS[name].visitors,
            "path": self.path or f"{NOUNS[name].path}/{verb}",
            "status": 202 if self.job else self.status,
            "shell": self.shell and not self.by_hand,
            "job_reader": next((one for one in REGISTRY.values() if one.function is self.job), None),
            "planner": next((one for one in REGISTRY.values() if one.function is (self.confirm or self.preview)), None),
        }
        if self.arguments:
            own["places"] = {one.strip("[]"): one.startswith("[") for one in self.arguments.split()}
        REGISTRY[name, verb] = Operation(
            **{**vars(self), **own},
            module=module,
            noun=name,
            verb=verb,
            function=function,
            returns=get_type_hints(function)["return"],
        )
        return function


def _signature(function: Function) -> dict[str, Any]:
    """Derive an operation's `inputs`, `opened`, `parts` and `places` from its function."""
    hints = get_type_hints(function, include_extras=True)
    parameters = [one for one in inspect.signature(function).parameters.values() if one.name != "workspace"]
    fields, opened, parts, places = dict[str, Any](), dict[str, Any](), dict[str, Any](), dict[str, bool]()
    for parameter in parameters:
        name, hint = parameter.name, hints[parameter.name]
        kind, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if marks and isinstance(marks[0], Opened):
            fields["name"], opened[name], places["name"] = (marks[0].name, ...), marks[0].open, False
        elif not (inspect.isclass(kind) and issubclass(kind, Settings)):
            optional = parameter.default is not parameter.empty
            fields[name] = (hint, parameter.default if optional else ...)
            if parameter.kind is not parameter.KEYWORD_ONLY:
                places[name] = optional
        elif len(parameters) == 1 and not marks:
            return {"inputs": kind, "opened": {}, "parts": {}, "places": {}}
        else:
            chosen = next((mark for mark in marks if isinstance(mark, Fields)), Fields())
            names = tuple(one for one in chosen.only or kind.model_fields if one not in chosen.without)
            sections = {spec.name: spec.section for spec in specs(kind)}
            for one in names:  # copy the setting's declaration and add the section from its class
                info = copy(kind.model_fields[one])
                extra: Any = info.json_schema_extra or {}
                info.json_schema_extra = {**extra, "section": sections[one]}
                fields[one] = (info.annotation, info)
            parts[name] = kind, names
    made = create_model(f"{function.__name__}_inputs", __base__=OfSignature, __module__=function.__module__, **fields)
    return {"inputs": made, "opened": opened, "parts": parts, "places": places}


def operations(*nouns: str) -> list[Operation]:
    """Return the operations of these nouns, or of all nouns, in declaration order."""
    modules = [module for noun in nouns or NOUNS for module in NOUNS[noun].modules or (noun,)]
    for module in modules:
        importlib.import_module(f"{__package__}.{module}")
    return [one for module in modules for one in REGISTRY.values() if one.module == module]
