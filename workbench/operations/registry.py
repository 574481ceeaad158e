"""The registry: an operation is a typed function, and its signature is its schema.

    @operation(changes=True)
    def star(workspace: Workspace, name: Name, *, off: Off = False) -> Lora:
        "Keep a LoRA: nothing removes it while it is starred."

The module is the noun (NOUNS), the function the verb, the docstring the help. What follows the workspace is the input:
the shell takes parameters before the `*` by place and those after it as flags, the API takes all of them by name. A
parameter of a Settings class stands for the fields of that class, or for those that `Fields` names, and one that is
`Opened` for the name of what it is: `def pause(run: LivingRun)` is called with {"name": "cats"}. The input is checked
as settings are, so every face says the same sentences. The answer is a snapshot, whose fields are described
where they are declared.

`api.operations` makes routes from this, `cli.operations` commands, `scripts/write_docs.py` docs/json.md.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model

from workbench.errors import ConfigError
from workbench.jobs import State, quota
from workbench.settings import Settings, parse, specs
from workbench.workspace import Workspace

Visitors = Literal["never", "own session"]


@dataclass(frozen=True)
class Noun:
    """Where a noun's operations are in the shell and the API.

    shell: the group of commands;  path: in the API, before the verb
    visitors: whether visitors of the public demo may call them, unless an operation says otherwise
    modules: the modules that declare them; by default the one named like the noun
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
    "runs": Noun("runs", "/runs/{name}", modules=("run_list", "runs")),
    "progress": Noun("", "/runs/{name}"),
    "plans": Noun("", "/plans"),
    "targets": Noun("targets", "/targets/{name}", "never"),
    "samples": Noun("samples", "/samples/{ids}", modules=("samples", "sample_form")),
    "grids": Noun("grid", "/grids/{name}"),
    "loras": Noun("loras", "/loras"),
    "publishing": Noun("publish", "/publishing", "never"),
}
NOUN_OF = {module: name for name, noun in NOUNS.items() for module in noun.modules or (name,)}
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Fields:
    """Which fields of a Settings class are an operation's input: Annotated[TrainSettings, Fields(only=("model",))].

    The operation fills in the others itself.
    """

    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opened:
    """How a parameter is opened by its name: Annotated[Run, Opened(Run.open, Name)] makes an input `name` of type Name.

    open: (workspace, name) -> the object; raises Unknown
    """

    open: Callable[[Workspace, str], Any]
    name: Any


@dataclass(frozen=True)
class Shown:
    """How people read a field of a snapshot: Annotated[int, Shown("size", byte_size)].

    title: "" for the field's name;  text: writes the value;  right: in a table, whether it stands at the right
    """

    title: str = ""
    text: Callable[[Any], str] = str
    right: bool = False


HIDDEN = Shown(text=lambda _: "")  # of a field that people read elsewhere, or not at all


class Snapshot(BaseModel):
    """What an operation answers. The string below a field says what it is."""

    COLUMNS: ClassVar[tuple[str, ...]] = ()  # fields that a table of several shows
    model_config = ConfigDict(frozen=True, from_attributes=True, use_attribute_docstrings=True)

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield (title, text) of each field that is not empty, for people."""
        for name in type(self).model_fields:
            if (text := self.text_of(name)) != "":
                yield type(self).shown(name).title, text

    @property
    def over(self) -> bool:
        """Whether it is final and no longer changes by itself."""
        return False

    def table(self) -> tuple[Sequence[str], list[Sequence[str]]] | None:
        """Return heads and rows of what people read better as a table, above its lines; None for most."""
        return None

    def text(self) -> Iterator[str]:
        """Yield the lines that the shell prints."""
        lines = list(self.lines())
        width = max((len(title) for title, text in lines if text), default=0) + 2
        yield from (f"{title:<{width}}{text}".rstrip() for title, text in lines)

    def text_of(self, name: str) -> str:
        """Return a field's value as people read it; "" if there is none."""
        value = getattr(self, name)
        return "" if value is None or value in ("", (), [], {}) else self.shown(name).text(value)

    @classmethod
    def shown(cls, name: str) -> Shown:
        """Return how a field is shown."""
        found = next((one for one in cls.model_fields[name].metadata if isinstance(one, Shown)), Shown())
        return found if found.title else Shown(name.replace("_", " "), found.text, found.right)


class JobSnapshot(Snapshot):
    """A background job: what a long-running operation answers at once, and its `job` operation from then on."""

    id: Annotated[str, Shown("job")]
    """Its id, which the operation `job` takes."""

    folder: str
    """The job's folder, with its log."""

    state: str
    """`starting`, `running`, `finished`, `failed`, `stopped` or `died`."""

    message: str
    """What was done or why it failed, in one sentence; empty while it is running."""

    @property
    def over(self) -> bool:
        return not State(self.state).alive

    def outcome(self) -> Iterable[str]:
        """Return what the shell prints of a job that has finished."""
        return [self.message]

    def after_failure(self) -> Iterable[str]:
        """Return what the shell prints below the error of a job that failed: what to do about it."""
        return []

    @property
    def goes_on(self) -> str:
        """What the shell says when it stops watching the job."""
        return f"The job continues in the background: {self.folder}"


Function = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Marks:
    """What is declared of an operation beside its signature.

    Attributes:
        arguments: Where an input is of a Settings class, what the shell takes by place: "lora [target]".
        changes: Whether it changes anything: POST in the API, else GET.
        visitors: Whether a visitor of the public demo may call it, in a session of their own; None: as its noun says.
        job: For a long-running one, the operation that reads the job it has started.
        watch: Of an answer that changes by itself: (workspace, input by name) -> what reads it again at little cost;
            True: the operation itself. The API sends one snapshot as server-sent events, until its `over`; the page
            takes lists, too.
        confirm: The operation that lists what it would do: the shell shows that and asks.
        none: What the shell says where the answer is an empty list.
        says: What the shell says of the answer, or of each of several, instead of all that it holds.
        afterwards: What the shell says at the end: how to take it back, or what else is to be known.
        path: Its address in the API, where it is not the noun's and the verb; fields in braces are taken from there.
        status: Of the API's answer; 202 where there is a job.
        exit_code: Of the shell's command, by the answer; None: 0.
        shell: Whether the shell has a command that is made from it.
        by_hand: The shell's command that is written by hand and prints the same answer with --json: "fit".
        section: The heading under which the shell lists that command.
    """

    arguments: str = ""
    changes: bool = False
    visitors: Visitors | None = None
    job: Function | None = None
    watch: Callable[..., Callable[[], Any]] | Literal[True] | None = None
    confirm: Function | None = None
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
        module: In which it is declared.
        inputs: The input's fields, checked as settings are.
        opened: Of the function's parameters those that are opened by the input `name`, and how.
        parts: Of the function's parameters those that stand for fields of a Settings class: name -> (class, fields).
        places: Of the inputs those that the shell takes by place: name -> whether it may be left out.
        returns: The annotation of the answer.
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

    @property
    def command(self) -> str:
        """What follows `workbench` in the shell."""
        return self.by_hand or f"{NOUNS[self.noun].shell} {self.verb}"

    @property
    def of_settings(self) -> bool:
        """Whether its input are settings, which a file may hold."""
        return bool(self.parts) or not issubclass(self.inputs, OfSignature)

    @property
    def filled(self) -> set[str]:
        """Settings that the operation fills in itself, whatever a file of settings has."""
        return {name for kind, fields in self.parts.values() for name in kind.model_fields if name not in fields}

    @property
    def reader_of_job(self) -> Operation | None:
        """The operation that `job` is."""
        return _declared(self.job) if self.job else None

    @property
    def planner(self) -> Operation | None:
        """The operation that `confirm` is."""
        return _declared(self.confirm) if self.confirm else None

    @property
    def help(self) -> str:
        """The docstring."""
        return inspect.getdoc(self.function) or ""

    @property
    def many(self) -> bool:
        """Whether the answer is a list of snapshots."""
        return get_origin(self.returns) is list

    @property
    def snapshot(self) -> type[Snapshot]:
        """The class of the answer, or of one of its items."""
        kind: type[Snapshot] = get_args(self.returns)[0] if self.many else self.returns
        return kind

    def __call__(self, workspace: Workspace, values: Mapping[str, Any]) -> Any:
        """Check the input and do it.

        Args:
            values: Raw values as JSON has them; what is left out has its default.

        Raises:
            ConfigError: Bad input, a sentence for each field; or what the operation itself raises.
        """
        return self.call(workspace, parse(self.inputs, values))

    def call(self, workspace: Workspace, inputs: Settings) -> Any:
        """Do it with checked input."""
        self._check_visitor()
        if not issubclass(self.inputs, OfSignature):
            return self.function(workspace, inputs)
        given = {name: getattr(inputs, name) for name in self.inputs.model_fields}
        for parameter, opened in self.opened.items():
            given[parameter] = opened(workspace, given.pop("name"))
        for parameter, (kind, fields) in self.parts.items():
            given[parameter] = parse(kind, {name: given.pop(name) for name in fields})
        if "workspace" in inspect.signature(self.function).parameters:
            given["workspace"] = workspace
        return self.function(**given)

    def reader(self, workspace: Workspace, values: Mapping[str, Any]) -> Callable[[], Any]:
        """Check the input and return what reads the answer again and again. Raises ConfigError."""
        inputs = parse(self.inputs, values)
        self._check_visitor()
        if callable(self.watch):
            return self.watch(workspace, **dict(inputs))
        return lambda: self.call(workspace, inputs)

    def _check_visitor(self) -> None:
        if self.visitors == "never" and quota.current() is not None:
            raise ConfigError(f"{self.command} {quota.OFF}")

    def plain(self, value: Any) -> Any:
        """Return an answer as JSON has it."""
        return TypeAdapter(self.returns).dump_python(value, mode="json")


class OfSignature(Settings):
    """Base of inputs that were made of a signature."""

    model_config = ConfigDict(use_attribute_docstrings=False)


REGISTRY: dict[tuple[str, str], Operation] = {}


class operation(Marks):
    """Declare an operation."""

    def __call__(self, function: F) -> F:
        module, verb = function.__module__.rpartition(".")[2], function.__name__.strip("_").replace("_", "-")
        name = NOUN_OF[module]
        own: dict[str, Any] = {
            **_signature(function),
            "visitors": self.visitors or NOUNS[name].visitors,
            "path": self.path or f"{NOUNS[name].path}/{verb}",
            "status": 202 if self.job else self.status,
            "shell": self.shell and not self.by_hand,
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
    """Read `inputs`, `opened`, `parts` and `places` of an operation from its function."""
    hints = get_type_hints(function, include_extras=True)
    parameters = [one for one in inspect.signature(function).parameters.values() if one.name != "workspace"]
    fields: dict[str, Any] = {}
    opened: dict[str, Callable[[Workspace, str], Any]] = {}
    parts: dict[str, tuple[type[Settings], tuple[str, ...]]] = {}
    places: dict[str, bool] = {}
    for one in parameters:
        kind, *marks = get_args(hint) if get_origin(hint := hints[one.name]) is Annotated else (hint,)
        if marks and isinstance(marks[0], Opened):
            fields["name"], opened[one.name], places["name"] = (marks[0].name, ...), marks[0].open, False
            continue
        if not (inspect.isclass(kind) and issubclass(kind, Settings)):
            fields[one.name] = (hint, ... if one.default is one.empty else one.default)
            if one.kind is not one.KEYWORD_ONLY:
                places[one.name] = one.default is not one.empty
            continue
        if len(parameters) == 1 and not marks:
            return {"inputs": kind, "opened": {}, "parts": {}, "places": {}}
        chosen = next((mark for mark in marks if isinstance(mark, Fields)), Fields())
        names = tuple(name for name in chosen.only or kind.model_fields if name not in chosen.without)
        sections = {spec.name: spec.section for spec in specs(kind)}
        for name in names:  # a setting's declaration, which also says the section that its class gives it
            info = copy(kind.model_fields[name])
            extra: Any = info.json_schema_extra or {}
            info.json_schema_extra = {**extra, "section": sections[name]}
            fields[name] = (info.annotation, info)
        parts[one.name] = kind, names
    made = create_model(f"{function.__name__}_inputs", __base__=OfSignature, __module__=function.__module__, **fields)
    return {"inputs": made, "opened": opened, "parts": parts, "places": places}


def _declared(function: Function) -> Operation:
    return next(one for one in REGISTRY.values() if one.function is function)


def operations(*nouns: str) -> list[Operation]:
    """Return the operations of these nouns, or of all: noun by noun, in the order of their declaration."""
    modules = [module for noun in nouns or NOUNS for module in NOUNS[noun].modules or (noun,)]
    for module in modules:
        importlib.import_module(f"{__package__}.{module}")
    return [one for module in modules for one in REGISTRY.values() if one.module == module]


def keys_of(kind: type[Snapshot]) -> dict[str, str]:
    """Return each key of a snapshot's JSON, and what it is."""
    return {name: " ".join((info.description or "").split()) for name, info in kind.model_fields.items()}
