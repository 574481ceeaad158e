"""One clip of a dataset: it plays, says what the model sees of it, takes a caption, and can be taken out.

Not covered: which clips there are (dataset_tab).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from workbench.clips import Clip
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError
from workbench.frame_plan import Shape
from workbench.ui import dataset_view, render
from workbench.ui.boundary import QUIET, handler
from workbench.workspace import Workspace

PLANS = "plans"  # folder below the workspace's cache
Open = Callable[[str | None], Dataset]
ShapeOf = Callable[[str, str], Shape]


class ClipPanel:
    """Builds the panel; `wire` connects it to the gallery and to what is chosen elsewhere in the tab."""

    def __init__(self, workspace: Workspace, open_dataset: Open, shape_of: ShapeOf) -> None:
        self.workspace, self._open, self._shape_of = workspace, open_dataset, shape_of
        with gr.Row(visible=False, elem_id="clip") as self.panel:
            with gr.Column(scale=1, min_width=280):
                self.player = gr.HTML(elem_id="clip-player")
                self.plan = gr.HTML(elem_id="clip-plan")
            with gr.Column(scale=1, min_width=280):
                self.caption = gr.Textbox(
                    "", label="Caption", lines=4, elem_id="caption",
                    info="What the clip shows. Saved when you leave the field.",
                )  # fmt: skip
                with gr.Row(elem_classes="buttons"):
                    self.before = gr.Button("Previous", size="sm")
                    self.after = gr.Button("Next", size="sm")
                    self.play = gr.Button("Play what the model sees", size="sm", elem_id="play-plan")
                    self.remove = gr.Button("Take out of the dataset", size="sm", variant="stop", elem_id="remove-clip")

    def wire(
        self, gallery: gr.Gallery, chosen: Any, look: list[Any], load: Any, removed: tuple[Any, list[Any]]
    ) -> None:
        """chosen: the dataset's name;  look: model and frames;  removed: (what shows the dataset anew, its outputs)"""
        # Kept by the browser, so that a caption always travels with the name of the clip that it was typed for.
        self.name = gr.BrowserState(None, storage_key="workbench-clip", secret="workbench")
        self.view = [self.name, self.panel, self.player, self.plan, self.caption]
        here = [chosen, self.name, *look]
        gallery.select(handler(self._select), [chosen, *look], self.view, **QUIET)
        for button, distance in ((self.before, -1), (self.after, 1)):
            button.click(handler(self._stepper(distance)), here, self.view, **QUIET)
        saving = [self.caption.blur, self.caption.submit]
        gr.on(saving, handler(self._save), [chosen, self.name, self.caption], None, **QUIET)
        self.play.click(handler(self._play), here, self.plan, api_visibility="private")
        show, outputs = removed
        taken = self.remove.click(handler(self._remove), here, self.view, **QUIET)
        taken.then(handler(show), [chosen, *look], outputs, **QUIET)
        load(handler(self._again), here, self.view, **QUIET)

    def show(self, dataset: Dataset, clip: Clip | None, model: str, frames: str) -> list[Any]:
        """Updates for `view`."""
        if clip is None:
            return [None, gr.update(visible=False), "", "", ""]
        try:
            shape = self._shape_of(model, frames)
            said = next((plan.sentence for plan in dataset.plans(shape) if plan.clip == clip), "")
            plan = render.note(f"The model sees: {said}")
        except ConfigError:  # said once, above the table of plans
            plan = ""
        return [clip.file_name, gr.update(visible=True), dataset_view.player(dataset, clip), plan, clip.text]

    def _select(self, chosen: str | None, model: str, frames: str, event: gr.SelectData) -> list[Any]:
        dataset = self._open(chosen)
        found = dataset.clips
        return self.show(dataset, found[event.index] if event.index < len(found) else None, model, frames)

    def _stepper(self, distance: int) -> Any:
        def step(chosen: str | None, name: str | None, model: str, frames: str) -> list[Any]:
            dataset = self._open(chosen)
            found = dataset.clips
            here = next((place for place, clip in enumerate(found) if clip.file_name == name), 0)
            return self.show(dataset, found[(here + distance) % len(found)] if found else None, model, frames)

        return step

    def _again(self, chosen: str | None, name: str | None, model: str, frames: str) -> list[Any]:
        """After a reload: the clip that was shown, if it is still there."""
        if not Dataset.all(self.workspace):
            return [None, gr.update(visible=False), "", "", ""]
        dataset = self._open(chosen)
        return self.show(dataset, next((clip for clip in dataset.clips if clip.file_name == name), None), model, frames)

    def _save(self, chosen: str | None, name: str | None, text: str) -> None:
        if not name:
            return
        dataset = self._open(chosen)
        if dataset.clip(name).text != text.strip():
            dataset.set_caption(name, text)
            gr.Info("Caption saved.", duration=2)

    def _play(self, chosen: str | None, name: str | None, model: str, frames: str) -> str:
        dataset = self._open(chosen)
        clip = dataset.clip(name or "")
        shape = self._shape_of(model, frames)
        size = f"{shape.frames}-{shape.width}x{shape.height}-{shape.fps:g}"
        target = self.workspace.cache / PLANS / f"{dataset.name}-{Path(clip.file_name).stem}-{size}.mp4"
        target.parent.mkdir(exist_ok=True)
        plan = dataset.plan_preview(clip, shape, target)
        return dataset_view.figure(target, shape.width, f"Exactly what the model sees: {plan.sentence}")

    def _remove(self, chosen: str | None, name: str | None, model: str, frames: str) -> list[Any]:
        dataset = self._open(chosen)
        dataset.remove(name or "")
        gr.Info("Taken out; it can be brought back below.", duration=4)
        return self.show(dataset, None, model, frames)
