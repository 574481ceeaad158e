"""Add clips: drop files, name a folder or archive on this machine, or a dataset on the Hub; preview, then import.

The import goes on without the page.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import gradio as gr

from workbench import policy
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import ImportSettings
from workbench.dataset_builder.snapshot import TaskSnapshot
from workbench.dataset_builder.sources.files import first_names
from workbench.dataset_builder.sources.survey import survey
from workbench.dataset_builder.tasks import Task
from workbench.errors import ConfigError, DataError, ExitCode
from workbench.jobs import CONFIG
from workbench.ui.core import render
from workbench.ui.core.boundary import tell
from workbench.ui.core.form import Form
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel
from workbench.ui.datasets.task_part import TaskPart
from workbench.workspace import Workspace, read_object

UPLOADS = "uploads"
MOST_LINES = 24  # of a preview
# What became of each file comes into sight when an import ends, unless the person went on to something else meanwhile.
RESULTS_IN_SIGHT = """
let waits = false;
const pressed = (event) => { waits = Boolean(event.target.closest?.('#import-clips')); };
for (const one of ['pointerdown', 'keydown', 'wheel']) {
  document.addEventListener(one, pressed, { capture: true, passive: true });
}
new MutationObserver(() => {
  const results = waits && element.querySelector('.file-results');
  if (!results) return;
  waits = false;
  results.scrollIntoView({ block: 'nearest' });
}).observe(element, { childList: true, subtree: true });
"""
ELSEWHERE = ("sources", "dataset", "trigger_word")  # settings with fields of their own on the page


class ImportPart(TaskPart):
    """The import. Where no dropped file could be used, that is shown while this server runs, not after a restart.

    The shell (`dataset tasks`) still tells it then.
    """

    script = RESULTS_IN_SIGHT

    def __init__(self) -> None:
        super().__init__("import", "the import")
        self._began = time.time()

    def seen(self, dataset: Dataset) -> TaskSnapshot:
        found, task = super().seen(dataset), dataset.task("import")
        old = (task.status.ended_at or self._began) < self._began
        if old and task.status.exit_code == ExitCode.BAD_DATA and _dropped(task):
            return replace(found, sentence="", details=(), log="", actions=(), files=())
        return found


def _dropped(task: Task) -> bool:
    """Whether all that is imported was dropped in the page."""
    sources = read_object(task.folder / CONFIG).get("sources") or ["/"]
    return all(Path(source).is_relative_to(task.folder / UPLOADS) for source in sources)


class AddPanel(DatasetPanel):
    """Stands on the left of the tab, because it makes datasets grow whichever panel is open."""

    def __init__(self, workspace: Workspace, roots: Sequence[Path]) -> None:
        """roots: folders of this machine that may be imported from; the first can be looked through"""
        self.workspace, browsed = workspace, roots[0].resolve()
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
        self.form = Form(ImportSettings, workspace, without=ELSEWHERE, beside={"path": self.path})
        with gr.Row():
            self.preview = gr.Button("Preview", elem_id="survey-clips")
            self.start = gr.Button("Import", variant="primary", elem_id="import-clips")
            self.task = ImportPart()
        self.found = gr.HTML(elem_id="survey")
        self.task.build_progress()
        self.parts = [self.task]

    def wire(self, host: DatasetHost) -> None:
        given = [self.files, self.path, self.browse]
        self.form.submit(self.preview.click, self._survey, given, [self.found])
        emptied = [self.files, self.path, self.form.field("hub_dataset"), self.found]
        host.act(self.start.click, self._import, [host.chosen, *given], [host.chosen, *emptied], form=self.form)

    # ---- doing

    def _survey(self, files: list[str] | None, path: str, browsed: list[str] | None, settings: ImportSettings) -> str:
        """What is there, in words, before anything is decoded."""
        given = [*map(Path, files or []), *self._named(path, browsed)]
        if not given:
            raise ConfigError("there is nothing to preview: drop files, or name a folder on this machine")
        try:
            lines = survey(given, settings.wanted_layout, settings.columns, settings.rate_of_frames).preview
        except DataError as error:
            return render.note(str(error), "bad")
        return render.listed(lines or ["nothing to import"], MOST_LINES)

    def _named(self, path: str, browsed: list[str] | None) -> list[Path]:
        """The paths that were typed or ticked. Raises ConfigError for one that is not there or lies elsewhere."""
        typed = [path.strip()] if path.strip() else []
        found = [policy.checked(one) for one in (*typed, *(browsed or ()))]
        for one in found:
            if not one.exists():
                sentence = f"the path {str(one)[:200]!r} does not exist on this machine: check its spelling"
                raise ConfigError(sentence, {"path": sentence})
        return found

    def _import(
        self,
        chosen: str | None,
        files: list[str] | None,
        path: str,
        browsed: list[str] | None,
        settings: ImportSettings,
    ) -> list[str | None]:
        given, hub = self._named(path, browsed), settings.hub_dataset
        if not files and not given and not hub:
            raise ConfigError("there is nothing to import: drop video files, or name a folder on this machine")
        if files and not given and not hub:
            _check_uploads([Path(file) for file in files], settings)
        known = {dataset.name: dataset for dataset in Dataset.all(self.workspace)}
        dataset = known.get(chosen or "") or next(iter(known.values()), None)
        if dataset is None:
            title = given[0] if given else Path(hub or (files or [""])[0])
            dataset = Dataset.create(self.workspace, title.stem)
        task = dataset.task("import")
        if task.status.state.alive:
            raise ConfigError("an import is running already: wait until it is done, or stop it")
        uploads = _keep_uploads(task.folder / UPLOADS, files) if files else []
        dataset.start_import([*uploads, *given], **settings.model_dump(exclude=set(ELSEWHERE)))
        return [dataset.name, None, "", "", ""]


def _check_uploads(files: list[Path], settings: ImportSettings) -> None:
    """Refuse files that hold nothing to import before they become a task. Raises ConfigError, DataError."""
    if not survey(files, settings.wanted_layout, settings.columns, settings.rate_of_frames).sources:
        named = first_names([file.name for file in files])
        raise ConfigError(f"there is no video or picture in {named}: drop the videos, too, or an archive of them")


def _keep_uploads(inbox: Path, files: list[str]) -> list[Path]:
    """Keep dropped files until the next import, so that a restart of the server does not take them from under this
    one. Each is imported by itself, so that every one of them gets a result."""
    once = [Path(file) for file in dict.fromkeys(files)]  # Gradio keeps a file that is dropped twice once
    if gone := [file.name for file in once if not file.is_file()]:
        raise ConfigError(f"{first_names(gone)} is no longer on the server: drop it again")
    if len(once) < len(files):
        twice = first_names([file.name for file in once if files.count(os.fspath(file)) > 1])
        tell(f"Dropped more than once, imported once: {twice}.")
    shutil.rmtree(inbox, ignore_errors=True)  # of the last import, which is over
    inbox.mkdir(parents=True)
    kept = []
    for file in once:
        target = inbox / file.name
        count = 1
        while target.exists():
            count += 1
            target = inbox / f"{file.stem}-{count}{file.suffix}"
        shutil.move(os.fspath(file), target)
        kept.append(target)
    return kept
