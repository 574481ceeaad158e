"""The runs of a workspace: list and compare them, and reorder the queue."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar

from pydantic import Field

from workbench import jobs
from workbench.display.quantities import moment
from workbench.jobs import queue as run_queue
from workbench.operations.registry import operation
from workbench.runs import checkpoints
from workbench.runs.analysis.comparison import Comparison
from workbench.runs.analysis.comparison import compare as side_by_side
from workbench.runs.analysis.curves import Curves
from workbench.runs.failures import read_failure
from workbench.runs.listing import (
    Order,
    RunEntry,
    RunSummary,
    differences,
    entries_of,
    matching,
    ordered,
    summary_of,
)
from workbench.runs.metrics import METRICS
from workbench.runs.run import Run
from workbench.snapshots import HIDDEN, Shown, Snapshot
from workbench.workspace import Workspace, strange_names
from workbench.workspace.records import Kept

Name = Annotated[str, Field(title="Run", description="Name of the run.", json_schema_extra={"source": "runs"})]
Names = Annotated[tuple[str, ...], Field(title="Runs", description="Names of runs.", min_length=1)]


class RunNow(Snapshot):
    """What every view of a run includes."""

    name: Annotated[str, Shown("run")]
    """Name of the run, as commands take it."""

    state: str
    """`new`, `running`, `paused`, `finished`, `failed`, `stopped`, `died` ..."""

    headline: Annotated[str, HIDDEN]
    """Its state in one word; `waiting` while it is in the queue."""

    position: int | None
    """Position in the queue, where 1 is next; null if it is not waiting."""

    activity: Annotated[str, Shown("state")]
    """What it is doing now, in words."""

    step: Annotated[int, Shown(right=True)]
    """The last completed step."""

    steps: int | None
    """Total number of steps; null while unknown, or if its settings cannot be read."""

    group: str
    """The group that lists show it in; "" for none."""

    own_notes: str
    """Notes on the run; "" for none."""


class RunLine(RunSummary, RunNow):
    """A run in a list."""

    COLUMNS: ClassVar[tuple[str, ...]] = (
        *("group", "name", "activity", "step", "loss", "held_out", "diagnosis", "dataset", "model"),
        *("started_at", "ended_at"),
    )

    dataset: str
    """Name of its dataset."""

    model: str
    """Name of its model."""

    started_at: Annotated[float | None, Shown("started", jobs.ago)]
    """When it started, as Unix time; null until then."""

    ended_at: Annotated[float | None, Shown("ended", moment)]
    """When it ended, as Unix time; null until then."""

    created_at: float
    """When it was created, as Unix time."""

    share: Annotated[float | None, HIDDEN]
    """Share of its steps that is done, 0 to 1; null while unknown."""

    seconds_left: Annotated[float | None, HIDDEN]
    """Estimated time left in seconds; null while unknown."""

    differs: Annotated[str, HIDDEN]
    """How it differs from the other runs in its group, or from the defaults, in a few words."""

    best: Annotated[bool, HIDDEN]
    """Whether its held-out loss is the lowest in its group."""

    def text_of(self, name: str) -> str:
        if name == "step":
            return f"{self.step}/{self.steps or '?'}"
        if name == "activity" and self.position:
            return "waiting, next" if self.position == 1 else f"waiting, number {self.position}"
        return super().text_of(name)


def _reader(
    workspace: Workspace, search: str = "", group: str | None = None, sort: Order = "newest"
) -> Callable[[], list[RunLine]]:
    """Return a reader of the list by group, which caches what it reads about each run until its files change."""
    kept, growing = Kept[tuple[RunSummary, str]](), dict[str, Curves]()

    def summary(status: jobs.Status) -> tuple[RunSummary, str]:
        """Return a run's numbers and why it failed, or ""."""
        folder, mark = status.folder, list[Any]([status.state, status.ended_at])
        for path in (folder / METRICS, folder / checkpoints.FOLDER):
            with contextlib.suppress(OSError):
                mark.append(path.stat().st_mtime_ns)

        def make() -> tuple[RunSummary, str]:
            failure = read_failure(status)
            curves = growing.setdefault(status.name, Curves(folder)) if status.state.alive else None
            if curves is None:
                growing.pop(status.name, None)
            return summary_of(Run(folder), not status.state.alive, curves), failure.cause if failure else ""

        return kept.of(status.name, mark, make)

    def read() -> list[RunLine]:
        waiting = run_queue.order(workspace)
        statuses = {one.name: one for one in jobs.jobs_in(workspace.runs)}
        every = entries_of(statuses.values(), waiting)
        differs = dict(zip((one.name for one in every), differences(every), strict=True))
        found = [(one, statuses[one.name]) for one in ordered(matching(every, search, group), sort)]
        lines = [_line(one, status, waiting, differs[one.name], *summary(status)) for one, status in found]
        losses: dict[str, list[float]] = {}
        for line in lines:
            if line.group and line.held_out:
                losses.setdefault(line.group, []).append(line.held_out[-1])
        lowest = {name: min(values) for name, values in losses.items() if len(values) > 1}
        best = (bool(line.held_out) and line.held_out[-1] == lowest.get(line.group) for line in lines)
        return [line.model_copy(update={"best": is_best}) for line, is_best in zip(lines, best, strict=True)]

    return read


def _line(
    entry: RunEntry, status: jobs.Status, waiting: list[str], differs: str, summary: RunSummary, cause: str
) -> RunLine:
    steps = entry.config.get("steps")  # not validated, so that runs of other versions are listed, too
    busy = status.state in (jobs.State.RUNNING, jobs.State.STARTING)
    waits = entry.name in waiting
    return RunLine.from_objects(
        summary,
        entry,
        status,
        **({"claim": cause, "tone": "bad"} if cause else {}),
        state=status.state,
        headline=entry.state,
        position=waiting.index(entry.name) + 1 if waits else None,
        activity=(busy and status.phase) or status.state,
        steps=steps if isinstance(steps, int) else None,
        own_notes=entry.notes,
        ended_at=entry.ended,
        created_at=entry.created,
        share=status.share if status.state.alive and not waits else None,
        seconds_left=None if waits else status.seconds_left,
        differs=differs,
        best=False,
    )


@operation(
    path="/runs",
    watch=_reader,
    none="no run matches: start one with workbench train --dataset NAME",
    afterwards=lambda workspace: strange_names.sentence(
        strange_names.strange_in(workspace.runs, "runs"), workspace.root
    ),
)
def list_(
    workspace: Workspace,
    *,
    search: Annotated[
        str, Field(description="Only runs with all these words in name, state, group, dataset, model or notes.")
    ] = "",
    group: Annotated[str | None, Field(description='Only runs in this group; "" for runs in none.')] = None,
    sort: Annotated[Order, Field(description="The sort order.")] = "newest",
) -> list[RunLine]:
    """List the runs of the workspace."""
    return _reader(workspace, search, group, sort)()


# ---- side by side


@operation(path="/run-comparison")
def compare(workspace: Workspace, names: Names) -> Comparison:
    """Compare runs: their results and the settings that differ."""
    return side_by_side([Run.open(workspace, name) for name in names])


# ---- the queue


class Queue(Snapshot):
    """The queue of runs."""

    now: Annotated[tuple[str, ...], Shown(text=", ".join)]
    """Names of the active runs."""

    waiting: tuple[str, ...]
    """Names of the waiting runs, next one first."""

    def lines(self) -> Iterator[tuple[str, str]]:
        yield from (("now", name) for name in self.now)
        yield from ((str(position), name) for position, name in enumerate(self.waiting, 1))
        if not self.waiting:
            yield "waiting", "none"


@operation(path="/queue")
def queue(workspace: Workspace) -> Queue:
    """Show which runs are training and which are waiting, in order."""
    waiting = run_queue.order(workspace)
    now = [run.name for run in Run.all(workspace) if run.name not in waiting and run.status.state.alive]
    return Queue(now=tuple(now), waiting=tuple(waiting))


@operation(path="/queue/move", changes=True)
def move(
    workspace: Workspace, name: Name, position: Annotated[int, Field(ge=1, description="Its new position; 1 is next.")]
) -> Queue:
    """Move a waiting run to another position in the queue."""
    run_queue.move(workspace, name, position)
    return queue(workspace)
