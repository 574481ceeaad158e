"""A dataset and its tasks at one moment as plain data, which page, notebook, shell and JSON render. No torch.

None of them decides what is shown: facts, next steps, progress, outcomes and the actions to offer are chosen here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from workbench.clips.frame_plan import FramePlan, Shape, plan
from workbench.clips.records import COMPANION_NAMES, INFO, METADATA, Clip, damage, known_info, read_clips
from workbench.dataset_builder.ingest.results import OUTCOMES, SKIPPED, read_import_results
from workbench.dataset_builder.tasks import NAMES, Name, Task
from workbench.display.quantities import counted, duration, moment
from workbench.jobs import State, log_tail
from workbench.workspace.folders import NOTES, NotedFolder

LOG_LINES = 8
RESUMABLE = (State.STOPPED, State.FAILED, State.DIED)
Result = dict[str, Any]


@dataclass(frozen=True)
class Summary:
    """A dataset in numbers. sizes, fps: how many clips have each, the most frequent first."""

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
    """The numbers of these clips; refused: how many files could not be used."""
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
    """What became of one file of an import.

    outcome: in words for people;  note: how it was converted, why it was refused;  tone: good, idle or bad
    """

    name: str
    outcome: str
    note: str
    tone: Literal["good", "idle", "bad"]

    @property
    def sentence(self) -> str:
        return ": ".join(filter(None, (repr(self.name), self.outcome, self.note)))


@dataclass(frozen=True)
class TaskSnapshot:
    """A task at one moment.

    share: of the work that is done, None while unknown;  activity: what it does now, "" unless it works
    sentence: how it ended, "" before;  details: more of that, a line each;  log: the end of it, of one that failed
    actions: what may be done now;  files: what became of each file of an import, the refused first
    ended_at: Unix time;  counts: of an import that is over, outcome in words -> files;  new: clips that it added
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


@dataclass(frozen=True)
class DatasetSnapshot:
    """A dataset at one moment.

    created_at, changed_at: Unix time; None where unknown;  own_notes: what a person wrote about it
    group: the label that lists show it under, "" for none
    facts: label -> value;  next_steps: what is still to do, a sentence each;  tasks: those that were ever started
    """

    name: str
    title: str
    trigger_word: str
    group: str
    created_at: float | None
    changed_at: float | None
    own_notes: str
    summary: Summary
    facts: dict[str, str]
    next_steps: tuple[str, ...]
    tasks: tuple[TaskSnapshot, ...]


def dataset_snapshot(dataset: Path, shape: Shape | None = None) -> DatasetSnapshot:
    """The dataset in this folder now; shape: of the model that its clips are judged for."""
    clips, info = read_clips(dataset), known_info(dataset)
    summary = summarize(clips, sum(not one.usable for one in read_import_results(dataset)))
    dropped = sum(plan(clip, shape).dropped is not None for clip in clips) if shape else 0
    tasks = [task_snapshot(Task(dataset, name)) for name in NAMES]
    changed = last_change(dataset)
    facts = {
        "clips": f"{summary.clips:,}",
        "length": duration(summary.seconds) if summary.seconds >= 60 else f"{summary.seconds:.1f} s",
        "size": ", ".join(list(summary.sizes)[:2]) + (" ..." if len(summary.sizes) > 2 else ""),
        "frame rate": ", ".join(f"{fps:g}" for fps in list(summary.fps)[:3]) + " fps",
        "without caption": f"{summary.missing_captions:,}",
        **({"changed": moment(changed)} if changed else {}),
        **({"left out by the model": f"{dropped:,}"} if shape else {}),
    }
    return DatasetSnapshot(
        name=dataset.name,
        title=info.title or dataset.name,
        trigger_word=info.trigger_word,
        group=NotedFolder(dataset).group,
        created_at=info.created,
        changed_at=changed,
        own_notes=NotedFolder(dataset).notes,
        summary=summary,
        facts=facts if clips else {},
        next_steps=(*damage(dataset), *_next_steps(summary, dropped)),
        tasks=tuple(task for task in tasks if task.state is not State.NEW),
    )


def last_change(dataset: Path) -> float | None:
    """When its clips, captions, title or notes were last changed, as Unix time."""
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
    """What a model of that shape gets of each clip, and of how many clips."""
    used = sum(plan.dropped is None for plan in plans)
    return (
        f"The model gets {shape.frames} frames of each clip at {shape.fps:g} fps, {shape.width}x{shape.height}. "
        f"{used:,} of {len(plans):,} clips are used."
    )


def plan_rows(plans: Sequence[FramePlan], most: int) -> list[tuple[str, ...]]:
    """(clip, length, model input, share of the clip) of at most so many, the clips that are left out first."""
    ordered = sorted(plans, key=lambda plan: plan.dropped is None)[:most]
    return [(plan.clip.name, f"{plan.clip.seconds:.1f} s", plan.sentence, plan.use) for plan in ordered]


# ---- tasks ----------------------------------------------------------------------------------------------------------


def task_snapshot(task: Task) -> TaskSnapshot:
    """The task at this moment."""
    status, result = task.status, task.result
    sentence, details, log = "", list[str](), ""
    if status.state is State.FINISHED:
        sentence, details = OUTCOME_OF[task.name](result)
        sentence = " ".join(filter(None, (sentence, status.message)))
    elif status.state is State.STOPPED:
        sentence = f"The task {task.name} was stopped; what was done stays. {status.message}"
    elif not status.state.alive and status.state is not State.NEW:
        sentence = f"The task {task.name} did not end well. {status.message}"
        log = log_tail(status.folder, LOG_LINES)
    steps = f"{status.step:,} of {status.total:,}" if status.total else ""
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
        files=file_results(result),
        ended_at=status.ended_at,
        counts={words: count for name, words in OUTCOME_WORDS.items() if (count := result.get("counts", {}).get(name))},
        new=len(result.get("new", ())),
    )


OUTCOME_WORDS = {**{str(name): words for name, words in OUTCOMES.items()}, SKIPPED: "skipped"}
# In the order in which people want to read them.
OUTCOME_TONES: dict[str, Literal["good", "idle", "bad"]] = {
    "refused": "bad",
    SKIPPED: "bad",
    "known": "idle",
    "converted": "good",
    "taken": "good",
}


def _imported(result: Result) -> tuple[str, list[str]]:
    counts = result.get("counts", {})
    named = ", ".join(f"{counts[name]:,} {words}" for name, words in OUTCOME_WORDS.items() if counts.get(name))
    missing = sum(counts.values()) - len(result.get("files", ()))
    more = [f"{missing:,} more files are not named here: the dataset's history has them."] if missing > 0 else []
    taken = result.get("companions", {})
    beside = [counted(taken[kind], name) for kind, name in COMPANION_NAMES.items() if taken.get(kind)]
    named = f"{named or 'nothing'}{', with ' if beside else ''}{', '.join(beside)}"
    return f"Imported: {named}.", [*result.get("problems", ()), *more]


def file_results(result: Result) -> tuple[FileResult, ...]:
    """What became of each file of an import that is over, the refused first."""
    return tuple(
        FileResult(one["name"], OUTCOME_WORDS[outcome], one["note"], tone)
        for outcome, tone in OUTCOME_TONES.items()
        for one in result.get("files", ())
        if one["outcome"] == outcome
    )


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
    sentence += f" {counted(counts['kept'], 'clip')} got one by hand meanwhile." if counts.get("kept") else ""
    sentence += f" {counted(len(failed), 'clip')} failed." if failed else ""
    return sentence, list(failed.values())


def _made_beside(result: Result) -> tuple[str, list[str]]:
    return result.get("done", ""), list(result.get("failed") or ())


def _exported(result: Result) -> tuple[str, list[str]]:
    details = [result["left_behind"]] if result.get("left_behind") else []
    if result.get("changed") is False:
        return f"nothing has changed, so there is no new commit: {result.get('url')}", details
    return f"{counted(result.get('clips', 0), 'clip')} written: {result.get('url') or result.get('target')}", details


OUTCOME_OF: dict[Name, Callable[[Result], tuple[str, list[str]]]] = {
    "import": _imported,
    "split": _split,
    "check": lambda _: ("", []),  # the report says it (checks.findings)
    "fix": lambda result: (result.get("done", ""), []),
    "caption": _captioned,
    "make": _made_beside,
    "track": _made_beside,
    "export": _exported,
}
