"""The Videos sub-tab of Compare: choose or make a grid, watch its videos arrive, compare them, export them as a page.

Everything is read from the grids' folders; the browser remembers which one was open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from workbench.compare import Grid, GridSettings
from workbench.compare.export import export_page, exported_page
from workbench.compare.suggestions import base_of, newest
from workbench.errors import ConfigError, DeviceBusy, WorkbenchError
from workbench.loras.library import all_loras
from workbench.ui.compare.form import GridForm
from workbench.ui.compare.player import NOTHING, Player
from workbench.ui.core import render
from workbench.ui.core.boundary import UPWARDS, on, tell, warn
from workbench.ui.core.form import Form
from workbench.ui.core.live import Recent
from workbench.ui.core.view import LiveView, button, remembered, visible
from workbench.ui.core.widgets import Confirm
from workbench.workspace import Workspace

EMPTY = (
    "A grid plays the same prompts side by side here: the base model beside each checkpoint, a LoRA at several scales, "
    "several LoRAs, guidance, steps, schedulers."
)
LOOK_SECONDS = 5.0


class VideosPart:
    """Builds the components; `wire` connects them."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._names = Recent(lambda: [(grid.name, grid.title) for grid in Grid.all(workspace)])
        # Whether there is a LoRA, finished or not, to make a grid of.
        self._comparable = Recent(lambda: bool(newest(workspace) or all_loras(workspace)), LOOK_SECONDS)
        self.note = gr.HTML(elem_id="grid-note")
        with gr.Row(elem_classes="choosing"):
            self.grids = gr.Dropdown([], label="Grid", scale=3, elem_id="grid-choice", visible=False)
            self.generate = gr.Button("Generate", variant="primary", visible=False, elem_id="grid-generate")
            self.stop = gr.Button("Stop generating", variant="stop", visible=False, elem_id="grid-stop")
        with gr.Row(elem_classes="buttons", visible=False) as self.actions:
            self.change = gr.Button("Add or change columns", size="sm", elem_id="grid-change")
            self.export = gr.Button("Export as a page", size="sm", elem_id="grid-export")
            self.delete = gr.Button("Delete this grid", size="sm", elem_id="grid-delete")
        self.confirm = Confirm("Delete it with its videos", "Keep it", "grid-deleting", "grid-delete-sure")
        self.page = gr.HTML(elem_id="grid-page")
        with gr.Accordion("Make a new grid, or change this one", open=False, elem_id="grid-form") as self.folded:
            self.form = GridForm(workspace)
            with gr.Row(elem_classes="buttons"):
                self.make = gr.Button("Make the grid", variant="primary", elem_id="grid-make")
                self.changed = gr.Button("Change this grid", elem_id="grid-changed")
        self.player = Player(workspace)
        self.chosen = remembered("grid")
        own = [self.grids, self.note, self.generate, self.stop, self.actions, self.page]
        self.view = LiveView([*own, self.player.component], self._values, [self.chosen])

    def wire(self, timer: gr.Timer, opened: Sequence[Any]) -> None:
        """Connect the listeners. opened: the events after which a person sees this, of the tab first."""
        view, form = self.view, self.form
        view.follow(timer, opened[0])
        on(opened[0], self._unfold, [], [self.folded])
        view.act(self.grids.input, lambda name: name, [self.grids], [self.chosen])
        for pressed, action in ((self.generate, _generate), (self.stop, _cancel), (self.export, _export)):
            view.act(pressed.click, self._of_grid(action), [self.chosen])
        view.act(self.make.click, self._make, form.beside, [self.chosen, self.folded], form).then(None, js=UPWARDS)
        view.act(self.changed.click, self._change, [self.chosen], [self.folded], form)
        filled = form.fill(self.change.click, self._fill, [self.chosen], [self.folded])
        filled.then(None, js="() => document.querySelector('#grid-form')?.scrollIntoView({behavior: 'smooth'})")
        on(self.delete.click, lambda: Confirm.question(""), [], self.confirm.components)
        self.confirm.wire(view.act(self.confirm.yes.click, self._delete, [self.chosen], [self.chosen]))
        form.wire_up(opened)

    def wire_use(self, tabs: gr.Tabs, form: Form[Any]) -> None:
        """Let a video's settings fill in the Sample tab's form."""

        def use(event: gr.EventData) -> list[Any]:
            grid = Grid.open(self.workspace, str(event.grid))
            settings = grid.state().cell(str(event.key)).settings
            tell("The form now holds the settings of this video.", 4)
            return [gr.Tabs(selected="sample"), settings]

        form.fill(self.player.component.use, use, [], [tabs])

    # ---- what it shows

    def _values(self, chosen: str | None) -> dict[Any, Any]:
        names = self._names.get()
        name = chosen if chosen in dict(names) else next(iter(dict(names)), None)
        choices = [(title if title == slug else f"{title} ({slug})", slug) for slug, title in names]
        values: dict[Any, Any] = {
            self.grids: gr.update(choices=choices, value=name, visible=bool(names)),
            self.actions: visible(name is not None),
            self.player.component: NOTHING,
            **dict.fromkeys((self.note, self.page), ""),
            **dict.fromkeys((self.generate, self.stop), visible(False)),
        }
        if name is None:
            return values | {self.note: (self._comparable.get(), self._empty)}
        grid = Grid(self.workspace, self.workspace.grid(name))
        try:
            data = self.player.value(grid)
        except WorkbenchError as error:
            return values | {self.note: render.note(str(error), "bad")}
        missing, going = data["progress"]["open"], data["progress"]["going"]
        label = f"Generate the {missing} missing videos" if missing > 1 else "Generate the missing video"
        return values | {
            self.player.component: data,
            self.generate: button("" if going or not missing else label),
            self.stop: visible(going),
            self.page: exported(grid),
        }

    def _empty(self) -> str:
        if self._comparable.get():
            return render.empty_state(EMPTY, "Make a grid", "#grid-form")
        return render.empty_state(EMPTY, "Train a LoRA first", "#tab-train-button")

    def _unfold(self) -> Any:
        """The form, open while there is no grid but something to make one of."""
        first = not self._names.get(now=True) and self._comparable.get(now=True)
        return gr.update(open=True) if first else gr.skip()

    # ---- what it does

    def _of_grid(self, action: Callable[[Grid], str]) -> Callable[[str | None], str]:
        """A listener that does something with the chosen grid."""

        def listener(chosen: str | None) -> str:
            return action(self._open(chosen))

        listener.__qualname__ = action.__qualname__
        return listener

    def _open(self, chosen: str | None) -> Grid:
        names = [name for name, _ in self._names.get()]
        if not names:
            raise ConfigError("there is no grid yet: make one with the form below")
        return Grid.open(self.workspace, chosen if chosen in names else names[0])

    def _make(self, model: str, speed: str, settings: GridSettings) -> list[Any]:
        grid = Grid.create(self.workspace, settings, base_of(self.workspace, settings, model, speed))
        self._generate_kept(grid)
        self._names.get(now=True)
        return [grid.name, gr.update(open=False)]

    def _change(self, chosen: str | None, settings: GridSettings) -> Any:
        grid = self._open(chosen)
        grid.change(settings)
        self._generate_kept(grid)
        self._names.get(now=True)
        return gr.update(open=False)

    def _generate_kept(self, grid: Grid) -> None:
        """Request what is missing; a grid whose videos cannot be generated now stays."""
        try:
            grid.generate()
        except (ConfigError, DeviceBusy) as error:
            warn(f"Not generated yet: {error} The grid is kept: press Generate later.", [self.generate, self.make])

    def _fill(self, chosen: str | None) -> list[Any]:
        return [gr.update(open=True), self._open(chosen).settings]

    def _delete(self, chosen: str | None) -> None:
        self._open(chosen).delete()
        self._names.get(now=True)
        tell("The grid was moved to grids/.removed.")


def _generate(grid: Grid) -> str:
    return f"{grid.generate()} videos are in the queue."


def _cancel(grid: Grid) -> str:
    grid.cancel()
    return "The videos that were not generated yet are cancelled."


def _export(grid: Grid) -> str:
    export_page(grid)
    return ""


def exported(grid: Grid) -> str:
    """The link to the exported page; "" before the first export."""
    page = exported_page(grid)
    if not page.exists():
        return ""
    newest = max((path.stat().st_mtime for path in (grid.folder / "cells").glob("*.json")), default=0.0)
    older = " before the newest videos: export again" if newest > page.stat().st_mtime else ""
    return f'<p class="doing">Exported{older}: {render.download(page, page.name)}</p>'
