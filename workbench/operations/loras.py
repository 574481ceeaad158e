"""LoRAs: list, look at, merge, extract, resize, fuse, import, convert, star, remove and restore them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from workbench import jobs
from workbench.display.quantities import byte_size, moment
from workbench.errors import ConfigError
from workbench.families import known_model, lora_names
from workbench.loras import library, removal, tasks, view
from workbench.loras.converting import formats as known_formats
from workbench.loras.removal import CleaningSettings, PlannedRemoval
from workbench.loras.settings import (
    ConvertSettings,
    ExtractSettings,
    FuseSettings,
    LoraImportSettings,
    MergeSettings,
    ResizeSettings,
)
from workbench.operations.registry import HIDDEN, JobSnapshot, Shown, Snapshot, operation
from workbench.sampler.loras import read_header, split_scale
from workbench.settings import Settings, specs
from workbench.workspace import Workspace, is_slug, read_object
from workbench.workspace.lora_names import folder
from workbench.workspace.records import read_once

Name = Annotated[
    str,
    Field(title="LoRA", description="runs/RUN, runs/RUN@STEP or loras/NAME.", json_schema_extra={"source": "loras"}),
]
JobId = Annotated[str, Field(title="Job", description="As the operation gave it.")]
Match = dict[str, Any]
MOST_VIDEOS = 6  # of one LoRA that are shown
IN_THE_BIN = "in the bin: `workbench loras bin` lists it, `restore ID` brings one back, `empty-bin` deletes for good"


class Source(Snapshot):
    """What a LoRA was made of."""

    name: str
    """Name of the LoRA or the model."""

    weight: float
    """Its share in a merge, its scale in a fusion."""

    sha256: str
    """Hash of its file; "" if unknown."""


class LoraVideo(Snapshot):
    """A video that a LoRA generated."""

    file: str
    """Path of the mp4."""

    prompt: str
    """What was asked for; "" where it is not recorded."""

    width: int | None
    """Width of its frames, in pixels; null if not recorded."""

    height: int | None
    """Height of its frames, in pixels; null if not recorded."""


class Lora(Snapshot):
    """One LoRA."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "base_model", "strength", "trigger", "steps", "bytes", "marks")

    name: str
    """`runs/RUN`, `runs/RUN@STEP` or `loras/NAME`: what `--loras` takes."""

    title: str
    """Its name for people."""

    file: str
    """Path of its safetensors file."""

    origin: str
    """Where it comes from, one sentence."""

    run: str | None
    """The run that trained it, or null."""

    step: int | None
    """The step of a checkpoint, else null."""

    base_model: Annotated[str, Shown("base model")]
    """The model that it is for, as its file says it."""

    model_title: Annotated[str, HIDDEN]
    """What people call that model; "" if unknown."""

    trigger: Annotated[str, Shown("trigger word")]
    """What a prompt has to say; "" for nothing."""

    strength: Annotated[str, Shown("rank")]
    """Rank and alpha in words."""

    rank: Annotated[int, HIDDEN]
    """The largest rank of its layers."""

    alpha: Annotated[float | None, HIDDEN]
    """Null where the file does not say: the scale is then 1."""

    steps: Annotated[int | None, Shown(text="{:,}".format, right=True)]
    """How many steps it was trained for, null if unknown."""

    bytes: Annotated[int, Shown("size", byte_size, right=True)]
    """Size of the file."""

    created: Annotated[float, Shown(text=moment)]
    """Unix time of the file."""

    previews: Annotated[int, Shown(text=lambda number: str(number or ""))]
    """Number of its preview videos."""

    marks: Annotated[tuple[str, ...], Shown(text=", ".join)]
    """Which of `starred`, `best` and `published` apply; each keeps it from being removed."""

    published: str
    """Its address on the Hub; "" if it is not there."""

    damaged: str
    """What is wrong with the file; "" when nothing is."""

    model: Annotated[str, HIDDEN]
    """The model's name here, which `--model` takes; "" if unknown."""

    video: Annotated[LoraVideo | None, HIDDEN]
    """A video that it generated; null while there is none."""

    verdict: Annotated[view.Verdict | None, Shown("verdict", lambda verdict: verdict.claim)]
    """How good it is; null if nothing says so."""

    made_of: Annotated[tuple[Source, ...], HIDDEN]
    """For one that was made of others: name, weight and sha256 of each."""

    match: Annotated[Match | None, HIDDEN]
    """How an imported one fits its model: layers, matched, left_out (why, count, names), rank, alpha, alpha_from,
    written_by, and where they apply converted, lost, nothing; else null."""

    def lines(self) -> Iterator[tuple[str, str]]:
        yield from super().lines()
        yield from (line for line in lora_names.lines(self.match or {}) if line[0] != "rank")
        for one in self.made_of:
            yield "made of", f"{one.weight:g} x {one.name}  {one.sha256[:16]}"


class Details(Lora):
    """A LoRA in detail."""

    videos: Annotated[tuple[LoraVideo, ...], HIDDEN]
    """Its newest preview videos."""

    keeps: Annotated[str, HIDDEN]
    """Why it cannot be removed now, the end of a sentence that begins with its title; "" if it can."""

    fit: Annotated[tuple[tuple[str, str], ...], HIDDEN]
    """What `match` says, as (label, value) for people."""

    metadata: Annotated[dict[str, str], HIDDEN]
    """The notes inside its file, long ones cut."""


class Format(Snapshot):
    """What a LoRA can be converted to."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("id", "title", "help")

    id: str
    """What `loras convert` takes."""

    title: str
    """Its name for people."""

    help: str
    """What is in it, and which programs read it, for each family."""

    suffix: str
    """Ending of the file's name."""

    warning: str
    """What is lost by it; "" where nothing is."""

    readers: tuple[str, ...]
    """Programs that apply such a file exactly; where families differ, `help` says who reads which."""

    outside: str
    """The one of them that also applies it to layers outside the blocks; "" if none does."""


class LoraJob(JobSnapshot):
    """An operation on LoRAs that runs in the background."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("id", "operation", "state", "made", "message")

    activity: Annotated[str, HIDDEN]
    """What it is doing with the time that is left, or how it ended, for people."""

    tone: Annotated[str, HIDDEN]
    """`going`, `good`, `bad` or `plain`."""

    share: Annotated[float | None, HIDDEN]
    """How much of it is done, from 0 to 1; null while that is unknown."""

    log: Annotated[str, HIDDEN]
    """The end of its log, where it failed without a sentence; else ""."""

    fit: Annotated[tuple[tuple[str, str], ...], HIDDEN]
    """What `reports` says, as (label, value) for people."""

    ended_at: Annotated[float | None, HIDDEN]
    """Unix time of its end; null before."""

    operation: str
    """`merge`, `resize`, `extract`, `fuse`, `import` or `convert`."""

    made: str
    """The name in the library, or the path of what was written; "" while it is at work."""

    error: float | None
    """The share of the LoRA's change that was lost; null if nothing was."""

    files: tuple[str, ...]
    """Every file that a conversion wrote."""

    reports: tuple[Match, ...]
    """How each LoRA that was read fits its model: layers, matched, left_out (why, count, names), rank, alpha,
    alpha_from, written_by, and where they apply converted, lost, nothing."""

    def outcome(self) -> Iterable[str]:
        matches = (f"{label:<16}{value}" for report in self.reports for label, value in lora_names.lines(report))
        return self.message, *(self.files or (self.made,)), *matches


class ToRemove(Snapshot):
    """A LoRA that would be removed, or was."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "bytes")

    name: str
    """Name of the LoRA."""

    bytes: Annotated[int, Shown("size", byte_size, right=True)]
    """Size of its files."""

    id: Annotated[str, HIDDEN]
    """What `restore` takes, of one that was removed; else ""."""


class Removed(Snapshot):
    """A LoRA in the bin."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("id", "title", "bytes", "time")

    id: str
    """What `loras restore` takes."""

    name: str
    """What it was called."""

    title: str
    """Its name for people."""

    bytes: Annotated[int, Shown("size", byte_size, right=True)]
    """Size of its files."""

    time: Annotated[float, Shown("removed", moment)]
    """Unix time of its removal."""


class Freed(Snapshot):
    """What emptying the bin gave back."""

    bytes: Annotated[int, Shown("freed", byte_size)]
    """Size of the files that were deleted."""


# ---- looking


@operation(path="/loras", none="no LoRA yet: train one (workbench train) or import one (workbench loras import)")
def list_(
    workspace: Workspace,
    *,
    checkpoints: Annotated[bool, Field(description="Also the LoRAs in runs' checkpoints.")] = False,
) -> list[Lora]:
    """List every LoRA of the workspace, newest first."""
    return [_lora(one) for one in library.all_loras(workspace, checkpoints)]


@operation()
def show(workspace: Workspace, name: Name) -> Details:
    """Show the facts of a LoRA."""
    one = library.find(workspace, name)
    return Details(
        **dict(_lora(one)),
        videos=tuple(map(_video, one.previews[:MOST_VIDEOS])),
        keeps=removal.reason_to_keep(one),
        fit=tuple(view.match(one)),
        metadata={} if one.sound else {key: text[:500] for key, text in read_header(one.path).metadata.items()},
    )


def _video(path: Path) -> LoraVideo:
    record = read_once(path.with_suffix(".json"), read_object)
    width, height = (size if isinstance(size := record.get(side), int) else None for side in ("width", "height"))
    return LoraVideo(file=str(path), prompt=str(record.get("prompt", "")), width=width, height=height)


@operation()
def formats(workspace: Workspace) -> list[Format]:
    """List what LoRAs can be converted to."""
    return [Format.model_validate(one) for one in known_formats()]


def _lora(one: library.LibraryLora) -> Lora:
    notes = library.notes(one)
    plain = ("name", "title", "step", "base_model", "trigger", "rank", "alpha", "steps", "bytes", "origin", "created")
    return Lora(
        **{name: getattr(one, name) for name in plain},
        file=str(one.path),
        run=one.run.name if one.run else None,
        strength=view.strength(one),
        model=one.model,
        model_title=_title_of(one.model or one.base_model),
        video=_video(one.previews[0]) if one.previews else None,
        verdict=view.verdict(one),
        previews=len(one.previews),
        marks=tuple(sorted(one.flags)),
        published=view.link(one),
        damaged=one.sound,
        made_of=notes.get("made_of", ()),
        match=notes.get("match") or None,
    )


@cache
def _title_of(model: str) -> str:
    """What people call a model: "Tiny CogVideoX"; the name itself where nothing else is known."""
    known = known_model(model) if model else None
    return known.model.title.removesuffix(" (built in)") if known else model


# ---- making others of them, in the background


@operation()
def job(workspace: Workspace, id: JobId) -> LoraJob:
    """Show how far a merge, an import ... is, or what came of it."""
    return _job(_task(workspace, id))


@operation(changes=True)
def stop(workspace: Workspace, id: JobId) -> LoraJob:
    """Stop an operation on LoRAs; nothing is made."""
    jobs.stop(_task(workspace, id).folder)
    return job(workspace, id)


def _task(workspace: Workspace, id: str) -> tasks.LoraTask:
    if not is_slug(id):
        raise ConfigError(f"id is {id[:80]!r}: give the id that the operation answered")
    return tasks.read_task(folder(workspace) / tasks.JOBS / id)


@operation(none="no operation on LoRAs in the last day")
def jobs_(workspace: Workspace) -> list[LoraJob]:
    """List the operations that go on, and those that ended in the last day."""
    return [_job(one) for one in tasks.everything(workspace)]


@operation(arguments="loras", changes=True, job=job)
def merge(workspace: Workspace, settings: MergeSettings) -> LoraJob:
    """Merge LoRAs into one: exactly, or to a rank."""
    return _start(workspace, settings)


@operation(arguments="lora", changes=True, job=job)
def resize(workspace: Workspace, settings: ResizeSettings) -> LoraJob:
    """Resize a LoRA to another rank, and say how much of its change is lost."""
    return _start(workspace, settings)


@operation(arguments="source", changes=True, job=job)
def extract(workspace: Workspace, settings: ExtractSettings) -> LoraJob:
    """Make a LoRA of a full fine-tune: of a run that trained all weights, or of a folder in diffusers' layout."""
    return _start(workspace, settings)


@operation(arguments="loras", changes=True, job=job)
def fuse(workspace: Workspace, settings: FuseSettings) -> LoraJob:
    """Fuse LoRAs into a model: writes a folder that can be used as a model."""
    return _start(workspace, settings)


@operation(arguments="source", changes=True, job=job)
def import_(workspace: Workspace, settings: LoraImportSettings) -> LoraJob:
    """Add a LoRA of another trainer, or of the Hub, to the library."""
    return _start(workspace, settings)


@operation(arguments="lora format [target]", changes=True, job=job)
def convert(workspace: Workspace, settings: ConvertSettings) -> LoraJob:
    """Write a LoRA as a file for another program; `workbench loras formats` lists the formats."""
    split_scale(settings.lora)
    return _start(workspace, settings)


def _start(workspace: Workspace, settings: Settings) -> LoraJob:
    first = specs(type(settings))[0]  # what it is done with
    if not getattr(settings, first.name):
        sentence = f"{first.name} is empty: choose {'a LoRA' if first.source == 'loras' else 'what to start from'}"
        raise ConfigError(sentence, {first.name: sentence})
    return _job(tasks.read_task(tasks.start(workspace, settings)))


def _job(task: tasks.LoraTask) -> LoraJob:
    shown = view.task_view(task)
    return LoraJob(
        activity=shown.message,
        tone=shown.tone,
        share=shown.share,
        log=shown.log,
        fit=shown.matches,
        ended_at=task.status.ended_at,
        id=task.id,
        folder=str(task.folder),
        operation=task.name,
        state=task.status.state.value,
        message=task.message or task.status.message,
        made=task.made,
        error=jobs.result(task.folder).get("error"),
        files=tuple(task.files),
        reports=tuple(map(dict, task.reports)),
    )


# ---- keeping and removing


@operation(changes=True)
def star(
    workspace: Workspace, name: Name, *, off: Annotated[bool, Field(description="Remove the star.")] = False
) -> Lora:
    """Keep a LoRA: nothing removes it while it is starred."""
    library.star(workspace, name, on=not off)
    return show(workspace, name)


Names = Annotated[tuple[str, ...], Field(title="LoRAs", description="Of LoRAs, as `list` shows them.", min_length=1)]


@operation()
def to_remove(workspace: Workspace, names: Names) -> list[ToRemove]:
    """List what removing LoRAs would move to the bin, or say why one of them stays."""
    return _planned(removal.preview(workspace, names))


@operation(changes=True, confirm=to_remove, afterwards=IN_THE_BIN)
def remove(workspace: Workspace, names: Names) -> list[ToRemove]:
    """Move LoRAs to the bin; `restore` brings them back."""
    return _planned(removal.remove(workspace, names))


@operation(none="nothing to remove")
def to_clean(workspace: Workspace, settings: CleaningSettings) -> list[ToRemove]:
    """List what a cleanup would move to the bin."""
    return _planned(removal.to_remove(workspace, settings))


@operation(changes=True, confirm=to_clean, none="nothing to remove", afterwards=IN_THE_BIN)
def clean(workspace: Workspace, settings: CleaningSettings) -> list[ToRemove]:
    """Move old checkpoints to the bin, and with `made` other LoRAs.

    What is starred, best or published stays, and so do runs' exports.
    """
    return _planned(removal.clean(workspace, settings))


def _planned(found: Iterable[PlannedRemoval]) -> list[ToRemove]:
    return [ToRemove(name=one.lora.name, bytes=one.bytes, id=one.id) for one in found]


@operation(none="the bin is empty")
def bin_(workspace: Workspace) -> list[Removed]:
    """List the removed LoRAs, newest first."""
    return [Removed.model_validate(one) for one in removal.removed(workspace)]


@operation(changes=True)
def restore(workspace: Workspace, id: Annotated[str, Field(description="As `bin` lists it.")]) -> Lora:
    """Bring a removed LoRA back."""
    return show(workspace, removal.restore(workspace, id))


@operation(changes=True, confirm=bin_)
def empty_bin(workspace: Workspace) -> Freed:
    """Delete the removed LoRAs for good."""
    return Freed(bytes=removal.empty(workspace))
