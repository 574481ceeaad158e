"""Grids in a notebook: one prompt by checkpoints, strengths, guidance ...; make one, watch it fill, play it in step.

The videos are drawn by the workspace's sampling worker; a panel made after a kernel restart shows what is still under
way. Not covered: how the videos are shown (grid_view), saying what is good (grid_judging), grids themselves (grids).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets

from workbench import jobs
from workbench.compare import Grid, GridSettings, GridState
from workbench.compare.cost import cost
from workbench.compare.grid import EXPORTING
from workbench.compare.settings import GridExportSettings
from workbench.compare.suggestions import base_of, newest, suggested
from workbench.compare.view import progress
from workbench.errors import ConfigError, WorkbenchError
from workbench.families import models
from workbench.notebook import rendering
from workbench.notebook.form import WidgetForm
from workbench.notebook.grid_judging import JudgingPart
from workbench.notebook.grid_view import GridView
from workbench.notebook.live import Panel, Ticker, button, folded, visible, wrapped
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

EMPTY = "No grid yet: say below what is to be compared, and press Make and draw."


class GridPanel(Panel):
    """The grids of a workspace: one of them, and the form of the next."""

    def __init__(self, workspace: Workspace, values: Mapping[str, Any] | None = None, grid: Grid | None = None) -> None:
        """values: of GridSettings, in the form at first; None: what the newest run suggests

        grid: shown at first, None: the newest
        Raises ConfigError.
        """
        self.workspace = workspace
        self._grid, self._view = grid or next(iter(Grid.all(workspace)), None), GridView()
        self._files: Any = None
        self._listing = False
        # Ticks come from a thread, clicks from the kernel: one at a time.
        self._lock = threading.RLock()
        self.form = WidgetForm(GridSettings, workspace, _first(workspace) if values is None else values)
        drawn_by = [("that of the run", ""), *((one.title, one.id) for one in models())]
        self.model = widgets.Dropdown(options=drawn_by, layout=widgets.Layout(width="200px"))
        self.speed = widgets.Dropdown(options=["exact", "fast", "low-memory"], layout=widgets.Layout(width="110px"))
        self.cost = widgets.HTML()
        self.make_button = button("Make and draw", "A new grid of these settings", "play", "primary", "150px")
        self.change_button = button(
            "Change the grid shown", "Give it these rows and columns; no video is drawn twice", "check"
        )
        self.choice = widgets.Dropdown(options=[], layout=widgets.Layout(width="320px", max_width="100%"))
        self.draw_button = button("Draw what is missing", "", "play", width="180px")
        self.stop_button = button("Stop drawing", "What is done stays", "stop", "danger", "130px")
        self.edit_button = button("Add or change columns", "Fill the form above with this grid's settings", "pencil")
        self.export_button = button("Export", "The whole grid as a video, a GIF and a page", "share", width="110px")
        self.bar = widgets.FloatProgress(min=0.0, max=1.0, layout=widgets.Layout(width="100%", max_width="720px"))
        self.state, self.files = widgets.HTML(), widgets.HTML()
        self.judging = JudgingPart(lambda: self.grid)
        for each, action in (
            (self.make_button, self.make),
            (self.change_button, self.change),
            (self.edit_button, self.edit),
            (self.draw_button, self.draw),
            (self.stop_button, self.stop),
            (self.export_button, self.export),
        ):
            each.on_click(self.doing(action))
        super().__init__([])
        self.box.children = self._laid_out()
        for field in (self.speed, self.model, *self.form.fields.values()):
            field.observe(lambda _: self._reckon(), names="value")
        self.form.fields["run"].observe(lambda _: self.doing(self._fill)(None), names="value")
        self.choice.observe(lambda _: self.doing(self._choose)(None), names="value")
        self._reckon()
        self.ticker = Ticker(self._tick)
        self._tick()
        self.ticker.start()

    def _laid_out(self) -> tuple[widgets.Widget, ...]:
        drawn_by = [widgets.HTML("Model, where no run says so"), self.model, widgets.HTML("Speed"), self.speed]
        making = [
            self.form.box,
            wrapped(*drawn_by),
            self.cost,
            wrapped(self.make_button, self.change_button),
        ]
        self.making = folded("Make a grid, or change this one", widgets.VBox(making), opened=self._grid is None)
        self.judging_fold = folded("Say what is good", self.judging.box)
        chosen = wrapped(self.choice, self.draw_button, self.stop_button, self.edit_button, self.export_button)
        return (
            self.making, chosen, self.said, self.state, self.bar, self._view.box, self.judging_fold, self.files,
        )  # fmt: skip

    # ---- commands

    @property
    def grid(self) -> Grid:
        """The grid that is shown. Raises ConfigError while there is none."""
        if self._grid is None:
            raise ConfigError("there is no grid yet: press Make and draw")
        return self._grid

    def make(self) -> Grid:
        """Make a grid of the form's settings, and ask for its videos. Raises ConfigError, DeviceBusy, CannotWrite."""
        made = Grid.create(self.workspace, *self._asked())
        self._grid = made
        self.making.selected_index = None
        self.refresh()
        made.ask()
        self.refresh()
        return made

    def edit(self) -> None:
        """Fill the form with the settings of the grid that is shown. Raises ConfigError."""
        self.form.set(self.grid.settings.model_dump(mode="json"))
        self.making.selected_index = 0

    def change(self) -> None:
        """Give the grid that is shown the form's rows and columns, and draw what that adds. Raises as `make`."""
        self.grid.change(self.form.settings)
        self.draw()

    def draw(self) -> int:
        """Ask for what is missing or failed; returns how many videos that are. Raises ConfigError, DeviceBusy."""
        asked = self.grid.ask()
        self.refresh()
        return asked

    def stop(self) -> None:
        """Take back what is not drawn yet. Raises CannotWrite."""
        self.grid.cancel()
        self.refresh()

    def export(self) -> None:
        """Start making files of the grid; they are listed once they are there. Raises ConfigError, CannotWrite."""
        self.grid.export(GridExportSettings())
        self.refresh()

    def wait(self, seconds: float | None = None) -> GridState:
        """Wait until nothing is on its way any more, or the time is up; the panel stays live. Raises ConfigError."""
        view = self.grid.wait(seconds)
        self.refresh()
        return view

    def close(self) -> None:
        self.ticker.stop()
        super().close()

    # ---- what is shown

    def refresh(self) -> None:
        """Show the grid as its files tell it."""
        with self._lock:
            try:
                self._show()
            except (WorkbenchError, OSError) as error:
                self.state.value = rendering.note(str(error), "error")

    def _tick(self) -> bool:
        with self._lock:
            if self._grid is None:
                self._grid = next(iter(Grid.all(self.workspace)), None)
        self.refresh()
        return True  # another face may make a grid, or draw

    def _show(self) -> None:
        names = [(one.settings.title, one.name) for one in Grid.all(self.workspace)]
        if self._grid is not None and self._grid.name not in [name for _, name in names]:
            self._grid = None  # deleted by another face
        visible(self.judging_fold, self._grid is not None)
        for each in (self.choice, self.edit_button, self.export_button):
            visible(each, self._grid is not None)
        if self._grid is None:
            self._view.clear()
            for each in (self.bar, self.draw_button, self.stop_button):
                visible(each, False)
            self.state.value, self.files.value, self._files = rendering.note(EMPTY), "", None
            return
        self._list(names, self._grid.name)
        view = self._grid.look()
        self._grid.follow(view)
        said = progress(view)
        self.state.value = rendering.note(said["said"])
        self.bar.value = said["done"] / said["all"]
        visible(self.bar, said["going"])
        visible(self.stop_button, said["going"])
        visible(self.draw_button, said["open"] > 0 and not said["going"])
        self._view.show(self._grid, view)
        self.judging.show(self._grid, view)
        self._show_files(self._grid)

    def _list(self, grids: list[tuple[str, str]], shown: str) -> None:
        """Offer the grids, and say which one is shown."""
        if list(self.choice.options) != grids or self.choice.value != shown:
            self._listing = True  # new options choose their first one for a moment
            self.choice.options, self.choice.value = grids, shown
            self._listing = False

    def _show_files(self, grid: Grid) -> None:
        status, made = jobs.status(grid.folder / EXPORTING), grid.exported
        now = (grid.folder, status.state, status.phase, [path.stat().st_mtime_ns for path in made])
        if now == self._files:  # the files travel inside the links
            return
        self._files = now
        self.export_button.disabled = status.state.alive
        if status.state.alive:
            self.files.value = rendering.note(status.phase or "starting to write the files")
        elif status.state in (jobs.State.FAILED, jobs.State.DIED):
            self.files.value = rendering.note(f"No files were written. {status.message}", "error")
        else:
            self.files.value = "".join(f"<div>{rendering.download(path)}</div>" for path in made)

    def _choose(self) -> None:
        if not self._listing and self.choice.value is not None:
            self._grid = Grid.open(self.workspace, self.choice.value)
            self.refresh()

    # ---- the form

    def _asked(self) -> tuple[GridSettings, SampleSettings]:
        settings = self.form.settings
        return settings, base_of(self.workspace, settings, self.model.value, self.speed.value)

    def _reckon(self) -> None:
        """Say how many videos that makes; a form that breaks a rule says so itself."""
        try:
            self.cost.value = rendering.note(cost(self.workspace, *self._asked()))
        except ConfigError as error:
            self.cost.value = rendering.note(str(error), "error")

    def _fill(self) -> None:
        """Fill in what the chosen run suggests."""
        if name := self.form.fields["run"].value:
            found = suggested(self.workspace, name).model_dump(mode="json")
            self.form.set({each: found[each] for each in ("prompts", "checkpoints", "scales")})


def grid_panel(workspace: Workspace, **values: Any) -> GridPanel:
    """The grids of a workspace and a form for another; values: of GridSettings, in the form. Raises ConfigError."""
    return GridPanel(workspace, values or None)


def _first(workspace: Workspace) -> dict[str, Any]:
    name = newest(workspace)
    return suggested(workspace, name).model_dump(mode="json") if name else {}
