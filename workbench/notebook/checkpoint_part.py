"""The checkpoints of a run in a notebook: which there are, which stay and why, stars, and what can go.

Not covered: the rules of keeping (runs.retention), forks (train_panel).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import ipywidgets as widgets

from workbench.errors import ConfigError
from workbench.jobs import State
from workbench.notebook import rendering, run_rendering
from workbench.notebook.live import Panel, button
from workbench.runs import retention
from workbench.runs.analysis.curves import Curves
from workbench.runs.run import Run


class CheckpointPart(Panel):
    """A table, a star for the chosen one, and removing in two clicks: see what goes, then let it go."""

    def __init__(self, run: Run, changed: Callable[[], object]) -> None:
        """changed: called after a click that changed which checkpoints there are or stay"""
        self.run = run
        self._changed = changed
        self.table, self.going = widgets.HTML(), widgets.HTML()
        self.step = widgets.Dropdown(options=[], layout=widgets.Layout(width="160px"))
        self.star_button = button("Star", "Keep this checkpoint for good", "star", width="90px")
        self.unstar_button = button("Unstar", "Let it go with the others", width="90px")
        self.look_button = button("What can go", "Say which checkpoints the rules let go; nothing is removed", "search")
        self.remove_button = button("Remove them", "Remove the checkpoints named", "trash", "danger", "130px")
        self.remove_button.layout.display = "none"
        for each, action in (
            (self.star_button, lambda: retention.star(run.folder, self._chosen)),
            (self.unstar_button, lambda: retention.unstar(run.folder, self._chosen)),
            (self.look_button, self.look),
            (self.remove_button, self._remove),
        ):
            each.on_click(self.doing(self._then(action)))
        row = [self.step, self.star_button, self.unstar_button, self.look_button, self.remove_button]
        super().__init__([self.table, widgets.HBox(row, layout=widgets.Layout(flex_flow="row wrap")), self.going])
        self.box.children = (*self.box.children, self.said)

    def show(self, curves: Curves, best: int | None) -> None:
        """Show the checkpoints as they are now."""
        saved, going = self.run.checkpoints, []
        if self.run.status.state is not State.FINISHED:
            with contextlib.suppress(ConfigError):  # settings of another version
                going = [one.step for one in self.run.doomed()]
        self.table.value = run_rendering.checkpoints(self.run, curves, best, going)
        if list(self.step.options) != saved:
            chosen = self.step.value
            self.step.options = saved
            self.step.value = chosen if chosen in saved else saved[-1] if saved else None

    def look(self) -> None:
        """Say what the run's rules let go now."""
        going = self._doomed()
        words = ", ".join(f"step {one.step} ({one.bytes / 1e6:.1f} MB)" for one in going)
        self.going.value = rendering.note(f"These can go: {words}." if going else "Nothing goes: the rules keep all.")
        self.remove_button.layout.display = "" if going else "none"

    def _remove(self) -> None:
        settings = self.run.settings
        gone = retention.retire_now(self.run.folder, settings.keep_checkpoints, settings.keep_every)
        self.going.value = rendering.note(
            f"Removed {len(gone)}, {sum(one.bytes for one in gone) / 1e6:.1f} MB are free."
        )
        self.remove_button.layout.display = "none"

    def _doomed(self) -> list[retention.Doomed]:
        settings = self.run.settings
        return retention.doomed(self.run.folder, settings.keep_checkpoints, settings.keep_every)

    @property
    def _chosen(self) -> int:
        if self.step.value is None:
            raise ConfigError(f"{self.run.name} has no checkpoint yet: press Save, or wait for the first")
        return int(self.step.value)

    def _then(self, action: Callable[[], object]) -> Callable[[], None]:
        def done() -> None:
            action()
            self._changed()

        return done
