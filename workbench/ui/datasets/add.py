"""Add clips: drop files, name a folder or archive on this machine, or a dataset on the Hub; preview, then import.

The import goes on without the page. Not covered: layouts and import results (dataset_builder).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from workbench import policy
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import ImportSettings
from workbench.dataset_builder.sources.survey import survey
from workbench.errors import ConfigError, DataError
from workbench.settings import parse, specs
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, handler
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel, DatasetView
from workbench.ui.datasets.task_part import TaskPart
from workbench.workspace import Workspace

UPLOADS = "uploads"
LINES = 24  # of what a look before the import says
COLUMNS = (
    ("video_column", "Video column", "file_name"),
    ("caption_column", "Caption column", "text"),
)


class AddPanel(DatasetPanel):
    """Stands on the left of the tab, because it makes datasets grow whichever panel is open."""

    def __init__(self, workspace: Workspace, roots: Sequence[Path]) -> None:
        """roots: folders of this machine that may be imported from; the first can be looked through"""
        self.workspace, browsed = workspace, roots[0].resolve()
        help_of = {spec.name: spec.help for spec in specs(ImportSettings)}
        gr.HTML('<h4 class="section">Add clips</h4>')
        self.files = gr.File(
            label="Videos, pictures, archives, and captions of the same names",
            file_count="multiple",
            height=140,
            elem_id="dataset-files",
            buttons=[],
        )
        self.path = gr.Textbox(
            "", label="Or a folder or file on this machine", placeholder="/home/me/clips", elem_id="dataset-path"
        )
        with gr.Accordion("Browse this machine", open=False):
            self.browse = gr.FileExplorer(
                root_dir=browsed, file_count="multiple", label=str(browsed), height=240, elem_id="browse"
            )
        with gr.Accordion("More", open=False, elem_classes="more"):
            self.hub = gr.Textbox(
                "",
                label="Or a dataset on the Hugging Face Hub",
                info=help_of["hub_dataset"],
                placeholder="owner/name",
                elem_id="dataset-hub",
            )
            layouts = [
                ("found out by itself", "auto"),
                "videofolder",
                "csv",
                "sidecars",
                "lists",
                "labels",
                "webdataset",
            ]
            self.layout = gr.Dropdown(
                layouts, value="auto", label="Layout", info=help_of["layout"], elem_id="dataset-layout"
            )
            self.columns = [
                gr.Textbox("", label=title, info=help_of[name], placeholder=usual, elem_id=f"dataset-{name}")
                for name, title, usual in COLUMNS
            ]
            self.longest = gr.Textbox(
                "", label="Longest side (pixels)", info=help_of["longest_side"], placeholder="as it is"
            )
        with gr.Row():
            self.look = gr.Button("Preview", elem_id="survey-clips")
            self.take = gr.Button("Import", variant="primary", elem_id="import-clips")
            self.task = TaskPart("import", "the import")
        self.found = gr.HTML(elem_id="survey")
        self.task.build_progress()

    @property
    def view(self) -> dict[str, Any]:  # type: ignore[override]
        return self.task.view

    def values(self, look: DatasetView) -> dict[str, Any]:
        return self.task.values(look.dataset)

    def wire(self, host: DatasetHost) -> None:
        given = [self.files, self.path, self.browse, self.layout, *self.columns]
        self.look.click(handler(self._survey), given, self.found, **QUIET)
        taken = self.take.click(
            handler(self._import),
            [host.chosen, *given, self.hub, self.longest],
            [host.chosen, self.files, self.path, self.hub, self.found],
            **QUIET,
        )
        host.refresh(taken)
        self.task.wire(host)

    # ---- doing

    def _survey(
        self, files: list[str] | None, path: str, browsed: list[str] | None, layout: str, video: str, caption: str
    ) -> str:
        """What is there, in words, before anything is decoded."""
        given = [*map(Path, files or []), *self._named(path, browsed)]
        if not given:
            raise ConfigError("there is nothing to look at: drop files, or name a folder on this machine")
        try:
            wanted = {"layout": layout, "video_column": video, "caption_column": caption}
            settings = parse(ImportSettings, wanted)
            lines = survey(given, settings.wanted_layout, settings.columns).sentences
        except DataError as error:
            return render.note(str(error), "bad")
        more = [f"... and {len(lines) - LINES} more"] if len(lines) > LINES else []
        listed = "".join(f"<li>{render.escaped(line)}</li>" for line in [*lines[:LINES], *more])
        return f'<ul class="note">{listed or "<li>nothing to import</li>"}</ul>'

    def _named(self, path: str, browsed: list[str] | None) -> list[Path]:
        """The paths that were typed or ticked. Raises ConfigError for one that is not there or lies elsewhere."""
        typed = [path.strip()] if path.strip() else []
        found = [policy.resolve(one) for one in (*typed, *(browsed or ()))]
        for one in found:
            if not one.exists():
                raise ConfigError(f"the path {str(one)[:200]!r} does not exist on this machine: check its spelling")
        return found

    def _import(
        self, chosen: str | None, files: list[str] | None, path: str, browsed: list[str] | None, *more: str
    ) -> list[Any]:
        """more: layout, columns of videos and captions, Hub dataset, longest side"""
        layout, video, caption, hub, longest = more
        given = self._named(path, browsed)
        if not files and not given and not hub.strip():
            raise ConfigError("there is nothing to import: drop video files, or name a folder on this machine")
        side = longest.strip()
        checked = parse(
            ImportSettings,
            {
                "layout": layout,
                "video_column": video,
                "caption_column": caption,
                "hub_dataset": hub.strip(),
                "longest_side": int(side) if side.isdecimal() else side or None,
            },
        )
        names = {dataset.name: dataset for dataset in Dataset.all(self.workspace)}
        title = (given[0] if given else Path(hub.strip() or (files or [""])[0])).stem
        dataset = names.get(chosen or "") or next(iter(names.values()), None) or Dataset.create(self.workspace, title)
        task = dataset.task("import")
        if task.status.state.alive:
            raise ConfigError("an import is running already: wait until it is done, or stop it")
        uploads = [_keep_uploads(task.folder / UPLOADS, files)] if files else []
        sources = tuple(os.path.abspath(one) for one in [*uploads, *given])
        task.start(checked.changed(sources=sources, dataset=dataset.name))
        return [dataset.name, None, "", "", ""]


def _keep_uploads(inbox: Path, files: list[str]) -> Path:
    """Bring dropped files together in one folder, so that captions stand beside their videos, and a restart of the
    server does not take them from under the import."""
    shutil.rmtree(inbox, ignore_errors=True)  # of the last import, which is over
    inbox.mkdir(parents=True)
    for file in map(Path, files):
        target = inbox / file.name
        count = 1
        while target.exists():
            count += 1
            target = inbox / f"{file.stem}-{count}{file.suffix}"
        shutil.move(os.fspath(file), target)
    return inbox
