"""The Dataset tab: the choice of a dataset on the left, its panels on the right, one look a second at its folder.

Everything is on disk when a click returns; jobs go on without the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from workbench.clips.frame_plan import Shape
from workbench.dataset_builder import library as dataset_library
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.snapshot import DatasetSnapshot
from workbench.errors import ConfigError
from workbench.families import models
from workbench.runs.settings import TrainSettings
from workbench.ui.core import render
from workbench.ui.core.form import Form
from workbench.ui.core.model_part import OWN
from workbench.ui.core.problems import Fields
from workbench.ui.core.view import Values, visible
from workbench.ui.datasets.add import AddPanel
from workbench.ui.datasets.captions import CaptionPanel
from workbench.ui.datasets.check import CheckPanel
from workbench.ui.datasets.clips import ClipsPanel
from workbench.ui.datasets.cut import CutPanel
from workbench.ui.datasets.export import ExportPanel
from workbench.ui.datasets.files import FilesPanel
from workbench.ui.datasets.model_view import ModelInputPanel
from workbench.ui.datasets.numbers import NumbersPanel
from workbench.ui.datasets.panel import (
    DatasetHost,
    DatasetPanel,
    DatasetView,
    number_of_frames,
    wanted_shape,
    with_parts,
)
from workbench.ui.datasets.whole import RemovedDatasets, WholePanel
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
NO_TITLE = "the title is empty: say in a few words what the clips show"
MANY = 6  # datasets, from which on they can be searched
EMPTY = (
    "No dataset yet. Give one a title on the left, then drop video files: ten short clips of the same new thing are a "
    "good start."
)


class DatasetTab:
    """Builds the tab's components; `wire` connects them."""

    def __init__(self, workspace: Workspace, roots: Sequence[Path]) -> None:
        self.workspace = workspace
        listed = dataset_library.search(workspace)
        names = [one.name for one in listed]
        offered = [(model.title, model.id) for model in models()]
        with gr.Row():
            with gr.Column(scale=4, min_width=330, elem_classes="side"):
                self.search = gr.Textbox(
                    "", label="Search datasets", placeholder="In names, titles, groups, notes", elem_id="dataset-search"
                )
                self.found = gr.Radio([], visible=False, elem_classes="runs", elem_id="datasets-found")
                self.dataset = gr.Dropdown(
                    _labelled(listed),
                    value=names[0] if names else None,
                    label="Dataset",
                    interactive=True,
                    allow_custom_value=True,
                    elem_id="dataset-choice",
                )
                with gr.Accordion("New dataset", open=not names, elem_id="new-dataset") as self.new:
                    self.title = gr.Textbox("", label="Title", placeholder="My cat, jumping", elem_id="dataset-title")
                    self.naming = Fields(title=self.title)
                    self.create = gr.Button("Create", elem_id="create-dataset")
                self.whole = WholePanel(workspace)
                self.removed = RemovedDatasets(workspace)
                self.add = AddPanel(workspace, roots)
                gr.HTML('<h4 class="section">What it is for</h4>')
                self.model = gr.Dropdown(
                    offered,
                    value=offered[0][1],
                    label="Model",
                    allow_custom_value=True,
                    info="Frames and sizes are judged by what this model takes.",
                    elem_id="dataset-model",
                )
                self.frames = gr.Textbox("", label="Frames", placeholder=OWN, info="Of each clip.")
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

    def wire(self, timer: gr.Timer, opened: Any) -> None:
        """Connect the listeners; `opened` is the event when a person opens the tab."""
        self._parts = with_parts([self.add, self.whole, *self.panels.values()])
        own = [self.dataset, self.new, self.summary, self.use, self.undo, self.redo, self.body, self.trigger]
        own += [self.search, self.found, *self.removed.components]
        components = [*own, *(component for part in self._parts for component in part.view)]
        self.host = host = DatasetHost(self.workspace, components, self._values, self.model, self.frames, self.search)
        host.follow(timer, opened, self.model.change, self.frames.submit, self.frames.blur, self.search.change)
        choice_states = [host.chosen, host.clip, host.selected]
        for choice in (self.dataset, self.found):
            host.act(choice.input, self._choose, [choice, host.chosen], choice_states)
        host.act(self.create.click, self._create, [self.title], [*choice_states, self.title], self.naming)
        host.change([self.trigger.blur, self.trigger.submit], self._set_trigger, [self.trigger])
        host.change(self.undo.click, lambda dataset: f"Undone: {dataset.undo().what}.")
        host.change(self.redo.click, lambda dataset: f"Redone: {dataset.redo().what}.")
        self.removed.wire(host)
        for part in self._parts:
            part.wire(host)

    def wire_use(self, tabs: gr.Tabs, form: Form[TrainSettings]) -> None:
        """Let "Train on this dataset" open the Train tab with the dataset filled in."""

        def use(chosen: str | None, model: str, frames: str) -> list[Any]:
            settings = {"dataset": self.host.open(chosen).name, "model": model, "frames": number_of_frames(frames)}
            return [gr.Tabs(selected="train"), settings]

        form.fill(self.use.click, use, [self.host.chosen, self.model, self.frames], [tabs])

    # ---- showing

    def _values(
        self, chosen: str | None, clip: str | None, selected: list[str], model: str, frames: str, search: str
    ) -> Values:
        listed = dataset_library.search(self.workspace)
        if not listed:
            task = self.add.task
            buttons = (self.use, self.undo, self.redo, task.stop, task.resume, task.dismiss)
            hidden: dict[Any, Any] = dict.fromkeys(
                (self.body, self.whole.box, self.search, self.found, *buttons), visible(False)
            )
            nothing = ("none", lambda: gr.update(choices=[], value=None))
            summary = render.note(EMPTY, "empty")
            empty = {self.dataset: nothing, self.summary: summary, task.progress: "", **self.removed.values()}
            return hidden | empty | {self.new: gr.update(open=True)}
        dataset = self.host.open(chosen)
        choices = _labelled(listed)
        found = [one.name for one in dataset_library.search(self.workspace, search)] if search.strip() else []
        shape, problem = self._shape(model, frames)
        mark, word = (dataset.name, *dataset.version), dataset.info.trigger_word
        opened = dataset.successor(clip) if clip else None
        look = DatasetView(dataset, opened, tuple(selected or ()), model, shape, problem, mark)
        values: dict[Any, Any] = {
            self.search: visible(len(listed) >= MANY or bool(search)),
            self.found: ((search, found, dataset.name), lambda: _found(search, found, dataset.name)),
            self.new: ("there are some", lambda: gr.update(open=False)),
            self.dataset: ((choices, dataset.name), lambda: gr.update(choices=choices, value=dataset.name)),
            **self.removed.values(),
            self.summary: ((mark, model, frames), lambda: _summary(dataset.snapshot(shape))),
            self.use: (mark, lambda: gr.update(visible=bool(dataset.clips))),
            self.body: visible(True),
            self.undo: (mark, lambda: _button("Undo", dataset.undoable)),
            self.redo: (mark, lambda: _button("Redo", dataset.redoable)),
            self.trigger: ((dataset.name, word), lambda: word),  # what is being typed stays
        }
        for part in self._parts:
            values |= part.values(look)
        return values

    def _shape(self, model: str, frames: str) -> tuple[Shape | None, str]:
        """What every clip is brought to, or why that cannot be done."""
        try:
            return wanted_shape(model, frames), ""
        except ConfigError as error:
            return None, str(error)

    # ---- changing

    def _choose(self, name: str, present: str | None) -> list[Any] | None:
        """A list of choices that is left says its choice once more: that closes no clip, and answers no question."""
        return None if name == present else self._opened(name)

    def _opened(self, name: str) -> list[Any]:
        return [Dataset.open(self.workspace, name).name, None, []]

    def _create(self, title: str) -> list[Any]:
        if not title.strip():
            raise ConfigError(NO_TITLE, {"title": NO_TITLE})
        return [*self._opened(Dataset.create(self.workspace, title).name), ""]

    def _set_trigger(self, dataset: Dataset, word: str) -> str | None:
        if word.strip() == dataset.info.trigger_word:
            return None
        dataset.set_trigger_word(word)
        return "Trigger word saved."


def _labelled(listed: Sequence[Dataset]) -> list[tuple[str, str]]:
    """(what the list of choices shows, name): the group stands before the name."""
    return [(f"{group} / {one.name}" if (group := one.group) else one.name, one.name) for one in listed]


def _found(search: str, found: list[str], chosen: str) -> Any:
    """The datasets that a search found, hidden without one."""
    label = f"{len(found)} found" if found else f"No dataset has {search[:60]!r}"
    value = chosen if chosen in found else None
    return gr.update(choices=found, value=value, label=label, visible=bool(search.strip()))


def _button(verb: str, standing: list[Any]) -> Any:
    """Undo or redo, with what it would undo."""
    return gr.update(visible=bool(standing), value=f"{verb}: {standing[0].what[:60]}" if standing else verb)


def _summary(found: DatasetSnapshot) -> str:
    """The dataset in numbers, and what is still to do."""
    title = f'<div class="title"><h2>{render.escaped(found.title)}</h2></div>'
    facts = render.facts(found.facts.items()) if found.facts else ""
    return f'<div class="run-head">{title}{facts}</div>{"".join(map(render.note, found.next_steps))}'
