"""The Videos sub-tab of Compare: choose or make a grid, watch its videos arrive, compare them, export them as a page.

Everything is read from the grids' folders; the browser remembers which one was open. Not covered: the player (player,
assets/grid.js), the form (form).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from workbench.compare import Grid, GridSettings
from workbench.compare.export import export_page, exported_page
from workbench.errors import ConfigError, DeviceBusy, WorkbenchError
from workbench.ui.compare.form import GridForm
from workbench.ui.compare.player import NOTHING, Player
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, TICK, Seen, handler, send, tell, tick, warn, watch
from workbench.ui.core.form import Form, sentences
from workbench.ui.core.live import Recent
from workbench.workspace import Workspace

VIEW = ("grids", "player", "note", "generate", "stop", "actions", "page")
EMPTY = (
    "No grid yet. A grid has the same prompts in rows and what differs in columns: the base model beside each "
    "checkpoint, a LoRA at several scales, guidance, steps, schedulers, several LoRAs. Choose a run below and press "
    "Make the grid."
)


class VideosPart:
    """Builds the components; `wire` connects them."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._names = Recent(lambda: [(grid.name, grid.settings.title) for grid in Grid.all(workspace)])
        self.note = gr.HTML(elem_id="grid-note")
        with gr.Row(elem_classes="choosing"):
            self.grids = gr.Dropdown([], label="Grid", scale=3, elem_id="grid-choice", visible=False)
            self.generate = gr.Button("Generate", variant="primary", visible=False, elem_id="grid-generate")
            self.stop = gr.Button("Stop generating", variant="stop", visible=False, elem_id="grid-stop")
        with gr.Row(elem_classes="buttons", visible=False) as self.actions:
            self.change = gr.Button("Add or change columns", size="sm", elem_id="grid-change")
            self.export = gr.Button("Export as a page", size="sm", elem_id="grid-export")
            self.delete = gr.Button("Delete this grid", size="sm", elem_id="grid-delete")
        with gr.Row(elem_classes="buttons", visible=False) as self.confirm:
            self.deleted = gr.Button("Delete it with its videos", size="sm", variant="stop", elem_id="grid-delete-sure")
            self.keep = gr.Button("Keep it", size="sm")
        self.page = gr.HTML(elem_id="grid-page")
        with gr.Accordion("Make a new grid, or change this one", open=False, elem_id="grid-form") as self.folded:
            self.form = GridForm(workspace)
            with gr.Row(elem_classes="buttons"):
                self.make = gr.Button("Make the grid", variant="primary", elem_id="grid-make")
                self.changed = gr.Button("Change this grid", elem_id="grid-changed")
        self.player = Player(workspace)

    def wire(self, timer: gr.Timer, opened: Sequence[Any]) -> None:
        """Connect the listeners. opened: the events after which a person sees this, the page's load event first."""
        load = opened[0]
        self.chosen = gr.BrowserState(None, storage_key="workbench-grid", secret="workbench")
        seen = gr.State(Seen())
        view = {name: getattr(self, name) for name in VIEW} | {"player": self.player.component}
        outputs = [view[name] for name in VIEW]
        load(tick(self._tick), [self.chosen, seen], outputs, **TICK)
        load(lambda: gr.update(open=not self._names.get(now=True)), None, self.folded, **QUIET)
        watch(timer, self._look, [self.chosen, seen], view)
        self.grids.input(handler(self._choose), [self.grids, seen], [self.chosen, *outputs], **QUIET)

        for button, action in ((self.generate, _generate), (self.stop, _cancel), (self.export, _export)):
            button.click(handler(self._after(action)), [self.chosen, seen], outputs, **QUIET)
        made = send(
            self.make.click,
            handler(self._make),
            self.form.all_inputs,
            [self.chosen, self.form.problems, self.folded, *outputs],
            before=[seen],
        )
        made.then(None, js="() => window.scrollTo({top: 0, behavior: 'smooth'})")
        send(
            self.changed.click,
            handler(self._change),
            self.form.all_inputs,
            [self.form.problems, self.folded, *outputs],
            before=[self.chosen, seen],
        )
        filled = self.change.click(
            handler(self._fill), self.chosen, [self.form.problems, self.folded, *self.form.inputs], **QUIET
        )
        filled.then(None, js="() => document.querySelector('#grid-form')?.scrollIntoView({behavior: 'smooth'})")
        self.delete.click(lambda: gr.update(visible=True), None, self.confirm, **QUIET)
        gone = self.deleted.click(handler(self._delete), [self.chosen, seen], [self.chosen, *outputs], **QUIET)
        for event in (gone.then, self.keep.click):
            event(lambda: gr.update(visible=False), None, self.confirm, **QUIET)
        self.form.wire_up(opened)

    def wire_use(self, tabs: gr.Tabs, form: Form[Any]) -> None:
        """Let a video's settings fill in the Sample tab's form."""

        def use(event: gr.EventData) -> list[Any]:
            grid = Grid.open(self.workspace, str(event.grid))
            settings = grid.state().cell(str(event.key)).settings
            tell("The form now holds the settings of this video.", 4)
            return [gr.Tabs(selected="sample"), "", *form.write(settings.model_dump(mode="json"))]

        outputs = [tabs, form.problems, *form.inputs]
        form.follow(self.player.component.use(handler(use), None, outputs, **QUIET))

    # ---- what it shows

    def _look(self, chosen: str | None, seen: Seen) -> dict[str, Any] | None:
        return None if seen.late(chosen) else self._values(chosen)

    def _tick(self, chosen: str | None, seen: Seen) -> Any:
        values = self._look(chosen, seen)
        return gr.skip() if values is None else seen.changed(VIEW, values)

    def _show(self, chosen: str | None, seen: Seen) -> list[Any]:
        seen.choose(chosen)
        self._names.get(now=True)
        return seen.changed(VIEW, self._values(chosen))

    def _choose(self, name: str | None, seen: Seen) -> list[Any]:
        return [name, *self._show(name, seen)]

    def _values(self, chosen: str | None) -> dict[str, Any]:
        names = self._names.get()
        name = chosen if chosen in dict(names) else next(iter(dict(names)), None)
        choices = [(title if title == slug else f"{title} ({slug})", slug) for slug, title in names]
        values: dict[str, Any] = {
            "grids": ((names, name), lambda: gr.update(choices=choices, value=name, visible=bool(names))),
            "actions": _visible(bool(name)),
            "note": "",
            "page": "",
            "player": NOTHING,
            "generate": _visible(False),
            "stop": _visible(False),
        }
        if name is None:
            return values | {"note": render.note(EMPTY, "empty")}
        grid = Grid(self.workspace, self.workspace.grid(name))
        try:
            data = self.player.value(grid)
        except WorkbenchError as error:
            return values | {"note": render.note(str(error), "bad")}
        missing, going = data["progress"]["open"], data["progress"]["going"]
        label = f"Generate the {missing} missing videos" if missing > 1 else "Generate the missing video"
        return values | {
            "player": data,
            "generate": (
                (name, missing, going),
                lambda: gr.update(visible=bool(missing) and not going, value=label),
            ),
            "stop": _visible(going),
            "page": exported(grid),
        }

    # ---- what it does

    def _after(self, action: Callable[[Grid], str]) -> Callable[[str | None, Seen], list[Any]]:
        """A listener that does something with the grid, tells what came of it and updates everything."""

        def listener(chosen: str | None, seen: Seen) -> list[Any]:
            if message := action(self._open(chosen)):
                tell(message)
            return self._show(chosen, seen)

        listener.__qualname__ = action.__qualname__
        return listener

    def _open(self, chosen: str | None) -> Grid:
        names = [name for name, _ in self._names.get()]
        if not names:
            raise ConfigError("there is no grid yet: make one with the form below")
        return Grid.open(self.workspace, chosen if chosen in names else names[0])

    def _make(self, seen: Seen, *values: Any) -> list[Any]:
        try:
            settings, base = self.form.request(*values)
            grid = Grid.create(self.workspace, settings, base)
        except ConfigError as error:
            return [gr.skip(), sentences(error, GridSettings), gr.skip(), *[gr.skip()] * len(VIEW)]
        _generate_kept(grid)
        return [grid.name, "", gr.update(open=False), *self._show(grid.name, seen)]

    def _change(self, chosen: str | None, seen: Seen, *values: Any) -> list[Any]:
        grid = self._open(chosen)
        try:
            settings, _ = self.form.request(*values)
            grid.change(settings)
        except ConfigError as error:
            return [sentences(error, GridSettings), gr.skip(), *[gr.skip()] * len(VIEW)]
        _generate_kept(grid)
        return ["", gr.update(open=False), *self._show(grid.name, seen)]

    def _fill(self, chosen: str | None) -> list[Any]:
        settings = self._open(chosen).settings
        return ["", gr.update(open=True), *self.form.write(settings.model_dump(mode="json"))]

    def _delete(self, chosen: str | None, seen: Seen) -> list[Any]:
        self._open(chosen).delete()
        tell("The grid was moved to grids/.removed.")
        return [None, *self._show(None, seen)]


def _visible(visible: bool) -> Any:
    return (visible, lambda: gr.update(visible=visible))


def _generate_kept(grid: Grid) -> None:
    """Request what is missing; a grid whose videos cannot be generated now stays."""
    try:
        grid.generate()
    except (ConfigError, DeviceBusy) as error:
        warn(f"{error} The grid is kept: press Generate later.", "Not generated yet")


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
