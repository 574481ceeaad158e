"""The clips of a dataset as cards in a notebook: each plays, takes a caption, shows its frame plan, can be marked.

Marked clips can be removed, tagged or reset to their whole source video, all at once, and go for caption_tools.

Not covered: importing (dataset_panel), many captions at once (caption_tools).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import ipywidgets as widgets

from workbench.clips.frame_plan import Shape, plan, shape_for
from workbench.clips.records import Clip
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError
from workbench.families import find_model, models
from workbench.notebook import rendering
from workbench.notebook.live import Panel, button
from workbench.runs.settings import TrainSettings

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
        self._marked: set[str] = set()
        chosen = settings.model if settings else models()[0].id
        self.model = widgets.Dropdown(
            options=sorted({chosen, *(model.id for model in models())}),
            value=chosen,
            layout=widgets.Layout(width="300px"),
        )
        self.model.observe(lambda _: self._show_page(), names="value")
        label = widgets.HTML("Frame plan for", layout=widgets.Layout(width="120px"))
        self.plan_row = widgets.HBox([label, self.model])
        self._make_selection()
        self.grid = widgets.HBox([], layout=widgets.Layout(flex_flow="row wrap"))
        self.earlier = button("", "Earlier clips", "arrow-left")
        self.later = button("", "Later clips", "arrow-right")
        self.place = widgets.HTML()
        self.earlier.on_click(lambda _: self._turn(-1))
        self.later.on_click(lambda _: self._turn(1))
        self.pager = widgets.HBox([self.earlier, self.place, self.later])
        super().__init__([])
        self.box.children = (self.plan_row, self.selection, self.said, self.grid, self.pager)

    def _make_selection(self) -> None:
        """What can be done to the marked clips; in sight while there are any."""
        self.count = widgets.HTML()
        self.tag_field = widgets.Text(placeholder="a tag", layout=widgets.Layout(width="120px"))
        actions = (
            ("Take out", "Out of the dataset; Undo brings them back", self.take_out),
            ("Tag", "Put this mark on them", self.tag),
            ("Reset the cut", "Undo what was ever cut from it", self.whole),
            ("Unmark", "Mark none", lambda: self.mark(())),
        )
        self.buttons = {words: button(words, help) for words, help, _ in actions}
        for words, _, action in actions:
            self.buttons[words].on_click(self.doing(action))
        out, *others = self.buttons.values()
        row = [self.count, out, self.tag_field, *others]
        self.selection = widgets.HBox(row, layout=widgets.Layout(flex_flow="row wrap", display="none"))

    # ---- marks

    @property
    def marked(self) -> set[str] | None:
        """File names of the marked clips that are still there; None, which means all, when none is marked."""
        there = {clip.file_name for clip in self._dataset.clips} if self._dataset else set()
        return self._marked & there or None

    def mark(self, names: Iterable[str]) -> None:
        """Mark the clips of those file names, and no others, on all pages."""
        self._marked = set(names)
        self._show_page()
        self._show_marks()

    def take_out(self) -> None:
        """Take the marked clips out. Raises ConfigError, CannotWrite."""
        dataset, names = self._chosen()
        dataset.remove(*names)
        self._did()

    def tag(self) -> None:
        """Put the tag on the marked clips. Raises ConfigError, CannotWrite."""
        dataset, names = self._chosen()
        dataset.tag(self.tag_field.value, *names)
        self._did()

    def whole(self) -> None:
        """Let the marked clips be their whole source videos again. Raises ConfigError, DataError, CannotWrite."""
        dataset, names = self._chosen()
        dataset.reset_cut(*names)
        self._did()

    def _chosen(self) -> tuple[Dataset, list[str]]:
        if self._dataset is None or not (marked := self.marked):
            raise ConfigError("no clip is marked: tick the boxes of some cards")
        return self._dataset, [clip.file_name for clip in self._dataset.clips if clip.file_name in marked]

    def _did(self) -> None:
        self._changed()
        self._show_marks()

    def _show_marks(self) -> None:
        count = len(self.marked or ())
        self.count.value = rendering.note("1 clip is marked" if count == 1 else f"{count:,} clips are marked")
        self.selection.layout.display = "" if count else "none"

    def _toggle(self, name: str, on: bool) -> None:
        self._marked = self._marked | {name} if on else self._marked - {name}
        self._show_marks()

    # ---- showing

    def show(self, dataset: Dataset | None) -> None:
        """Show a dataset's clips; what is on the page already stays, and with it the place where one is typing."""
        known = self._dataset is not None and dataset is not None and self._dataset.folder == dataset.folder
        self._dataset = dataset
        if dataset is None:
            self._cards, self.grid.children = [], ()
            self.plan_row.layout.display = self.pager.layout.display = "none"
            return
        if not known:
            self._page, self._marked = 0, set()
        self._show_marks()
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
        self.place.value = rendering.note(
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
            text = rendering.escaped(plan(clip, shape).sentence)
            parts.append(
                widgets.HTML(f'<div style="width:180px;font-size:85%;line-height:1.3;opacity:.75">{text}</div>')
            )
        box = widgets.Checkbox(
            value=clip.file_name in self._marked, indent=False, description="mark", layout=widgets.Layout(width="80px")
        )
        box.observe(lambda change: self._toggle(clip.file_name, bool(change["new"])), names="value")
        out = button("Take out", "Out of the dataset; Undo brings it back", "times", width="100px")
        out.on_click(self.doing(lambda: self._take_out(dataset, clip)))
        parts += [box, out]
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
    return rendering.picture(dataset.thumbnail_of(clip), clip.source or clip.id, 180)


def _player(dataset: Dataset, clip: Clip) -> str:
    return rendering.video(dataset.path_of(clip), 180, clip.width)
