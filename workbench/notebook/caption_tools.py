"""Change many captions at once in a notebook: find and replace, a text in front or behind, tags, the trigger word.

All captions of the dataset, or those of the clips that are marked.

Not covered: the edits themselves (dataset_builder.captions.editing), one caption (clip_cards), captions by a model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import ipywidgets as widgets

from workbench.dataset_builder.captions import editing
from workbench.dataset_builder.captions.editing import Search
from workbench.notebook import rendering
from workbench.notebook.live import Panel, button

HELP = "In all captions, or those of the marked clips; Undo takes it back"
SHOWN = 8  # captions in the preview of a replacement


class CaptionTools(Panel):
    """The fields and buttons. Each change is one entry of the dataset's history."""

    def __init__(
        self, folder: Callable[[], Path], changed: Callable[[], object], marked: Callable[[], set[str] | None]
    ) -> None:
        """folder: of the dataset that is shown, raises ConfigError without one;  changed: called after each change

        marked: file names of the clips to change, None for all
        """
        self._folder = folder
        self._marked = marked
        self._changed = changed
        self.find = widgets.Text(placeholder="find", layout=widgets.Layout(width="200px"))
        self.put = widgets.Text(placeholder="replace by", layout=widgets.Layout(width="200px"))
        switches = ("Match case", "Whole words", "Regular expression")
        self.case, self.word, self.expression = (
            widgets.Checkbox(description=name, indent=False, layout=widgets.Layout(width="150px")) for name in switches
        )
        self.preview_button = button("Show what would change", "Nothing is changed", "search")
        self.replace_button = button("Replace", HELP, "exchange", "primary")
        self.would = widgets.HTML()
        self.text = widgets.Text(placeholder="a text", layout=widgets.Layout(width="200px"))
        self.preview_button.on_click(self.doing(self._preview))
        self.replace_button.on_click(self.doing(self._replace))
        edits = (
            ("Put in front", editing.add_prefix),
            ("Put behind", editing.add_suffix),
            ("Take out this tag", editing.remove_tag),
        )
        self.edit_buttons = {words: self._edit(words, edit) for words, edit in edits}
        triggers = (
            ("Write the trigger word in", editing.add_trigger_word),
            ("Take the trigger word out", editing.remove_trigger_word),
        )
        self.edit_buttons |= {words: self._trigger(words, edit) for words, edit in triggers}
        wrapping = widgets.Layout(flex_flow="row wrap")
        rows = [
            widgets.HBox([self.find, self.put, self.case, self.word, self.expression], layout=wrapping),
            widgets.HBox([self.preview_button, self.replace_button], layout=wrapping),
            self.would,
            widgets.HBox([self.text, *self.edit_buttons.values()], layout=wrapping),
        ]
        super().__init__(rows)
        self.box.children = (*rows, self.said)

    def _edit(self, words: str, edit: Callable[[Path, str, Collection[str] | None], int]) -> widgets.Button:
        made = button(words, HELP)
        made.on_click(self.doing(lambda: self._tell(edit(self._folder(), self.text.value, self._marked()))))
        return made

    def _trigger(self, words: str, edit: Callable[[Path, Collection[str] | None], int]) -> widgets.Button:
        made = button(words, HELP)
        made.on_click(self.doing(lambda: self._tell(edit(self._folder(), self._marked()))))
        return made

    @property
    def _search(self) -> Search:
        return Search(self.find.value, self.expression.value, self.case.value, self.word.value)

    def _preview(self) -> None:
        found = editing.preview_replace(self._folder(), self._search, self.put.value, self._marked())
        rows = [(one.source or one.file_name, one.before, one.after) for one in found[:SHOWN]]
        self.would.value = rendering.note(f"{len(found):,} captions would change.") + (
            rendering.table(("clip", "now", "then"), rows) if rows else ""
        )

    def _replace(self) -> None:
        self._tell(editing.replace(self._folder(), self._search, self.put.value, self._marked()))
        self.would.value = ""

    def _tell(self, count: int) -> None:
        self.say(f"{count:,} captions changed.")
        self._changed()
