"""A dataset as the web page, notebooks and the shell see it: create, import, caption, look, remove. No torch.

Every property is read afresh from the folder, every change is on disk when its call returns:

    dataset.json metadata.jsonl          title, trigger word ...; a line a clip (workbench.clips.records)
    notes.txt group.txt                  what a person wrote about it, and the group that it was given
    clips/<id>.mp4 thumbs/<id>.jpg       named by the source file's content
    sources.jsonl                        what became of each source file (ImportResult)
    .import/                             the import job: config.json, job.log, result.json ... (workbench.jobs)
    history.jsonl .history/ .removed/    what was done to it, and the way back; nothing is ever deleted (history)
    first_frames/                        pictures that came with clips as their first frames (first_frames)
    clips/<id>.<kind>-<hash>.mp4         what lies beside a clip: control clip, reference, mask, last frame (companions)
    .masters/                            whole source videos whose parts are clips (workbench.clips.records.Clip.master)

Long work runs as tasks (tasks).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

from workbench import jobs
from workbench.clips import buckets, frame_plan, media
from workbench.clips.buckets import BucketTable
from workbench.clips.frame_plan import FramePlan, Shape, shape_for
from workbench.clips.records import (
    INFO,
    METADATA,
    REMOVED,
    Clip,
    DatasetInfo,
    clip_file,
    damage,
    find_clip,
    known_info,
    read_clips,
    write_info,
)
from workbench.dataset_builder import history
from workbench.dataset_builder.checks import fixes
from workbench.dataset_builder.checks.findings import FILE, CheckReport, Finding, Fix, read_report
from workbench.dataset_builder.checks.measures import FOLDER
from workbench.dataset_builder.checks.statistics import Statistics, statistics
from workbench.dataset_builder.cuts import cutting
from workbench.dataset_builder.cuts.cutting import Box, cut_of, master_of
from workbench.dataset_builder.history import Change
from workbench.dataset_builder.ingest.intake import Progress, import_files
from workbench.dataset_builder.ingest.results import SOURCES, ImportResult, read_import_results
from workbench.dataset_builder.settings import CheckSettings, ImportSettings
from workbench.dataset_builder.snapshot import (
    PLAN_COLUMNS,
    DatasetSnapshot,
    Summary,
    dataset_snapshot,
    plan_rows,
    plan_sentence,
    summarize,
)
from workbench.dataset_builder.sources.columns import USUAL, Columns, clean_caption
from workbench.dataset_builder.tasks import Name, Task, changed_at
from workbench.display.inline_html import bars, escaped, figure, folded, heading, note, picture, row, table
from workbench.errors import ConfigError, DataError, Unknown, WorkbenchError
from workbench.families import default_model, find_model
from workbench.jobs import State
from workbench.settings import parse
from workbench.workspace import Workspace, fresh_folder, is_slug, named_paths, slugify
from workbench.workspace.folders import GROUP, NOTES, NotedFolder

PLANS = "plans"  # folder below the workspace's cache
MOST_BUCKETS = 3


class Dataset(NotedFolder):
    """One dataset's folder."""

    @classmethod
    def create(cls, workspace: Workspace, title: str, trigger_word: str = "") -> Self:
        """A new, empty dataset. Raises CannotWrite."""
        folder = fresh_folder(workspace.datasets, title, workspace.former_names)
        info = DatasetInfo(title=title.strip(), trigger_word=trigger_word.strip(), created=time.time())
        write_info(folder, info)
        return cls(folder)

    @classmethod
    def open(cls, workspace: Workspace, slug: str) -> Self:
        """An existing dataset. Raises Unknown when there is none of that name."""
        folder = workspace.dataset(slug)
        if not _is_dataset(folder):
            known = ", ".join(dataset.name for dataset in cls.all(workspace)) or "none yet"
            raise Unknown(f"there is no dataset {slug!r}: choose one of {known}")
        return cls(folder)

    @classmethod
    def ensure(cls, workspace: Workspace, title: str) -> Self:
        """The dataset of that title, made if need be. Raises CannotWrite."""
        folder = workspace.dataset(slugify(title))
        return cls(folder) if _is_dataset(folder) else cls.create(workspace, title)

    @classmethod
    def all(cls, workspace: Workspace) -> list[Self]:
        """Every dataset of the workspace, by name."""
        return [cls(folder) for folder in sorted(workspace.datasets.glob("*")) if _is_dataset(folder)]

    # ---- reading

    @property
    def info(self) -> DatasetInfo:
        return known_info(self.folder)

    @property
    def damage(self) -> list[str]:
        """What of its records cannot be read, and what to do about it, one sentence each."""
        return damage(self.folder)

    @property
    def clips(self) -> list[Clip]:
        return read_clips(self.folder)

    @property
    def removed(self) -> list[Clip]:
        """Removed clips, which `restore` brings back."""
        return read_clips(self.folder / REMOVED)

    @property
    def captions(self) -> dict[str, str]:
        """file_name -> caption as a model is taught it, trigger word included."""
        info = self.info
        return {clip.file_name: info.caption(clip) for clip in self.clips}

    @property
    def content_hash(self) -> str:
        """SHA-256 of what a model could learn from it: every clip's bytes, caption and companions, in any order.

        What lies beside a clip is named by its content.
        """
        captions = self.captions
        beside = {clip.file_name: clip.first_frame + "".join(clip.companions.values()) for clip in self.clips}
        lines = sorted(f"{clip.sha256} {captions[clip.file_name]}{beside[clip.file_name]}" for clip in self.clips)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def version(self) -> tuple[int, ...]:
        """Changes whenever records, import results, history or findings do; costs a few looks at the disk."""
        files = (METADATA, INFO, NOTES, GROUP, SOURCES, history.HISTORY, f"{FOLDER}/{FILE}")
        return changed_at(self.folder / name for name in files)

    @property
    def import_results(self) -> list[ImportResult]:
        return read_import_results(self.folder)

    @property
    def summary(self) -> Summary:
        return summarize(self.clips, sum(not result.usable for result in self.import_results))

    def snapshot(self, shape: Shape | None = None) -> DatasetSnapshot:
        """The dataset and its tasks at this moment, for faces to render; shape: of the model it is meant for."""
        return dataset_snapshot(self.folder, shape)

    def clip(self, name: str) -> Clip:
        """The clip of that file name, id or name. Raises ConfigError."""
        return find_clip(self.clips, name)

    def successor(self, file_name: str) -> Clip | None:
        """The clip that stands where the one of that file name stood before it was cut, undone or redone, or itself."""
        return history.successor(self.folder, file_name)

    def path_of(self, clip: Clip) -> Path:
        """The clip's video file. Raises DataError for a link out of the dataset."""
        return clip_file(self.folder, clip.file_name)

    def _repr_html_(self) -> str:
        """The summary, the first clips with their captions, the files that were refused."""
        info, clips = self.info, self.clips
        trigger = f" · trigger word {info.trigger_word}" if info.trigger_word else ""
        tiles = []
        for clip in clips[:MOST_CLIPS]:
            thumbnail = picture(self.folder / history.thumbnail_name(clip), clip.name, 128)
            facts = f"{clip.seconds:.2f} s, {clip.width}x{clip.height}"
            style = "width:136px;margin:0 8px 8px 0;font-size:88%;line-height:1.3;overflow-wrap:anywhere"
            text = escaped(clip.text or "no caption")
            tiles.append(f'<div style="{style}">{thumbnail}{text}{note(facts)}</div>')
        more = note(f"and {len(clips) - MOST_CLIPS:,} more clips") if len(clips) > MOST_CLIPS else ""
        refused = [note(one.sentence) for one in self.import_results if not one.usable]
        count = "1 file was" if len(refused) == 1 else f"{len(refused)} files were"
        files = folded(f"{count} refused", "".join(refused)) if refused else ""
        damaged = "".join(note(one, "error") for one in self.damage)
        head = f"{heading(info.title or self.name)}{note(self.summary.sentence + trigger)}{damaged}"
        return f"{head}{row(tiles)}{more}{files}"

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
        task = self.task("check")
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
        known, clips = find_model(model or default_model()).model, self.clips
        shape = shape_for(known, frames)
        chosen = buckets.choose(clips, known, most_buckets)
        return PlanTable(shape, self.plans(shape), buckets.assign(clips, chosen, known.fps))

    def view_as_model(self, name: str, model: str = "", frames: int | None = None) -> ClipView:
        """The clip of that file name or id as a model gets it. model, frames: as for `plan_table`.

        Raises ConfigError, DataError when the clip is left out, CannotWrite.
        """
        return self.planned_video(self.clip(name), shape_for(find_model(model or default_model()).model, frames))

    def planned_video(self, clip: Clip, shape: Shape, target: Path | None = None) -> ClipView:
        """Exactly the frames that the model gets of a clip as a video, in the workspace's cache unless told where.

        Raises DataError when it is left out, CannotWrite.
        """
        plan = frame_plan.plan(clip, shape)
        if plan.dropped:
            raise DataError(f"{clip.name} is left out: {plan.dropped}")
        if clip.is_latents:
            raise DataError(f"{clip.name} is latents, which go to the model as they are: there is no video to watch")
        if target is None:
            size = f"{shape.frames}-{shape.width}x{shape.height}-{shape.fps:g}"
            target = Workspace.of(self.folder).cache / PLANS / f"{self.name}-{clip.id}-{size}.mp4"
        media.encode(media.read_frames(self.path_of(clip), plan.indices, plan.resize, plan.crop), target, plan.fps)
        return ClipView(target, plan)

    # ---- changing

    def set_caption(self, name: str, text: str, by: str = "hand", over: str | None = None) -> Clip:
        """Replace the caption of the clip of that file name or id; with `over` only while it still is that.

        Returns the clip as it is then. Raises ConfigError, CannotWrite.
        """
        clip, new = self.clip(name), clean_caption(text)

        def make(found: Sequence[Clip]) -> list[Clip]:
            (one,) = [one for one in found if one.file_name == clip.file_name] or [clip]
            same = one.text == new or (over is not None and one.text != over)
            return [] if same else [one.changed(text=new, caption_by=by)]

        history.edit(self.folder, f"caption of {clip.name}", make)
        return self.clip(name)

    def tag(self, word: str, *names: str) -> int:
        """Put a mark on clips; how many did not have it. Raises ConfigError, CannotWrite."""
        if not (mark := word.strip()):
            raise ConfigError("the tag is empty: write one, such as night or close-up")
        wanted = {self.clip(name).file_name for name in names}

        def make(found: Sequence[Clip]) -> list[Clip]:
            bare = [clip for clip in found if clip.file_name in wanted and mark not in clip.tags]
            return [clip.changed(tags=(*clip.tags, mark)) for clip in bare]

        return history.edit(self.folder, f"tagged {mark}", make)

    def set_trigger_word(self, text: str) -> None:
        """Replace the trigger word; the clips' own captions stay as they are. Raises ConfigError, CannotWrite."""
        history.set_trigger_word(self.folder, text)

    def remove(self, *names: str) -> None:
        """Remove clips from the dataset; `restore` brings them back. Raises ConfigError, CannotWrite."""
        found = [self.clip(name) for name in names]
        history.change(self.folder, f"removed: {cutting.named(found)}", {clip.file_name: () for clip in found})

    def restore(self, *names: str) -> None:
        """Bring back clips that were removed, caption and all. Raises ConfigError, CannotWrite."""
        found = [find_clip(self.removed, name) for name in names]
        history.change(self.folder, f"restored: {cutting.named(found)}", added=found)

    @property
    def history(self) -> ChangeList:
        """What was done to the dataset, the oldest first."""
        return ChangeList(history.read_history(self.folder))

    @property
    def undoable(self) -> list[Change]:
        """The changes that stand and can be taken back, the newest first."""
        return history.undoable(self.folder)

    @property
    def redoable(self) -> list[Change]:
        """The undoings that can be taken back, the newest first."""
        return history.redoable(self.folder)

    def undo(self, number: int | None = None) -> Change:
        """Take back the change of that number, else the newest one that stands. Raises ConfigError, CannotWrite."""
        return history.undo(self.folder, number)

    def redo(self, number: int | None = None) -> Change:
        """Redo what was undone last. Raises ConfigError, CannotWrite."""
        return history.undo(self.folder, number, redo=True)

    def task(self, name: Name) -> Task:
        """A background task on this dataset: import, split, check, fix, caption, make, track or export."""
        return Task(self.folder, name)

    # ---- importing

    def import_files(
        self,
        paths: Iterable[Path | str],
        on_progress: Progress = lambda *_: None,
        layout: str = "",
        longest_side: int | None = None,
        columns: Columns = USUAL,
        frame_rate: float | None = None,
    ) -> list[ImportResult]:
        """Import videos, pictures, folders and archives of them, now (ingest.intake); returns a result a file.

        Raises DataError when no file is found or none can be used, ConfigError, CannotWrite.
        """
        return import_files(self.folder, paths, on_progress, layout, longest_side, columns, frame_rate=frame_rate)

    def start_import(self, paths: Sequence[Path | str], **more: Any) -> jobs.Status:
        """The same as a background task; more: other settings of an import. Raises ConfigError, CannotWrite."""
        sources = tuple(str(named_paths.checked(path, "sources")) for path in paths)
        return self.task("import").start(ImportSettings(sources=sources, dataset=self.name, **more))

    # ---- cutting: always from the whole source video, so that every part can be made wider again

    def trim(self, name: str, start: float, end: float) -> Clip:
        """Another span of the clip's source video, in seconds. Raises ConfigError, DataError, CannotWrite."""
        return cutting.trim(self.folder, self.clip(name), start, end)

    def crop(self, name: str, box: Box | None) -> Clip:
        """That part of the picture (left, top, width, height), None: all of it. Raises as `trim`."""
        return cutting.crop(self.folder, [self.clip(name)], box)[0]

    def crop_bars(self, name: str) -> Clip:
        """The picture without the black bars around it, which are found by themselves. Raises as `trim`."""
        from workbench.dataset_builder.checks.measures import find_letterbox

        clip = self.clip(name)
        if (box := find_letterbox(master_of(self.folder, clip).path)) is None:
            raise ConfigError(f"no bars were found around {clip.name}: name the part of the picture to keep")
        return self.crop(name, box)

    def split_at(self, name: str, seconds: Sequence[float]) -> list[Clip]:
        """The parts between these seconds of the source video, in place of the clip. Raises as `trim`."""
        clip = self.clip(name)
        master = master_of(self.folder, clip)
        cut = cut_of(clip, master)
        begin, end = cut.start / master.fps, cut.end / master.fps
        if outside := [second for second in seconds if not begin < second < end]:
            raise ConfigError(f"seconds has {outside[0]:g}, must lie inside the clip's {begin:g} to {end:g} s")
        return self.split(name, list(pairwise([begin, *sorted(set(seconds)), end])))

    def split(self, name: str, spans: Sequence[tuple[float, float]]) -> list[Clip]:
        """A clip for each span, in seconds of the source video, in place of this one. Raises as `trim`."""
        return cutting.split(self.folder, self.clip(name), spans)

    def set_fps(self, fps: float | None, *names: str) -> list[Clip]:
        """A lower frame rate by leaving frames out; None: the source videos' own. Raises as `trim`."""
        return cutting.set_fps(self.folder, [self.clip(name) for name in names], fps)

    def reset_cut(self, *names: str) -> list[Clip]:
        """Back to the whole source videos. Raises as `trim`."""
        return cutting.reset_cut(self.folder, [self.clip(name) for name in names])

    # ---- the dataset check

    def fix(self, findings: Sequence[Finding], fix: Fix) -> str:
        """Fix findings of the report alike, in one change, now; says what was done.

        Raises ConfigError, DataError, CannotWrite.
        """
        return fixes.apply(self.folder, findings, fix)

    def preview_fix(self, findings: Sequence[Finding], fix: Fix) -> str:
        """What `fix` would do, in words; changes nothing. Raises ConfigError."""
        return fixes.preview(self.folder, findings, fix)

    def start_fix(self, findings: Sequence[Finding], fix: Fix) -> str:
        """The same without a wait: what encodes clips becomes the task "fix", and "" is returned. Raises as `fix`."""
        if fix not in fixes.ENCODING:
            return self.fix(findings, fix)
        fixes.check_findings(self.folder, findings, fix)
        self.task("fix").start(fixes.FixSettings(fix=fix, findings=tuple(found.id for found in findings)))
        return ""


def _is_dataset(folder: Path) -> bool:
    return is_slug(folder.name) and any((folder / name).exists() for name in (INFO, METADATA))


# ---- what it looks like in a notebook --------------------------------------------------------------------------------

MOST_CLIPS, MOST_ROWS = 24, 200
VIDEO_WIDTH = 320  # pixels


class ClipView(NamedTuple):
    """A clip as a model gets it: a video of exactly those frames, and the plan by which they were taken."""

    path: Path
    plan: FramePlan

    def _repr_html_(self) -> str:
        warnings = "".join(f" {warning}." for warning in self.plan.warnings)
        caption = f"What the model gets: {self.plan.sentence}. It is {self.plan.use}.{warnings}"
        return figure(self.path, caption, VIDEO_WIDTH, self.plan.crop[3])


@dataclass(frozen=True)
class PlanTable:
    """The frame plans of all clips at one shape, and the buckets that would lose least."""

    shape: Shape
    plans: list[FramePlan]
    buckets: BucketTable

    def _repr_html_(self) -> str:
        """The plan of every clip in words, those that are left out first, and the chosen buckets as bars."""
        rows = plan_rows(self.plans, MOST_ROWS)
        parts = [note(plan_sentence(self.shape, self.plans)), table(PLAN_COLUMNS, rows)]
        if self.buckets.assignments:
            counts = {str(bucket): count for bucket, count in self.buckets.clips_per_bucket.items()}
            parts += [bars("The buckets that lose least", counts), note(self.buckets.sentence)]
        return "".join(parts)


class ChangeList(list[Change]):
    """The history of a dataset, the oldest change first."""

    def _repr_html_(self) -> str:
        rows = [(one.number, one.kind, one.what) for one in reversed(self)]
        return table(("number", "kind", "change"), rows[:MOST_ROWS]) if rows else note("Nothing was changed yet.")
