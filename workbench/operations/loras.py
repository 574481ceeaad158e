"""LoRAs: list, inspect, merge, extract, resize, fuse, import, convert, star, remove and restore them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from workbench import jobs
from workbench.display.quantities import byte_size, moment
from workbench.errors import ConfigError, ExitCode
from workbench.families import known_model, lora_check, lora_names
from workbench.loras import library, removal, tasks, view
from workbench.loras.converting import formats as known_formats
from workbench.loras.removal import CleaningSettings, PlannedRemoval, RemovedLora
from workbench.loras.settings import (
    ConvertSettings,
    ExtractSettings,
    FuseSettings,
    LoraImportSettings,
    MergeSettings,
    RepairSettings,
    ResizeSettings,
    SurvivesSettings,
)
from workbench.loras.tasks import LoraJob, Match
from workbench.operations.registry import operation
from workbench.operations.shared import LoraName
from workbench.sampler.loras import checked_file, read_header, split_scale
from workbench.settings import Settings, specs
from workbench.snapshots import HIDDEN, Shown, Snapshot
from workbench.workspace import Workspace, is_slug, read_object
from workbench.workspace.lora_names import folder
from workbench.workspace.records import read_once

JobId = Annotated[str, Field(title="Job", description="Id of the job, as returned when it was started.")]
MOST_VIDEOS = 6
IN_THE_BIN = "in the bin: `workbench loras bin` lists them, `restore ID` brings one back, `empty-bin` deletes them"


class LoraVideo(Snapshot):
    """A video generated with a LoRA."""

    file: str
    """Path of the mp4."""

    prompt: str
    """Its prompt; "" if not recorded."""

    width: int | None
    """Width in pixels; null if not recorded."""

    height: int | None
    """Height in pixels; null if not recorded."""


class Lora(Snapshot):
    """A LoRA."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "base_model", "strength", "trigger", "steps", "bytes", "marks")

    name: str
    """Name of the LoRA, as `--loras` takes it: `runs/RUN`, `runs/RUN@STEP` or `loras/NAME`."""

    title: str
    """Display name."""

    file: str
    """Path of its safetensors file."""

    origin: str
    """Where it comes from, in one sentence."""

    run: str | None
    """The run that trained it; null if none did."""

    step: int | None
    """The step of its checkpoint; null if it is not from a checkpoint."""

    base_model: Annotated[str, Shown("base model")]
    """The model that it is for, according to its file."""

    model_title: Annotated[str, HIDDEN]
    """Display name of that model; "" if unknown."""

    trigger: Annotated[str, Shown("trigger word")]
    """Trigger word that prompts need; "" for none."""

    strength: Annotated[str, Shown("rank")]
    """Rank and alpha in words."""

    rank: Annotated[int, HIDDEN]
    """The largest rank of its layers."""

    alpha: Annotated[float | None, HIDDEN]
    """Its alpha; null if its file does not include one, which means a scale of 1."""

    steps: Annotated[int | None, Shown(text="{:,}".format, right=True)]
    """Number of steps it was trained for; null if unknown."""

    bytes: Annotated[int, Shown("size", byte_size, right=True)]
    """Size of its file in bytes."""

    created: Annotated[float, Shown(text=moment)]
    """When its file was written, as Unix time."""

    previews: Annotated[int, Shown(text=lambda number: str(number or ""))]
    """Number of its preview videos."""

    marks: Annotated[tuple[str, ...], Shown(text=", ".join)]
    """Those of `starred`, `best` and `published` that apply. Any of them protects it from removal."""

    published: str
    """Its address on the Hub; "" if it is not published."""

    damaged: str
    """What is wrong with its file; "" if nothing is."""

    model: Annotated[str, HIDDEN]
    """The model, as `--model` takes it; "" if unknown."""

    video: Annotated[LoraVideo | None, HIDDEN]
    """A video that was generated with it; null if there is none."""

    verdict: Annotated[view.Verdict | None, Shown("verdict", lambda verdict: verdict.claim)]
    """How good it is; null if unknown."""

    made_of: Annotated[tuple[library.LoraSource, ...], HIDDEN]
    """Name, weight and sha256 of each source that it was made from."""

    match: Annotated[Match | None, HIDDEN]
    """How an imported LoRA fits its model: layers, matched, left_out (why, count, names), rank, alpha, alpha_from,
    written_by and, if they apply, converted, lost, nothing; null if it was not imported."""

    def lines(self) -> Iterator[tuple[str, str]]:
        yield from super().lines()
        yield from (line for line in lora_names.lines(self.match or {}) if line[0] != "rank")
        for one in self.made_of:
            yield "made of", f"{one.weight:g} x {one.name}{one.blocks}  {one.sha256[:16]}"


class Details(Lora):
    """A LoRA in detail."""

    videos: Annotated[tuple[LoraVideo, ...], HIDDEN]
    """Its newest preview videos."""

    formats: Annotated[tuple[str, ...], HIDDEN]
    """Ids of the formats that it can be converted to; all of them while its model is unknown."""

    keeps: Annotated[str, HIDDEN]
    """Why it cannot be removed, as the rest of a sentence that starts with its title; "" if it can."""

    fit: Annotated[tuple[tuple[str, str], ...], HIDDEN]
    """The contents of `match` in words: (label, value)."""

    metadata: Annotated[dict[str, str], HIDDEN]
    """Metadata of its file, with long values truncated."""

    repair: Annotated[tasks.Repair | None, HIDDEN]
    """What was measured of it, if a repair made it; null for others."""


class Check(Snapshot):
    """Whether a LoRA file is whole and the same as it was trained."""

    code: str
    """`whole`, `changed`, `alpha lost`, `layers missing`, `other strength`, `wrong expert`, `wrong base`, `not loaded`,
    `damaged`, or `no test` if the file does not say what was trained."""

    sentence: str
    """The verdict in a sentence, without a period."""

    details: tuple[str, ...]
    """What else was found, what was compared and what was not, in sentences without a period."""

    good: bool
    """Whether the file is intact."""

    file: str
    """Path of the file."""

    def text(self) -> Iterator[str]:
        yield f"{self.sentence[:1].upper()}{self.sentence[1:]}."
        yield from (f"  {one}." for one in self.details)


class Block(Snapshot):
    """What a LoRA changes in one transformer block."""

    block: int | None
    """Number of the block, counted from 0; null for the layers outside the blocks."""

    layers: Annotated[int, Shown(right=True)]
    """Number of layers that it changes there."""

    share: Annotated[float, Shown("share of the change", lambda share: f"{share:.1%}", right=True)]
    """Share of the whole change, 0 to 1, by squared Frobenius norms."""


class Format(Snapshot):
    """A file format that LoRAs can be converted to."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("id", "title", "help")

    id: str
    """Id of the format, as `loras convert` takes it."""

    title: str
    """Display name."""

    help: str
    """What the file contains and which programs read it, for each model family."""

    suffix: str
    """File name suffix."""

    warning: str
    """What the conversion loses; "" if nothing."""

    readers: tuple[str, ...]
    """Programs that apply such a file exactly. If that differs by model family, `help` has the details."""

    outside: str
    """The one of these programs that also applies layers outside the blocks; "" if none does."""


class ToRemove(Snapshot):
    """A LoRA that would be removed, or was."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "bytes")

    name: str
    """Name of the LoRA."""

    bytes: Annotated[int, Shown("size", byte_size, right=True)]
    """Size of its files in bytes."""

    id: Annotated[str, HIDDEN]
    """Its id in the bin, as `restore` takes it; "" if it was not removed yet."""


class Freed(Snapshot):
    """The result of emptying the bin."""

    bytes: Annotated[int, Shown("freed", byte_size)]
    """Size of the deleted files in bytes."""


# ---- looking


@operation(path="/loras", none="no LoRA yet: train one (workbench train) or import one (workbench loras import)")
def list_(
    workspace: Workspace,
    *,
    checkpoints: Annotated[bool, Field(description="Also list the LoRAs in runs' checkpoints.")] = False,
) -> list[Lora]:
    """List the LoRAs of the workspace, newest first."""
    return [_lora(one) for one in library.all_loras(workspace, checkpoints)]


@operation()
def show(workspace: Workspace, name: LoraName) -> Details:
    """Show a LoRA: its model, rank, trigger word, size, origin and quality."""
    one = library.find(workspace, name)
    known = known_model(one.model or one.base_model)
    return Details.from_objects(
        _lora(one),
        videos=tuple(map(_video, one.previews[:MOST_VIDEOS])),
        formats=tuple(format.id for format in (known.family.lora_formats if known else known_formats())),
        keeps=removal.reason_to_keep(one),
        fit=tuple(view.match(one)),
        metadata={} if one.sound else {key: text[:500] for key, text in read_header(one.path).metadata.items()},
        repair={**found, "lora": one.name} if (found := library.notes(one).get("repair")) else None,
    )


def _video(path: Path) -> LoraVideo:
    record = read_once(path.with_suffix(".json"), read_object)
    width, height = (size if isinstance(size := record.get(side), int) else None for side in ("width", "height"))
    return LoraVideo(file=str(path), prompt=str(record.get("prompt", "")), width=width, height=height)


LoraFile = Annotated[
    str,
    Field(
        title="LoRA",
        description="A LoRA of the workspace (runs/RUN, runs/RUN@STEP, loras/NAME), a run's name or a .safetensors "
        "file.",
        json_schema_extra={"source": "loras", "path": True},
    ),
]


@operation()
def blocks(workspace: Workspace, lora: LoraFile) -> list[Block]:
    """Show how a LoRA's change is distributed over the transformer blocks.

    This says where the weights changed, not how it looks: compare samples with blocks off, as in --lora ring[0-9:0].
    """
    return [
        Block(block=one, layers=layers, share=share)
        for one, layers, share in view.blocks(checked_file(workspace, lora))
    ]


@operation(exit_code=lambda found: 0 if found.good or found.code == "no test" else ExitCode.BAD_DATA)
def check(
    workspace: Workspace,
    lora: LoraFile,
    *,
    test: Annotated[
        str,
        Field(
            description="The LoRA with the test, if the file has none: the one that it was converted from.",
            json_schema_extra={"path": True},
        ),
    ] = "",
    expert: Annotated[
        Literal["", "high noise", "low noise"], Field(description="The expert that the file is used for.")
    ] = "",
) -> Check:
    """Check whether a LoRA file is whole and the same as it was trained, by the test that it carries."""
    path, of = checked_file(workspace, lora), checked_file(workspace, test) if test.strip() else None
    found = lora_check.check(path, of, expert)
    return Check(code=found.code, sentence=found.sentence, details=found.details, good=found.good, file=str(path))


@operation()
def formats(workspace: Workspace) -> list[Format]:
    """List the file formats that LoRAs can be converted to."""
    return [Format.model_validate(one) for one in known_formats()]


def _lora(one: library.LibraryLora) -> Lora:
    notes = library.notes(one)
    return Lora.from_objects(
        one,
        file=str(one.path),
        run=one.run.name if one.run else None,
        strength=view.strength(one),
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
    """Return a model's display name, such as "Tiny CogVideoX"; for an unknown model, its name."""
    known = known_model(model) if model else None
    return known.model.title.removesuffix(" (built in)") if known else model


# ---- background jobs


@operation()
def job(workspace: Workspace, id: JobId) -> LoraJob:
    """Show the progress of a job on LoRAs, such as a merge or an import, or its outcome."""
    if not is_slug(id):
        raise ConfigError(f"id is {id[:80]!r}: give the id that the operation returned")
    return tasks.read_task(folder(workspace) / tasks.JOBS / id)


@operation(changes=True)
def stop(workspace: Workspace, id: JobId) -> LoraJob:
    """Stop a job on LoRAs, discarding its result."""
    jobs.stop(Path(job(workspace, id).folder))
    return job(workspace, id)


@operation(none="no jobs on LoRAs in the last day")
def jobs_(workspace: Workspace) -> list[LoraJob]:
    """List the running jobs on LoRAs and those that ended in the last day."""
    return tasks.everything(workspace)


@operation(arguments="loras", changes=True, job=job)
def merge(workspace: Workspace, settings: MergeSettings) -> LoraJob:
    """Merge LoRAs into one, exactly or reduced to a given rank."""
    return _start(workspace, settings)


@operation(arguments="lora", changes=True, job=job)
def resize(workspace: Workspace, settings: ResizeSettings) -> LoraJob:
    """Resize a LoRA to another rank, and report how much of its change is lost."""
    return _start(workspace, settings)


@operation(arguments="source", changes=True, job=job)
def extract(workspace: Workspace, settings: ExtractSettings) -> LoraJob:
    """Extract a LoRA from a full fine-tune: from a run that trained all weights, or from a diffusers model folder."""
    return _start(workspace, settings)


@operation(arguments="loras", changes=True, job=job)
def fuse(workspace: Workspace, settings: FuseSettings) -> LoraJob:
    """Fuse LoRAs into their base model, and write the result as a model folder."""
    return _start(workspace, settings)


@operation(arguments="loras", job=job)
def survives(workspace: Workspace, settings: SurvivesSettings) -> LoraJob:
    """Measure how much of a LoRA would be left after fusing it into a model stored in bf16, fp8 or nf4."""
    return _start(workspace, settings)


@operation(arguments="lora", changes=True, job=job)
def repair(workspace: Workspace, settings: RepairSettings) -> LoraJob:
    """Repair a LoRA: train its matrices to keep its effect and leave other prompts alone, without any clips.

    The result has a map of what each block changes, and what the repair and single strengths of the whole
    LoRA measure on unseen prompts. It is saved as a new LoRA if it is better than these.
    """
    split_scale(settings.lora)
    return _start(workspace, settings)


@operation(arguments="source", changes=True, job=job)
def import_(workspace: Workspace, settings: LoraImportSettings) -> LoraJob:
    """Import a LoRA from the Hub, or one made by another trainer, into the library."""
    return _start(workspace, settings)


@operation(arguments="lora format [target]", changes=True, job=job)
def convert(workspace: Workspace, settings: ConvertSettings) -> LoraJob:
    """Convert a LoRA to a file for another program. `workbench loras formats` lists the formats."""
    split_scale(settings.lora)
    return _start(workspace, settings)


def _start(workspace: Workspace, settings: Settings) -> LoraJob:
    source = specs(type(settings))[0]
    if not getattr(settings, source.name):
        sentence = f"{source.name} is empty: choose {'a LoRA' if source.source == 'loras' else 'what to start from'}"
        raise ConfigError(sentence, {source.name: sentence})
    return tasks.read_task(tasks.start(workspace, settings))


# ---- keeping and removing


@operation(changes=True)
def star(
    workspace: Workspace, name: LoraName, *, off: Annotated[bool, Field(description="Remove the star.")] = False
) -> Lora:
    """Star a LoRA, which protects it from removal."""
    library.star(workspace, name, on=not off)
    return show(workspace, name)


Names = Annotated[
    tuple[str, ...], Field(title="LoRAs", description="Names of LoRAs, as `list` shows them.", min_length=1)
]


@operation()
def to_remove(workspace: Workspace, names: Names) -> list[ToRemove]:
    """List what removing LoRAs would move to the bin. Fails if one of them cannot be removed."""
    return _planned(removal.preview(workspace, names))


@operation(changes=True, confirm=to_remove, afterwards=IN_THE_BIN)
def remove(workspace: Workspace, names: Names) -> list[ToRemove]:
    """Move LoRAs to the bin. `restore` brings them back."""
    return _planned(removal.remove(workspace, names))


@operation(none="nothing to remove")
def to_clean(workspace: Workspace, settings: CleaningSettings) -> list[ToRemove]:
    """List what a cleanup would move to the bin."""
    return _planned(removal.to_remove(workspace, settings))


@operation(changes=True, confirm=to_clean, none="nothing to remove", afterwards=IN_THE_BIN)
def clean(workspace: Workspace, settings: CleaningSettings) -> list[ToRemove]:
    """Move the LoRAs of old checkpoints to the bin, and with `made` also other LoRAs.

    LoRAs that are starred, best or published are kept, and so are the final LoRAs of runs.
    """
    return _planned(removal.clean(workspace, settings))


def _planned(found: Iterable[PlannedRemoval]) -> list[ToRemove]:
    return [ToRemove(name=one.lora.name, bytes=one.bytes, id=one.id) for one in found]


@operation(none="the bin is empty")
def bin_(workspace: Workspace) -> list[RemovedLora]:
    """List the removed LoRAs, newest first."""
    return removal.removed(workspace)


@operation(changes=True)
def restore(workspace: Workspace, id: Annotated[str, Field(description="Its id, as `bin` lists it.")]) -> Lora:
    """Restore a removed LoRA."""
    return show(workspace, removal.restore(workspace, id))


@operation(changes=True, confirm=bin_)
def empty_bin(workspace: Workspace) -> Freed:
    """Permanently delete the LoRAs in the bin."""
    return Freed(bytes=removal.empty(workspace))
