"""Cut clips: in and out points, cuts and a crop by hand on a filmstrip, or the whole dataset by scenes or seconds.

Always from the whole source video, so that every part can be made wider again.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gradio as gr

from workbench.clips.records import Clip
from workbench.dataset_builder.checks.measures import find_letterbox
from workbench.dataset_builder.cuts import cutting
from workbench.dataset_builder.cuts.cutting import Cut, cut_of, master_of
from workbench.dataset_builder.cuts.scenes import DETECTORS, STRIPS, TILE_HEIGHT, TILES, cuts, filmstrip, scores
from workbench.dataset_builder.cuts.splitting import SCORES
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import SplitSettings, SplitTask
from workbench.errors import ConfigError
from workbench.ui.core import render
from workbench.ui.core.boundary import EACH, on, tell
from workbench.ui.core.view import Values, visible
from workbench.ui.datasets import timeline
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel, DatasetView
from workbench.ui.datasets.task_part import TaskForm
from workbench.workspace import Workspace

DONE = "Cut; Undo takes it back."
LONGEST_LOOK = 300.0  # seconds of source video that are scored while a person waits


class CutPanel(DatasetPanel):
    """One clip on the timeline, and below it the same for many clips as a task."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.hint = gr.HTML()
        self.timeline = timeline.build()
        # What the timeline last sent, until it is applied: the part, the cuts and the crop, each with its clip's name.
        self.span, self.marks, self.box = gr.State(None), gr.State(None), gr.State(None)
        with gr.Row(elem_classes="buttons", visible=False, elem_id="cut-buttons") as self.buttons:
            self.apply = gr.Button("Apply part and crop", variant="primary", elem_id="apply-cut")
            self.previous = gr.Button("Previous clip", elem_id="previous-clip")
            self.next = gr.Button("Next clip", elem_id="next-clip")
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
            self.bars = gr.Button("Find black bars")
            self.fps = gr.Textbox(
                "", show_label=False, container=False, min_width=150, elem_id="cut-fps", placeholder="frames a second"
            )
            self.rate = gr.Button("Leave frames out", elem_id="set-fps")
            self.whole = gr.Button("Reset the cut")
        gr.HTML('<h3 class="part">Cut many clips</h3><p>Those that are marked under Clips, or all when none is.</p>')
        self.task = TaskForm(workspace, "split", SplitSettings, "Cut", "Preview", clips="clips")
        self.view, self.parts = [self.hint, self.timeline, self.buttons], [self.task]

    def values(self, look: DatasetView) -> Values:
        clip = look.clip if look.clip and not (look.clip.is_image or look.clip.is_latents) else None
        return {
            self.hint: f'<h4 class="section">{render.escaped(clip.name)}</h4>'
            if clip
            else render.note("Open a clip under Clips to cut it by hand.", "empty"),
            self.timeline: (
                (look.dataset.name, look.clip),
                lambda: self._source_video(look.dataset, clip) if clip else timeline.NOTHING,
            ),
            self.buttons: visible(clip is not None),
        }

    def wire(self, host: DatasetHost) -> None:
        on(self.timeline.span, _span, outputs=[self.span], **EACH)
        on(self.timeline.cuts, _cuts, outputs=[self.marks], **EACH)
        on(self.timeline.crop, _box, outputs=[self.box], **EACH)
        host.change(self.apply.click, self._apply, [self.span, self.box], [host.clip], clip=True)
        host.change(self.previous.click, lambda dataset, clip: _beside(dataset, clip, -1), [], [host.clip], clip=True)
        host.change(self.next.click, lambda dataset, clip: _beside(dataset, clip, 1), [], [host.clip], clip=True)
        host.change(self.split.click, self._split, [self.marks], clip=True)
        host.change(self.whole.click, self._whole, [], [host.clip], clip=True)
        host.change(self.rate.click, self._rate, [self.fps], [host.clip], clip=True)
        for event in (self.find.click, self.threshold.release):
            host.ask(event, self._find, [self.threshold], [self.timeline, self.marks], clip=True, slow=True)
        host.ask(self.bars.click, self._bars, [], [self.timeline, self.box], clip=True, slow=True)
        host.change(self.task.beside.click, self._preview, [host.selected], form=self.task.form)

    # ---- showing

    def _source_video(self, dataset: Dataset, clip: Clip, **changed: Any) -> dict[str, Any]:
        """The clip's source video on the timeline, with its part and crop; changed: another crop, or cuts."""
        master = master_of(dataset.folder, clip)
        cut = cut_of(clip, master)
        strip = filmstrip(master.path, self.workspace.cache / STRIPS, TILES, TILE_HEIGHT)
        others = [other for other in dataset.clips if other.master and other.master == clip.master and other != clip]
        taken = [(part.start, part.end) for part in (cut_of(other, master) for other in others)]
        crop = changed.get("crop", cut.crop)
        cut = Cut(cut.start, cut.end, crop)
        return timeline.value(clip.file_name, master, strip, cut, changed.get("cuts", ()), taken)

    def _find(self, dataset: Dataset, clip: Clip, threshold: float) -> list[Any]:
        master = master_of(dataset.folder, clip)
        if master.frames / master.fps > LONGEST_LOOK:
            raise ConfigError("this source video is longer than five minutes: find its cuts with Cut many clips, below")
        found = cuts(scores(master.path, "adaptive", dataset.folder / SCORES), threshold)
        return [self._source_video(dataset, clip, cuts=found), [clip.file_name, found]]

    def _bars(self, dataset: Dataset, clip: Clip) -> list[Any]:
        box = find_letterbox(master_of(dataset.folder, clip).path)
        if box is None:
            raise ConfigError("no bars were found: the picture goes to its edges")
        return [self._source_video(dataset, clip, crop=box), [clip.file_name, list(box)]]

    # ---- doing

    def _apply(self, dataset: Dataset, clip: Clip, span: list[Any] | None, box: list[Any] | None) -> str:
        """Trim and crop as the timeline says; the name of the new clip, which stays open."""
        trims, crops = (sent is not None and sent[0] == clip.file_name for sent in (span, box))
        if not trims and not crops:
            raise ConfigError(
                "part and crop are unchanged: drag the ends of the filmstrip, press I and O, or mark the picture"
            )
        fps = master_of(dataset.folder, clip).fps
        seconds = (span[1] / fps, span[2] / fps) if trims and span else None
        new_box = tuple(box[1]) if crops and box and box[1] else None
        made = cutting.trim_and_crop(dataset.folder, clip, seconds, crops, new_box)
        tell(DONE)
        return made.file_name

    def _split(self, dataset: Dataset, clip: Clip, marks: list[Any] | None) -> str:
        master = master_of(dataset.folder, clip)
        cut = cut_of(clip, master)
        found = marks[1] if marks and marks[0] == clip.file_name else ()
        inside = sorted(frame for frame in found if cut.start < frame < cut.end)
        if not inside:
            raise ConfigError("there is no cut in this part: press Find the cuts, or click into the row of marks")
        bounds = [frame / master.fps for frame in (cut.start, *inside, cut.end)]
        made = dataset.split(clip.file_name, list(pairwise(bounds)))
        return f"Cut into {len(made)} clips; Undo brings the old one back."

    def _whole(self, dataset: Dataset, clip: Clip) -> str:
        return _still_open(dataset.reset_cut(clip.file_name), clip)

    def _rate(self, dataset: Dataset, clip: Clip, fps: str) -> str:
        return _still_open(dataset.set_fps(cutting.frame_rate(fps), clip.file_name), clip)

    def _preview(self, dataset: Dataset, marked: list[str], settings: SplitSettings) -> None:
        """Find out what would be cut: a task, too, because finding the cuts of a long source video takes its time."""
        self.task.begin(dataset, marked, SplitTask(**settings.model_dump(), preview=True))


def _still_open(made: list[Clip], clip: Clip) -> str:
    """The name of the clip that took the place of the open one."""
    tell(DONE)
    return made[0].file_name if made else clip.file_name


def _beside(dataset: Dataset, clip: Clip, step: int) -> str:
    """The name of the video before or after the open one, in a circle."""
    names = [one.file_name for one in dataset.clips if not (one.is_image or one.is_latents)]
    return names[(names.index(clip.file_name) + step) % len(names)]


def _span(event: gr.EventData) -> list[Any]:
    return [event.clip, event.start_frame, event.end_frame]


def _cuts(event: gr.EventData) -> list[Any]:
    return [event.clip, event.cuts]


def _box(event: gr.EventData) -> list[Any]:
    return [event.clip, event.crop]
