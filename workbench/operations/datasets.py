"""Datasets: import, list, look at, check and fix, export, rename, remove and restore them, undo what was done to them.

An import, a check, an export ... is a task of the dataset, of which there is one of each kind: a job whose id is
`NAME/TASK`. Clips and their captions are in the module `clips`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, ClassVar

from pydantic import Field

from workbench import policy
from workbench.clips import records
from workbench.clips.frame_plan import shape_for
from workbench.dataset_builder import library as dataset_library
from workbench.dataset_builder.checks.findings import FIXES, CheckReport, Fix
from workbench.dataset_builder.checks.fixes import expected_seconds
from workbench.dataset_builder.checks.statistics import Histogram
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.export import contents, finished_download, start_download
from workbench.dataset_builder.settings import CheckSettings, ExportSettings, ImportSettings
from workbench.dataset_builder.snapshot import FileResult, Summary, TaskSnapshot, last_change, task_snapshot
from workbench.dataset_builder.sources import uploads
from workbench.dataset_builder.sources.files import first_names
from workbench.dataset_builder.tasks import NAMES
from workbench.dataset_builder.tasks import Name as TaskName
from workbench.display.quantities import byte_size, counted, duration, moment
from workbench.errors import ConfigError, Unknown
from workbench.families import find_model
from workbench.jobs import State
from workbench.operations.registry import HIDDEN, Fields, JobSnapshot, Shown, Snapshot, operation
from workbench.operations.shared import Group, Label, Note, Text, grouped, noted
from workbench.policy import size_of
from workbench.settings import Settings
from workbench.workspace import Workspace, confined

IN_AND_OUT, LOOKING, CHECKING = "In and out", "Looking", "Checking"
NAMING, TASKS = "Naming, removing and undoing", "Background tasks"
IN_THE_BIN = "in the bin: `workbench dataset bin` lists it, `restore ID` brings it back"
NOTHING = "nothing was named: give files, folders or archives, or a dataset of the Hub with --hub OWNER/NAME"
PREVIEWED = (
    *("layout", "hub_dataset", "revision", "hub_config", "video_column", "caption_column", "first_line"),
    *("frames_as_video", "frame_rate"),
)
BAR, MOST_BARS = 40, 12  # characters of the longest bar, bars of a kind
MOST_NAMES = 500  # folders, and files, of one folder
MOST_SHOWN = 40  # findings of a kind on the page
MOST_OF_A_KIND = 5  # findings that the shell lists, unless one kind was asked for

Name = Annotated[
    str, Field(title="Dataset", description="Name of the dataset.", json_schema_extra={"source": "datasets"})
]
Paths = Annotated[
    tuple[str, ...],
    Field(
        description="Video and picture files, folders of them, archives, or parquet tables.",
        json_schema_extra={"path": True},
    ),
]
ModelName = Annotated[
    str,
    Field(description="Say what this model gets of each clip.", json_schema_extra={"source": "models", "path": True}),
]
Task = Annotated[TaskName, Field(description="Which task.")]
Kind = Annotated[str, Field(description="Kind of findings, as `findings` lists them.")]
How = Annotated[str, Field(description=f"What to do about them: {', '.join(fix.replace('_', '-') for fix in FIXES)}.")]
OnClips = Annotated[tuple[str, ...], Field(description="Ids or names of clips; the findings on all clips without one.")]
Number = Annotated[int | None, Field(description="As `history` lists it. The newest without it.")]


class Entry(Snapshot):
    """One dataset, as lists show it."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "summary", "trigger_word", "group", "damage")

    name: str
    """What commands take."""

    folder: str
    """Where it is."""

    title: str
    """For people."""

    trigger_word: str
    """Added to every caption without it; "" for none."""

    group: str
    """The label that lists show it under; "" for none."""

    created_at: Annotated[float | None, Shown("created", moment)]
    """Unix time, null of a folder that was not made here."""

    changed_at: Annotated[float | None, Shown("last changed", moment)]
    """Unix time of the last change of clips, captions, title or notes."""

    own_notes: Annotated[str, Shown("notes")]
    """What a person wrote about it; "" for nothing."""

    summary: Annotated[Summary, Shown("contents", lambda summary: summary.sentence)]
    """Clips, seconds, sizes, fps, missing_captions, refused."""

    damage: Annotated[tuple[str, ...], Shown(text=" ".join)]
    """What of its records cannot be read and what to do about it, a sentence each."""


class Card(Entry):
    """One dataset, as a page of them shows it."""

    cover: str
    """Path of its first video or picture; "" without one."""

    width: int
    """Of that, pixels."""

    height: int
    """Pixels."""

    activity: str
    """What a background task does with it now; "" unless one works."""


class About(Card):
    """All of a dataset but its clips."""

    facts: dict[str, str]
    """The numbers in words: label -> value."""

    next_steps: tuple[str, ...]
    """What is still to do, a sentence each."""

    left_out: int | None
    """Clips that the chosen model would leave out; null where no model was chosen, or its frames are not legal."""

    problem: str
    """Why the chosen number of frames is not legal; "" where it is."""

    tasks: tuple[TaskSnapshot, ...]
    """Those that were ever started: name, state, share, activity, sentence, details, log, actions, files, counts, new,
    ended_at."""

    removed: int
    """Clips in the bin of the dataset."""

    undo: str
    """The newest change that can be taken back, in words; "" for none."""

    redo: str
    """The newest undoing that can be taken back, in words; "" for none."""

    download: str
    """Path of the archive that was made to be downloaded; "" for none."""

    download_bytes: int
    """Its size."""


class ToSend(Snapshot):
    """What an export to the Hub would send."""

    sentence: str
    """How many files of which size, and where to."""

    sizes: dict[str, int]
    """Name of each file in the repository -> its bytes."""


class FixOffer(Snapshot):
    """A way to fix the findings of a kind."""

    fix: str
    """What `fix` takes as `how`."""

    label: str
    """For a button."""

    does: str
    """What it would do to all of them, a sentence."""

    seconds: float
    """About how long it takes; 0 for at once."""


class KindOfFinding(Snapshot):
    """All findings of a kind."""

    kind: str
    """What `fix` takes."""

    title: str
    """What was found, in a few words."""

    severity: str
    """`stops the training`, `hurts it` or `worth a look`."""

    tone: str
    """bad, warn or idle."""

    count: int
    """How many."""

    findings: tuple[dict[str, Any], ...]
    """The first: sentence, clips (their ids)."""

    fixes: tuple[FixOffer, ...]
    """What can be done, the best first."""


class Checks(Snapshot):
    """What the last check found, by kind."""

    sentence: str
    """The outcome in words; "" before the first check."""

    checked_at: float | None
    """Unix time; null before the first check."""

    new_clips: int
    """Clips of which nothing is known: all of them before the first check."""

    kinds: tuple[KindOfFinding, ...]
    """The worst first."""


class Folder(Snapshot):
    """A folder of this machine, to choose from."""

    path: str
    """Where it is."""

    parent: str
    """Path of the folder above; "" where that is closed."""

    folders: tuple[str, ...]
    """Names of the folders in it, without hidden ones."""

    files: tuple[str, ...]
    """Names of its files."""

    more: int
    """How many are not listed."""


class ClipEntry(Snapshot):
    """One clip."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "id", "width", "height", "frames", "fps", "seconds", "caption")

    id: str
    """What commands take; they also take the file name, and the name where only one clip has it."""

    file_name: str
    """Below the dataset's folder."""

    name: str
    """As every face shows it: the source file's name, of a part with its times."""

    source: str
    """The original file's name."""

    caption: str
    """Without the trigger word; in `dataset show` with it."""

    tags: tuple[str, ...]
    """Of the clip."""

    width: Annotated[int, Shown(right=True)]
    """Pixels."""

    height: Annotated[int, Shown(right=True)]
    """Pixels."""

    frames: Annotated[int, Shown(right=True)]
    """How many."""

    fps: Annotated[float, Shown(text="{:g}".format, right=True)]
    """Frames per second."""

    seconds: Annotated[float, Shown("length", "{:.2f} s".format, right=True)]
    """Length."""

    span: tuple[float, float] | None
    """Start and end in the source video, seconds; null where all of it was taken."""

    crop: tuple[int, int, int, int] | None
    """Left, top, width and height in the source video's picture; null where all of it was taken."""

    latents_model: str
    """Of latents that were computed elsewhere, the model whose VAE made them; "" of a video."""

    plan: str
    """What the chosen model gets of it, in words; "" where no model was chosen."""

    def lines(self) -> Iterator[tuple[str, str]]:
        words = f"{self.width}x{self.height}, {self.frames} frames at {self.fps:g} fps, {duration(self.seconds)}"
        words += f", latents of {self.latents_model}" if self.latents_model else ""
        words += f", {self.span[0]:.2f} to {self.span[1]:.2f} s" if self.span else ""
        words += f", cropped to {', '.join(map(str, self.crop))}" if self.crop else ""
        yield "clip", f"{self.name}  ({words}, id {self.id})"
        yield "", self.caption or "(no caption)"
        if self.tags:
            yield "", f"tags: {', '.join(self.tags)}"
        if self.plan:
            yield "", self.plan


class Details(Entry):
    """One dataset, with its clips."""

    content_hash: Annotated[str, Shown("content")]
    """SHA-256 of what a model could learn from it: clips and captions, in any order."""

    facts: Annotated[dict[str, str], HIDDEN]
    """The numbers in words: label -> value."""

    next_steps: Annotated[tuple[str, ...], Shown("next", " ".join)]
    """What is still to do, a sentence each."""

    tasks: Annotated[tuple[TaskSnapshot, ...], HIDDEN]
    """Those that were ever started: name, state, share, activity, sentence, details, log, actions, files, ended_at;
    of an import also counts and new."""

    clips: Annotated[tuple[ClipEntry, ...], HIDDEN]
    """file_name, name, caption, tags, width, height, frames, fps, seconds, source ... of each."""

    refused: Annotated[tuple[str, ...], HIDDEN]
    """Files that could not be used, a sentence each."""

    def lines(self) -> Iterator[tuple[str, str]]:
        yield from super().lines()
        for clip in self.clips:
            yield from clip.lines()
        yield from (("refused", sentence) for sentence in self.refused)


class ImportPreview(Snapshot):
    """What an import would take of what was named, before any file is opened."""

    hub_dataset: dict[str, Any] | None
    """repo_id, commit, config, files (name -> bytes) of the one that was named; null without."""

    sources: tuple[dict[str, Any], ...]
    """A list: name, path, layout, other_layouts (that fit as well), bytes, files (name, caption), warnings, refused
    (entry of an archive -> why)."""

    refused: dict[str, str]
    """What cannot be read -> why."""

    sentences: tuple[str, ...]
    """The same in words."""

    def text(self) -> Iterator[str]:
        yield from self.sentences


class Statistics(Snapshot):
    """A dataset in numbers."""

    notes: tuple[str, ...]
    """In words."""

    histograms: dict[str, Histogram]
    """duration, motion, words, tokens: title, unit, edges, counts; those that are known."""

    counts: dict[str, dict[str, int]]
    """Title -> value -> clips with it."""

    def text(self) -> Iterator[str]:
        yield " ".join(self.notes)
        for one in self.histograms.values():
            edges = zip(one.edges, one.edges[1:], one.counts, strict=False)
            yield from _bars(
                f"{one.title} ({one.unit})", [(f"{low:g} to {high:g}", count) for low, high, count in edges]
            )
        for title, counts in self.counts.items():
            yield from _bars(title, list(counts.items())[:MOST_BARS])


def _bars(title: str, rows: list[tuple[str, int]]) -> Iterator[str]:
    yield from ("", title)
    width = max((len(name) for name, _ in rows), default=0)
    top = max((count for _, count in rows), default=0) or 1
    yield from (f"  {name:>{width}}  {'#' * round(BAR * count / top)} {count}" for name, count in rows)


class Finding(Snapshot):
    """One thing that the check found."""

    kind: str
    """What `findings` and `fix` take."""

    title: str
    """What was found, in a few words."""

    sentence: str
    """That with its numbers."""

    severity: str
    """`stops the training`, `hurts it` or `worth a look`."""

    clips: tuple[str, ...]
    """File names of the clips that it is about."""

    names: tuple[str, ...]
    """The names of these clips."""

    fixes: tuple[str, ...]
    """What `dataset fix` takes, the best first."""


class Findings(Snapshot):
    """What the check found."""

    dataset: str
    """Its name."""

    sentence: str
    """The outcome in words."""

    checked_at: float | None
    """Unix time."""

    model: str | None
    """That the clips were judged for."""

    clips: int | None
    """How many were checked."""

    new_clips: int | None
    """Clips that came or changed since, of which nothing is known."""

    findings: tuple[Finding, ...]
    """A list: kind, title, sentence, severity, clips (file names), names (of the clips), fixes (what `dataset fix`
    takes)."""

    def text(self) -> Iterator[str]:
        """Yield the findings by kind, the worst first, each kind with the command that fixes it."""
        yield f"{self.dataset}: {self.sentence}"
        kinds: dict[str, list[Finding]] = {}
        for one in self.findings:
            kinds.setdefault(one.kind, []).append(one)
        for kind, found in kinds.items():
            yield from ("", f"{kind} ({len(found)}, {found[0].severity}): {found[0].title}")
            listed = found if len(kinds) == 1 else found[:MOST_OF_A_KIND]
            for one in listed:
                names = ", ".join(one.names[:6]) + (" ..." if len(one.names) > 6 else "")
                yield f"  {one.sentence}" + (f"  [{names}]" if len(one.names) > 1 else "")
            if len(found) > len(listed):
                yield f"  ... all of them: workbench dataset findings {self.dataset} {kind}"
            if found[0].fixes:
                yield f"  fix: workbench dataset fix {self.dataset} {kind} {' | '.join(found[0].fixes)}"


class DatasetTask(Findings, JobSnapshot):
    """A background task of a dataset."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "state", "activity", "sentence")

    name: TaskName
    """`import`, `split`, `check`, `fix`, `caption` or `export`."""

    share: Annotated[float | None, Shown(text="{:.0%}".format)]
    """Of the work that is done, null while unknown."""

    activity: str
    """What it does now; "" unless it works."""

    sentence: str
    """How it ended; "" before."""

    details: Annotated[tuple[str, ...], Shown(text="; ".join)]
    """More of that, a line each."""

    log: str
    """The end of it, of one that failed."""

    actions: Annotated[tuple[str, ...], Shown(text=", ".join)]
    """What may be done now: stop, resume."""

    files: Annotated[tuple[FileResult, ...], HIDDEN]
    """What became of each file of an import, the refused first."""

    contents: str
    """What is in the dataset, in words."""

    checked_at: Annotated[float | None, HIDDEN]
    """Of a check that has finished: Unix time; null of other tasks, as are the following."""

    findings: Annotated[tuple[Finding, ...], HIDDEN]
    """Of a check: what it found, as in `dataset findings`."""

    def text(self) -> Iterator[str]:
        return Snapshot.text(self)

    def outcome(self) -> Iterable[str]:
        yield from (one.sentence for one in self.files)
        yield from self.details
        if self.checked_at is not None:
            yield from Findings.text(self)
        elif self.sentence:
            yield self.sentence
        if self.name == "import":
            yield f"{self.dataset}: {self.contents}"
            yield f"train on it: workbench train --dataset {self.dataset}"

    def after_failure(self) -> Iterable[str]:
        yield from (one.sentence for one in self.files)
        yield f"let it go on: workbench dataset start {self.dataset} {self.name}"

    @property
    def goes_on(self) -> str:
        named = f"{self.dataset} {self.name}"
        follow, stop = f"workbench dataset follow {named}", f"workbench dataset stop {named}"
        return f"The task {self.name} goes on. See it again: {follow}; end it: {stop}"


class Fixed(Snapshot):
    """What a fix would do."""

    sentence: str
    """In words."""

    def text(self) -> Iterator[str]:
        yield self.sentence


class ToRemove(Snapshot):
    """A dataset that would be removed, or was."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "contents", "bytes", "needed")

    name: str
    """Name of the dataset."""

    contents: str
    """What is in it, in words."""

    bytes: Annotated[int, Shown("size", byte_size, right=True)]
    """Size of its files."""

    needed: Annotated[str, Shown("needed by")]
    """The runs that were trained on it, and what cannot be done without it; "" where there are none."""


class Removed(Snapshot):
    """A dataset in the bin."""

    id: str
    """What `restore` takes."""


class Change(Snapshot):
    """A change of a dataset."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("number", "time", "sentence", "clips")

    number: Annotated[int, Shown(right=True)]
    """What `undo` takes."""

    time: Annotated[float, Shown(text=moment)]
    """Unix time."""

    kind: str
    """change, undo, redo, or note (of an import or a new title, which `undo` does not take)."""

    what: str
    """The change in words."""

    sentence: str
    """The same, with what kind it is."""

    clips: Annotated[int, Shown(right=True)]
    """How many it touched."""

    undoes: int | None
    """The number of the change that it took back, else null."""

    undoable: bool = False
    """Whether `undo` takes it back: it stands."""

    def text(self) -> Iterator[str]:
        yield self.sentence


# ---- in and out


def _paths(setting: str, given: Iterable[str]) -> list[str]:
    """Return the files and folders that were named, each by its absolute path. Raises ConfigError where one is not."""
    found = [policy.checked(one, setting) for one in given]
    if missing := [one for one in found if not one.exists()]:
        raise ConfigError(f"{setting} has {str(missing[0])!r}, which does not exist: check the path")
    return [str(one) for one in found]


@operation(path="/import-preview", visitors="own session", section=IN_AND_OUT)
def preview(
    workspace: Workspace,
    paths: Paths = (),
    *,
    settings: Annotated[ImportSettings, Fields(only=PREVIEWED)],
) -> ImportPreview:
    """List the videos, pictures and captions that an import would take.

    No file is opened: an import may still refuse one.
    """
    if not paths and not settings.hub_dataset:
        raise ConfigError(NOTHING)
    from workbench.dataset_builder.sources import hub
    from workbench.dataset_builder.sources.survey import survey

    wanted = settings.hub_dataset
    remote = hub.inspect(wanted, settings.revision, settings.hub_config) if wanted else None
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
    words = [remote.sentence] if remote else []
    words += (found.preview or ["no videos"]) if paths else []
    return ImportPreview(
        hub_dataset=vars(remote) if remote else None,
        sources=tuple(sources),
        refused=dict(found.refused),
        sentences=tuple(words),
    )


def start_task(dataset: Dataset, task: TaskName, settings: Settings) -> DatasetTask:
    """Start a task."""
    dataset.task(task).start(settings)
    return task_of(dataset, task)


def task_of(dataset: Dataset, name: TaskName) -> DatasetTask:
    """Return a task at this moment."""
    task = dataset.task(name)
    status, seen = task.status, vars(task_snapshot(task))
    report = dataset.report if name == "check" and status.state is State.FINISHED else None
    found = vars(_findings(dataset, report)) if report else {}
    return DatasetTask(
        **{"checked_at": None, "model": None, "clips": None, "new_clips": None, "findings": (), **seen, **found}
        | {"dataset": dataset.name, "contents": dataset.summary.sentence},
        id=f"{dataset.name}/{name}",
        folder=str(task.folder),
        message="" if status.state.alive else status.message or seen["sentence"],
    )


@operation(path="/dataset-job", visitors="own session", shell=False)
def job(
    workspace: Workspace, id: Annotated[str, Field(title="Job", description="DATASET/TASK, such as cats/import.")]
) -> DatasetTask:
    """Show how far an import, a check ... is, or what came of it."""
    name, _, task = id.rpartition("/")
    if task not in NAMES:
        raise Unknown(f"id is {id[:80]!r}: give DATASET/TASK, of which TASK is one of {', '.join(NAMES)}")
    return task_of(Dataset.open(workspace, name), task)


@operation(arguments="name [sources]", changes=True, visitors="own session", job=job, section=IN_AND_OUT)
def import_(
    workspace: Workspace,
    name: Annotated[str, Field(title="Dataset", description="Name of the dataset, or the title of a new one.")],
    settings: Annotated[ImportSettings, Fields(without=("dataset",))],
) -> DatasetTask:
    """Take videos, pictures, folders and archives into a dataset.

    It is made if need be. Every file gets an import result: taken, converted (how) or refused (why).
    Importing the same files again changes nothing; an import that was stopped or killed resumes where it was.
    """
    if not settings.sources and not settings.hub_dataset and not settings.own_source:
        raise ConfigError(NOTHING)
    sources = tuple(_paths("sources", settings.sources))
    dataset = Dataset.ensure(workspace, name)
    return start_task(dataset, "import", settings.changed(dataset=dataset.name, sources=sources))


@operation(path="/folders", shell=False)
def browse(
    workspace: Workspace,
    folder: Annotated[
        str, Field(description="Its path; the first that is open without one.", json_schema_extra={"path": True})
    ] = "",
) -> Folder:
    """List what is in a folder of this machine."""
    path = policy.checked(folder or str(policy.browsed()), "folder")
    if not path.is_dir():
        raise ConfigError(f"folder is {folder!r}, which is no folder: check the path")
    try:
        shown = [one for one in path.iterdir() if not one.name.startswith(".")]
    except OSError as error:
        raise ConfigError(f"folder is {folder!r}, which cannot be read: {error.strerror}") from error
    parent = ""
    with contextlib.suppress(ConfigError):
        parent = str(policy.checked(str(path.parent), "folder")) if path.parent != path else ""
    folders = sorted((one.name for one in shown if one.is_dir()), key=str.lower)
    files = sorted((one.name for one in shown if not one.is_dir()), key=str.lower)
    return Folder(
        path=str(path),
        parent=parent,
        folders=tuple(folders[:MOST_NAMES]),
        files=tuple(files[:MOST_NAMES]),
        more=max(0, len(folders) - MOST_NAMES) + max(0, len(files) - MOST_NAMES),
    )


@operation(path="/uploads", changes=True, visitors="own session", job=job, shell=False)
def take(
    workspace: Workspace,
    name: Annotated[str, Field(title="Dataset", description='Name of the dataset; "" for a new one.')],
    *,
    files: Annotated[
        tuple[str, ...],
        Field(description="Paths that an upload to the page answered.", min_length=1, json_schema_extra={"path": True}),
    ],
    title: Annotated[str, Field(description="Of a new dataset; its first file names it without one.")] = "",
    settings: Annotated[ImportSettings, Fields(only=(*PREVIEWED[5:], "layout", "longest_side", "trigger_word"))],
) -> DatasetTask:
    """Import files that were uploaded to the page, into a dataset or a new one."""
    from workbench.dataset_builder.sources.survey import survey

    given = [confined(uploads.inbox(), one) for one in files]
    if not survey(given, settings.wanted_layout, settings.columns, settings.rate_of_frames).sources:
        named = first_names([one.name for one in given])
        raise ConfigError(f"there is no video or picture in {named}: drop the videos, too, or an archive of them")
    dataset = Dataset.open(workspace, name) if name else Dataset.create(workspace, title.strip() or given[0].stem)
    task = dataset.task("import")
    if task.status.state.alive:
        raise ConfigError(f"an import into {dataset.name} is running: wait until it is done, or stop it")
    kept = tuple(map(str, uploads.keep(task.folder, files)))
    return start_task(dataset, "import", settings.changed(dataset=dataset.name, sources=kept))


@operation(path="/new-dataset", changes=True, visitors="own session", shell=False)
def create(
    workspace: Workspace,
    title: Annotated[str, Field(description="In a few words, what its clips show.", min_length=1)],
) -> Entry:
    """Make a dataset without clips."""
    return Entry(**_entry(Dataset.create(workspace, title)))


@operation(path="/datasets/{name}/undo-import", changes=True, visitors="own session", shell=False)
def undo_import(workspace: Workspace, name: Name) -> Change:
    """Remove the clips that the last import has added, as one change that `undo` takes back."""
    dataset = Dataset.open(workspace, name)
    task = dataset.task("import")
    there = {clip.file_name for clip in dataset.clips}
    if task.status.state.alive or not (new := [one for one in task.result.get("new", ()) if one in there]):
        raise ConfigError(f"{dataset.name} has no clip of its last import: there is nothing to undo")
    dataset.remove(*new)
    task.dismiss()
    return Change.model_validate(dataset.history[-1])


@operation(path="/datasets/{name}/send", changes=True, visitors="own session", job=job, shell=False)
def send(workspace: Workspace, name: Name, settings: ExportSettings) -> DatasetTask:
    """Write a dataset to a folder or an archive, or push it to the Hub."""
    target = str(policy.checked(settings.target, "target")) if settings.target.strip() else ""
    return start_task(Dataset.open(workspace, name), "export", settings.changed(target=target))


@operation(path="/datasets/{name}/to-send", visitors="own session", shell=False)
def to_send(workspace: Workspace, name: Name, settings: ExportSettings) -> ToSend:
    """List every file that a push to the Hub would send."""
    found = contents(Dataset.open(workspace, name).folder, settings)
    sizes = {file: len(one) if isinstance(one, bytes) else one.stat().st_size for file, one in found.items()}
    whole = f"{counted(len(sizes), 'file')}, {byte_size(sum(sizes.values()))}"
    return ToSend(sentence=f"{whole}, to {settings.repo_id}" if settings.repo_id else whole, sizes=sizes)


@operation(path="/datasets/{name}/download", changes=True, visitors="own session", job=job, shell=False)
def download(
    workspace: Workspace,
    name: Name,
    settings: Annotated[ExportSettings, Fields(only=("layout", "trigger_word", "first_frames"))],
) -> DatasetTask:
    """Write a dataset to an archive that the page sends; the one before is removed."""
    dataset = Dataset.open(workspace, name)
    start_download(dataset.folder, settings)
    return task_of(dataset, "export")


@operation(arguments="name [target]", changes=True, visitors="own session", job=job, section=IN_AND_OUT)
def export(
    workspace: Workspace,
    name: Name,
    settings: Annotated[ExportSettings, Fields(without=("repo_id", "private", "license"))],
) -> DatasetTask:
    """Write a dataset in any layout to a folder or an archive.

    What is there already is never touched. To the Hub: workbench publish dataset.
    """
    dataset = Dataset.open(workspace, name)
    if not settings.target.strip():
        raise ConfigError(
            "target is not set: name a new folder, .zip or .tar; to the Hub goes workbench publish dataset"
        )
    return start_task(dataset, "export", settings.changed(target=str(policy.checked(settings.target, "target"))))


# ---- looking


@operation(
    path="/all-datasets",
    visitors="own session",
    none="no dataset fits: workbench dataset import NAME PATHS makes one",
    section=LOOKING,
)
def list_(
    workspace: Workspace,
    *,
    search: Annotated[str, Field(description="Only with these words in name, title, group or notes.")] = "",
    group: Annotated[str | None, Field(description='Only those of this group; "" for those without one.')] = None,
) -> list[Entry]:
    """List every dataset of the workspace, those of a group together."""
    return [Entry(**_entry(one)) for one in dataset_library.search(workspace, search, group)]


def _entry(one: Dataset) -> dict[str, Any]:
    return {
        "name": one.name,
        "folder": str(one.folder),
        "title": one.info.title or one.name,
        "trigger_word": one.info.trigger_word,
        "group": one.group,
        "created_at": one.info.created,
        "changed_at": last_change(one.folder),
        "own_notes": one.notes,
        "summary": one.summary,
        "damage": tuple(one.damage),
    }


def _watch_cards(workspace: Workspace) -> Callable[[], list[Card]]:
    kept: dict[str, tuple[Any, Card]] = {}

    def read() -> list[Card]:
        found = []
        for one in dataset_library.search(workspace):
            mark = (one.version, one.group)
            if kept.get(one.name, (None,))[0] != mark:
                kept[one.name] = mark, Card(**_card(one))
            found.append(kept[one.name][1].model_copy(update={"activity": _activity(one)}))
        return found

    return read


@operation(path="/dataset-cards", visitors="own session", watch=_watch_cards, shell=False)
def cards(workspace: Workspace) -> list[Card]:
    """List every dataset with a video of it, those of a group together."""
    return _watch_cards(workspace)()


def _card(dataset: Dataset) -> dict[str, Any]:
    shown = next((clip for clip in dataset.clips if not clip.is_latents), None)
    return {
        **_entry(dataset),
        "cover": str(dataset.folder / shown.file_name) if shown else "",
        "width": shown.width if shown else 0,
        "height": shown.height if shown else 0,
        "activity": _activity(dataset),
    }


def _activity(dataset: Dataset) -> str:
    working = (task_snapshot(dataset.task(name)).activity for name in NAMES if (dataset.folder / f".{name}").exists())
    return next(filter(None, working), "")


def _watch_about(workspace: Workspace, name: str, model: str = "", frames: int | None = None) -> Callable[[], About]:
    kept: dict[str, Any] = {}

    def read() -> About:
        dataset = Dataset.open(workspace, name)
        mark = (dataset.name, dataset.version, *(dataset.task(one).version for one in NAMES))
        alive = any(task["state"].alive for task in kept.get("tasks", ()))
        if kept.get("mark") != mark or alive:
            found = _about(workspace, dataset, model, frames)
            kept.update(mark=mark, found=found, tasks=[vars(one) for one in found.tasks])
        return kept["found"]  # type: ignore[no-any-return]

    return read


@operation(path="/datasets/{name}/about", visitors="own session", watch=_watch_about, shell=False)
def about(
    workspace: Workspace,
    name: Name,
    *,
    model: ModelName = "",
    frames: Annotated[int | None, Field(ge=1, description="Frames to train with; the model's own without it.")] = None,
) -> About:
    """Show a dataset without its clips: numbers, tasks, what can be undone."""
    return _about(workspace, Dataset.open(workspace, name), model, frames)


def _about(workspace: Workspace, dataset: Dataset, model: str, frames: int | None) -> About:
    shape, problem = None, ""
    try:
        shape = shape_for(find_model(workspace.model(model)).model, frames) if model else None
    except ConfigError as error:
        problem = str(error)
    seen = dataset.snapshot(shape)
    undoable, redoable, archive = dataset.undoable, dataset.redoable, finished_download(dataset.folder)
    return About(
        **_card(dataset),
        facts=seen.facts,
        next_steps=seen.next_steps,
        left_out=sum(one.dropped is not None for one in dataset.plans(shape)) if shape else None,
        problem=problem,
        tasks=seen.tasks,
        removed=len(dataset.removed),
        undo=undoable[0].what if undoable else "",
        redo=redoable[0].what if redoable else "",
        download=str(archive or ""),
        download_bytes=archive.stat().st_size if archive else 0,
    )


@operation(path="/datasets/{name}", visitors="own session", section=LOOKING)
def show(
    workspace: Workspace,
    name: Name,
    *,
    model: ModelName = "",
) -> Details:
    """Show a dataset: numbers, clips with their captions, files that were refused."""
    dataset = Dataset.open(workspace, name)
    shape = shape_for(find_model(workspace.model(model)).model) if model else None
    plans = {one.clip.file_name: one.sentence for one in dataset.plans(shape)} if shape else {}
    seen, captions = dataset.snapshot(shape), dataset.captions
    return Details(
        **_entry(dataset),
        content_hash=dataset.content_hash,
        facts=seen.facts,
        next_steps=seen.next_steps,
        tasks=seen.tasks,
        clips=tuple(clip_entry(one, captions[one.file_name], plans.get(one.file_name, "")) for one in dataset.clips),
        refused=tuple(one.sentence for one in dataset.import_results if not one.usable),
    )


def clip_entry(clip: records.Clip, caption: str | None = None, plan: str = "") -> ClipEntry:
    """Return a clip as a snapshot. caption: None for the one in its record"""
    plain = ("id", "file_name", "name", "source", "tags", "width", "height", "frames", "fps", "seconds", "span", "crop")
    return ClipEntry(
        **{name: getattr(clip, name) for name in plain},
        caption=clip.text if caption is None else caption,
        latents_model=(clip.latents_model or "an unknown model") if clip.is_latents else "",
        plan=plan,
    )


@operation(visitors="own session", section=LOOKING)
def stats(workspace: Workspace, name: Name) -> Statistics:
    """Show a dataset in numbers: lengths, sizes, motion, words."""
    return Statistics.model_validate(Dataset.open(workspace, name).statistics)


# ---- checking


@operation(changes=True, visitors="own session", job=job, section=CHECKING)
def check(workspace: Workspace, name: Name, settings: CheckSettings) -> DatasetTask:
    """Look for what would stop or hurt a training."""
    return start_task(Dataset.open(workspace, name), "check", settings)


def _watch_checks(workspace: Workspace, name: str) -> Callable[[], Checks]:
    kept: dict[Any, Checks] = {}

    def read() -> Checks:
        dataset = Dataset.open(workspace, name)
        mark = (dataset.name, dataset.version)
        if mark not in kept:
            kept.clear()
            kept[mark] = _checks(dataset)
        return kept[mark]

    return read


@operation(path="/datasets/{name}/checks", visitors="own session", watch=_watch_checks, shell=False)
def checks(workspace: Workspace, name: Name) -> Checks:
    """Show what the last check found, by kind, and what can be done about it."""
    return _checks(Dataset.open(workspace, name))


def _checks(dataset: Dataset) -> Checks:
    if (report := dataset.report) is None:
        return Checks(sentence="", checked_at=None, new_clips=len(dataset.clips), kinds=())
    ids = {clip.file_name: clip.id for clip in dataset.clips}
    return Checks(
        sentence=report.sentence,
        checked_at=report.checked_at,
        new_clips=report.new_clips,
        kinds=tuple(
            KindOfFinding(
                kind=group.kind,
                title=group.title,
                severity=group.severity.value,
                tone=group.severity.tone,
                count=len(group.findings),
                findings=tuple(
                    {"sentence": one.sentence, "clips": [ids[clip] for clip in one.clips]}
                    for one in group.findings[:MOST_SHOWN]
                ),
                fixes=tuple(
                    FixOffer(
                        fix=fix.replace("_", "-"),
                        label=FIXES[fix],
                        does=dataset.preview_fix(group.findings, fix),
                        seconds=expected_seconds(dataset.folder, group.findings, fix),
                    )
                    for fix in group.fixes
                ),
            )
            for group in report.groups
        ),
    )


@operation(visitors="own session", section=CHECKING)
def findings(workspace: Workspace, name: Name, kind: Kind = "") -> Findings:
    """Show what the last check found, as far as it still holds.

    With a KIND: all findings of that kind.
    """
    dataset = Dataset.open(workspace, name)
    return _findings(dataset, _report(dataset, kind), kind)


def _findings(dataset: Dataset, report: CheckReport, kind: str = "") -> Findings:
    names = {clip.file_name: clip.name for clip in dataset.clips}
    return Findings(
        dataset=dataset.name,
        **{name: getattr(report, name) for name in ("sentence", "checked_at", "model", "clips", "new_clips")},
        findings=tuple(
            Finding(
                **{name: getattr(one, name) for name in ("kind", "title", "sentence", "severity", "clips")},
                names=tuple(names[clip] for clip in one.clips),
                fixes=tuple(fix.replace("_", "-") for fix in one.fixes),
            )
            for one in report.findings
            if kind in ("", one.kind)
        ),
    )


def _report(dataset: Dataset, kind: str) -> CheckReport:
    """Return the last check. Raises ConfigError where there was none, or it found nothing of this kind."""
    if (report := dataset.report) is None:
        raise ConfigError(f"{dataset.name} was never checked: workbench dataset check {dataset.name}")
    kinds = list(dict.fromkeys(one.kind for one in report.findings))
    if kind and kind not in kinds:
        raise ConfigError(f"the check found no {kind!r}: it found {', '.join(kinds) or 'nothing to fix'}")
    return report


def _to_fix(dataset: Dataset, kind: str, how: str, clips: Iterable[str]) -> tuple[list[Any], Fix]:
    """Return the findings of a kind, of those on some clips, and the fix. Raises ConfigError."""
    if (fix := how.replace("-", "_")) not in FIXES:
        raise ConfigError(f"how is {how[:40]!r}, must be one of {', '.join(one.replace('_', '-') for one in FIXES)}")
    names = {dataset.clip(one).file_name for one in clips}
    found = [one for one in _report(dataset, kind).findings if one.kind == kind and (not names or names & {*one.clips})]
    if not found:
        raise ConfigError(f"the check found no {kind} on these clips: see workbench dataset findings {dataset.name}")
    return found, fix


@operation(visitors="own session", section=CHECKING)
def to_fix(workspace: Workspace, name: Name, kind: Kind, how: How, clips: OnClips = ()) -> Fixed:
    """Say what a fix would do, and change nothing."""
    dataset = Dataset.open(workspace, name)
    return Fixed(sentence=dataset.preview_fix(*_to_fix(dataset, kind, how, clips)))


@operation(changes=True, visitors="own session", job=job, section=CHECKING)
def fix(workspace: Workspace, name: Name, kind: Kind, how: How, clips: OnClips = ()) -> DatasetTask:
    """Fix every finding of a kind, or those on some clips.

    It is one change, which `undo` takes back. Where clips are cut it is a task, which can be stopped and goes on.
    `findings` shows the kinds there are and the ways to fix each.
    """
    dataset = Dataset.open(workspace, name)
    done = dataset.start_fix(*_to_fix(dataset, kind, how, clips))
    started = task_of(dataset, "fix")
    if not done:
        return started
    finished = {"state": State.FINISHED.value, "share": None, "message": done, "sentence": done}
    return started.model_copy(update={**finished, "details": (), "log": "", "actions": ()})


# ---- naming, removing and undoing


@operation(changes=True, visitors="own session", section=NAMING)
def rename(workspace: Workspace, name: Name, title: Annotated[str, Field(description="The new title.")]) -> Entry:
    """Give a dataset another title, and the name made from it.

    Runs that were trained on it still find it by its former name.
    """
    return Entry(**_entry(dataset_library.rename(workspace, Dataset.open(workspace, name), title)))


@operation(changes=True, visitors="own session", section=NAMING)
def note(workspace: Workspace, name: Name, text: Text = None) -> Note:
    """Write the notes on a dataset, or print them."""
    return noted(Dataset.open(workspace, name), text)


@operation(changes=True, visitors="own session", section=NAMING)
def group(workspace: Workspace, name: Name, label: Label = None) -> Group:
    """Put a dataset into a group of the lists, or print its group."""
    return grouped(Dataset.open(workspace, name), label)


@operation(visitors="own session", section=NAMING)
def to_remove(workspace: Workspace, name: Name) -> list[ToRemove]:
    """List what removing a dataset would move to the bin, and what needs it."""
    dataset = Dataset.open(workspace, name)
    needed, size = dataset_library.consequence(workspace, dataset), size_of(dataset.folder)
    return [ToRemove(name=dataset.name, contents=dataset.summary.sentence, bytes=size, needed=needed)]


@operation(changes=True, visitors="own session", confirm=to_remove, afterwards=IN_THE_BIN, section=NAMING)
def remove(workspace: Workspace, name: Name) -> list[ToRemove]:
    """Move a dataset to the bin; `restore` brings it back."""
    planned = to_remove(workspace, name)
    dataset_library.remove(workspace, Dataset.open(workspace, name))
    return planned


@operation(path="/removed-datasets/list", visitors="own session", none="no dataset is removed", section=NAMING)
def bin_(workspace: Workspace) -> list[Removed]:
    """List the removed datasets, removed last first."""
    return [Removed(id=one) for one in dataset_library.removed(workspace)]


@operation(path="/removed-datasets/{id}/restore", changes=True, visitors="own session", section=NAMING)
def restore(workspace: Workspace, id: Annotated[str, Field(description="As `bin` lists it.")]) -> Details:
    """Bring a removed dataset back."""
    return show(workspace, dataset_library.restore(workspace, id).name)


@operation(visitors="own session", none="nothing was changed yet", section=NAMING)
def history(workspace: Workspace, name: Name) -> list[Change]:
    """List what was done to a dataset, the oldest change first."""
    dataset = Dataset.open(workspace, name)
    standing = {one.number for one in dataset.undoable}
    return [
        Change.model_validate(one).model_copy(update={"undoable": one.number in standing}) for one in dataset.history
    ]


@operation(changes=True, visitors="own session", section=NAMING)
def undo(workspace: Workspace, name: Name, number: Number = None) -> Change:
    """Take back the newest change, or the one with that number."""
    return Change.model_validate(Dataset.open(workspace, name).undo(number))


@operation(changes=True, visitors="own session", section=NAMING)
def redo(workspace: Workspace, name: Name, number: Number = None) -> Change:
    """Redo what was undone last, or the undoing with that number."""
    return Change.model_validate(Dataset.open(workspace, name).redo(number))


# ---- background tasks


@operation(
    visitors="own session",
    none="no tasks yet: import, split, check, fix, auto-caption and export start one",
    section=TASKS,
)
def tasks(workspace: Workspace, name: Name) -> list[DatasetTask]:
    """List the background tasks that were ever started: what they do, or how they ended."""
    dataset = Dataset.open(workspace, name)
    return [task_of(dataset, one) for one in NAMES if dataset.task(one).status.state is not State.NEW]


@operation(changes=True, visitors="own session", job=job, section=TASKS)
def start(workspace: Workspace, name: Name, task: Task) -> DatasetTask:
    """Let a task that ended go on with the settings it had."""
    dataset = Dataset.open(workspace, name)
    if dataset.task(task).status.state is State.NEW:
        raise ConfigError(f"{dataset.name} never had the task {task}: start it with its own command")
    dataset.task(task).go_on()
    return task_of(dataset, task)


@operation(changes=True, visitors="own session", section=TASKS)
def stop(workspace: Workspace, name: Name, task: Task) -> DatasetTask:
    """End a task; what it has done stays."""
    dataset = Dataset.open(workspace, name)
    if not (status := dataset.task(task).status).state.alive:
        raise ConfigError(
            f"the task {task} of {dataset.name} is {status.state.value}: only a running one can be stopped"
        )
    dataset.task(task).stop()
    return task_of(dataset, task)


@operation(path="/datasets/{name}/dismiss", changes=True, visitors="own session", shell=False)
def dismiss(workspace: Workspace, name: Name, task: Task) -> DatasetTask:
    """Forget how a task ended; what it made stays."""
    dataset = Dataset.open(workspace, name)
    if dataset.task(task).status.state.alive:
        raise ConfigError(f"the task {task} of {dataset.name} is at work: stop it first")
    dataset.task(task).dismiss()
    return task_of(dataset, task)
