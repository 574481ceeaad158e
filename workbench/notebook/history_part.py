"""What was done to a dataset, in a notebook: clips that were taken out come back, any change that stands is taken back.

Not covered: the newest change (the Undo button of dataset_panel).
"""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as widgets

from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError
from workbench.notebook.live import Panel, button

MOST = 100  # changes in the list


class HistoryPart(Panel):
    """Two lists with a button each."""

    def __init__(self, opened: Callable[[], Dataset], changed: Callable[[], object]) -> None:
        """opened: the dataset that is shown, raises ConfigError without one;  changed: called after each change"""
        self._opened, self._changed = opened, changed
        wide = widgets.Layout(width="420px", max_width="100%")
        self.removed = widgets.SelectMultiple(options=[], rows=4, layout=wide)
        self.restore_button = button("Bring back", "The clips chosen, captions and all")
        self.change = widgets.Dropdown(options=[], layout=wide)
        self.undo_button = button("Take it back", "The change chosen; what was done since stays")
        self.restore_button.on_click(self.doing(self.restore))
        self.undo_button.on_click(self.doing(self.undo))
        self.out = widgets.HBox([widgets.HTML("Taken out"), self.removed, self.restore_button])
        self.standing = widgets.HBox([widgets.HTML("A change"), self.change, self.undo_button])
        super().__init__([])
        for row in (self.out, self.standing):
            row.layout.flex_flow = "row wrap"
        self.box.children = (self.out, self.standing, self.said)

    def show(self, dataset: Dataset) -> None:
        """List what can be brought back and taken back; what is chosen stays chosen."""
        removed = [(clip.source or clip.id, clip.file_name) for clip in dataset.removed]
        changes = [(change.what, change.number) for change in dataset.undoable[:MOST]]
        if list(self.removed.options) != removed:
            kept = [name for name in self.removed.value if name in [value for _, value in removed]]
            self.removed.options = removed
            self.removed.value = kept
        if list(self.change.options) != changes:
            self.change.options = changes
            self.change.value = None
        self.out.layout.display = "" if removed else "none"
        self.standing.layout.display = "" if changes else "none"

    def restore(self) -> None:
        """Bring back the chosen clips. Raises ConfigError, CannotWrite."""
        if not self.removed.value:
            raise ConfigError("no clip is chosen: choose one of those taken out")
        self._opened().restore(*self.removed.value)
        self._changed()
        self.say("Brought back.")

    def undo(self) -> None:
        """Take back the chosen change. Raises ConfigError when its clips were changed since, CannotWrite."""
        if self.change.value is None:
            raise ConfigError("no change is chosen: choose one that shall be taken back")
        done = self._opened().undo(self.change.value)
        self._changed()
        self.say(f"Undone: {done.what}.")
