"""The Videos sub-tab of Compare: choose a grid or make one, watch it fill, look at it, export it.

Everything it shows is read from the grids' folders; the browser remembers which one was open. Not covered: the player
(player, assets/grid.js), the form (form).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from workbench import jobs
from workbench.compare import Grid, GridSettings
from workbench.compare.grid import EXPORTING
from workbench.errors import ConfigError, DeviceBusy, WorkbenchError
from workbench.ui.compare.form import GridForm
from workbench.ui.compare.player import NOTHING, Player, cell_of
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, TICK, Seen, handler, send, tell, tick, warn, watch
from workbench.ui.core.form import Form, sentences
from workbench.ui.core.live import Recent
from workbench.workspace import Workspace

VIEW = ("grids", "player", "note", "draw", "stop", "acts", "files")
EMPTY = (
    "No grid yet. A grid shows the same prompts in rows and what differs in columns: the base model beside each "
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
            self.draw = gr.Button("Draw what is missing", variant="primary", visible=False, elem_id="grid-draw")
            self.stop = gr.Button("Stop drawing", variant="stop", visible=False, elem_id="grid-stop")
        with gr.Row(elem_classes="buttons", visible=False) as self.acts:
            self.change = gr.Button("Add or change columns", size="sm", elem_id="grid-change")
            self.export = gr.Button("Export as video, GIF and page", size="sm", elem_id="grid-export")
            self.delete = gr.Button("Delete this grid", size="sm", elem_id="grid-delete")
        with gr.Row(elem_classes="buttons", visible=False) as self.sure:
            self.deleted = gr.Button("Delete it with its videos", size="sm", variant="stop", elem_id="grid-delete-sure")
            self.spared = gr.Button("Keep it", size="sm")
        self.files = gr.HTML(elem_id="grid-files")
        with gr.Accordion("Make a new grid, or change this one", open=False, elem_id="grid-form") as self.folded:
            self.form = GridForm(workspace)
            with gr.Row(elem_classes="buttons"):
                self.make = gr.Button("Make the grid", variant="primary", elem_id="grid-make")
                self.changed = gr.Button("Change the grid that is shown", elem_id="grid-changed")
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

        def act(event: Any, action: Any, inputs: list[Any]) -> Any:
            """Call `action(grid, *inputs)`, say what it says, and show everything anew."""

            def listener(chosen: str | None, now: Seen, *values: Any) -> list[Any]:
                grid = self._open(chosen)
                said = action(grid, *values)
                if said:
                    tell(said)
                return [*self._show(chosen, now)]

            listener.__qualname__ = action.__qualname__
            return event(handler(listener), [self.chosen, seen, *inputs], outputs, **QUIET)

        act(self.draw.click, _ask, [])
        act(self.stop.click, _cancel, [])
        act(self.export.click, _export, [])
        made = send(
            self.make.click, handler(self._make), self.form.everything,
            [self.chosen, self.form.problems, self.folded, *outputs], before=[seen],
        )  # fmt: skip
        made.then(None, js="() => window.scrollTo({top: 0, behavior: 'smooth'})")
        send(
            self.changed.click, handler(self._change), self.form.everything,
            [self.form.problems, self.folded, *outputs], before=[self.chosen, seen],
        )  # fmt: skip
        filled = self.change.click(
            handler(self._fill), self.chosen, [self.form.problems, self.folded, *self.form.inputs], **QUIET
        )
        filled.then(None, js="() => document.querySelector('#grid-form')?.scrollIntoView({behavior: 'smooth'})")
        self.delete.click(lambda: gr.update(visible=True), None, self.sure, **QUIET)
        gone = self.deleted.click(handler(self._delete), [self.chosen, seen], [self.chosen, *outputs], **QUIET)
        for event in (gone.then, self.spared.click):
            event(lambda: gr.update(visible=False), None, self.sure, **QUIET)
        self.form.wire_up(opened)

    def wire_use(self, tabs: gr.Tabs, form: Form[Any]) -> None:
        """Let a video's settings fill in the Sample tab's form."""

        def use(event: gr.EventData) -> list[Any]:
            grid = Grid.open(self.workspace, str(event.grid))
            settings = cell_of(grid, str(event.key)).settings
            tell("The form now holds the settings of this video.", 4)
            return [gr.Tabs(selected="sample"), "", *form.write(settings.model_dump(mode="json"))]

        outputs = [tabs, form.problems, *form.inputs]
        form.follow(self.player.component.use(handler(use), None, outputs, **QUIET))

    # ---- showing

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
        shown = chosen if chosen in dict(names) else next(iter(dict(names)), None)
        choices = [(title if title == name else f"{title} ({name})", name) for name, title in names]
        values: dict[str, Any] = {
            "grids": ((names, shown), lambda: gr.update(choices=choices, value=shown, visible=bool(names))),
            "acts": (bool(shown), lambda: gr.update(visible=bool(shown))),
            "note": "", "files": "", "player": NOTHING, "draw": _hidden(True), "stop": _hidden(True),
        }  # fmt: skip
        if shown is None:
            return values | {"note": render.note(EMPTY, "empty")}
        grid = Grid(self.workspace, self.workspace.grid(shown))
        try:
            data = self.player.value(grid)
        except WorkbenchError as error:
            return values | {"note": render.note(str(error), "bad")}
        state = data["state"]
        open_, going = state["open"], state["going"]
        words = f"Draw the {open_} that are missing" if open_ > 1 else "Draw the one that is missing"
        return values | {
            "player": data,
            "draw": (
                (shown, open_, going),
                lambda: gr.update(visible=bool(open_) and not going, value=words),
            ),
            "stop": _hidden(not going),
            "files": exported(grid),
        }

    # ---- doing

    def _open(self, chosen: str | None) -> Grid:
        names = [name for name, _ in self._names.get()]
        if not names:
            raise ConfigError("there is no grid yet: make one with the form below")
        return Grid.open(self.workspace, chosen if chosen in names else names[0])

    def _make(self, seen: Seen, *values: Any) -> list[Any]:
        try:
            settings, base = self.form.asked(*values)
            grid = Grid.create(self.workspace, settings, base)
        except ConfigError as error:
            return [gr.skip(), sentences(error, GridSettings), gr.skip(), *[gr.skip()] * len(VIEW)]
        _drawn(grid)
        return [grid.name, "", gr.update(open=False), *self._show(grid.name, seen)]

    def _change(self, chosen: str | None, seen: Seen, *values: Any) -> list[Any]:
        grid = self._open(chosen)
        try:
            settings, _ = self.form.asked(*values)
            grid.change(settings)
        except ConfigError as error:
            return [sentences(error, GridSettings), gr.skip(), *[gr.skip()] * len(VIEW)]
        _drawn(grid)
        return ["", gr.update(open=False), *self._show(grid.name, seen)]

    def _fill(self, chosen: str | None) -> list[Any]:
        settings = self._open(chosen).settings
        return ["", gr.update(open=True), *self.form.write(settings.model_dump(mode="json"))]

    def _delete(self, chosen: str | None, seen: Seen) -> list[Any]:
        self._open(chosen).delete()
        tell("The grid is gone; its folder lies in grids/.removed.")
        return [None, *self._show(None, seen)]


def _hidden(hidden: bool) -> Any:
    return (hidden, lambda: gr.update(visible=not hidden))


def _drawn(grid: Grid) -> None:
    """Ask for what is missing; a grid whose videos cannot be drawn now stays, and says why."""
    try:
        grid.ask()
    except (ConfigError, DeviceBusy) as error:
        warn(f"{error} The grid is kept; Draw what is missing goes on.", "Not drawn yet")


def _ask(grid: Grid) -> str:
    return f"{grid.ask()} videos are asked for."


def _cancel(grid: Grid) -> str:
    grid.cancel()
    return "What was not drawn yet is taken back."


def _export(grid: Grid) -> str:
    grid.export()
    return ""


def exported(grid: Grid) -> str:
    """The export: how far it is, or its files."""
    now = jobs.status(grid.folder / EXPORTING)
    if now.state.alive:
        share = now.step / now.total if now.total else None
        return f'<p class="doing">Export: {render.escaped(now.phase)}</p>{render.bar(share)}'
    links = " ".join(render.download(path, path.name) for path in grid.exported)
    if now.state is jobs.State.FAILED or now.state is jobs.State.DIED:
        return render.note(f"The export ended early: {now.message or 'try again'}", "bad") + links
    if not links or not now.ended_at:
        return ""
    newest = max((path.stat().st_mtime for path in (grid.folder / "cells").glob("*.json")), default=0.0)
    older = " · videos came since: export again" if newest > now.ended_at else ""
    return f'<p class="doing">Exported{older}: {links}</p>'
