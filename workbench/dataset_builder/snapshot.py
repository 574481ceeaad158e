"""The state of a dataset and its tasks as plain data, for page, notebook, shell and JSON to render. No torch.

Facts, next steps, progress, outcomes and available actions are decided here, not in the frontends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from workbench.clips.frame_plan import FramePlan, Shape, plan
from workbench.clips.records import COMPANION_NAMES, INFO, METADATA, Clip, damage, known_info, read_clips
from workbench.dataset_builder.checks.findings import FILE, read_findings
from workbench.dataset_builder.checks.measures import FOLDER
from workbench.dataset_builder.ingest.results import OUTCOMES, SKIPPED, read_import_results
from workbench.dataset_builder.tasks import NAMES, Name, Task, changed_at
from workbench.display.quantities import counted, duration, moment, shortened
from workbench.jobs import State, log_tail
from workbench.snapshots import HIDDEN, Shown, Snapshot
from workbench.workspace.folders import NOTES, NotedFolder

LOG_LINES = 8
RESUMABLE = (State.STOPPED, State.FAILED, State.DIED)
Result = dict[str, Any]


@dataclass(frozen=True)
class Summary:
    """A dataset in numbers. sizes, fps: the number of clips for each, most frequent first."""

    clips: int
    seconds: float
    sizes: dict[str, int]
    fps: dict[float, int]
    missing_captions: int
    paired: int
    refused: int

    @property
    def sentence(self) -> str:
        if not self.clips:
            return "no clips yet"
        sizes = ", ".join(self.sizes) if len(self.sizes) <= 3 else f"{len(self.sizes)} sizes"
        missing = f", {self.missing_captions} without a caption" if self.missing_captions else ""
        refused = f", {counted(self.refused, 'file')} refused" if self.refused else ""
        return f"{counted(self.clips, 'clip')}, {self.seconds:.1f} s, {sizes}{missing}{refused}"


def summarize(clips: Sequence[Clip], refused: int) -> Summary:
    """Summarize clips. refused: the number of files that could not be used."""
    return Summary(
        clips=len(clips),
        seconds=sum(clip.seconds for clip in clips),
        sizes=dict(Counter(f"{clip.width}x{clip.height}" for clip in clips).most_common()),
        fps=dict(Counter(round(clip.fps, 3) for clip in clips).most_common()),
        missing_captions=sum(not clip.text.strip() for clip in clips),
        paired=sum(bool(clip.companions) for clip in clips),
        refused=refused,
    )


@dataclass(frozen=True)
class FileResult:
    """The result of one imported file. note: how it was converted, or why it was refused."""

    name: str
    outcome: str
    note: str
    tone: Literal["good", "idle", "bad"]

    @property
    def sentence(self) -> str:
        return ": ".join(filter(None, (repr(self.name), self.outcome, self.note)))


@dataclass(frozen=True)
class TaskSnapshot:
    """The state of a task.

    share: the share of the work that is done; None while unknown.
    activity: what the task is doing; "" unless it is running.
    sentence: how it ended; "" before that.
    details: more about the outcome, one line each.
    log: the end of the log, if it failed.
    actions: what the user can do now.
    files: the result of each file of a finished import, refused ones first.
    ended_at: Unix time.
    counts: for a finished import, outcome in words -> number of files.
    new: number of clips that an import added.
    """

    name: Name
    state: State
    share: float | None
    activity: str
    sentence: str
    details: tuple[str, ...]
    log: str
    actions: tuple[Literal["stop", "resume", "dismiss"], ...]
    files: tuple[FileResult, ...] = ()
    ended_at: float | None = None
    counts: dict[str, int] = field(default_factory=dict)
    new: int = 0


class Entry(Snapshot):
    """A dataset in a list."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "summary", "trigger_word", "group", "damage")

    name: str
    """Name of the dataset, as commands take it."""

    folder: str
    """Path of its folder."""

    title: str
    """Display title."""

    trigger_word: str
    """The trigger word, which is added to every caption that lacks it; "" for none."""

    group: str
    """The group that lists show it in; "" for none."""

    created_at: Annotated[float | None, Shown("created", moment)]
    """When it was created, as Unix time; null for a folder that the workbench did not create."""

    changed_at: Annotated[float | None, Shown("last changed", moment)]
    """When its clips, captions, title or notes last changed, as Unix time."""

    own_notes: Annotated[str, Shown("notes")]
    """Notes on the dataset; "" for none."""

    summary: Annotated[Summary, Shown("contents", lambda summary: summary.sentence)]
    """Clips, seconds, sizes, fps, missing_captions, refused, paired (the number of clips with companion files)."""

    damage: Annotated[tuple[str, ...], Shown(text=" ".join)]
    """One sentence for each record that cannot be read, with what to do about it."""


class InWords(Snapshot):
    """The description of a dataset, apart from its clips."""

    facts: Annotated[dict[str, str], HIDDEN]
    """Its numbers in words: label -> value."""

    next_steps: Annotated[tuple[str, ...], Shown("next", " ".join)]
    """One sentence for each thing left to do."""

    tasks: Annotated[tuple[TaskSnapshot, ...], HIDDEN]
    """Every task that was started: name, state, share, activity, sentence, details, log, actions, files, ended_at;
    for an import also counts and new."""


class DatasetSnapshot(InWords, Entry):
    """The state of a dataset."""


def dataset_entry(dataset: Path) -> Entry:
    """Return the dataset in a folder as lists show it."""
    info, noted = known_info(dataset), NotedFolder(dataset)
    return Entry(
        name=dataset.name,
        folder=str(dataset),
        title=info.title or dataset.name,
        trigger_word=info.trigger_word,
        group=noted.group,
        created_at=info.created,
        changed_at=last_change(dataset),
        own_notes=noted.notes,
        summary=summarize(read_clips(dataset), sum(not one.usable for one in read_import_results(dataset))),
        damage=tuple(damage(dataset)),
    )


def dataset_snapshot(dataset: Path, shape: Shape | None = None) -> DatasetSnapshot:
    """Return the state of the dataset in a folder. shape: the target model's, to count the clips that it leaves out."""
    entry = dataset_entry(dataset)
    summary, changed = entry.summary, entry.changed_at
    dropped = sum(plan(clip, shape).dropped is not None for clip in read_clips(dataset)) if shape else 0
    tasks = [task_snapshot(Task(dataset, name)) for name in NAMES]
    facts = {
        "clips": f"{summary.clips:,}",
        "length": duration(summary.seconds) if summary.seconds >= 60 else f"{summary.seconds:.1f} s",
        "size": shortened([*summary.sizes], 2),
        "frame rate": ", ".join(f"{fps:g}" for fps in list(summary.fps)[:3]) + " fps",
        "without caption": f"{summary.missing_captions:,}",
        **({"changed": moment(changed)} if changed else {}),
        **({"left out by the model": f"{dropped:,}"} if shape else {}),
    }
    return DatasetSnapshot(
        **dict(entry),
        facts=facts if summary.clips else {},
        next_steps=(*entry.damage, *_next_steps(summary, dropped)),
        tasks=tuple(task for task in tasks if task.state is not State.NEW),
    )


def last_change(dataset: Path) -> float | None:
    """Return when clips, captions, title or notes last changed, as Unix time."""
    times = [path.stat().st_mtime for name in (METADATA, INFO, NOTES) if (path := dataset / name).exists()]
    return max(times, default=None)


def _next_steps(numbers: Summary, dropped: int) -> list[str]:
    if not numbers.clips:
        return ["No clips yet: import video files, folders or archives."]
    found = []
    if missing := numbers.missing_captions:
        has = "has" if missing == 1 else "have"
        found.append(f"{counted(missing, 'clip')} {has} no caption: write one, or let a model write it.")
    if dropped:
        found.append(f"{counted(dropped, 'clip')} {'is' if dropped == 1 else 'are'} left out for the chosen model.")
    return found


# ---- frame plans ----------------------------------------------------------------------------------------------------

PLAN_COLUMNS = ("clip", "length", "model input", "share of the clip")


def plan_sentence(shape: Shape, plans: Sequence[FramePlan]) -> str:
    """Summarize what a model of that shape sees of the clips."""
    used = sum(plan.dropped is None for plan in plans)
    return (
        f"The model sees {shape.frames} frames of each clip at {shape.fps:g} fps, {shape.width}x{shape.height}. "
        f"{used:,} of {len(plans):,} clips are used."
    )


def plan_rows(plans: Sequence[FramePlan], most: int) -> list[tuple[str, ...]]:
    """Return rows of PLAN_COLUMNS for at most `most` clips, unusable ones first."""
    ordered = sorted(plans, key=lambda plan: plan.dropped is None)[:most]
    return [(plan.clip.name, f"{plan.clip.seconds:.1f} s", plan.sentence, plan.use) for plan in ordered]


# ---- tasks ----------------------------------------------------------------------------------------------------------


def task_snapshot(task: Task) -> TaskSnapshot:
    """Return the state of a task."""
    status, result = task.status, task.result
    sentence, details, log = "", list[str](), ""
    if status.state is State.FINISHED:
        sentence, details = OUTCOME_OF[task.name](result)
        sentence = " ".join(filter(None, (sentence, status.message)))
    elif status.state is State.STOPPED:
        sentence = f"The task {task.name} was stopped; finished work is kept. {status.message}"
    elif not status.state.alive and status.state is not State.NEW:
        sentence = f"The task {task.name} failed. {status.message}"
        log = log_tail(status.folder, LOG_LINES)
    # A task that counts clips in its message counts frames in its steps: the bar shows those.
    counted_in_frames = status.message.endswith(" clips")
    steps = f"{status.step:,} of {status.total:,}" if status.total and not counted_in_frames else ""
    left = f"about {duration(status.seconds_left)} left" if status.seconds_left is not None else ""
    activity = " · ".join(filter(None, (status.phase or "starting", steps, left, status.message)))
    resume: tuple[Literal["resume"], ...] = ("resume",) if status.state in RESUMABLE else ()
    dismiss: tuple[Literal["dismiss"], ...] = ("dismiss",) if sentence else ()
    return TaskSnapshot(
        name=task.name,
        state=status.state,
        share=status.step / status.total if status.total else None,
        activity=activity if status.state.alive else "",
        sentence=sentence.strip(),
        details=tuple(details),
        log=log,
        actions=("stop",) if status.state.alive else (*resume, *dismiss),
        files=tuple(
            FileResult(one["name"], OUTCOMES[outcome], one["note"], tone)
            for outcome, tone in OUTCOME_TONES.items()
            for one in result.get("files", ())
            if one["outcome"] == outcome
        ),
        ended_at=status.ended_at,
        counts={words: count for name, words in OUTCOMES.items() if (count := result.get("counts", {}).get(name))},
        new=len(result.get("new", ())),
    )


# In display order.
OUTCOME_TONES: dict[str, Literal["good", "idle", "bad"]] = {
    "refused": "bad",
    SKIPPED: "bad",
    "known": "idle",
    "converted": "good",
    "taken": "good",
}


def _imported(result: Result) -> tuple[str, list[str]]:
    counts = result.get("counts", {})
    named = ", ".join(f"{counts[name]:,} {words}" for name, words in OUTCOMES.items() if counts.get(name))
    missing = sum(counts.values()) - len(result.get("files", ()))
    more = [f"{missing:,} more files are not listed here: see the dataset's history."] if missing > 0 else []
    taken = result.get("companions", {})
    beside = [counted(taken[kind], name) for kind, name in COMPANION_NAMES.items() if taken.get(kind)]
    named = f"{named or 'nothing'}{', with ' if beside else ''}{', '.join(beside)}"
    return f"Imported: {named}.", [*result.get("problems", ()), *more]


def _split(result: Result) -> tuple[str, list[str]]:
    clips, preview = result.get("clips", 0), result.get("preview", False)
    were = "would be" if preview else "was" if clips == 1 else "were"
    spans = result.get("spans", ()) if preview else [()] * len(result.get("splits", ()))
    lines = [
        f"{sentence}{': ' if pieces else ''}" + ", ".join(f"{start:.2f} to {end:.2f} s" for start, end in pieces)
        for sentence, pieces in zip(result.get("splits", ()), spans, strict=False)
    ]
    return f"{counted(clips, 'clip')} {were} cut into {result.get('parts', 0):,}.", lines + result.get("failed", [])


def _captioned(result: Result) -> tuple[str, list[str]]:
    counts, failed = result.get("counts", {}), result.get("failed") or {}
    written = counts.get("captioned", 0)
    sentence = f"{counted(written, 'caption')} {'was' if written == 1 else 'were'} written."
    sentence += f" {counted(counts['kept'], 'clip')} got one by hand in the meantime." if counts.get("kept") else ""
    sentence += f" {counted(len(failed), 'clip')} failed." if failed else ""
    return sentence, list(failed.values())


def _done(result: Result) -> tuple[str, list[str]]:
    return result.get("done", ""), list(result.get("failed") or ())


def _exported(result: Result) -> tuple[str, list[str]]:
    details = [result["left_behind"]] if result.get("left_behind") else []
    if result.get("changed") is False:
        return f"Nothing has changed, so there is no new commit: {result.get('url')}", details
    return f"{counted(result.get('clips', 0), 'clip')} written: {result.get('url') or result.get('target')}", details


OUTCOME_OF: dict[Name, Callable[[Result], tuple[str, list[str]]]] = {
    "import": _imported,
    "split": _split,
    "check": lambda _: ("", []),  # its outcome is the report (checks.findings)
    "fix": _done,
    "caption": _captioned,
    "make": _done,
    "track": _done,
    "export": _exported,
}


# ---- the list of clips -----------------------------------------------------------------------------------------------

KEPT_DATASETS, KEPT_LISTS = 4, 16
Filter = Literal["all", "missing", "marked", "hand", "model", "images"]
Order = Literal["given", "name", "length", "size", "caption"]
# Filter -> (title, predicate of a clip and whether it has findings).
FILTERS: dict[Filter, tuple[str, Callable[[Clip, bool], bool]]] = {
    "all": ("All clips", lambda clip, marked: True),
    "missing": ("Without a caption", lambda clip, marked: not clip.text.strip()),
    "marked": ("With findings", lambda clip, marked: marked),
    "hand": ("Written by hand", lambda clip, marked: clip.caption_by == "hand"),
    "model": ("Written by a model", lambda clip, marked: clip.caption_by not in ("", "hand", "file")),
    "images": ("Pictures", lambda clip, marked: clip.is_image),
}
# Order -> (title, sort key).
ORDERS: dict[Order, tuple[str, Callable[[Clip], Any] | None]] = {
    "given": ("As imported", None),
    "name": ("By name", lambda clip: ((clip.source or clip.file_name).casefold(), clip.span or ())),
    "length": ("By length", lambda clip: clip.seconds),
    "size": ("By size", lambda clip: clip.width * clip.height),
    "caption": ("By caption length", lambda clip: len(clip.text)),
}


@dataclass(frozen=True)
class ClipList:
    """The clips that match a query, in its order. marks: file name -> titles of the last check's findings."""

    clips: Sequence[Clip]
    all: int
    counts: dict[Filter, int]
    marks: Mapping[str, Sequence[str]]

    def next_without_caption(self, after: int) -> int | None:
        """Return the index of the next clip without a caption, wrapping around; None if there is none."""
        empty = [number for number, clip in enumerate(self.clips) if not clip.text.strip()]
        return next((number for number in empty if number > after), empty[0] if empty else None)


def clip_list(folder: Path, search: str = "", only: Filter = "all", order: Order = "given") -> ClipList:
    """List the clips of a dataset that match, cached until its records or findings change.

    search: Words that must occur in the caption, display name or file name, ignoring case.
    """
    return _clip_list(folder, search, only, order, changed_at([folder / METADATA, folder / FOLDER / FILE]))


@lru_cache(maxsize=KEPT_LISTS)
def _clip_list(folder: Path, search: str, only: Filter, order: Order, version: tuple[int, ...]) -> ClipList:
    marks = _marks(folder, version)
    clips, words = read_clips(folder), search.casefold().split()
    passes = {
        one: [clip for clip in clips if FILTERS[one][1](clip, clip.file_name in marks)] for one in get_args(Filter)
    }
    found = [
        clip
        for clip in passes[only]
        if all(word in f"{clip.text} {clip.name} {clip.file_name}".casefold() for word in words)
    ]
    if (key := ORDERS[order][1]) is not None:
        found.sort(key=key)
    return ClipList(found, len(clips), {one: len(passing) for one, passing in passes.items()}, marks)


@lru_cache(maxsize=KEPT_DATASETS)
def _marks(folder: Path, version: tuple[int, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in read_findings(folder):
        for name in finding.clips:
            found.setdefault(name, []).append(finding.title)
    return found
