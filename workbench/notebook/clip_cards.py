"""The clips of a dataset as cards in a notebook: each plays, its caption can be written, its frame plan is below."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from workbench.clips.frame_plan import Shape, plan, shape_for, shape_of
from workbench.clips.records import Clip
from workbench.dataset_builder.dataset import Dataset
from workbench.display.html import escaped
from workbench.display.inline_html import note, picture, video
from workbench.families import models
from workbench.notebook.live import Panel
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

PAGE = 10
WIDTH = 180  # pixels
EMBEDDED = 600_000  # bytes; larger clips are shown as a picture until Play is pressed


class ClipCards(Panel):
    """Pages of cards; what another face changes shows up within a second or two."""

    def __init__(self, dataset: Dataset, settings: TrainSettings | None = None) -> None:
        """settings: whose frame plan is shown; else that of the built-in model. Raises ConfigError."""
        super().__init__()
        self.dataset = dataset
        self.shape = _shape(settings)
        self._first = 0
        self._cards: list[Clip] = []
        self.summary, self.range = widgets.HTML(), widgets.HTML()
        self.grid = widgets.HBox([], layout=widgets.Layout(flex_flow="row wrap"))
        self.earlier = self.add_button("", "Earlier clips", lambda: self._turn(-PAGE), "arrow-left")
        self.later = self.add_button("", "Later clips", lambda: self._turn(PAGE), "arrow-right")
        pager = widgets.HBox([self.earlier, self.range, self.later])
        self.box.children = (self.summary, self.message, self.grid, pager)
        self.watch()

    def _version(self) -> object:
        return self.dataset.version

    def _show(self) -> bool:
        """Show the clips as they are now; cards whose clip is the same stay, and the cursor in them."""
        clips = self.dataset.clips
        self._first = max(0, min(self._first, (len(clips) - 1) // PAGE * PAGE))
        page = clips[self._first : self._first + PAGE]
        self.summary.value = note(self.dataset.summary.sentence)
        if page != self._cards:
            self._cards = page
            self.grid.children = [self._card(clip) for clip in page]
        self.range.value = note(f"clips {self._first + 1} to {self._first + len(page)} of {len(clips)}")
        self.earlier.disabled = self._first == 0
        self.later.disabled = self._first + PAGE >= len(clips)
        return True

    def _turn(self, clips: int) -> None:
        self._first += clips
        self.refresh()

    def _card(self, clip: Clip) -> widgets.Widget:
        caption = widgets.Textarea(
            value=clip.text,
            rows=3,
            placeholder="what does the clip show?",
            continuous_update=False,
            layout=widgets.Layout(width=f"{WIDTH}px"),
        )
        caption.observe(lambda change: self._save_caption(clip.file_name, change), names="value")
        path = self.dataset.path_of(clip)
        media = widgets.HTML()
        parts: list[widgets.Widget] = [media, caption]
        if clip.is_latents:
            media.value = picture(self.dataset.thumbnail_of(clip), clip.name, WIDTH)
        elif not path.exists() or path.stat().st_size <= EMBEDDED:
            media.value = video(path, WIDTH, clip.width)
        else:
            media.value = picture(self.dataset.thumbnail_of(clip), clip.name, WIDTH)
            play = lambda: setattr(media, "value", video(path, WIDTH, clip.width))  # noqa: E731
            parts.insert(1, self.add_button("Play", "Play the clip", play, "play"))
        text = escaped(plan(clip, self.shape).sentence)
        parts.append(widgets.HTML(f'<div style="width:{WIDTH}px;font-size:85%;opacity:.75">{text}</div>'))
        remove = lambda: self._remove(clip)  # noqa: E731
        parts.append(self.add_button("Remove", "Remove the clip; dataset.undo() brings it back", remove, "times"))
        return widgets.VBox(parts, layout=widgets.Layout(margin="0 12px 12px 0", width=f"{WIDTH + 10}px"))

    def _remove(self, clip: Clip) -> None:
        self.dataset.remove(clip.file_name)
        self.refresh()

    def _save_caption(self, file_name: str, change: dict[str, Any]) -> None:
        def save() -> None:
            with self._lock:
                written = self.dataset.set_caption(file_name, change["new"])
                # The card shows what was typed already.
                self._cards = [written if clip.file_name == file_name else clip for clip in self._cards]

        self.click_handler(save)(None)


def clip_cards(workspace: Workspace, dataset: str, settings: TrainSettings | None = None) -> ClipCards:
    """The clips of a dataset with their captions; settings: whose frame plan is shown. Raises ConfigError."""
    return ClipCards(Dataset.open(workspace, dataset), settings)


def _shape(settings: TrainSettings | None) -> Shape:
    if settings is None:
        return shape_for(models()[0])
    return shape_of(settings, settings.resolved.model)
