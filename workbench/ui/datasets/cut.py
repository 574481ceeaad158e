"""Cut clips: in and out points, cuts and a crop by hand on a filmstrip, or the whole dataset by scenes or seconds.

Always from the whole source video, so that every part can be made wider again. Not covered: the filmstrip's handling in
the browser (timeline), finding scenes (dataset_builder.cuts.scenes).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gradio as gr

from workbench.clips.records import Clip
from workbench.dataset_builder.checks.letterbox import find_letterbox
from workbench.dataset_builder.cuts.cut import cut_of, master_of
from workbench.dataset_builder.cuts.cutting import frame_rate
from workbench.dataset_builder.cuts.filmstrip import filmstrip
from workbench.dataset_builder.cuts.scenes import DETECTORS, cuts, scores
from workbench.dataset_builder.cuts.splitting import SCORES, SplitSettings, SplitTask
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, handler, tell
from workbench.ui.core.form import Form
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel, DatasetView, start_task
from workbench.ui.datasets.task_part import TaskPart
from workbench.ui.datasets.timeline import Timeline, TimelineClip
from workbench.workspace import Workspace

STRIPS = "strips"  # below the workspace's cache
TILES, TILE_HEIGHT = 24, 74
LONGEST_LOOK = 300.0  # seconds of source video that are scored while a person waits


class CutPanel(DatasetPanel):
    """One clip on the timeline, and below it the same for many clips as a task."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.hint = gr.HTML()
        self.timeline = Timeline(elem_id="timeline")
        # What the timeline last said, until it is applied: the part, the cuts and the crop, each with its clip's name.
        self.span, self.marks, self.box = gr.State(None), gr.State(None), gr.State(None)
        with gr.Row(elem_classes="buttons", visible=False, elem_id="cut-buttons") as self.buttons:
            self.keep = gr.Button("Keep this part", variant="primary", elem_id="keep-part")
            self.split = gr.Button("Split at the cuts", elem_id="split-here")
            self.find = gr.Button("Find the cuts")
            self.threshold = gr.Slider(
                1.2,
                10.0,
                value=DETECTORS["adaptive"].threshold,
                step=0.1,
                min_width=180,
                label="Sensitivity",
                info="Lower finds more cuts.",
            )
            self.crop = gr.Button("Crop to the frame")
            self.bars = gr.Button("Find black bars")
            self.fps = gr.Textbox(
                "", show_label=False, container=False, min_width=150, elem_id="cut-fps", placeholder="frames a second"
            )
            self.rate = gr.Button("Leave frames out", elem_id="set-fps")
            self.whole = gr.Button("Reset the cut")
        gr.HTML('<h3 class="part">Cut all clips</h3>')
        self.form = Form(SplitSettings, workspace, SplitSettings())
        with gr.Row(elem_classes="buttons"):
            self.preview = gr.Button("Preview", elem_id="preview-split")
            self.start = gr.Button("Cut", variant="primary", elem_id="start-split")
            self.task = TaskPart("split")
        self.task.build_progress()

    @property
    def view(self) -> dict[str, Any]:  # type: ignore[override]
        return {
            "hint": self.hint,
            "buttons": self.buttons,
            "timeline": self.timeline.component,
            **self.task.view,
        }

    def values(self, look: DatasetView) -> dict[str, Any]:
        clip = look.clip
        film = clip is not None and not clip.is_image
        hint = "" if film else render.note("Open a clip under Clips to cut it by hand.", "empty")
        return {
            "hint": hint,
            "timeline": ((look.dataset.name, clip), lambda: self._reel(look.dataset, clip if film else None)),
            "buttons": (film, lambda: gr.update(visible=film)),
            **self.task.values(look.dataset),
        }

    def wire(self, host: DatasetHost) -> None:
        part = self.timeline.component
        for event, read, kept in (
            (part.span, _span, self.span),
            (part.cuts, _cuts, self.marks),
            (part.crop, _box, self.box),
        ):
            event(handler(read), None, kept, trigger_mode="multiple", **QUIET)
        host.act(self.keep.click, self._keep, [host.clip, self.span])
        host.act(self.split.click, self._split, [host.clip, self.marks])
        host.act(self.crop.click, self._crop, [host.clip, self.box])
        host.act(
            self.whole.click,
            lambda dataset, name: self._done(dataset.reset_cut(_open(dataset, name).file_name)),
            [host.clip],
        )
        host.act(self.rate.click, self._rate, [host.clip, self.fps])
        found = [part, self.marks]
        for event in (self.find.click, self.threshold.release):
            event(
                handler(lambda chosen, name, threshold: self._find(host.open(chosen), name, threshold)),
                [host.chosen, host.clip, self.threshold],
                found,
                api_visibility="private",
            )
        self.bars.click(
            handler(lambda chosen, name: self._bars(host.open(chosen), name)),
            [host.chosen, host.clip],
            [part, self.box],
            api_visibility="private",
        )
        host.act(self.start.click, self._start, self.form.inputs, [self.form.problems])
        host.act(self.preview.click, self._preview, self.form.inputs, [self.form.problems])
        self.task.wire(host)

    # ---- showing

    def _reel(self, dataset: Dataset, clip: Clip | None, **more: Any) -> dict[str, Any]:
        """The clip's source video on the timeline, with its part and crop."""
        if clip is None:
            return Timeline.value(None)
        master = master_of(dataset.folder, clip)
        cut = cut_of(clip, master)
        strip = filmstrip(master.path, self.workspace.cache / STRIPS, TILES, TILE_HEIGHT)
        others = [other for other in dataset.clips if other.master and other.master == clip.master and other != clip]
        taken = [(c.start, c.end) for c in (cut_of(other, master) for other in others)]
        reel = {"part": (cut.start, cut.end), "crop": cut.crop, "cuts": ()} | more
        return Timeline.value(
            TimelineClip(
                clip.file_name,
                master.path,
                master.frames,
                master.fps,
                master.width,
                master.height,
                strip=strip.path,
                times=strip.times,
                taken=taken,
                **reel,
            )
        )

    def _find(self, dataset: Dataset, name: str | None, threshold: float) -> list[Any]:
        clip = _open(dataset, name)
        master = master_of(dataset.folder, clip)
        if master.frames / master.fps > LONGEST_LOOK:
            raise ConfigError("this source video is longer than five minutes: find its cuts with Cut all clips, below")
        found = cuts(scores(master.path, "adaptive", dataset.folder / SCORES), threshold)
        return [self._reel(dataset, clip, cuts=found), [clip.file_name, found]]

    def _bars(self, dataset: Dataset, name: str | None) -> list[Any]:
        clip = _open(dataset, name)
        box = find_letterbox(master_of(dataset.folder, clip).path)
        if box is None:
            tell("No bars were found.", 4)
        return [self._reel(dataset, clip, crop=box), [clip.file_name, list(box) if box else None]]

    # ---- doing

    def _keep(self, dataset: Dataset, name: str | None, span: list[Any] | None) -> str:
        clip = _open(dataset, name)
        if span is None or span[0] != clip.file_name:
            raise ConfigError("the part is unchanged: drag its ends on the filmstrip first, or press I and O")
        fps = master_of(dataset.folder, clip).fps
        return self._done([dataset.trim(clip.file_name, span[1] / fps, span[2] / fps)])

    def _split(self, dataset: Dataset, name: str | None, marks: list[Any] | None) -> str:
        clip = _open(dataset, name)
        master = master_of(dataset.folder, clip)
        cut = cut_of(clip, master)
        inside = [
            frame for frame in (marks[1] if marks and marks[0] == clip.file_name else ()) if cut.start < frame < cut.end
        ]
        if not inside:
            raise ConfigError("there is no cut in this part: press Find the cuts, or click into the row of marks")
        bounds = [cut.start, *sorted(inside), cut.end]
        return self._done(
            dataset.split(clip.file_name, [(a / master.fps, b / master.fps) for a, b in pairwise(bounds)])
        )

    def _crop(self, dataset: Dataset, name: str | None, box: list[Any] | None) -> str:
        clip = _open(dataset, name)
        if box is None or box[0] != clip.file_name:
            raise ConfigError("the frame is unchanged: mark it on the picture first")
        left, top, width, height = box[1] or (0, 0, 0, 0)
        return self._done([dataset.crop(clip.file_name, (left, top, width, height) if box[1] else None)])

    def _rate(self, dataset: Dataset, name: str | None, fps: str) -> str:
        return self._done(dataset.set_fps(frame_rate(fps), _open(dataset, name).file_name))

    def _start(self, dataset: Dataset, *values: Any) -> str:
        return start_task(dataset, "split", self.form, values)

    def _preview(self, dataset: Dataset, *values: Any) -> str:
        """Say what would be cut: a task, too, because finding the cuts of a long source video takes its time."""
        return start_task(dataset, "split", self.form, values, SplitTask, preview=True)

    @staticmethod
    def _done(made: list[Clip]) -> str:
        return (
            f"Cut into {len(made)} clips; Undo brings the old one back."
            if len(made) > 1
            else "Cut; Undo takes it back."
        )


def _open(dataset: Dataset, name: str | None) -> Clip:
    """The clip on the timeline. Raises ConfigError."""
    if not name:
        raise ConfigError("no clip is open: open one under Clips")
    return dataset.clip(name)


def _span(event: gr.EventData) -> list[Any]:
    return [event.clip, event.start_frame, event.end_frame]


def _cuts(event: gr.EventData) -> list[Any]:
    return [event.clip, event.cuts]


def _box(event: gr.EventData) -> list[Any]:
    return [event.clip, event.crop]
