"""The dataset as a whole on the page: title, group, a person's notes; removing it, and restoring one."""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.dataset_builder import library as dataset_library
from workbench.dataset_builder.dataset import Dataset
from workbench.display.quantities import moment
from workbench.ui.core import render
from workbench.ui.core.boundary import tell
from workbench.ui.core.problems import Fields
from workbench.ui.core.removed_list import RemovedList
from workbench.ui.core.view import Values, visible
from workbench.ui.core.widgets import Confirm
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel, DatasetView
from workbench.workspace import Workspace

KEPT = "The dataset moves to the bin, whole; it can be restored below."


class WholePanel(DatasetPanel):
    """Title, group, notes, dates, and the button that removes the dataset."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        with gr.Accordion("Title, group and notes", open=False, visible=False, elem_id="about-dataset") as self.box:
            self.dates = gr.HTML(elem_id="dataset-dates")
            self.title = gr.Textbox(
                "", label="Title", info="Its name is made from it. Runs still find it.", elem_id="dataset-new-title"
            )
            self.naming = Fields(title=self.title)
            self.rename = gr.Button("Rename", elem_id="rename-dataset")
            self.group = gr.Dropdown(
                [],
                label="Group",
                info="Datasets of a group stand together in the list. Choose one or type a new one; empty: no group.",
                allow_custom_value=True,
                elem_id="dataset-group",
            )
            self.notes = gr.Textbox(
                "", label="Your notes", info="For yourself; they are not published.", lines=4, elem_id="dataset-notes"
            )
            with gr.Row(elem_classes="buttons"):
                self.save = gr.Button("Save group and notes", elem_id="save-dataset-notes")
                self.remove = gr.Button("Remove this dataset", variant="stop", elem_id="remove-dataset")
            self.confirm = Confirm("Remove (can be restored)", "Keep", "dataset-removing", "dataset-remove-sure")
        self.view = [self.box, self.dates, self.title, self.group, self.notes, *self.confirm.components]

    def values(self, look: DatasetView) -> Values:
        dataset, title, notes = look.dataset, look.dataset.info.title, look.dataset.notes
        group, known = dataset.group, dataset_library.groups(Dataset.all(self.workspace))
        cleared = self.confirm.question("", False)  # what was asked of another dataset is not asked of this one
        return {
            **{one: (dataset.name, lambda at=at: cleared[at]) for at, one in enumerate(self.confirm.components)},
            self.box: visible(True),
            self.dates: (look.mark, lambda: _dates(dataset)),
            self.title: ((dataset.name, title), lambda: title),  # what is being typed stays
            self.group: ((dataset.name, group, known), lambda: gr.update(choices=["", *known], value=group)),
            self.notes: ((dataset.name, notes), lambda: notes),
        }

    def wire(self, host: DatasetHost) -> None:
        opened = [host.chosen, host.clip, host.selected]
        host.change(self.rename.click, self._rename, [self.title], [host.chosen], self.naming)
        host.change(self.save.click, _save, [self.group, self.notes])
        host.ask(self.remove.click, self._question, [], self.confirm.components)
        self.confirm.wire(host.change(self.confirm.yes.click, self._remove, outputs=opened))

    def _rename(self, dataset: Dataset, title: str) -> str:
        renamed = dataset_library.rename(self.workspace, dataset, title)
        tell(f"It is now called {renamed.name}.")
        return renamed.name

    def _question(self, dataset: Dataset) -> list[Any]:
        needed = dataset_library.consequence(self.workspace, dataset)
        return self.confirm.question(
            "".join(render.note(text) for text in (f"Remove {dataset.name}? {KEPT}", needed) if text)
        )

    def _remove(self, dataset: Dataset) -> list[Any]:
        tell(dataset_library.remove(self.workspace, dataset))
        left = Dataset.all(self.workspace)
        return [left[0].name if left else None, None, []]


class RemovedDatasets(RemovedList):
    """The removed datasets, whatever dataset is shown."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__("dataset", lambda: dataset_library.removed(workspace))
        self.workspace = workspace

    def wire(self, host: DatasetHost) -> None:
        host.act(self.restore.click, self._restore, [self.names], [host.chosen, host.clip, host.selected])

    def _restore(self, name: str | None) -> list[Any]:
        restored = dataset_library.restore(self.workspace, name or "")
        tell(f"{restored.name} is restored.")
        return [restored.name, None, []]


def _dates(dataset: Dataset) -> str:
    seen = dataset.snapshot()
    facts = {"created": seen.created_at, "changed": seen.changed_at}
    return render.facts([(name, moment(time)) for name, time in facts.items() if time])


def _save(dataset: Dataset, group: str | None, text: str) -> str:
    dataset.set_group(group or "")
    dataset.write_notes(text)
    return "Group and notes are saved."
