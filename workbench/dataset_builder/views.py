"""What a `Dataset` shows and finds out on request: checks, frame plans, clips as a model gets them; in a notebook, too.

The base class of `Dataset`: it reads the dataset's folder and changes nothing. Not covered: records and their changes
(dataset), how results are rendered (display).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.clips import buckets, frame_plan, media
from workbench.clips.buckets import BucketTable
from workbench.clips.frame_plan import FramePlan, Shape, shape_for
from workbench.clips.records import Clip
from workbench.dataset_builder import display
from workbench.dataset_builder.checks.findings import CheckReport, read_report
from workbench.dataset_builder.checks.settings import CheckSettings
from workbench.dataset_builder.checks.statistics import Statistics, statistics
from workbench.dataset_builder.history import Change
from workbench.dataset_builder.tasks import Task
from workbench.errors import DataError, WorkbenchError
from workbench.families import default_model, find_model
from workbench.families.base import Model
from workbench.jobs import State
from workbench.settings import parse
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from workbench.dataset_builder.ingest.results import ImportResult
    from workbench.dataset_builder.snapshot import Summary

PLANS = "plans"  # folder below the workspace's cache
MOST_BUCKETS = 3


@dataclass(frozen=True)
class ClipView:
    """A clip as a model gets it: a video of exactly those frames, and the plan by which they were taken."""

    path: Path
    plan: FramePlan

    def _repr_html_(self) -> str:
        return display.clip_view_html(self)


@dataclass(frozen=True)
class PlanTable:
    """The frame plans of all clips at one shape, and the buckets that would lose least."""

    shape: Shape
    plans: list[FramePlan]
    buckets: BucketTable

    def _repr_html_(self) -> str:
        return display.plan_table_html(self)


class ChangeList(list[Change]):
    """The history of a dataset, the oldest change first."""

    def _repr_html_(self) -> str:
        return display.history_html(self)


class DatasetViews:
    """Reading a dataset's folder in ways that take work. `Dataset` adds records and changes."""

    folder: Path

    if TYPE_CHECKING:

        @property
        def name(self) -> str: ...
        @property
        def clips(self) -> list[Clip]: ...
        @property
        def summary(self) -> Summary: ...
        @property
        def import_results(self) -> list[ImportResult]: ...
        def clip(self, name: str) -> Clip: ...
        def path_of(self, clip: Clip) -> Path: ...

    def _repr_html_(self) -> str:
        refused = [one.sentence for one in self.import_results if not one.usable]
        return display.dataset_html(self.folder, self.summary.sentence, refused)

    # ---- checks and numbers

    @property
    def report(self) -> CheckReport | None:
        """What the last check found, as far as it still holds; None when there was none."""
        return read_report(self.folder)

    def check(self, **values: Any) -> CheckReport:
        """Check every clip and caption in a background task, wait for its end, and return what it found.

        values: settings of `CheckSettings`, such as captions=False. Nothing is changed; an interrupt leaves the task
        running. Raises ConfigError (a setting, or a task is running already), CannotWrite, WorkbenchError when the
        check fails.
        """
        task = Task(self.folder, "check")
        task.start(parse(CheckSettings, values))
        status = task.wait()
        report = self.report
        if status.state is not State.FINISHED or report is None:
            raise WorkbenchError(f"the check did not finish: {status.message or status.state}")
        return report

    @property
    def statistics(self) -> Statistics:
        """The dataset in numbers. Raises DataError, ConfigError where its files are broken."""
        return statistics(self.folder)

    # ---- what a model gets

    def plans(self, shape: Shape) -> list[FramePlan]:
        """Which frames and which part of the picture a model of that shape gets, a plan a clip."""
        return [frame_plan.plan(clip, shape) for clip in self.clips]

    def plan_table(self, model: str = "", frames: int | None = None, most_buckets: int = MOST_BUCKETS) -> PlanTable:
        """The plans of all clips for a model, and the buckets (at most so many) that lose least of them.

        model: "" is the built-in one;  frames: None is the model's own number. Raises ConfigError.
        """
        known, shape = _shape_of(model, frames)
        clips = self.clips
        chosen = buckets.choose(clips, known, most_buckets)
        return PlanTable(shape, self.plans(shape), buckets.assign(clips, chosen, known.fps))

    def view_as_model(self, name: str, model: str = "", frames: int | None = None) -> ClipView:
        """The clip of that file name or id as a model gets it. model, frames: as for `plan_table`.

        Raises ConfigError, DataError when the clip is left out, CannotWrite.
        """
        _, shape = _shape_of(model, frames)
        workspace = Workspace(self.folder.parent.parent)
        return ClipView(*self.planned_video(workspace, self.clip(name), shape))

    def plan_preview(self, clip: Clip, shape: Shape, target: Path) -> FramePlan:
        """Write exactly the frames that the model gets of a clip as a video. Raises DataError when it is left out."""
        plan = frame_plan.plan(clip, shape)
        if plan.dropped:
            raise DataError(f"{clip.file_name} is left out: {plan.dropped}")
        frames = media.read_frames(self.path_of(clip), plan.indices, plan.resize, plan.crop)
        media.encode(frames, target, plan.fps)
        return plan

    def planned_video(self, workspace: Workspace, clip: Clip, shape: Shape) -> tuple[Path, FramePlan]:
        """The same as a video in the workspace's cache. Raises as `plan_preview`."""
        size = f"{shape.frames}-{shape.width}x{shape.height}-{shape.fps:g}"
        target = workspace.cache / PLANS / f"{self.name}-{clip.id}-{size}.mp4"
        return target, self.plan_preview(clip, shape, target)


def _shape_of(model: str, frames: int | None) -> tuple[Model, Shape]:
    known = find_model(model or default_model())[1]
    return known, shape_for(known, frames)
