"""The clips of a dataset as cards in a notebook: each plays, takes a caption, shows its frame plan, can be taken out.

Not covered: importing (dataset_panel), many captions at once (caption_tools).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from workbench.clips import Clip
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError
from workbench.families import find_model, models
from workbench.frame_plan import Shape, plan, shape_for
from workbench.notebook import drawing
from workbench.notebook.live import Panel, button
from workbench.trainer.settings import TrainSettings

PAGE = 10
PLAYED = 600_000  # bytes; larger clips are shown as a picture until someone wants to see them move


class ClipCards(Panel):
    """Pages of cards, and the choice of the model whose frame plan stands below each."""

    def __init__(self, settings: TrainSettings | None, changed: Callable[[], object]) -> None:
        """settings: whose frame plan is shown; else what the chosen model was made for.  changed: clips came or went"""
        self._settings = settings
        self._changed = changed
        self._dataset: Dataset | None = None
        self._page = 0
        self._cards: list[Clip] = []
        chosen = settings.model if settings else models()[0].id
        self.model = widgets.Dropdown(
            options=sorted({chosen, *(model.id for model in models())}),
            value=chosen,
            layout=widgets.Layout(width="300px"),
        )
        self.model.observe(lambda _: self._show_page(), names="value")
        label = widgets.HTML("Frame plan for", layout=widgets.Layout(width="120px"))
        self.plan_row = widgets.HBox([label, self.model])
        self.grid = widgets.HBox([], layout=widgets.Layout(flex_flow="row wrap"))
        self.earlier = button("", "Earlier clips", "arrow-left")
        self.later = button("", "Later clips", "arrow-right")
        self.place = widgets.HTML()
        self.earlier.on_click(lambda _: self._turn(-1))
        self.later.on_click(lambda _: self._turn(1))
        self.pager = widgets.HBox([self.earlier, self.place, self.later])
        super().__init__([])
        self.box.children = (self.plan_row, self.said, self.grid, self.pager)

    def show(self, dataset: Dataset | None) -> None:
        """Show a dataset's clips; what is on the page already stays, and with it the place where one is typing."""
        known = self._dataset is not None and dataset is not None and self._dataset.folder == dataset.folder
        self._dataset = dataset
        if dataset is None:
            self._cards, self.grid.children = [], ()
            self.plan_row.layout.display = self.pager.layout.display = "none"
            return
        if not known:
            self._page = 0
        if not known or dataset.clips[self._first : self._first + PAGE] != self._cards:
            self._show_page()

    @property
    def _first(self) -> int:
        return self._page * PAGE

    def _turn(self, pages: int) -> None:
        self._page += pages
        self._show_page()

    def _show_page(self) -> None:
        dataset = self._dataset
        if dataset is None:
            return
        clips = dataset.clips
        self._page = max(0, min(self._page, (len(clips) - 1) // PAGE))
        self._cards = clips[self._first : self._first + PAGE]
        shape, problem = self._shape()
        self.grid.children = [self._card(dataset, clip, shape) for clip in self._cards]
        self.place.value = drawing.note(
            problem or f"clips {self._first + 1} to {self._first + len(self._cards)} of {len(clips)}"
        )
        self.earlier.disabled = self._page == 0
        self.later.disabled = self._first + PAGE >= len(clips)
        self.plan_row.layout.display = "" if clips else "none"
        self.pager.layout.display = "" if len(clips) > PAGE or problem else "none"

    def _shape(self) -> tuple[Shape | None, str]:
        """What the chosen model sees of a clip, or None and why not."""
        wanted = self._settings if self._settings and self._settings.model == self.model.value else TrainSettings()
        try:
            _, model = find_model(self.model.value)
            return shape_for(model, wanted.frames, wanted.height, wanted.width, wanted.fps), ""
        except ConfigError as error:
            return None, str(error)

    def _card(self, dataset: Dataset, clip: Clip, shape: Shape | None) -> widgets.Widget:
        """A clip: it plays, its caption can be written, its frame plan stands below."""
        caption = widgets.Textarea(
            value=clip.text, rows=3, placeholder="what is to be seen?", continuous_update=False,
            layout=widgets.Layout(width="180px"),
        )  # fmt: skip
        caption.observe(lambda change: self._save_caption(dataset, clip.file_name, change), names="value")
        picture = widgets.HTML(_picture(dataset, clip))
        parts: list[widgets.Widget] = [picture, caption]
        if not _plays_at_once(dataset, clip):
            play = button("Play", "Show the clip itself", "play", width="80px")
            play.on_click(lambda _: setattr(picture, "value", _player(dataset, clip)))
            parts.insert(1, play)
        if shape:
            text = drawing.escaped(plan(clip, shape).sentence)
            parts.append(
                widgets.HTML(f'<div style="width:180px;font-size:85%;line-height:1.3;opacity:.75">{text}</div>')
            )
        out = button("Take out", "Out of the dataset; Undo brings it back", "times", width="100px")
        out.on_click(self.doing(lambda: self._take_out(dataset, clip)))
        parts.append(out)
        return widgets.VBox(parts, layout=widgets.Layout(margin="0 12px 12px 0", width="190px"))

    def _take_out(self, dataset: Dataset, clip: Clip) -> None:
        dataset.remove(clip.file_name)
        self._changed()

    def _save_caption(self, dataset: Dataset, file_name: str, change: dict[str, Any]) -> None:
        def save() -> None:
            written = dataset.set_caption(file_name, change["new"])
            # What was typed is on the page already.
            self._cards = [written if clip.file_name == file_name else clip for clip in self._cards]

        self.doing(save)(None)
        self._changed()


def _plays_at_once(dataset: Dataset, clip: Clip) -> bool:
    path = dataset.path_of(clip)
    return not path.exists() or path.stat().st_size <= PLAYED


def _picture(dataset: Dataset, clip: Clip) -> str:
    if _plays_at_once(dataset, clip):
        return _player(dataset, clip)
    return drawing.picture(dataset.thumbnail_of(clip), clip.source or clip.id, 180)


def _player(dataset: Dataset, clip: Clip) -> str:
    return drawing.video(dataset.path_of(clip), 180, clip.width)
