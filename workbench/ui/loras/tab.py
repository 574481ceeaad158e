"""The LoRAs tab: choose LoRAs of the library, run operations on them, import, clean up, publish.

All it shows is read from the workspace but for the selection, which a reload ends. Operations are jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gradio as gr

from workbench import jobs
from workbench.display.quantities import byte_size
from workbench.errors import ConfigError
from workbench.loras import library, removal, tasks, view
from workbench.loras.library import LibraryLora
from workbench.loras.removal import CleaningSettings
from workbench.loras.settings import LoraImportSettings
from workbench.settings import Settings, specs
from workbench.ui.core import render
from workbench.ui.core.boundary import EACH, UPWARDS, on, tell
from workbench.ui.core.form import Form
from workbench.ui.core.live import Recent
from workbench.ui.core.view import LiveView, visible
from workbench.ui.core.widgets import Confirm, component
from workbench.ui.loras.listing import data, description, planned
from workbench.ui.loras.operations import CHOSEN, OTHERS, OperationPart, operations
from workbench.ui.loras.publish import PublishPart
from workbench.workspace import Workspace

LOOK_SECONDS = 2.0
MOST_CHOSEN = 50
NOTHING_TO_REMOVE = "Nothing to remove: every LoRA is new, starred, best, published, or of an active run."


class LorasTab:
    """Builds the tab's components; `wire` connects them."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._loras = Recent(lambda: library.all_loras(workspace, checkpoints=True), LOOK_SECONDS)
        self._tasks = Recent(lambda: tasks.everything(workspace))
        self._removed = Recent(lambda: removal.removed(workspace), LOOK_SECONDS)
        self.names, self.one = gr.State([]), gr.State()  # not kept over a reload: it may be forgotten, and be removed
        # Its event `chosen` carries {"names": [...]}: which cards are selected now.
        self.grid = component("lora-library", data([], []), render.script("lora_library"), "lora_library")
        self.work = gr.HTML(elem_id="lora-work")
        self.stop = gr.Button("Stop it", variant="stop", visible=False, elem_id="lora-stop")
        self._build_chosen()
        self.operations = self.on_chosen | {one: OperationPart(workspace, one) for one in OTHERS}
        self._build_cleaning()
        self.publish = PublishPart(workspace)
        own = [self.grid, self.work, self.stop, self.detail, self.acts, self.run, self.star, self.unstar, self.removed]
        followers = [part.follows for part in self.on_chosen.values()]
        components = [*own, *self.removing.components, *followers]
        self.view = LiveView(components, self._values, [self.names], [self.work, self.stop])

    def _build_chosen(self) -> None:
        """What can be done with the chosen LoRAs."""
        self.detail = gr.HTML(elem_id="lora-detail")
        with gr.Column(visible=False) as self.acts:
            with gr.Row(elem_classes="buttons"):
                self.use = gr.Button("Use in Sample", variant="primary", elem_id="lora-use")
                self.run = gr.Button("Open its run", elem_id="lora-run")
                self.star = gr.Button("Star", elem_id="lora-star")
                self.unstar = gr.Button("Unstar", elem_id="lora-unstar")
                self.remove = gr.Button("Remove", elem_id="lora-remove")
            self.removing = Confirm("Remove (can be restored)", "Keep", "lora-removing", "lora-removed")
            self.on_chosen = {one: OperationPart(self.workspace, one) for one in CHOSEN}

    def _build_cleaning(self) -> None:
        with gr.Accordion("Clean up and restore", open=False, elem_id="lora-cleaning"):
            self.cleaning = Form(CleaningSettings, self.workspace, CleaningSettings())
            self.look = gr.Button("Preview", elem_id="lora-preview")
            self.clean = Confirm("Remove them (can be restored)", "Keep them", "lora-removals", "lora-clean")
            self.listed = gr.State([])  # the names of those that the question is about
            with gr.Row(elem_classes="choosing"):
                self.removed = gr.Dropdown([], label="Removed", elem_id="lora-removed-list", scale=3)
                self.restore = gr.Button("Restore", elem_id="lora-restore")
                self.empty = gr.Button("Delete all removed", variant="stop", elem_id="lora-empty")

    def wire(self, timer: gr.Timer, opened: Any) -> None:
        """Connect the listeners; `opened` is the event when a person opens the tab."""
        act, names = self.view.act, self.names
        self.view.follow(timer, opened)
        act(self.grid.chosen, self._choose, [], [names, self.one], **EACH)
        for settings, part in self.operations.items():
            if settings is LoraImportSettings:
                act(part.start.click, self._import, [part.file], [part.file], part.form)
            else:
                act(part.start.click, self._begin, form=part.form)
        act(self.stop.click, self._stop)
        act(self.star.click, partial(self._star, on=True), [names])
        act(self.unstar.click, partial(self._star, on=False), [names])
        on(self.remove.click, self._preview, [names], self.removing.components)
        self.removing.wire(act(self.removing.yes.click, self._remove, [names], [names, self.one]))
        self.cleaning.submit(self.look.click, self._preview_cleaning, [], [*self.clean.components, self.listed])
        self.clean.wire(act(self.clean.yes.click, self._clean, [self.listed]))
        act(self.restore.click, self._restore, [self.removed])
        act(self.empty.click, self._empty)
        forms = [part.form for part in self.operations.values()]
        sourced = [component for form in forms for component in form.sourced]
        on(opened, lambda: [update for form in forms for update in form.refreshed()], [], sourced)
        self.publish.wire(timer, self.one)

    def wire_use(self, tabs: gr.Tabs, form: Form[Any], run: Any) -> None:
        """Let the chosen LoRAs fill in the Sample tab's form, and the Train tab show their run."""

        def use(names: Sequence[str] | None) -> list[Any]:
            loras = [library.find(self.workspace, name) for name in names or ()]
            values: dict[str, Any] = {"loras": [lora.name for lora in loras]}
            if models := {lora.model for lora in loras if lora.model}:
                values["model"] = sorted(models)[0]
            tell("The form now holds these LoRAs and their model.", 4)
            return [gr.Tabs(selected="sample"), values]

        def open_run(names: Sequence[str] | None) -> list[Any]:
            found = [library.find(self.workspace, name).run for name in names or ()]
            if not found or found[0] is None:
                raise ConfigError("this LoRA was not trained here: choose one of a run")
            return [gr.Tabs(selected="train"), found[0].name]

        form.fill(self.use.click, use, [self.names], [tabs]).then(None, js=UPWARDS)
        on(self.run.click, open_run, [self.names], [tabs, run]).then(None, js=UPWARDS)

    # ---- showing

    def _values(self, names: Sequence[str] | None) -> dict[Any, Any]:
        loras, running, names = self._loras.get(), self._tasks.get(), list(names or ())
        by_name = {lora.name: lora for lora in loras}
        chosen = [by_name[name] for name in names if name in by_name]
        starred = [lora.starred for lora in chosen]
        removed = [(f"{gone.title}, {byte_size(gone.bytes)}", gone.id) for gone in self._removed.get()]
        hidden = (names, lambda: gr.update(visible=False))
        return {
            self.grid: ((_mark(loras), names), lambda: data(loras, names)),
            self.work: operations(running),
            self.stop: visible(any(task.status.state.alive for task in running)),
            self.detail: ((_mark(chosen), bool(loras)), lambda: description(chosen, bool(loras))),
            self.acts: visible(bool(chosen)),
            self.run: visible(len(chosen) == 1 and chosen[0].run is not None),
            self.star: visible(not all(starred)),
            self.unstar: visible(any(starred)),
            self.removed: gr.update(choices=removed, value=removed[0][1] if removed else None),
            self.removing.note: (names, lambda: ""),
            self.removing.row: hidden,
            **{part.follows: (names, partial(part.value, names)) for part in self.on_chosen.values()},
        }

    def _refresh(self) -> None:
        """Read anew what was read a moment ago."""
        for recent in (self._loras, self._tasks, self._removed):
            recent.get(now=True)

    def _choose(self, event: gr.EventData) -> list[Any]:
        names = [str(name)[:200] for name in event.names][:MOST_CHOSEN]
        return [names, names[0] if len(names) == 1 else None]

    # ---- actions

    def _begin(self, settings: Settings) -> None:
        first = specs(type(settings))[0]  # what it is done with
        if not getattr(settings, first.name):
            sentence = f"{first.name} is empty: choose a LoRA above, or name one here"
            raise ConfigError(sentence, {first.name: sentence})
        tasks.start(self.workspace, settings)
        tell("The operation has started; its progress is below the cards.", 4)
        self._refresh()

    def _import(self, file: str | None, settings: LoraImportSettings) -> None:
        if file:
            settings = settings.changed(source=str(file))
        elif not settings.source.strip():
            sentence = "there is nothing to import: drop a file, or name one here"
            raise ConfigError(sentence, {"source": sentence})
        self._begin(settings)

    def _stop(self) -> None:
        for task in self._tasks.get(now=True):
            if task.status.state.alive:
                jobs.stop(task.folder)

    def _star(self, names: Sequence[str] | None, on: bool) -> None:
        for name in names or ():
            library.star(self.workspace, name, on)
        self._refresh()

    def _preview(self, names: Sequence[str] | None) -> list[Any]:
        """What would be removed. Raises ConfigError."""
        return Confirm.question(planned(removal.preview(self.workspace, list(names or ()))))

    def _remove(self, names: Sequence[str] | None) -> list[Any]:
        gone = removal.remove(self.workspace, list(names or ()))
        tell(f"{len(gone)} removed; they can be restored under Clean up.")
        self._refresh()
        return [[], None]

    def _preview_cleaning(self, settings: CleaningSettings) -> list[Any]:
        removals = removal.to_remove(self.workspace, settings)
        note = planned(removals) if removals else render.note(NOTHING_TO_REMOVE)
        return [*Confirm.question(note, bool(removals)), [one.lora.name for one in removals]]

    def _clean(self, names: list[str]) -> None:
        """Remove those that were listed, whatever the form says by now."""
        gone = removal.remove(self.workspace, names)
        tell(f"{len(gone)} removed, {view.total_size(gone)}.")
        self._refresh()

    def _restore(self, gone: str | None) -> None:
        if not gone:
            raise ConfigError("nothing was removed: there is nothing to restore")
        tell(f"{removal.restore(self.workspace, gone)} is restored.", 4)
        self._refresh()

    def _empty(self) -> None:
        tell(f"{byte_size(removal.empty(self.workspace))} freed.", 4)
        self._refresh()


def _mark(loras: Sequence[LibraryLora]) -> list[Any]:
    """What changes when they look different."""
    return [(lora.name, lora.created, lora.bytes, sorted(lora.flags), len(lora.previews)) for lora in loras]
