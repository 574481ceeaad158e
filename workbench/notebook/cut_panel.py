"""Cut one clip by hand in a notebook: a part, cuts and a crop, on a filmstrip of its whole source video.

Always from the whole source video, so that every part can be made wider again. Not covered: cutting many clips at once
(task_panel.SplitPanel), how a part is made (dataset_builder.cuts.cutting).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import ipywidgets as widgets

from workbench.clips.records import Clip
from workbench.dataset_builder.checks.letterbox import find_letterbox
from workbench.dataset_builder.cuts import cutting
from workbench.dataset_builder.cuts.cutting import Box, Cut, Master
from workbench.dataset_builder.cuts.filmstrip import filmstrip
from workbench.dataset_builder.cuts.scenes import DETECTORS, cuts, scores
from workbench.dataset_builder.cuts.splitting import SCORES
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError, WorkbenchError
from workbench.notebook import rendering
from workbench.notebook.live import Panel, Ticker, button
from workbench.notebook.task_panel import LONGEST_LOOK
from workbench.workspace import Workspace

STRIPS = "strips"  # below the workspace's cache
TILES, TILE_HEIGHT = 16, 64


class CutPanel(Panel):
    """A clip, its source video at a glance, and the buttons that cut it; each is one change that `undo` takes back."""

    def __init__(self, workspace: Workspace, dataset: str, clip: str | None = None) -> None:
        """clip: file name or id of the one to begin with. Raises ConfigError."""
        self.workspace = workspace
        self.dataset = Dataset.open(workspace, dataset)
        self.clip = widgets.Dropdown(options=[], layout=widgets.Layout(width="300px"))
        self.strip, self.player = widgets.HTML(), widgets.HTML()
        long = widgets.Layout(width="720px", max_width="100%")
        self.span = widgets.FloatRangeSlider(value=(0, 1), min=0, max=1, readout_format=".2f", layout=long)
        detector = DETECTORS["adaptive"]
        self.threshold = widgets.FloatSlider(
            value=detector.threshold, min=detector.low, max=detector.high, step=0.1, continuous_update=False,
            description="Sensitivity", layout=widgets.Layout(width="300px"),
        )  # fmt: skip
        self.box_field = widgets.Text(placeholder="left, top, width, height", layout=widgets.Layout(width="200px"))
        self.fps_field = widgets.Text(placeholder="frames a second", layout=widgets.Layout(width="130px"))
        self.marks: list[int] = []
        self._listing = False
        self._shown: Clip | None = None
        buttons = (
            ("Keep this part", "What lies between the ends of the slider", self.keep),
            ("Find the cuts", "Mark them on the filmstrip; nothing is changed", self.find),
            ("Split at the cuts", "A clip for each shot", self.split),
            ("Find black bars", "Fill in the crop that takes them away", self.find_bars),
            ("Crop", "To the numbers given; empty: all of the picture", self.crop),
            ("Leave frames out", "Down to the rate given; empty: the source video's own", self.set_fps),
            ("Reset the cut", "Undo what was ever cut from it", self.whole),
            ("Undo", "Take back the newest change of the dataset", self.undo),
        )
        self.buttons = {words: button(words, help) for words, help, _ in buttons}
        for words, _, action in buttons:
            self.buttons[words].on_click(self.doing(partial(self._alone, action)))
        made = list(self.buttons.values())
        wrapping = widgets.Layout(flex_flow="row wrap")
        super().__init__([])
        self.box.children = (
            self.clip, self.strip, self.span,
            widgets.HBox([*made[:3], self.threshold], layout=wrapping),
            widgets.HBox([self.box_field, *made[3:5], self.fps_field, *made[5:]], layout=wrapping),
            self.said, self.player,
        )  # fmt: skip
        # Ticks come from a thread, clicks from the kernel: one at a time.
        self._lock = threading.RLock()
        self._seen = self.dataset.version
        self._list(self.dataset.clip(clip).file_name if clip else None)
        self.clip.observe(lambda _: None if self._listing else self.doing(self.show)(None), names="value")
        # Another sensitivity is wanted for cuts that are shown already.
        self.threshold.observe(lambda _: self.doing(self.find)(None) if self.marks else None, names="value")
        self.doing(self.show)(None)
        self.ticker = Ticker(self._look_again)
        self.ticker.start()

    def close(self) -> None:
        self.ticker.stop()
        super().close()

    # ---- showing

    def _look_again(self) -> bool:
        """Show what another panel or face changed; a slider that is being dragged stays. The ticker goes on."""
        with self._lock:
            if (mark := self.dataset.version) == self._seen:
                return True
            self._seen, before = mark, self._shown
            try:
                self._list(self.clip.value)
                now = next((clip for clip in self.dataset.clips if clip.file_name == self.clip.value), None)
                if now != before:
                    self.show()
            except (WorkbenchError, OSError) as error:
                self.say(str(error), "error")
        return True

    def show(self) -> None:
        """The chosen clip's source video, with its part. Raises ConfigError, DataError, CannotWrite."""
        self.marks = []
        clip, master, cut = self._opened()
        self._shown = clip
        ends = round(cut.start / master.fps, 3), round(cut.end / master.fps, 3)
        self.span.step = 1 / master.fps
        self.span.max = round(master.frames / master.fps, 3)
        self.span.value = ends
        self.box_field.value = ", ".join(map(str, cut.crop or ()))
        self.fps_field.value = "" if cut.fps is None else f"{cut.fps:g}"
        self.player.value = rendering.figure(self.dataset.path_of(clip), _facts(clip), 192, clip.width)
        self._draw_strip(master)

    def _draw_strip(self, master: Master) -> None:
        strip = filmstrip(master.path, self.workspace.cache / STRIPS, TILES, TILE_HEIGHT)
        places = [(frame / master.frames, f"{frame / master.fps:.2f} s") for frame in self.marks]
        marks = "".join(
            f'<div title="{words}" style="position:absolute;top:0;bottom:0;width:2px;background:#e53935;'
            f'left:{100 * place:.2f}%"></div>'
            for place, words in places
        )
        url = rendering.data_url(strip.path)
        self.strip.value = (
            f'<div style="position:relative;max-width:720px"><img src="{url}" alt="filmstrip" style="width:100%">'
            f"{marks}</div>"
        )

    def _list(self, wanted: str | None) -> None:
        """The clips that can be cut, that one chosen if it is there. Raises ConfigError when there is none."""
        clips = [clip for clip in self.dataset.clips if not clip.is_image]
        if not clips:
            raise ConfigError(f"{self.dataset.name} has no clip to cut: import some")
        names = [clip.file_name for clip in clips]
        self._listing = True  # new options choose the first of them for a moment
        self.clip.options = [(f"{clip.source or clip.id}, {clip.seconds:.2f} s", clip.file_name) for clip in clips]
        self.clip.value = wanted if wanted in names else names[0]
        self._listing = False

    def _opened(self) -> tuple[Clip, Master, Cut]:
        clip = self.dataset.clip(self.clip.value)
        master = cutting.master_of(self.dataset.folder, clip)
        return clip, master, cutting.cut_of(clip, master)

    def _alone(self, action: Callable[[], object]) -> None:
        with self._lock:
            action()
            self._seen = self.dataset.version

    # ---- doing: all of these raise ConfigError, DataError, CannotWrite

    def keep(self) -> None:
        """Make the part between the slider's ends the clip."""
        clip, master, _ = self._opened()
        start, end = (min(round(second * master.fps), master.frames) / master.fps for second in self.span.value)
        self._done([self.dataset.trim(clip.file_name, start, end)])

    def find(self) -> list[int]:
        """Mark the cuts of the source video on the filmstrip; returns their frames."""
        _, master, _ = self._opened()
        if master.frames / master.fps > LONGEST_LOOK:
            raise ConfigError("this source video is longer than five minutes: find its cuts with split_panel")
        self.marks = cuts(scores(master.path, "adaptive", self.dataset.folder / SCORES), self.threshold.value)
        self._draw_strip(master)
        self.say(f"{len(self.marks)} cuts: {', '.join(f'{frame / master.fps:.2f} s' for frame in self.marks)}")
        return self.marks

    def split(self) -> None:
        """Put a clip for each shot in this one's place."""
        clip, master, cut = self._opened()
        inside = [frame for frame in self.marks if cut.start < frame < cut.end]
        if not inside:
            raise ConfigError("there is no cut in this part: press Find the cuts, or lower the sensitivity")
        places = [cut.start, *inside, cut.end]
        spans = [(start / master.fps, end / master.fps) for start, end in pairwise(places)]
        self._done(self.dataset.split(clip.file_name, spans))

    def find_bars(self) -> None:
        """Fill in the crop that takes black bars away."""
        _, master, _ = self._opened()
        box = find_letterbox(master.path)
        self.box_field.value = ", ".join(map(str, box or ()))
        self.say("" if box else "No bars were found.")

    def crop(self) -> None:
        """Make that part of the picture the clip."""
        self._done([self.dataset.crop(self.clip.value, _box(self.box_field.value))])

    def set_fps(self) -> None:
        """Leave frames out, down to the rate given."""
        self._done(self.dataset.set_fps(cutting.frame_rate(self.fps_field.value), self.clip.value))

    def whole(self) -> None:
        """Reset the cut."""
        self._done(self.dataset.reset_cut(self.clip.value))

    def undo(self) -> None:
        """Take back the newest change of the dataset."""
        before = next((clip for clip in self.dataset.clips if clip.file_name == self.clip.value), None)
        done = self.dataset.undo()
        after = self.dataset.clips
        if before is not None and before.file_name not in [clip.file_name for clip in after]:
            before = next((clip for clip in after if clip.source == before.source), None)
        self._list(before.file_name if before else None)
        self.show()
        self.say(f"Undone: {done.what}.")

    def _done(self, made: Sequence[Clip]) -> None:
        self._list(made[0].file_name)
        self.show()
        self.say(f"Cut into {len(made)} clips." if len(made) > 1 else f"Done: {_facts(made[0])}.", "good")


def cut_panel(workspace: Workspace, dataset: str, clip: str | None = None) -> CutPanel:
    """Trim, split and crop one clip on a filmstrip. Raises ConfigError."""
    return CutPanel(workspace, dataset, clip)


def _facts(clip: Clip) -> str:
    part = ", a part of a source video" if clip.master else ""
    return f"{clip.frames} frames, {clip.fps:g} fps, {clip.seconds:.2f} s, {clip.width}x{clip.height}{part}"


def _box(text: str) -> Box | None:
    """Four whole numbers, None for an empty field. Raises ConfigError."""
    if not text.strip():
        return None
    try:
        left, top, width, height = map(int, text.split(","))
    except ValueError:
        raise ConfigError(
            f"the crop is {text[:60]!r}, must be four whole numbers: left, top, width, height in pixels"
        ) from None
    return left, top, width, height
