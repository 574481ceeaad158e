"""Datasets: import, list, inspect, export, rename, remove and restore them, and undo changes.

Background tasks are in `dataset_tasks`, clips and captions in `clips`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, ClassVar

from pydantic import Field

from workbench.clips import records
from workbench.clips.frame_plan import shape_for
from workbench.dataset_builder import library as dataset_library
from workbench.dataset_builder.checks.statistics import Statistics
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.export import contents, finished_download, start_download
from workbench.dataset_builder.settings import ExportSettings, ImportSettings
from workbench.dataset_builder.snapshot import Entry, InWords, dataset_entry, task_snapshot
from workbench.dataset_builder.sources.files import inbox, keep_uploads
from workbench.dataset_builder.tasks import NAMES
from workbench.display.quantities import byte_size, counted, duration, listed, moment
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.operations.dataset_tasks import DatasetTask, NamedDataset, job, start_task, task_of
from workbench.operations.registry import Fields, operation
from workbench.operations.shared import Group, Label, Note, Text, grouped, noted
from workbench.snapshots import HIDDEN, Shown, Snapshot
from workbench.workspace import Workspace, confined, named_paths, size_of
from workbench.workspace.records import Kept

IN_AND_OUT, LOOKING, NAMING = "In and out", "Looking", "Naming, removing and undoing"
IN_THE_BIN = "in the bin: `workbench dataset bin` lists it, `restore ID` brings it back"
NOTHING = "there is nothing to import: give files, folders or archives, or a Hub dataset with --hub OWNER/NAME"
PREVIEWED = (
    *("layout", "hub_dataset", "revision", "hub_config", "video_column", "caption_column", "first_line"),
    *("frames_as_video", "frame_rate"),
)
TAKEN = ("layout", "longest_side", "keep_sound", "trigger_word")
MOST_NAMES = 500  # folders listed in one folder, and likewise files

Paths = Annotated[
    tuple[str, ...],
    Field(
        description="Video and image files, folders of them, archives, or Parquet tables.",
        json_schema_extra={"path": True},
    ),
]
ModelName = Annotated[
    str,
    Field(description="Show what this model uses of each clip.", json_schema_extra={"source": "models", "path": True}),
]
Number = Annotated[int | None, Field(description="Number of the change, as `history` lists it. Default: the newest.")]


class Card(Entry):
    """A dataset as a card on the page."""

    cover: str
    """Path of its first video or image; "" if it has none."""

    width: int
    """Width of the cover in pixels."""

    height: int
    """Height of the cover in pixels."""

    activity: str
    """What a background task is doing with it; "" if none is running."""


class About(InWords, Card):
    """Everything about a dataset except its clips."""

    left_out: int | None
    """Number of clips that the chosen model would leave out; null if no model was chosen or it cannot use that many
    frames."""

    problem: str
    """Why the model cannot use the chosen number of frames; "" if it can."""

    removed: int
    """Number of clips in the dataset's bin."""

    undo: str
    """The change that `undo` would undo, in words; "" for none."""

    redo: str
    """The change that `redo` would redo, in words; "" for none."""

    download: str
    """Path of the archive to download; "" for none."""

    download_bytes: int
    """Size of the archive in bytes."""


class ToSend(Snapshot):
    """What an export to the Hub would upload."""

    sentence: str
    """Number of files, their total size and the destination, in words."""

    sizes: dict[str, int]
    """File name in the repository -> size in bytes."""


class Folder(Snapshot):
    """A folder on this machine, for a file picker."""

    path: str
    """Path of the folder."""

    parent: str
    """Path of the parent folder; "" if it may not be opened."""

    folders: tuple[str, ...]
    """Names of its subfolders, without hidden ones."""

    files: tuple[str, ...]
    """Names of its files, without hidden ones."""

    more: int
    """Number of folders and files that are not listed."""


class Frames(Snapshot):
    """The frames of a video: how many, how large and how fast."""

    width: Annotated[int, Shown(right=True)]
    """Width in pixels."""

    height: Annotated[int, Shown(right=True)]
    """Height in pixels."""

    frames: Annotated[int, Shown(right=True)]
    """Number of frames."""

    fps: Annotated[float, Shown(text="{:g}".format, right=True)]
    """Frames per second."""


class ClipEntry(Frames):
    """One clip."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "id", "width", "height", "frames", "fps", "seconds", "caption")

    id: str
    """Id of the clip. Commands also take its file name, and its name if no other clip has the same."""

    file_name: str
    """Its path, relative to the dataset's folder."""

    name: str
    """Display name: the source file's name, with the times if it is a part of it."""

    source: str
    """Name of the original file."""

    caption: str
    """The caption, without the trigger word; `dataset show` includes it."""

    tags: tuple[str, ...]
    """Your own marks on the clip."""

    seconds: Annotated[float, Shown("length", "{:.2f} s".format, right=True)]
    """Length in seconds."""

    span: tuple[float, float] | None
    """Start and end in the source video, in seconds; null for all of it."""

    crop: tuple[int, int, int, int] | None
    """Left, top, width and height of the crop in the source video, in pixels; null for the whole frame."""

    latents_model: str
    """For precomputed latents, the model whose VAE made them; "" for a video."""

    sound: records.Sound | None
    """Its sound track: `seconds`, `rate` (samples a second) and `channels`; null without one."""

    plan: str
    """What the chosen model uses of it, in words; "" if no model was chosen."""

    def lines(self) -> Iterator[tuple[str, str]]:
        words = f"{self.width}x{self.height}, {self.frames} frames at {self.fps:g} fps, {duration(self.seconds)}"
        words += f", latents of {self.latents_model}" if self.latents_model else ""
        words += f", sound of {self.sound.seconds:g} s" if self.sound else ""
        words += f", {self.span[0]:.2f} to {self.span[1]:.2f} s" if self.span else ""
        words += f", cropped to {', '.join(map(str, self.crop))}" if self.crop else ""
        yield "clip", f"{self.name}  ({words}, id {self.id})"
        yield "", self.caption or "(no caption)"
        if self.tags:
            yield "", f"tags: {', '.join(self.tags)}"
        if self.plan:
            yield "", self.plan


class Details(InWords, Entry):
    """A dataset with its clips."""

    content_hash: Annotated[str, Shown("content")]
    """SHA-256 of everything a model can learn from it: clips and captions, regardless of their order."""

    clips: Annotated[tuple[ClipEntry, ...], HIDDEN]
    """For each clip: file_name, name, caption, tags, width, height, frames, fps, seconds, source ..."""

    refused: Annotated[tuple[str, ...], HIDDEN]
    """One sentence for each file that could not be used."""

    def lines(self) -> Iterator[tuple[str, str]]:
        yield from super().lines()
        for clip in self.clips:
            yield from clip.lines()
        yield from (("refused", sentence) for sentence in self.refused)


class ImportPreview(Snapshot):
    """What an import would find, without opening any file."""

    hub_dataset: dict[str, Any] | None
    """The Hub dataset: repo_id, commit, config, files (name -> bytes); null if none was given."""

    sources: tuple[dict[str, Any], ...]
    """For each source: name, path, layout, other_layouts (that fit as well), bytes, files (name, caption), warnings,
    refused (archive entry -> reason)."""

    refused: dict[str, str]
    """Path that cannot be read -> reason."""

    sentences: tuple[str, ...]
    """The same in words."""

    def text(self) -> Iterator[str]:
        yield from self.sentences


class ToRemove(Snapshot):
    """A dataset that would be removed, or was."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "contents", "bytes", "needed")

    name: str
    """Name of the dataset."""

    contents: str
    """Its contents in words."""

    bytes: Annotated[int, Shown("size", byte_size, right=True)]
    """Size of its files in bytes."""

    needed: Annotated[str, Shown("needed by")]
    """The runs that were trained on it and what they cannot do without it; "" if there are none."""


class Removed(Snapshot):
    """A dataset in the bin."""

    id: str
    """Id of the dataset, as `restore` takes it."""


class Change(Snapshot):
    """A change to a dataset."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("number", "time", "sentence", "clips")

    number: Annotated[int, Shown(right=True)]
    """Number of the change, as `undo` takes it."""

    time: Annotated[float, Shown(text=moment)]
    """When it was made, as Unix time."""

    kind: str
    """`change`, `undo`, `redo`, or `note` (an import or a new title, which cannot be undone)."""

    what: str
    """The change in words."""

    sentence: str
    """The same, saying whether it is an undo or a redo."""

    clips: Annotated[int, Shown(right=True)]
    """Number of clips that it affected."""

    undoes: int | None
    """Number of the change that it undid; otherwise null."""

    undoable: bool = False
    """Whether it can be undone."""

    def text(self) -> Iterator[str]:
        yield self.sentence


# ---- in and out


def _paths(setting: str, given: Iterable[str]) -> list[str]:
    """Return absolute paths. Raises ConfigError for one that does not exist."""
    found = [named_paths.checked(one, setting) for one in given]
    if missing := [one for one in found if not one.exists()]:
        raise ConfigError(f"{setting} has {str(missing[0])!r}, which does not exist: check the path")
    return [str(one) for one in found]


@operation(path="/import-preview", section=IN_AND_OUT)
def preview(
    workspace: Workspace, paths: Paths = (), *, settings: Annotated[ImportSettings, Fields(only=PREVIEWED)]
) -> ImportPreview:
    """List the videos, images and captions that an import would find.

    Files are not opened, so the import may still refuse some.
    """
    if not paths and not settings.hub_dataset:
        raise ConfigError(NOTHING)
    from workbench.dataset_builder.sources import fetched
    from workbench.dataset_builder.sources.survey import survey

    wanted = settings.hub_dataset
    remote = fetched.inspect(wanted, settings.revision, settings.hub_config) if wanted else None
    found = survey(_paths("paths", paths), settings.wanted_layout, settings.columns, settings.rate_of_frames)
    sources = [
        {
            "name": part.name,
            "path": str(part.path),
            "layout": part.layout,
            "other_layouts": part.others,
            "bytes": part.size,
            "files": [{"name": one.name, "caption": one.caption} for one in part.sources if not one.refused],
            "warnings": part.warnings(),
            "refused": {**part.refused, **{one.name: one.refused for one in part.sources if one.refused}},
        }
        for part in found.found
    ]
    sentences = [remote.sentence] if remote else []
    sentences += (found.preview or ["no videos"]) if paths else []
    return ImportPreview(
        hub_dataset=vars(remote) if remote else None,
        sources=tuple(sources),
        refused=dict(found.refused),
        sentences=tuple(sentences),
    )


@operation(arguments="name [sources]", changes=True, job=job, section=IN_AND_OUT)
def import_(
    workspace: Workspace,
    name: Annotated[str, Field(title="Dataset", description="Name of the dataset, or the title of a new one.")],
    settings: Annotated[ImportSettings, Fields(without=("dataset",))],
) -> DatasetTask:
    """Import videos, images, folders and archives into a dataset, creating it if needed.

    Every file gets an import result: taken, converted (and how) or refused (and why). Importing the same files again
    changes nothing, and an import that was stopped or killed resumes where it left off.
    """
    if not settings.sources and not settings.hub_dataset and not settings.own_source:
        raise ConfigError(NOTHING)
    sources = tuple(_paths("sources", settings.sources))
    dataset = Dataset.ensure(workspace, name)
    return start_task(dataset, "import", settings.changed(dataset=dataset.name, sources=sources))


@operation(path="/folders", visitors="never", shell=False)
def browse(
    workspace: Workspace,
    folder: Annotated[
        str, Field(description="Its path. Default: the first allowed folder.", json_schema_extra={"path": True})
    ] = "",
) -> Folder:
    """List the contents of a folder on this machine."""
    path = named_paths.checked(folder or str(next(iter(named_paths.roots()), "~")), "folder")
    if not path.is_dir():
        raise ConfigError(f"folder is {folder!r}, which is not a folder: check the path")
    try:
        shown = [one for one in path.iterdir() if not one.name.startswith(".")]
    except OSError as error:
        raise ConfigError(f"folder is {folder!r}, which cannot be read: {error.strerror}") from error
    parent = ""
    with contextlib.suppress(ConfigError):
        parent = str(named_paths.checked(str(path.parent), "folder")) if path.parent != path else ""
    shown.sort(key=lambda one: one.name.lower())
    folders = tuple(one.name for one in shown if one.is_dir())[:MOST_NAMES]
    files = tuple(one.name for one in shown if not one.is_dir())[:MOST_NAMES]
    more = len(shown) - len(folders) - len(files)
    return Folder(path=str(path), parent=parent, folders=folders, files=files, more=more)


@operation(path="/uploads", changes=True, job=job, shell=False)
def take(
    workspace: Workspace,
    name: Annotated[str, Field(title="Dataset", description='Name of the dataset; "" for a new one.')],
    *,
    files: Annotated[
        tuple[str, ...],
        Field(description="Paths that the upload returned.", min_length=1, json_schema_extra={"path": True}),
    ],
    title: Annotated[str, Field(description="Title of a new dataset. Default: the name of the first file.")] = "",
    settings: Annotated[ImportSettings, Fields(only=(*PREVIEWED[5:], *TAKEN))],
) -> DatasetTask:
    """Import files that were uploaded to the page, into an existing or a new dataset."""
    from workbench.dataset_builder.sources.survey import survey

    given = [confined(inbox(), one) for one in files]
    if not survey(given, settings.wanted_layout, settings.columns, settings.rate_of_frames).sources:
        named = listed([one.name for one in given])
        raise ConfigError(f"there is no video or image in {named}: drop the videos, too, or an archive of them")
    dataset = Dataset.open(workspace, name) if name else Dataset.create(workspace, title.strip() or given[0].stem)
    task = dataset.task("import")
    if task.status.state.alive:
        raise ConfigError(f"an import into {dataset.name} is running: wait until it is done, or stop it")
    kept = tuple(map(str, keep_uploads(task.folder, files)))
    return start_task(dataset, "import", settings.changed(dataset=dataset.name, sources=kept))


@operation(path="/new-dataset", changes=True, shell=False)
def create(
    workspace: Workspace, title: Annotated[str, Field(description="What its clips show, in a few words.", min_length=1)]
) -> Entry:
    """Create an empty dataset."""
    return dataset_entry(Dataset.create(workspace, title).folder)


@operation(changes=True, shell=False)
def undo_import(dataset: NamedDataset) -> Change:
    """Remove the clips that the last import added. `undo` brings them back."""
    task = dataset.task("import")
    present = {clip.file_name for clip in dataset.clips}
    if task.status.state.alive or not (new := [one for one in task.result.get("new", ()) if one in present]):
        raise ConfigError(f"{dataset.name} has no clips from its last import: there is nothing to undo")
    dataset.remove(*new)
    task.dismiss()
    return Change.model_validate(dataset.history[-1])


@operation(changes=True, job=job, shell=False)
def send(dataset: NamedDataset, settings: ExportSettings) -> DatasetTask:
    """Write a dataset to a folder or an archive, or push it to the Hub."""
    target = str(named_paths.checked(settings.target, "target")) if settings.target.strip() else ""
    return start_task(dataset, "export", settings.changed(target=target))


@operation(shell=False)
def to_send(dataset: NamedDataset, settings: ExportSettings) -> ToSend:
    """List every file that a push to the Hub would upload."""
    found = contents(dataset.folder, settings)
    sizes = {file: len(one) if isinstance(one, bytes) else one.stat().st_size for file, one in found.items()}
    sentence = f"{counted(len(sizes), 'file')}, {byte_size(sum(sizes.values()))}"
    return ToSend(sentence=f"{sentence}, to {settings.repo_id}" if settings.repo_id else sentence, sizes=sizes)


@operation(changes=True, job=job, shell=False)
def download(
    dataset: NamedDataset, settings: Annotated[ExportSettings, Fields(only=("layout", "trigger_word", "first_frames"))]
) -> DatasetTask:
    """Write a dataset to an archive for download, replacing the previous one."""
    start_download(dataset.folder, settings)
    return task_of(dataset, "export")


@operation(arguments="name [target]", changes=True, job=job, section=IN_AND_OUT)
def export(
    dataset: NamedDataset, settings: Annotated[ExportSettings, Fields(without=("repo_id", "private", "license"))]
) -> DatasetTask:
    """Write a dataset to a folder or an archive, in the layout of any supported tool.

    Existing files are never overwritten. To push to the Hub, use `workbench publish dataset`.
    """
    if not settings.target.strip():
        raise ConfigError(
            "target is not set: name a new folder, .zip or .tar; to push to the Hub, use workbench publish dataset"
        )
    return send(dataset, settings)


# ---- looking


@operation(
    path="/all-datasets",
    none="no dataset matches: create one with workbench dataset import NAME PATHS",
    section=LOOKING,
)
def list_(
    workspace: Workspace,
    *,
    search: Annotated[str, Field(description="Only those with these words in name, title, group or notes.")] = "",
    group: Annotated[str | None, Field(description='Only those in this group; "" for those in none.')] = None,
) -> list[Entry]:
    """List the datasets of the workspace by group."""
    return [dataset_entry(one.folder) for one in dataset_library.search(workspace, search, group)]


def _watch_cards(workspace: Workspace) -> Callable[[], list[Card]]:
    kept = Kept[Card]()

    def card(one: Dataset) -> Card:
        known = kept.of(one.name, (one.version, one.group), lambda: _card(one))
        return known.model_copy(update={"activity": _activity(one)})

    return lambda: [card(one) for one in dataset_library.search(workspace)]


@operation(path="/dataset-cards", watch=_watch_cards, shell=False)
def cards(workspace: Workspace) -> list[Card]:
    """List the datasets by group, each with a cover video."""
    return _watch_cards(workspace)()


def _card(dataset: Dataset) -> Card:
    cover = next((clip for clip in dataset.clips if not clip.is_latents), None)
    return Card(
        **dict(dataset_entry(dataset.folder)),
        cover=str(dataset.folder / cover.file_name) if cover else "",
        width=cover.width if cover else 0,
        height=cover.height if cover else 0,
        activity=_activity(dataset),
    )


def _activity(dataset: Dataset) -> str:
    found = (task_snapshot(dataset.task(name)).activity for name in NAMES if (dataset.folder / f".{name}").exists())
    return next(filter(None, found), "")


def _watch_about(workspace: Workspace, name: str, model: str = "", frames: int | None = None) -> Callable[[], About]:
    kept = Kept[About]()

    def read() -> About:
        dataset = Dataset.open(workspace, name)
        mark = (dataset.name, dataset.version, *(dataset.task(one).version for one in NAMES))
        found = kept.of(name, mark, lambda: about(workspace, dataset, model=model, frames=frames))
        if any(task.state.alive for task in found.tasks):
            kept.forget(name)
        return found

    return read


@operation(watch=_watch_about, shell=False)
def about(
    workspace: Workspace,
    dataset: NamedDataset,
    *,
    model: ModelName = "",
    frames: Annotated[int | None, Field(ge=1, description="Frames to train on. Default: the model's own.")] = None,
) -> About:
    """Show everything about a dataset except its clips: numbers, tasks, what can be undone."""
    shape, problem = None, ""
    try:
        shape = shape_for(find_model(workspace.model(model)).model, frames) if model else None
    except ConfigError as error:
        problem = str(error)
    seen = dataset.snapshot(shape)
    undoable, redoable, archive = dataset.undoable, dataset.redoable, finished_download(dataset.folder)
    return About.from_objects(
        seen,
        _card(dataset),
        left_out=sum(one.dropped is not None for one in dataset.plans(shape)) if shape else None,
        problem=problem,
        removed=len(dataset.removed),
        undo=undoable[0].what if undoable else "",
        redo=redoable[0].what if redoable else "",
        download=str(archive or ""),
        download_bytes=archive.stat().st_size if archive else 0,
    )


@operation(path="/datasets/{name}", section=LOOKING)
def show(workspace: Workspace, dataset: NamedDataset, *, model: ModelName = "") -> Details:
    """Show a dataset: its numbers, its clips with their captions, and the files that were refused."""
    shape = shape_for(find_model(workspace.model(model)).model) if model else None
    plans = {one.clip.file_name: one.sentence for one in dataset.plans(shape)} if shape else {}
    seen, captions = dataset.snapshot(shape), dataset.captions
    return Details.from_objects(
        seen,
        content_hash=dataset.content_hash,
        clips=tuple(clip_entry(one, captions[one.file_name], plans.get(one.file_name, "")) for one in dataset.clips),
        refused=tuple(one.sentence for one in dataset.import_results if not one.usable),
    )


def clip_entry(clip: records.Clip, caption: str | None = None, plan: str = "") -> ClipEntry:
    """Convert a clip to a snapshot. A `caption` of None stands for the caption in its record."""
    return ClipEntry.from_objects(
        clip,
        caption=clip.text if caption is None else caption,
        latents_model=(clip.latents_model or "an unknown model") if clip.is_latents else "",
        plan=plan,
    )


@operation(section=LOOKING)
def stats(dataset: NamedDataset) -> Statistics:
    """Show statistics of a dataset: lengths, sizes, motion, caption words."""
    return dataset.statistics


# ---- naming, removing and undoing


@operation(changes=True, section=NAMING)
def rename(
    workspace: Workspace, dataset: NamedDataset, title: Annotated[str, Field(description="The new title.")]
) -> Entry:
    """Change a dataset's title, and its name to match.

    Runs that were trained on it still find it under its old name.
    """
    return dataset_entry(dataset_library.rename(workspace, dataset, title).folder)


@operation(changes=True, section=NAMING)
def note(dataset: NamedDataset, text: Text = None) -> Note:
    """Replace the notes on a dataset; without a text, show them."""
    return noted(dataset, text)


@operation(changes=True, section=NAMING)
def group(dataset: NamedDataset, label: Label = None) -> Group:
    """Put a dataset into a group, which lists keep together; without a label, show its group."""
    return grouped(dataset, label)


@operation(section=NAMING)
def to_remove(workspace: Workspace, dataset: NamedDataset) -> list[ToRemove]:
    """Show what removing a dataset would move to the bin, and which runs need it."""
    needed, size = dataset_library.consequence(workspace, dataset), size_of(dataset.folder)
    return [ToRemove(name=dataset.name, contents=dataset.summary.sentence, bytes=size, needed=needed)]


@operation(changes=True, confirm=to_remove, afterwards=IN_THE_BIN, section=NAMING)
def remove(workspace: Workspace, dataset: NamedDataset) -> list[ToRemove]:
    """Move a dataset to the bin. `restore` brings it back."""
    planned = to_remove(workspace, dataset)
    dataset_library.remove(workspace, dataset)
    return planned


@operation(path="/removed-datasets/list", none="the bin is empty", section=NAMING)
def bin_(workspace: Workspace) -> list[Removed]:
    """List the removed datasets, last removed first."""
    return [Removed(id=one) for one in dataset_library.removed(workspace)]


@operation(path="/removed-datasets/{id}/restore", changes=True, section=NAMING)
def restore(
    workspace: Workspace, id: Annotated[str, Field(description="Id of the dataset, as `bin` lists it.")]
) -> Details:
    """Restore a removed dataset."""
    return show(workspace, dataset_library.restore(workspace, id))


@operation(none="no changes yet", section=NAMING)
def history(dataset: NamedDataset) -> list[Change]:
    """List the changes to a dataset, oldest first."""
    undoable = {one.number for one in dataset.undoable}
    return [Change.from_objects(one, undoable=one.number in undoable) for one in dataset.history]


@operation(changes=True, section=NAMING)
def undo(dataset: NamedDataset, number: Number = None) -> Change:
    """Undo the newest change to a dataset, or the one with this number."""
    return Change.model_validate(dataset.undo(number))


@operation(changes=True, section=NAMING)
def redo(dataset: NamedDataset, number: Number = None) -> Change:
    """Redo the change that was undone last, or take back the undo with this number."""
    return Change.model_validate(dataset.redo(number))
