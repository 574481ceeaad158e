"""The Dataset tab: make datasets, import clips as a background job, look at each clip, say what it shows.

Everything is on disk when a click returns; an import goes on without the page. Not covered: what happens to the files
(workbench.dataset_builder), what things look like (dataset_view).
"""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path
from typing import Any

import gradio as gr

from workbench import jobs
from workbench.clips import INFO, METADATA
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.verdicts import SOURCES
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.frame_plan import FramePlan, Shape, shape_for
from workbench.trainer.settings import TrainSettings
from workbench.ui import dataset_view, render
from workbench.ui.boundary import QUIET, TICK, Seen, handler, tick
from workbench.ui.clip_panel import ClipPanel
from workbench.ui.form import OWN, Form, choices
from workbench.workspace import Workspace

UPLOADS = "uploads"


class DatasetTab:
    """Builds the tab's components; `wire` connects them."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        names = self._names()
        with gr.Row():
            with gr.Column(scale=4, min_width=330, elem_classes="side"):
                self.dataset = gr.Dropdown(
                    names, value=names[0] if names else None, label="Dataset", interactive=True,
                    allow_custom_value=True, elem_id="dataset-choice",
                )  # fmt: skip
                with gr.Accordion("New dataset", open=not names, elem_id="new-dataset"):
                    self.title = gr.Textbox("", label="Title", placeholder="My cat, jumping", elem_id="dataset-title")
                    self.create = gr.Button("Create", elem_id="create-dataset")
                gr.HTML('<h4 class="section">Add clips</h4>')
                self.files = gr.File(
                    label="Videos (and .txt captions of the same name)", file_count="multiple", height=140,
                    elem_id="dataset-files", buttons=[],
                )  # fmt: skip
                self.path = gr.Textbox(
                    "",
                    label="Or a folder or file on this machine",
                    placeholder="/home/me/clips",
                    elem_id="dataset-path",
                )
                with gr.Row():
                    self.take = gr.Button("Import", variant="primary", elem_id="import-clips")
                    self.stop = gr.Button("Stop the import", variant="stop", visible=False)
                self.progress = gr.HTML(elem_id="import-progress")
                self.trigger = gr.Textbox(
                    "", label="Trigger word", elem_id="trigger-word",
                    info="A word of your own for the new thing; put in front of every caption that lacks it.",
                )  # fmt: skip
            with gr.Column(scale=9, min_width=420):
                self.summary = gr.HTML(elem_id="dataset-summary")
                with gr.Row(elem_classes="buttons"):
                    self.use = gr.Button(
                        "Train on this dataset", variant="primary", visible=False, elem_id="use-dataset"
                    )
                self._build_clips()

    def _build_clips(self) -> None:
        models = choices(self.workspace, "models")
        self.gallery = gr.Gallery(
            label="Clips", show_label=False, columns=6, height=316, allow_preview=False, object_fit="contain",
            visible=False, elem_id="clips", interactive=False, buttons=[],
        )  # fmt: skip
        self.clip = ClipPanel(self.workspace, self._open, self._shape)
        with gr.Accordion("What the model sees", open=True, visible=False) as self.plan_part:
            with gr.Row():
                self.model = gr.Dropdown(models, value=models[0][1], label="Model", allow_custom_value=True)
                self.frames = gr.Textbox("", label="Frames", placeholder=OWN)
            self.plans = gr.HTML(elem_id="plans")
        with gr.Accordion("Files and verdicts", open=True):
            self.verdicts = gr.HTML(elem_id="verdicts")
        with gr.Row(visible=False) as self.removed_part:
            self.removed = gr.Dropdown([], label="Clips taken out", interactive=True, allow_custom_value=True)
            self.restore = gr.Button("Bring back")

    @property
    def view(self) -> dict[str, Any]:
        """Everything that follows the chosen dataset, by the names that `_values` uses."""
        names = (
            "dataset", "progress", "stop", "summary", "use", "gallery", "plan_part", "plans", "verdicts",
            "removed_part", "removed", "trigger",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def wire(self, timer: gr.Timer, load: Any) -> None:
        """Connect the listeners; `load` is the page's load event."""
        self.chosen = gr.BrowserState(None, storage_key="workbench-dataset", secret="workbench")
        seen = gr.State(Seen())
        outputs = list(self.view.values())
        look = [self.model, self.frames]
        self.clip.wire(self.gallery, self.chosen, look, load, (self._all, outputs))
        for event in (load, timer.tick):
            event(tick(self._tick), [self.chosen, *look, seen], outputs, **TICK)
        self.dataset.input(
            handler(self._choose), [self.dataset, *look, seen], [self.chosen, *outputs, *self.clip.view], **QUIET
        )
        self.create.click(
            handler(self._create), [self.title, *look, seen], [self.chosen, self.title, *outputs, *self.clip.view],
            **QUIET,
        )  # fmt: skip
        self.take.click(
            handler(self._import), [self.chosen, self.files, self.path, *look, seen],
            [self.chosen, self.files, self.path, *outputs], **QUIET,
        )  # fmt: skip
        self.stop.click(handler(self._stop), self.chosen, None, **QUIET)
        saving = [self.trigger.blur, self.trigger.submit]
        gr.on(saving, handler(self._set_trigger), [self.chosen, self.trigger], None, **QUIET)
        self.restore.click(handler(self._restore), [self.chosen, self.removed, *look], outputs, **QUIET)

    def wire_use(self, tabs: gr.Tabs, form: Form[TrainSettings]) -> None:
        """Let "Train on this dataset" open the Train tab with the dataset filled in."""

        def use(chosen: str | None, model: str, frames: str) -> list[Any]:
            settings = {"dataset": self._open(chosen).name, "model": model, "frames": _number(frames)}
            return [gr.Tabs(selected="train"), *form.write(settings)]

        self.use.click(handler(use), [self.chosen, self.model, self.frames], [tabs, *form.inputs], **QUIET)

    # ---- showing

    def _names(self) -> list[str]:
        return [dataset.name for dataset in Dataset.all(self.workspace)]

    def _open(self, chosen: str | None) -> Dataset:
        """The chosen dataset, else the first. Raises ConfigError when there is none."""
        names = self._names()
        if not names:
            raise ConfigError("there is no dataset yet: give it a title and press Create")
        return Dataset.open(self.workspace, chosen if chosen in names else names[0])

    def _tick(self, chosen: str | None, model: str, frames: str, seen: Seen) -> Any:
        return gr.skip() if seen.late(chosen) else seen.changed(self.view, self._values(chosen, model, frames))

    def _show(self, name: str, model: str, frames: str, seen: Seen) -> list[Any]:
        seen.choose(name)
        return seen.changed(self.view, self._values(name, model, frames))

    def _all(self, chosen: str | None, model: str, frames: str) -> list[Any]:
        return Seen().changed(self.view, self._values(chosen, model, frames))

    def _values(self, chosen: str | None, model: str, frames: str) -> dict[str, Any]:
        names = self._names()
        if not names:
            return {"summary": dataset_view.empty()}
        dataset = self._open(chosen)
        status = dataset.import_status
        values: dict[str, Any] = {
            "dataset": ((names, dataset.name), lambda: gr.update(choices=names, value=dataset.name)),
            "progress": dataset_view.importing(status),
            "stop": (status.state.alive, lambda: gr.update(visible=status.state.alive)),
        }
        files = (dataset.folder / name for name in (METADATA, INFO, SOURCES))
        mark = (dataset.name, model, frames, [path.stat().st_mtime_ns if path.exists() else 0 for path in files])
        return values | {name: (mark, make) for name, make in self._makers(dataset, model, frames).items()}

    def _makers(self, dataset: Dataset, model: str, frames: str) -> dict[str, Any]:
        """What to draw when the dataset's files have changed."""

        @functools.cache  # one look for all that follows, and only when something has changed
        def plans() -> tuple[list[FramePlan], str]:
            try:
                shape = self._shape(model, frames)
                found = dataset.plans(shape)
                return found, dataset_view.plans(found, shape)
            except ConfigError as error:
                return [], render.note(str(error), "bad")

        def gallery() -> Any:
            found = dataset.clips
            shown = [(str(dataset.thumbnail_of(clip)), clip.text or "(no caption)") for clip in found]
            return gr.update(value=shown, visible=bool(found))

        def removed() -> Any:
            return gr.update(
                choices=[(clip.source or clip.file_name, clip.file_name) for clip in dataset.removed], value=None
            )

        return {
            "summary": lambda: dataset_view.summary(dataset, plans()[0]),
            "use": lambda: gr.update(visible=bool(dataset.clips)),
            "gallery": gallery,
            "plan_part": lambda: gr.update(visible=bool(dataset.clips)),
            "plans": lambda: plans()[1],
            "verdicts": lambda: dataset_view.verdicts(dataset),
            "removed_part": lambda: gr.update(visible=bool(dataset.removed)),
            "removed": removed,
            "trigger": lambda: dataset.info.trigger_word,
        }

    def _shape(self, model: str, frames: str) -> Shape:
        """What every clip is brought to. Raises ConfigError when the model or the number of frames is not legal."""
        return shape_for(find_model(model)[1], _number(frames))

    # ---- changing

    def _choose(self, name: str, model: str, frames: str, seen: Seen) -> list[Any]:
        dataset = Dataset.open(self.workspace, name)
        return [name, *self._show(name, model, frames, seen), *self.clip.show(dataset, None, model, frames)]

    def _create(self, title: str, model: str, frames: str, seen: Seen) -> list[Any]:
        if not title.strip():
            raise ConfigError("the title is empty: say in a few words what the clips show")
        name = Dataset.create(self.workspace, title).name
        chosen, *rest = self._choose(name, model, frames, seen)
        return [chosen, "", *rest]

    def _import(
        self, chosen: str | None, files: list[str] | None, path: str, model: str, frames: str, seen: Seen
    ) -> list[Any]:
        given = Path(path.strip()).expanduser() if path.strip() else None
        if not files and given is None:
            raise ConfigError("there is nothing to import: drop video files, or name a folder on this machine")
        if given is not None and not given.exists():
            raise ConfigError(f"the path {path.strip()[:200]!r} does not exist on this machine: check its spelling")
        if self._names():
            dataset = self._open(chosen)
        else:
            dataset = Dataset.create(self.workspace, (given or Path((files or [""])[0])).stem)
        if dataset.import_status.state.alive:
            raise ConfigError("an import is running already: wait until it is done, or stop it")
        uploads = [self._keep_uploads(dataset, files)] if files else []
        dataset.start_import([*uploads, *([given] if given else [])])
        return [dataset.name, None, "", *self._show(dataset.name, model, frames, seen)]

    def _stop(self, chosen: str | None) -> None:
        jobs.stop(self._open(chosen).import_folder)

    def _keep_uploads(self, dataset: Dataset, files: list[str]) -> Path:
        """Bring dropped files together in one folder, so that captions stand beside their videos, and a restart of
        the server does not take them from under the import."""
        inbox = dataset.import_folder / UPLOADS
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

    def _set_trigger(self, chosen: str | None, word: str) -> None:
        dataset = self._open(chosen)
        if word.strip() != dataset.info.trigger_word:
            dataset.set_trigger_word(word)
            gr.Info("Trigger word saved.", duration=2)

    def _restore(self, chosen: str | None, name: str | None, model: str, frames: str) -> list[Any]:
        if not name:
            raise ConfigError("no clip is chosen: choose one of those taken out")
        self._open(chosen).restore(name)
        return self._all(chosen, model, frames)


def _number(text: str) -> int | None:
    """What the field for the number of frames says; None when it is empty. Raises ConfigError."""
    frames = text.strip()
    if frames and not frames.isdigit():
        raise ConfigError(f"frames is {frames[:20]!r}, must be a whole number: leave it empty for the model's own")
    return int(frames) if frames else None
