"""Where every clip came from, and everything that was done to the dataset, with a way back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.history import Change
from workbench.dataset_builder.ingest.results import OUTCOMES
from workbench.display.quantities import moment
from workbench.display.states import Tone
from workbench.errors import ConfigError
from workbench.ui.core import render
from workbench.ui.core.view import Values
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel, DatasetView
from workbench.workspace import Workspace

TONES: dict[str, Tone] = {"taken": "good", "converted": "idle", "known": "idle", "refused": "bad"}
MOST_ROWS = 500


class FilesPanel(DatasetPanel):
    """Import results, removed clips, history."""

    def __init__(self, workspace: Workspace) -> None:
        self.results = gr.HTML(elem_id="import-results")
        with gr.Row(visible=False, elem_classes="choosing") as self.removed_part:
            self.removed = gr.Dropdown([], label="Removed clips", interactive=True, multiselect=True)
            self.restore = gr.Button("Restore", elem_id="restore-clips")
        gr.HTML('<h3 class="part">What was done</h3>')
        self.history = gr.HTML(elem_id="history")
        with gr.Row(visible=False, elem_classes="choosing") as self.undo_part:
            self.change = gr.Dropdown([], label="A change to take back", interactive=True)
            self.undo = gr.Button("Take it back")

        self.view = [self.results, self.removed_part, self.removed, self.history, self.undo_part, self.change]

    def values(self, look: DatasetView) -> Values:
        dataset = look.dataset

        def removed() -> Any:
            return gr.update(choices=[(clip.name, clip.file_name) for clip in dataset.removed], value=[])

        def changes() -> Any:
            return gr.update(choices=[(change.what, change.number) for change in dataset.undoable[:100]], value=None)

        return {
            self.results: (look.mark, lambda: _import_results(dataset)),
            self.removed_part: (look.mark, lambda: gr.update(visible=bool(dataset.removed))),
            self.removed: (look.mark, removed),
            self.history: (look.mark, lambda: _history(dataset.history)),
            self.undo_part: (look.mark, lambda: gr.update(visible=bool(dataset.undoable))),
            self.change: (look.mark, changes),
        }

    def wire(self, host: DatasetHost) -> None:
        host.change(self.restore.click, self._restore, [self.removed])
        host.change(self.undo.click, self._undo, [self.change])

    def _restore(self, dataset: Dataset, names: list[str] | None) -> str:
        if not names:
            raise ConfigError("no clip is chosen: choose one of the removed ones")
        dataset.restore(*names)
        return "Restored."

    def _undo(self, dataset: Dataset, number: int | None) -> str:
        if number is None:
            raise ConfigError("no change is chosen: choose one that shall be taken back")
        return f"Undone: {dataset.undo(int(number)).what}."


def _import_results(dataset: Dataset) -> str:
    """Every source file and what became of it, the refused ones first."""
    found = sorted(dataset.import_results, key=lambda result: result.usable)
    if not found:
        return render.note("Every file that you import is listed here: taken, converted or refused, and why.", "empty")
    rows = "".join(
        f"<tr><td>{render.escaped(Path(one.source).name)}</td>"
        f"<td>{render.badge(OUTCOMES[one.outcome], TONES[one.outcome])}</td>"
        f"<td>{render.escaped('; '.join(one.notes))}</td></tr>"
        for one in found[:MOST_ROWS]
    )
    more = f"<p>and {len(found) - MOST_ROWS:,} more in sources.jsonl</p>" if len(found) > MOST_ROWS else ""
    return (
        '<div class="scroll" tabindex="0"><table class="plain">'
        "<thead><tr><th>file</th><th>result</th><th>how or why</th></tr>"
        f"</thead><tbody>{rows}</tbody></table></div>{more}"
    )


def _history(changes: list[Change]) -> str:
    rows = [(moment(change.time), change.sentence, f"{change.clips:,}") for change in reversed(changes[-MOST_ROWS:])]
    return render.table(("when", "what", "clips"), rows) if rows else render.note("Nothing yet.", "empty")
