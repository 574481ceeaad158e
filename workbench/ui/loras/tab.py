"""The LoRAs tab: choose LoRAs of the library, run operations on them, import, clean up, publish.

All it shows is read from the workspace; the browser remembers the selection. Operations are jobs. Not covered: the
cards (grid), actions on the chosen LoRAs (chosen), publishing (publish).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from workbench import jobs
from workbench.errors import ConfigError
from workbench.loras import library, removal, tasks, view
from workbench.loras.opened import TORCH_FILES
from workbench.loras.removal import CleaningSettings
from workbench.loras.settings import ExtractSettings, LoraImportSettings
from workbench.settings import Settings
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, TICK, UPWARDS, Seen, handler, tell, tick, watch
from workbench.ui.core.form import Form, sentences
from workbench.ui.core.live import Live, Recent
from workbench.ui.loras.chosen import ChosenPart, planned
from workbench.ui.loras.grid import LoraGrid, data
from workbench.ui.loras.publish import PublishPart
from workbench.ui.loras.work import operations
from workbench.workspace import Workspace

LOOK_SECONDS = 2.0
VIEW = ("grid", "work", "stop")
NOTHING_TO_REMOVE = "Nothing to remove: every LoRA is new, starred, best, published, or of an active run."


class LorasTab:
    """Builds the tab's components; `wire` connects them."""

    def __init__(self, workspace: Workspace, live: Live) -> None:
        self.workspace = workspace
        self._loras = Recent(lambda: library.all_loras(workspace, checkpoints=True), LOOK_SECONDS)
        self._tasks = Recent(lambda: tasks.everything(workspace))
        self.grid = LoraGrid()
        self.work = gr.HTML(elem_id="lora-work")
        self.stop = gr.Button("Stop it", variant="stop", visible=False, elem_id="lora-stop")
        self.chosen = ChosenPart(workspace)
        with gr.Accordion("Import a LoRA", open=False, elem_id="lora-import"):
            self.file = gr.File(
                label="A LoRA's file: .safetensors of any trainer, or SAT's .pt",
                height=140,
                elem_id="lora-file",
                file_types=[".safetensors", *TORCH_FILES],
                buttons=[],
            )
            self.importing = Form(LoraImportSettings, workspace, LoraImportSettings())
            self.take = gr.Button("Import", variant="primary", elem_id="lora-take")
        with gr.Accordion("Extract a LoRA from a full fine-tune", open=False, elem_id="lora-extract"):
            self.extracting = Form(ExtractSettings, workspace, ExtractSettings())
            self.extract = gr.Button("Extract", elem_id="lora-extracted")
        with gr.Accordion("Clean up and restore", open=False, elem_id="lora-cleaning"):
            self.cleaning = Form(CleaningSettings, workspace, CleaningSettings())
            self.look = gr.Button("Preview", elem_id="lora-preview")
            self.removals = gr.HTML(elem_id="lora-removals")
            with gr.Row(elem_classes="buttons", visible=False) as self.sure:
                self.clean = gr.Button("Remove them (can be restored)", variant="stop", elem_id="lora-clean")
                self.keep = gr.Button("Keep them")
            with gr.Row(elem_classes="choosing"):
                self.removed = gr.Dropdown([], label="Removed", elem_id="lora-removed-list", scale=3)
                self.restore = gr.Button("Restore", elem_id="lora-restore")
                self.empty = gr.Button("Delete all removed", variant="stop", elem_id="lora-empty")
        self.publish = PublishPart(workspace, live)
        self._view = {"grid": self.grid.component, "work": self.work, "stop": self.stop}

    def wire(self, timer: gr.Timer, load: Any) -> None:
        """Connect the listeners; `load` is the page's load event."""
        self.names = gr.BrowserState([], storage_key="workbench-loras", secret="workbench")
        self.one = gr.BrowserState(None, storage_key="workbench-lora", secret="workbench")
        seen = gr.State(Seen())
        watch(timer, self._look, [self.names, seen], self._view, quick=("work", "stop"))
        parts = self.chosen.view
        load(tick(self._opened), [self.names, seen], [*self._view.values(), *parts, self.removed], **TICK)
        self.grid.component.chosen(handler(self._choose), None, [self.names, self.one, *parts], **QUIET)
        self._wire_making(seen)
        self._wire_keeping(seen)
        self.publish.wire(timer, load, self.one)

    def wire_use(self, tabs: gr.Tabs, form: Form[Any], run: Any) -> None:
        """Let the chosen LoRAs fill in the Sample tab's form, and the Train tab show their run."""

        def use(names: Sequence[str] | None) -> list[Any]:
            loras = [library.find(self.workspace, name) for name in names or ()]
            values: dict[str, Any] = {"loras": [lora.name for lora in loras]}
            if models := {lora.model for lora in loras if lora.model}:
                values["model"] = sorted(models)[0]
            tell("The form now holds these LoRAs and their model.", 4)
            return [gr.Tabs(selected="sample"), *form.write(values)]

        def open_run(names: Sequence[str] | None) -> list[Any]:
            found = [library.find(self.workspace, name).run for name in names or ()]
            if not found or found[0] is None:
                raise ConfigError("this LoRA was not trained here: choose one of a run")
            return [gr.Tabs(selected="train"), found[0].name]

        used = self.chosen.use.click(handler(use), self.names, [tabs, *form.inputs], **QUIET)
        form.follow(used)
        used.then(None, js=UPWARDS)
        self.chosen.run.click(handler(open_run), self.names, [tabs, run], **QUIET).then(None, js=UPWARDS)

    def _wire_making(self, seen: gr.State) -> None:
        """Buttons that start a job."""
        outputs = list(self._view.values())

        def start(event: Any, settings: Callable[..., Settings], inputs: list[Any]) -> None:
            def listener(names: Sequence[str] | None, now: Seen, *values: Any) -> list[Any]:
                return self._begin(settings(list(names or ()), *values), names, now)

            listener.__qualname__ = settings.__qualname__
            event(handler(listener), [self.names, seen, *inputs], outputs, **QUIET)

        self.chosen.wire(start)
        self.take.click(
            handler(self._import),
            [self.names, seen, self.file, *self.importing.inputs],
            [self.importing.problems, self.file, *outputs],
            **QUIET,
        )
        self.extract.click(
            handler(self._extract),
            [self.names, seen, *self.extracting.inputs],
            [self.extracting.problems, *outputs],
            **QUIET,
        )
        self.stop.click(handler(self._stop), None, None, **QUIET)

    def _wire_keeping(self, seen: gr.State) -> None:
        """Starring, removing, restoring."""
        part, outputs = self.chosen, [*self._view.values(), *self.chosen.view]
        both, gone = [self.names, seen], [self.names, self.one, self.removed]
        part.star.click(handler(lambda names, now: self._star(names, now, True)), both, outputs, **QUIET)
        part.unstar.click(handler(lambda names, now: self._star(names, now, False)), both, outputs, **QUIET)
        part.remove.click(handler(part.preview), self.names, [part.removing, part.sure], **QUIET)
        part.kept.click(lambda: ["", gr.update(visible=False)], None, [part.removing, part.sure], **QUIET)
        part.removed.click(handler(self._remove), both, [*gone, *outputs], **QUIET)
        self.look.click(
            handler(self._preview), self.cleaning.inputs, [self.cleaning.problems, self.removals, self.sure], **QUIET
        )
        shut = [self.removals, self.sure]
        self.keep.click(lambda: ["", gr.update(visible=False)], None, shut, **QUIET)
        self.clean.click(handler(self._clean), [*both, *self.cleaning.inputs], [*shut, self.removed, *outputs], **QUIET)
        self.restore.click(handler(self._restore), [*both, self.removed], [self.removed, *outputs], **QUIET)
        self.empty.click(handler(self._empty), None, self.removed, **QUIET)

    # ---- showing

    def _values(self, names: Sequence[str] | None) -> dict[str, Any]:
        loras, running = self._loras.get(), self._tasks.get()
        chosen, alive = list(names or ()), any(task.status.state.alive for task in running)
        mark = [(lora.name, lora.created, lora.bytes, sorted(lora.flags), len(lora.previews)) for lora in loras]
        return {
            "grid": ((mark, chosen), lambda: data(loras, chosen)),
            "work": operations(running),
            "stop": (alive, lambda: gr.update(visible=alive)),
        }

    def _look(self, names: Sequence[str] | None, seen: Seen) -> dict[str, Any]:
        return self._values(names)

    def _opened(self, names: Sequence[str] | None, seen: Seen) -> list[Any]:
        """A page that has just opened."""
        seen.choose(None)
        return [*seen.changed(VIEW, self._values(names)), *self.chosen.values(list(names or ())), self._removed()]

    def _choose(self, event: gr.EventData) -> list[Any]:
        names = [str(name)[:200] for name in event.names][:50]
        return [names, names[0] if len(names) == 1 else None, *self.chosen.values(names)]

    def _refresh(self, names: Sequence[str] | None, seen: Seen) -> list[Any]:
        """The view as it is now, after an action."""
        self._loras.get(now=True)
        self._tasks.get(now=True)
        return seen.changed(VIEW, self._values(names))

    # ---- actions

    def _begin(self, settings: Settings, names: Sequence[str] | None, seen: Seen) -> list[Any]:
        tasks.start(self.workspace, settings)
        tell("The operation has started; its progress is below the cards.", 4)
        return self._refresh(names, seen)

    def _import(self, names: Sequence[str] | None, seen: Seen, file: str | None, *values: Any) -> list[Any]:
        try:
            settings = self.importing.parse(values)
            if file:
                settings = settings.changed(source=str(file))
            elif not settings.source.strip():
                raise ConfigError("there is nothing to import: drop a file, or name one under From")
        except ConfigError as error:
            return [sentences(error, LoraImportSettings), gr.skip(), *[gr.skip()] * len(VIEW)]
        return ["", None, *self._begin(settings, names, seen)]

    def _extract(self, names: Sequence[str] | None, seen: Seen, *values: Any) -> list[Any]:
        try:
            settings = self.extracting.parse(values)
        except ConfigError as error:
            return [sentences(error, ExtractSettings), *[gr.skip()] * len(VIEW)]
        return ["", *self._begin(settings, names, seen)]

    def _stop(self) -> None:
        for task in self._tasks.get(now=True):
            if task.status.state.alive:
                jobs.stop(task.folder)

    def _star(self, names: Sequence[str] | None, seen: Seen, on: bool) -> list[Any]:
        for name in names or ():
            library.star(self.workspace, name, on)
        return [*self._refresh(names, seen), *self.chosen.values(list(names or ()))]

    def _remove(self, names: Sequence[str] | None, seen: Seen) -> list[Any]:
        gone = removal.remove(self.workspace, list(names or ()))
        tell(f"{len(gone)} removed; they can be restored under Clean up.")
        return [[], None, self._removed(), *self._refresh([], seen), *self.chosen.values([])]

    def _preview(self, *values: Any) -> list[Any]:
        try:
            removals = removal.to_remove(self.workspace, self.cleaning.parse(values))
        except ConfigError as error:
            return [sentences(error, CleaningSettings), "", gr.update(visible=False)]
        return [
            "",
            planned(removals) if removals else render.note(NOTHING_TO_REMOVE),
            gr.update(visible=bool(removals)),
        ]

    def _clean(self, names: Sequence[str] | None, seen: Seen, *values: Any) -> list[Any]:
        gone = removal.clean(self.workspace, self.cleaning.parse(values))
        tell(f"{len(gone)} removed, {view.total_size(gone)}.")
        updates = self._refresh(names, seen)
        return ["", gr.update(visible=False), self._removed(), *updates, *self.chosen.values(list(names or ()))]

    def _removed(self) -> Any:
        """The removed LoRAs, as the field's choices."""
        found = [(f"{gone.title}, {view.size(gone.bytes)}", gone.id) for gone in removal.removed(self.workspace)]
        return gr.update(choices=found, value=found[0][1] if found else None)

    def _restore(self, names: Sequence[str] | None, seen: Seen, gone: str | None) -> list[Any]:
        if not gone:
            raise ConfigError("nothing was removed: there is nothing to restore")
        tell(f"{removal.restore(self.workspace, gone)} is restored.", 4)
        return [self._removed(), *self._refresh(names, seen), *self.chosen.values(list(names or ()))]

    def _empty(self) -> Any:
        tell(f"{view.size(removal.empty(self.workspace))} freed.", 4)
        return self._removed()
