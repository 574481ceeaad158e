"""The dataset API of the web page, notebooks and the shell: create, import, caption, cut, check. No torch.

Properties read the folder each time, and a change is on disk when its call returns:

    dataset.json metadata.jsonl          title, trigger word ...; one line per clip (workbench.clips.records)
    notes.txt group.txt                  the user's notes, and the dataset's group
    clips/<id>.mp4 thumbs/<id>.jpg       named by the source file's content
    sources.jsonl                        the result of each imported file (ImportResult)
    .import/                             the import job: config.json, job.log, result.json ... (workbench.jobs)
    history.jsonl .history/ .removed/    changes and how to undo them; nothing is ever deleted (history)
    first_frames/                        pictures that came with clips as their first frames (first_frames)
    clips/<id>.<kind>-<hash>.mp4         a clip's control clip, reference, mask or last frame (companions)
    .masters/                            whole source videos of clips that are parts of one (Clip.master)

Long work runs as background tasks (tasks).
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
from workbench.clips import buckets, frame_plan, media, records
from workbench.clips.buckets import BucketTable
from workbench.clips.frame_plan import FramePlan, Shape, shape_for
from workbench.clips.records import INFO, METADATA, REMOVED, Clip, DatasetInfo, clip_file, find_clip, read_clips
from workbench.clips.sound import has_sound, read_span, write_sound
from workbench.dataset_builder import history, snapshot
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
from workbench.dataset_builder.snapshot import DatasetSnapshot, Summary
from workbench.dataset_builder.sources.columns import clean_caption
from workbench.dataset_builder.tasks import Name, Task, changed_at
from workbench.display.inline_html import bars, escaped, figure, folded, heading, note, picture, row, table
from workbench.errors import ConfigError, DataError, Unknown, WorkbenchError
from workbench.families import default_model, find_model
from workbench.jobs import State
from workbench.settings import parse
from workbench.workspace import Workspace, fresh_folder, is_slug, named_paths, slugify
from workbench.workspace.folders import GROUP, NOTES, NotedFolder

HEARD_RATE = 48000  # samples per second of the sound of a clip as a model sees it
PLANS = "plans"  # folder below the workspace's cache
MOST_BUCKETS = 3


class Dataset(NotedFolder):
    """A dataset in its folder."""

    @classmethod
    def create(cls, workspace: Workspace, title: str, trigger_word: str = "") -> Self:
        """Create an empty dataset. Raises CannotWrite."""
        folder = fresh_folder(workspace.datasets, title, workspace.former_names)
        info = DatasetInfo(title=title.strip(), trigger_word=trigger_word.strip(), created=time.time())
        records.write_info(folder, info)
        return cls(folder)

    @classmethod
    def open(cls, workspace: Workspace, slug: str) -> Self:
        """Open an existing dataset. Raises Unknown if there is none by that name."""
        folder = workspace.dataset(slug)
        if not _is_dataset(folder):
            known = ", ".join(dataset.name for dataset in cls.all(workspace)) or "none yet"
            raise Unknown(f"there is no dataset {slug!r}: choose one of {known}")
        return cls(folder)

    @classmethod
    def ensure(cls, workspace: Workspace, title: str) -> Self:
        """Open the dataset with that title, or create it. Raises CannotWrite."""
        folder = workspace.dataset(slugify(title))
        return cls(folder) if _is_dataset(folder) else cls.create(workspace, title)

    @classmethod
    def all(cls, workspace: Workspace) -> list[Self]:
        """List the workspace's datasets by name."""
        return [cls(folder) for folder in sorted(workspace.datasets.glob("*")) if _is_dataset(folder)]

    # ---- reading

    @property
    def info(self) -> DatasetInfo:
        return records.known_info(self.folder)

    @property
    def damage(self) -> list[str]:
        """Records that cannot be read, and what to do about them, one sentence each."""
        return records.damage(self.folder)

    @property
    def clips(self) -> list[Clip]:
        return read_clips(self.folder)

    @property
    def removed(self) -> list[Clip]:
        """Clips that were removed and can be restored."""
        return read_clips(self.folder / REMOVED)

    @property
    def captions(self) -> dict[str, str]:
        """The captions to train on, including the trigger word, by file name."""
        info = self.info
        return {clip.file_name: info.caption(clip) for clip in self.clips}

    @property
    def content_hash(self) -> str:
        """SHA-256 of everything that a model learns from: clips, captions and companions, whatever their order.

        Companions are covered by their file names, which contain a hash.
        """
        info = self.info
        lines = sorted(
            f"{clip.sha256} {info.caption(clip)}{clip.first_frame}{''.join(clip.companions.values())}"
            for clip in self.clips
        )
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def version(self) -> tuple[int, ...]:
        """A value that changes with the records, import results, history or findings. Cheap: a few stat calls."""
        files = (METADATA, INFO, NOTES, GROUP, SOURCES, history.HISTORY, f"{FOLDER}/{FILE}")
        return changed_at(self.folder / name for name in files)

    @property
    def import_results(self) -> list[ImportResult]:
        return read_import_results(self.folder)

    @property
    def summary(self) -> Summary:
        return snapshot.summarize(self.clips, sum(not result.usable for result in self.import_results))

    def snapshot(self, shape: Shape | None = None) -> DatasetSnapshot:
        """Return the state of the dataset and its tasks for display. shape: to count the clips that it leaves out."""
        return snapshot.dataset_snapshot(self.folder, shape)

    def clip(self, name: str) -> Clip:
        """Find a clip by file name, id or display name. Raises ConfigError."""
        return find_clip(self.clips, name)

    def successor(self, file_name: str) -> Clip | None:
        """Return the clip with that file name, or the one that replaced it in a cut, undo or redo."""
        return history.successor(self.folder, file_name)

    def path_of(self, clip: Clip) -> Path:
        """Return the path of a clip's video. Raises DataError for a link out of the dataset."""
        return clip_file(self.folder, clip.file_name)

    def _repr_html_(self) -> str:
        """Show the summary, the first clips with their captions, and refused files."""
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
        """The findings of the last check that still apply; None if there was no check."""
        return read_report(self.folder)

    def check(self, **values: Any) -> CheckReport:
        """Check clips and captions in a background task, wait for it, and return its findings. Changes nothing.

        values: fields of `CheckSettings`, such as captions=False. An interrupt leaves the task running.

        Raises ConfigError (a wrong setting, or the check is already running), CannotWrite, WorkbenchError if it fails.
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
        """Statistics of the clips and captions. Raises DataError, ConfigError if files are damaged."""
        return statistics(self.folder)

    # ---- model input

    def plans(self, shape: Shape) -> list[FramePlan]:
        """Plan each clip's frames and crop for a shape."""
        return [frame_plan.plan(clip, shape) for clip in self.clips]

    def plan_table(self, model: str = "", frames: int | None = None, most_buckets: int = MOST_BUCKETS) -> PlanTable:
        """Plan all clips for a model, and choose at most `most_buckets` buckets that lose least of them.

        model: "" for the built-in one. frames: None for the model's default. Raises ConfigError.
        """
        known, clips = find_model(model or default_model()).model, self.clips
        shape = shape_for(known, frames)
        chosen = buckets.choose(clips, known, most_buckets)
        return PlanTable(shape, self.plans(shape), buckets.assign(clips, chosen, known.fps))

    def view_as_model(self, name: str, model: str = "", frames: int | None = None) -> ClipView:
        """Render a clip as a model sees it, as `planned_video` does. Arguments as for `clip` and `plan_table`."""
        return self.planned_video(self.clip(name), shape_for(find_model(model or default_model()).model, frames))

    def planned_video(self, clip: Clip, shape: Shape, target: Path | None = None) -> ClipView:
        """Write the frames that the model sees to a video with their sound, by default in the cache.

        Raises DataError, CannotWrite.
        """
        plan = frame_plan.plan(clip, shape)
        if plan.dropped:
            raise DataError(f"{clip.name} is left out: {plan.dropped}")
        if clip.is_latents:
            raise DataError(f"{clip.name} is latents, which go to the model unchanged: there is no video to watch")
        if target is None:
            size = f"{shape.frames}-{shape.width}x{shape.height}-{shape.fps:g}"
            target = Workspace.of(self.folder).cache / PLANS / f"{self.name}-{clip.id}-{size}.mp4"
        path = self.path_of(clip)
        media.encode(media.read_frames(path, plan.indices, plan.resize, plan.crop), target, plan.fps)
        if not clip.is_image and has_sound(path):
            write_sound(target, read_span(path, plan.sound_span, HEARD_RATE), HEARD_RATE)
        return ClipView(target, plan)

    # ---- changing

    def set_caption(self, name: str, text: str, by: str = "hand", over: str | None = None) -> Clip:
        """Set a caption, but not over another one than `over`, if given. Raises ConfigError, CannotWrite."""
        clip, new = self.clip(name), clean_caption(text)

        def make(found: Sequence[Clip]) -> list[Clip]:
            (one,) = [one for one in found if one.file_name == clip.file_name] or [clip]
            same = one.text == new or (over is not None and one.text != over)
            return [] if same else [one.changed(text=new, caption_by=by)]

        history.edit(self.folder, f"caption of {clip.name}", make)
        return self.clip(name)

    def tag(self, word: str, *names: str) -> int:
        """Tag clips; return how many did not have the tag yet. Raises ConfigError, CannotWrite."""
        if not (tag := word.strip()):
            raise ConfigError("the tag is empty: write one, such as night or close-up")
        wanted = {self.clip(name).file_name for name in names}

        def make(found: Sequence[Clip]) -> list[Clip]:
            untagged = [clip for clip in found if clip.file_name in wanted and tag not in clip.tags]
            return [clip.changed(tags=(*clip.tags, tag)) for clip in untagged]

        return history.edit(self.folder, f"tagged {tag}", make)

    def set_trigger_word(self, text: str) -> None:
        """Set the trigger word. The clips' captions do not change. Raises ConfigError, CannotWrite."""
        history.set_trigger_word(self.folder, text)

    def remove(self, *names: str) -> None:
        """Remove clips; `restore` brings them back. Raises ConfigError, CannotWrite."""
        found = [self.clip(name) for name in names]
        history.change(self.folder, f"removed: {cutting.named(found)}", {clip.file_name: () for clip in found})

    def restore(self, *names: str) -> None:
        """Restore removed clips with their captions. Raises ConfigError, CannotWrite."""
        found = [find_clip(self.removed, name) for name in names]
        history.change(self.folder, f"restored: {cutting.named(found)}", added=found)

    @property
    def history(self) -> ChangeList:
        """All changes to the dataset, the oldest first."""
        return ChangeList(history.read_history(self.folder))

    @property
    def undoable(self) -> list[Change]:
        """Changes that can be undone, the newest first."""
        return history.undoable(self.folder)

    @property
    def redoable(self) -> list[Change]:
        """Undone changes that can be redone, the newest first."""
        return history.redoable(self.folder)

    def undo(self, number: int | None = None) -> Change:
        """Undo the change with that number, by default the newest. Raises ConfigError, CannotWrite."""
        return history.undo(self.folder, number)

    def redo(self, number: int | None = None) -> Change:
        """Redo what was undone last, or the undo with that number. Raises ConfigError, CannotWrite."""
        return history.undo(self.folder, number, redo=True)

    def task(self, name: Name) -> Task:
        """Return a background task of this dataset: import, split, check, fix, caption, make, track or export."""
        return Task(self.folder, name)

    # ---- importing

    def import_files(
        self, paths: Iterable[Path | str], on_progress: Progress = lambda *_: None, **more: Any
    ) -> list[ImportResult]:
        """Import files, folders and archives in this process; return a result per file (ingest.intake.import_files).

        more: fields of `ImportSettings`.
        """
        return import_files(self.folder, paths, on_progress, parse(ImportSettings, more))

    def start_import(self, paths: Sequence[Path | str], **more: Any) -> jobs.Status:
        """Import in a background task. more: other fields of `ImportSettings`. Raises ConfigError, CannotWrite."""
        sources = tuple(str(named_paths.checked(path, "sources")) for path in paths)
        return self.task("import").start(ImportSettings(sources=sources, dataset=self.name, **more))

    # ---- cutting: always from the whole source video, so that any part can be extended again

    def trim(self, name: str, start: float, end: float) -> Clip:
        """Change the span of a clip, in seconds of its source video. Raises ConfigError, DataError, CannotWrite."""
        return cutting.trim(self.folder, self.clip(name), start, end)

    def crop(self, name: str, box: Box | None) -> Clip:
        """Crop a clip to a box (left, top, width, height) of the source; None for all of it. Raises as `trim`."""
        return cutting.crop(self.folder, [self.clip(name)], box)[0]

    def crop_bars(self, name: str) -> Clip:
        """Detect black bars around a clip and crop them. Raises as `trim`."""
        from workbench.dataset_builder.checks.measures import find_letterbox

        clip = self.clip(name)
        if (box := find_letterbox(master_of(self.folder, clip).path)) is None:
            raise ConfigError(f"no bars were found around {clip.name}: crop it by hand")
        return self.crop(name, box)

    def split_at(self, name: str, seconds: Sequence[float]) -> list[Clip]:
        """Split a clip at times, in seconds of the source video. Raises as `trim`."""
        clip = self.clip(name)
        master = master_of(self.folder, clip)
        cut = cut_of(clip, master)
        begin, end = cut.start / master.fps, cut.end / master.fps
        if outside := [second for second in seconds if not begin < second < end]:
            raise ConfigError(f"seconds has {outside[0]:g}, but the clip goes from {begin:g} to {end:g} s")
        return self.split(name, list(pairwise([begin, *sorted(set(seconds)), end])))

    def split(self, name: str, spans: Sequence[tuple[float, float]]) -> list[Clip]:
        """Replace a clip with one per span, in seconds of the source video. Raises as `trim`."""
        return cutting.split(self.folder, self.clip(name), spans)

    def set_fps(self, fps: float | None, *names: str) -> list[Clip]:
        """Lower the frame rate by dropping frames; None restores the source videos' own. Raises as `trim`."""
        return cutting.set_fps(self.folder, [self.clip(name) for name in names], fps)

    def reset_cut(self, *names: str) -> list[Clip]:
        """Restore the whole source videos. Raises as `trim`."""
        return cutting.reset_cut(self.folder, [self.clip(name) for name in names])

    # ---- the dataset check

    def fix(self, findings: Sequence[Finding], fix: Fix) -> str:
        """Apply a fix as one change, and say what was done. Raises ConfigError, DataError, CannotWrite."""
        return fixes.apply(self.folder, findings, fix)

    def preview_fix(self, findings: Sequence[Finding], fix: Fix) -> str:
        """Describe what `fix` would do, without changing anything. Raises ConfigError."""
        return fixes.preview(self.folder, findings, fix)

    def start_fix(self, findings: Sequence[Finding], fix: Fix, speech_model: str = "") -> str:
        """Apply a fix as `fix` does, but start the task "fix" and return "" if clips must be encoded or listened to."""
        if fix not in fixes.SLOW:
            return self.fix(findings, fix)
        fixes.check_findings(self.folder, findings, fix)
        ids = tuple(found.id for found in findings)
        self.task("fix").start(fixes.FixSettings(fix=fix, findings=ids, speech_model=speech_model))
        return ""


def _is_dataset(folder: Path) -> bool:
    return is_slug(folder.name) and any((folder / name).exists() for name in (INFO, METADATA))


# ---- display in notebooks --------------------------------------------------------------------------------------------

MOST_CLIPS, MOST_ROWS = 24, 200
VIDEO_WIDTH = 320  # pixels


class ClipView(NamedTuple):
    """A clip as a model sees it: a video of exactly those frames, and their plan."""

    path: Path
    plan: FramePlan

    def _repr_html_(self) -> str:
        warnings = "".join(f" {warning}." for warning in self.plan.warnings)
        caption = f"Model input: {self.plan.sentence}. It is {self.plan.use}.{warnings}"
        return figure(self.path, caption, VIDEO_WIDTH, self.plan.crop[3])


@dataclass(frozen=True)
class PlanTable:
    """The frame plans of all clips at one shape, and the buckets that lose least."""

    shape: Shape
    plans: list[FramePlan]
    buckets: BucketTable

    def _repr_html_(self) -> str:
        """Show the plan of each clip, unusable ones first, and the chosen buckets as bars."""
        rows = snapshot.plan_rows(self.plans, MOST_ROWS)
        parts = [note(snapshot.plan_sentence(self.shape, self.plans)), table(snapshot.PLAN_COLUMNS, rows)]
        if self.buckets.assignments:
            counts = {str(bucket): count for bucket, count in self.buckets.clips_per_bucket.items()}
            parts += [bars("Buckets that lose least", counts), note(self.buckets.sentence)]
        return "".join(parts)


class ChangeList(list[Change]):
    """A dataset's history, the oldest change first."""

    def _repr_html_(self) -> str:
        rows = [(one.number, one.kind, one.what) for one in reversed(self)]
        return table(("number", "kind", "change"), rows[:MOST_ROWS]) if rows else note("No changes yet.")
