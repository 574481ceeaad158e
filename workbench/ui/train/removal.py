"""A run's name and group, a person's notes on it, removing it, and restoring one that was removed."""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from workbench.runs.listing import groups
from workbench.runs.run import Run, remove_run, removed_runs, rename_run, restore_run
from workbench.runs.snapshot import RunSnapshot
from workbench.ui.core.boundary import tell
from workbench.ui.core.live import Live
from workbench.ui.core.removed_list import RemovedList
from workbench.ui.core.view import LiveView, visible
from workbench.ui.train.part import TrainHost, TrainPart
from workbench.workspace import Workspace


class NotesPart(TrainPart):
    """Name, group and notes in fields, and the button that removes the run once it is over."""

    def __init__(self, live: Live) -> None:
        self.live = live
        with gr.Accordion("Name, group and notes", open=False, elem_id="run-notes-box"):
            with gr.Row(elem_classes="fields"):
                self.name = gr.Textbox(
                    "", label="Name", info="Can be changed once the run is over.", elem_id="rename-run"
                )
                self.group = gr.Dropdown(
                    [],
                    label="Group",
                    info="Runs of a group stand together in the list. Choose one or type a new one; empty: no group.",
                    allow_custom_value=True,
                    elem_id="run-group",
                )
            self.notes = gr.Textbox(
                "", label="Your notes", info="For yourself; they are not published.", lines=4, elem_id="run-notes"
            )
            with gr.Row(elem_classes="buttons"):
                self.save = gr.Button("Save", elem_id="save-notes")
                self.remove = gr.Button("Remove this run", variant="stop", elem_id="remove-run")
        self.typed = [self.name, self.group, self.notes]
        self.components = [*self.typed, self.remove]

    def values(self, snapshot: RunSnapshot) -> dict[Any, Any]:
        written, alive = snapshot.own_notes, snapshot.status.state.alive
        name, group, known = snapshot.name, snapshot.group, groups(self.live.entries().entries)
        return {
            self.name: ((name, alive), lambda: gr.update(value=name, interactive=not alive)),
            self.group: ((name, group, known), lambda: gr.update(choices=["", *known], value=group)),
            self.notes: ((snapshot.name, written), lambda: written),  # what is being typed stays
            self.remove: visible(not alive),
        }

    def wire(self, host: TrainHost) -> None:
        host.act(self.save.click, partial(save, host.workspace), [self.name, self.group, self.notes])
        host.act(self.remove.click, partial(remove_run, host.workspace))


class RemovedRuns(RemovedList):
    """The removed runs, whatever run is shown."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__("run", lambda: removed_runs(workspace))
        self.workspace = workspace

    def wire(self, view: LiveView, live: Live, chosen: gr.BrowserState) -> None:
        def restore(name: str | None) -> str:
            restored = restore_run(self.workspace, name or "")
            live.refresh(restored.name)
            tell(f"{restored.name} is restored.")
            return restored.name

        view.act(self.restore.click, restore, [self.names], [chosen])


def save(workspace: Workspace, run: Run, name: str, group: str | None, notes: str) -> Run:
    """Rename the run where another name was typed, and keep group and notes."""
    renamed = rename_run(workspace, run, name.strip())
    renamed.set_group(group or "")
    renamed.write_notes(notes)
    tell("Name, group and notes are saved.")
    return renamed
