"""The Dataset tab: the choice of a dataset on the left, its panels on the right, one look a second at its folder.

Everything is on disk when a click returns; jobs go on without the page. Not covered: what the panels show.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from workbench.clips.frame_plan import Shape
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError
from workbench.families import models
from workbench.runs.settings import TrainSettings
from workbench.ui.core.boundary import QUIET, TICK, Seen, handler, tick, watch
from workbench.ui.core.form import OWN, Form
from workbench.ui.datasets import head
from workbench.ui.datasets.add import AddPanel
from workbench.ui.datasets.captions import CaptionPanel
from workbench.ui.datasets.check import CheckPanel
from workbench.ui.datasets.clips import ClipsPanel
from workbench.ui.datasets.cut import CutPanel
from workbench.ui.datasets.export import ExportPanel
from workbench.ui.datasets.files import FilesPanel
from workbench.ui.datasets.model_view import ModelInputPanel
from workbench.ui.datasets.numbers import NumbersPanel
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel, DatasetView, number_of_frames, wanted_shape
from workbench.workspace import Workspace

PANELS: tuple[tuple[str, str, type[Any]], ...] = (
    ("clips", "Clips", ClipsPanel),
    ("cut", "Cut", CutPanel),
    ("check", "Check", CheckPanel),
    ("captions", "Auto captions", CaptionPanel),
    ("model-input", "Model input", ModelInputPanel),
    ("numbers", "Numbers", NumbersPanel),
    ("files", "History", FilesPanel),
    ("export", "Export", ExportPanel),
)


class DatasetTab:
    """Builds the tab's components; `wire` connects them."""

    def __init__(self, workspace: Workspace, roots: Sequence[Path]) -> None:
        self.workspace = workspace
        names = self._names()
        offered = [(model.title, model.id) for model in models()]
        with gr.Row():
            with gr.Column(scale=4, min_width=330, elem_classes="side"):
                self.dataset = gr.Dropdown(
                    names,
                    value=names[0] if names else None,
                    label="Dataset",
                    interactive=True,
                    allow_custom_value=True,
                    elem_id="dataset-choice",
                )
                with gr.Accordion("New dataset", open=not names, elem_id="new-dataset"):
                    self.title = gr.Textbox("", label="Title", placeholder="My cat, jumping", elem_id="dataset-title")
                    self.create = gr.Button("Create", elem_id="create-dataset")
                self.add = AddPanel(workspace, roots)
                gr.HTML('<h4 class="section">What it is for</h4>')
                with gr.Row(elem_classes="fields"):
                    self.model = gr.Dropdown(
                        offered,
                        value=offered[0][1],
                        label="Model",
                        allow_custom_value=True,
                        min_width=180,
                        info="Frames and sizes are judged by what this model takes.",
                        elem_id="dataset-model",
                    )
                    self.frames = gr.Textbox("", label="Frames", placeholder=OWN, min_width=90, info="Of each clip.")
                self.trigger = gr.Textbox(
                    "",
                    label="Trigger word",
                    elem_id="trigger-word",
                    info="A word of your own for the new thing; added to every caption without it.",
                )
            with gr.Column(scale=9, min_width=420):
                self.summary = gr.HTML(elem_id="dataset-summary")
                with gr.Row(elem_classes="buttons"):
                    self.use = gr.Button(
                        "Train on this dataset", variant="primary", visible=False, elem_id="use-dataset"
                    )
                    self.undo = gr.Button("Undo", visible=False, elem_id="undo-change")
                    self.redo = gr.Button("Redo", visible=False, elem_id="redo-change")
                with gr.Tabs(visible=False, elem_id="dataset-panels") as self.body:
                    self.panels: dict[str, DatasetPanel] = {}
                    for name, title, panel in PANELS:
                        with gr.Tab(title, id=name, elem_id=f"panel-{name}"):
                            self.panels[name] = panel(workspace)

    @property
    def view(self) -> dict[str, Any]:
        """Everything that follows the chosen dataset, by name."""
        own = {name: getattr(self, name) for name in ("dataset", "summary", "use", "undo", "redo", "body", "trigger")}
        parts = {"add": self.add, **self.panels}
        return own | {f"{part}.{name}": c for part, panel in parts.items() for name, c in panel.view.items()}

    def wire(self, timer: gr.Timer, load: Any) -> None:
        """Connect the listeners; `load` is the page's load event."""
        self.chosen = gr.BrowserState(None, storage_key="workbench-dataset", secret="workbench")
        clip = gr.BrowserState(None, storage_key="workbench-clip", secret="workbench")
        selected, seen = gr.State([]), gr.State(Seen())
        self.host = DatasetHost(self.workspace, self.chosen, clip, selected, self.model, self.frames)
        outputs = list(self.view.values())
        looking = [self.chosen, clip, selected, self.model, self.frames, seen]
        for event in (load, self.model.change, self.frames.submit, self.frames.blur):
            event(tick(self._tick), looking, outputs, **TICK)
        watch(timer, self._look, looking, self.view)
        self.host.refresh = lambda event: event.then(tick(self._tick), looking, outputs, **TICK)
        self.dataset.input(handler(self._choose), [self.dataset, seen], [self.chosen, clip, selected], **QUIET).then(
            tick(self._tick), looking, outputs, **TICK
        )
        self.create.click(
            handler(self._create), [self.title, seen], [self.chosen, clip, selected, self.title], **QUIET
        ).then(tick(self._tick), looking, outputs, **TICK)
        self.host.act([self.trigger.blur, self.trigger.submit], self._set_trigger, [self.trigger])
        self.host.act(self.undo.click, lambda dataset: f"Undone: {dataset.undo().what}.")
        self.host.act(self.redo.click, lambda dataset: f"Redone: {dataset.redo().what}.")
        self.add.wire(self.host)
        for panel in self.panels.values():
            panel.wire(self.host)

    def wire_use(self, tabs: gr.Tabs, form: Form[TrainSettings]) -> None:
        """Let "Train on this dataset" open the Train tab with the dataset filled in."""

        def use(chosen: str | None, model: str, frames: str) -> list[Any]:
            settings = {"dataset": self.host.open(chosen).name, "model": model, "frames": number_of_frames(frames)}
            return [gr.Tabs(selected="train"), *form.write(settings)]

        self.use.click(handler(use), [self.chosen, self.model, self.frames], [tabs, *form.inputs], **QUIET)

    # ---- showing

    def _names(self) -> list[str]:
        return [dataset.name for dataset in Dataset.all(self.workspace)]

    def _look(
        self, chosen: str | None, clip: str | None, selected: list[str], model: str, frames: str, seen: Seen
    ) -> dict[str, Any] | None:
        return None if seen.late(chosen) else self._values(chosen, clip, selected, model, frames)

    def _tick(self, *looking: Any) -> Any:
        values, seen = self._look(*looking), looking[-1]
        return gr.skip() if values is None else seen.changed(self.view, values)

    def _values(
        self, chosen: str | None, clip: str | None, selected: list[str], model: str, frames: str
    ) -> dict[str, Any]:
        names = self._names()
        if not names:
            return {"summary": head.empty(), "body": (False, lambda: gr.update(visible=False))}
        dataset = self.host.open(chosen)
        shape, problem = self._shape(model, frames)
        mark = (dataset.name, *dataset.version)
        found = next((one for one in dataset.clips if one.file_name == clip), None) if clip else None
        look = DatasetView(dataset, found, tuple(selected or ()), model, shape, problem, mark)
        values: dict[str, Any] = {
            "dataset": ((names, dataset.name), lambda: gr.update(choices=names, value=dataset.name)),
            "summary": ((mark, model, frames), lambda: head.summary(dataset.snapshot(shape))),
            "use": (mark, lambda: gr.update(visible=bool(dataset.clips))),
            "body": (True, lambda: gr.update(visible=True)),
            "undo": (mark, lambda: _button("Undo", dataset.undoable)),
            "redo": (mark, lambda: _button("Redo", dataset.redoable)),
            "trigger": (mark, lambda: dataset.info.trigger_word),
        }
        for part, panel in {"add": self.add, **self.panels}.items():
            values |= {f"{part}.{name}": value for name, value in panel.values(look).items()}
        return values

    def _shape(self, model: str, frames: str) -> tuple[Shape | None, str]:
        """What every clip is brought to, or why that cannot be."""
        try:
            return wanted_shape(model, frames), ""
        except ConfigError as error:
            return None, str(error)

    # ---- changing

    def _choose(self, name: str, seen: Seen) -> list[Any]:
        dataset = Dataset.open(self.workspace, name)
        seen.choose(dataset.name)
        return [dataset.name, None, []]

    def _create(self, title: str, seen: Seen) -> list[Any]:
        if not title.strip():
            raise ConfigError("the title is empty: say in a few words what the clips show")
        return [*self._choose(Dataset.create(self.workspace, title).name, seen), ""]

    def _set_trigger(self, dataset: Dataset, word: str) -> str | None:
        if word.strip() == dataset.info.trigger_word:
            return None
        dataset.set_trigger_word(word)
        return "Trigger word saved."


def _button(verb: str, standing: list[Any]) -> Any:
    """Undo or redo, with what it would undo."""
    return gr.update(visible=bool(standing), value=f"{verb}: {standing[0].what[:60]}" if standing else verb)
