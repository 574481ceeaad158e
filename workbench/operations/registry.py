"""The registry: an operation is a typed function, and its signature is its schema.

    @operation(changes=True)
    def star(workspace: Workspace, name: Name, *, off: Off = False) -> Lora:
        "Keep a LoRA: nothing removes it while it is starred."

The module is the noun, the function the verb, the docstring the help. What follows the workspace is the input: the
shell takes parameters before the `*` by place and those after it as flags, the API takes all of them by name. A
function with one parameter of a Settings class takes all of its fields. The input is checked as settings are, so
every face says the same sentences. The answer is a snapshot, whose fields are described where they are declared.

`api.operations` makes routes from this, `cli.operations` commands, `scripts/write_docs.py` docs/json.md.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, create_model

from workbench import policy
from workbench.errors import ConfigError
from workbench.settings import Settings, parse
from workbench.workspace import Workspace

NOUNS = ("runs", "samples", "loras")  # the modules of this package that declare operations
Visitors = Literal["never", "own session"]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Shown:
    """How people read a field of a snapshot: Annotated[int, Shown("size", byte_size)].

    title: "" for the field's name;  text: writes the value;  right: in a table, whether it stands at the right
    """

    title: str = ""
    text: Callable[[Any], str] = str
    right: bool = False


def hidden(_: Any) -> str:
    """Return nothing: the text of what people are not shown."""
    return ""


class Snapshot(BaseModel):
    """What an operation answers. The string below a field says what it is."""

    COLUMNS: ClassVar[tuple[str, ...]] = ()  # fields that a table of several shows
    model_config = ConfigDict(frozen=True, from_attributes=True, use_attribute_docstrings=True)

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield (title, text) of each field that is not empty, for people."""
        for name in type(self).model_fields:
            if (text := self.text_of(name)) != "":
                yield type(self).shown(name).title, text

    def table(self) -> tuple[Sequence[str], list[Sequence[str]]] | None:
        """Return heads and rows of what people read better as a table than as lines; None for most."""
        return None

    def text_of(self, name: str) -> str:
        """Return a field's value as people read it; "" where there is none."""
        value = getattr(self, name)
        return "" if value is None or value in ("", (), [], {}) else self.shown(name).text(value)

    @classmethod
    def shown(cls, name: str) -> Shown:
        """Return how a field is shown."""
        found = next((one for one in cls.model_fields[name].metadata if isinstance(one, Shown)), Shown())
        return found if found.title else Shown(name.replace("_", " "), found.text, found.right)


class JobSnapshot(Snapshot):
    """A job that was started: what a long-running operation answers at once, and again while one asks."""

    id: Annotated[str, Shown("job")]
    """Of the job: what its operation `job` takes."""

    folder: str
    """The job's folder, with its log."""

    state: str
    """`starting`, `running`, `finished`, `failed`, `stopped` or `died`."""

    message: str
    """What was done, or why it failed, one sentence; empty while it is at work."""

    def outcome(self) -> Iterable[str]:
        """Return what the shell prints of a job that has finished."""
        return [self.message]


@dataclass(frozen=True)
class Operation:
    """One declared operation.

    Attributes:
        inputs: The input's fields, checked as settings are.
        arguments: Of the inputs those that the shell takes by place: name -> whether it may be left out.
        returns: The annotation of the answer.
        changes: Whether it changes anything: POST in the API, else GET.
        visitors: Whether a visitor of the public demo may call it, in a session of their own.
        job: For a long-running one, the operation that reads the job it has started.
        confirm: What lists what it would do: the shell shows that and asks.
        none: What the shell says where the answer is an empty list.
        says: What the shell says of the answer, or of each of several, instead of all that it holds.
        afterwards: What the shell says at the end: how to take it back, or what else is to be known.
        path: Its address in the API; fields in braces are taken from there.
        status: Of the API's answer.
        shell: Whether the shell's command is made from it; else one is written by hand, as it waits or writes a file.
    """

    noun: str
    verb: str
    function: Callable[..., Any]
    inputs: type[Settings]
    arguments: dict[str, bool]
    returns: Any
    changes: bool
    visitors: Visitors
    job: Operation | None
    confirm: Operation | None
    none: str
    says: Callable[[Any], str] | None
    afterwards: str | Callable[[Workspace], str]
    path: str
    status: int
    shell: bool

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
        if self.visitors == "never" and policy.current() is not None:
            raise ConfigError(f"{self.noun} {self.verb} {policy.OFF}")
        if not issubclass(self.inputs, OfSignature):
            return self.function(workspace, inputs)
        given = {name: getattr(inputs, name) for name in self.inputs.model_fields}
        hints = get_type_hints(self.function)
        for name in list(inspect.signature(self.function).parameters)[1:]:
            if name not in given:  # a Settings class, whose fields stand among the others
                kind = hints[name]
                given[name] = kind.model_construct(**{field: given.pop(field) for field in kind.model_fields})
        return self.function(workspace, **given)

    def plain(self, value: Any) -> Any:
        """Return an answer as JSON has it."""
        return TypeAdapter(self.returns).dump_python(value, mode="json")


class OfSignature(Settings):
    """Base of inputs that were made of a signature."""


REGISTRY: dict[tuple[str, str], Operation] = {}


def operation(  # noqa: PLR0913 - all that is declared of one, in one place, each part named
    *,
    arguments: str = "",
    changes: bool = False,
    visitors: Visitors = "never",
    job: Callable[..., Any] | None = None,
    confirm: Callable[..., Any] | None = None,
    none: str = "",
    says: Callable[[Any], str] | None = None,
    afterwards: str | Callable[[Workspace], str] = "",
    path: str = "",
    status: int = 200,
    shell: bool = True,
) -> Callable[[F], F]:
    """Declare an operation; Operation says what the marks mean.

    Args:
        arguments: For a function of a Settings class, the fields that the shell takes by place: "lora [target]".
        job, confirm: Functions that are operations, too.
    """

    def declare(function: F) -> F:
        noun, verb = function.__module__.rpartition(".")[2], function.__name__.strip("_").replace("_", "-")
        inputs, places = _inputs(function)
        if arguments:
            places = {one.strip("[]"): one.startswith("[") for one in arguments.split()}
        REGISTRY[noun, verb] = Operation(
            noun=noun,
            verb=verb,
            function=function,
            inputs=inputs,
            arguments=places,
            returns=get_type_hints(function)["return"],
            changes=changes,
            visitors=visitors,
            job=_declared(job) if job else None,
            confirm=_declared(confirm) if confirm else None,
            none=none,
            says=says,
            afterwards=afterwards,
            path=path or f"/{noun}/{verb}",
            status=202 if job else status,
            shell=shell,
        )
        return function

    return declare


def _inputs(function: Callable[..., Any]) -> tuple[type[Settings], dict[str, bool]]:
    """(the class of a function's input, its positional parameters and whether they have a default)."""
    hints = get_type_hints(function, include_extras=True)
    _, *parameters = inspect.signature(function).parameters.values()
    if len(parameters) == 1 and inspect.isclass(kind := hints[parameters[0].name]) and issubclass(kind, Settings):
        return kind, {}
    whole = [hints[one.name] for one in parameters if inspect.isclass(hints[one.name])]
    bases = (OfSignature, *(kind for kind in whole if issubclass(kind, Settings)))
    parameters = [one for one in parameters if hints[one.name] not in bases]
    fields: dict[str, Any] = {
        one.name: (hints[one.name], ... if one.default is one.empty else one.default) for one in parameters
    }
    made = create_model(f"{function.__name__}_inputs", __base__=bases, __module__=function.__module__, **fields)
    places = [one for one in parameters if one.kind is not one.KEYWORD_ONLY]
    return made, {one.name: one.default is not one.empty for one in places}


def _declared(function: Callable[..., Any]) -> Operation:
    return next(one for one in REGISTRY.values() if one.function is function)


def operations(*nouns: str) -> list[Operation]:
    """Return the operations of these nouns, or of all, in the order of their declaration."""
    for noun in nouns or NOUNS:
        importlib.import_module(f"{__package__}.{noun}")
    return [one for one in REGISTRY.values() if one.noun in (nouns or NOUNS)]


def keys_of(kind: type[Snapshot]) -> dict[str, str]:
    """Return each key of a snapshot's JSON, and what it is."""
    return {name: " ".join((info.description or "").split()) for name, info in kind.model_fields.items()}
