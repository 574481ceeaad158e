"""The form of a sample: SampleSettings with rows for LoRAs, files from the browser, and the number of videos.

Not covered: fields in general (form), submitting (tab).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from workbench import policy
from workbench.sampler.input_files import INPUT_FILES, keep
from workbench.sampler.settings import BatchSettings, SampleSettings, expand
from workbench.sampler.view import task_of
from workbench.settings import Spec, parse, specs
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, handler
from workbench.ui.core.form import EMPTY, Form, to_component
from workbench.ui.sample.lora_stack import LoraStack
from workbench.ui.sample.result import BUTTONS
from workbench.workspace import Workspace

TYPES = {"picture": [".png", ".jpg", ".jpeg", ".webp", ".bmp"], "video": ["video"]}
UPLOADS = {
    "image": "Upload a picture",
    "video": "Upload a video",
    "continue_from": "Upload a video ",  # a button's label is its name
}
CAPTIONS = {"image": "First frame", "video": "Video to change", "continue_from": "Video to continue"}
SPEEDS = {"exact": "exact", "fast": "fast", "low-memory": "low memory, for a small GPU"}


class SampleForm(Form[SampleSettings]):
    """The form, and beside it `videos` and `each_line`, which become BatchSettings."""

    def __init__(self, workspace: Workspace) -> None:
        self._batch = {spec.name: spec for spec in specs(BatchSettings)}
        self._uploads: dict[str, Any] = {}
        super().__init__(SampleSettings, workspace, SampleSettings(), without_effect)
        self.input_files = gr.HTML(js_on_load=BUTTONS, elem_id="sample-input-files")

    def field(self, name: str) -> Any:
        """The component of a setting."""
        return self._components[name]

    def wire(self, load: Any) -> None:
        super().wire(load)
        fields = [self.field(name) for name in INPUT_FILES]
        for name, button in self._uploads.items():
            button.upload(handler(self._uploaded(name)), button, self.field(name), **QUIET)
        self.input_files.action(handler(_without), None, fields, **QUIET)
        self.watch(tuple(INPUT_FILES), handler(self._input_files), fields, [self.input_files])
        self.random.click(None, None, self.field("seed"), js="() => ''", queue=False, show_progress="hidden")

    def requests(
        self, videos: float | None, each_line: bool, values: Sequence[Any]
    ) -> tuple[SampleSettings, list[SampleSettings]]:
        """The form's settings, and those of each video. Raises ConfigError, as for a file that may not be read."""
        settings = self.parse(values)
        count = int(videos) if videos is not None and float(videos).is_integer() else videos
        return settings, expand(settings, parse(BatchSettings, {"videos": count, "each_line": each_line}))

    def refreshed(self) -> list[Any]:
        """As the form's, but for the LoRAs, whose rows load their own choices."""
        updates = zip(self.sourced, super().refreshed(), strict=True)
        return [gr.skip() if component is self.stack.component else update for component, update in updates]

    def _component(self, spec: Spec, value: Any) -> Any:
        elem_id = f"{SampleSettings.__name__}-{spec.name}"
        if spec.name == "loras":
            self.stack = LoraStack(self.workspace, value, elem_id)
            return self.stack.component
        if spec.name in INPUT_FILES:
            with gr.Row(elem_classes="fields input-file"):
                made = super()._component(spec, value)
                self._uploads[spec.name] = gr.UploadButton(
                    UPLOADS[spec.name],
                    file_types=TYPES[INPUT_FILES[spec.name]],
                    size="sm",
                    elem_id=f"upload-{spec.name}",
                )
            return made
        if spec.name == "speed":
            return gr.Radio(
                [(words, name) for name, words in SPEEDS.items()],
                value=value,
                label=spec.title,
                info=spec.help,
                interactive=True,
                elem_id=elem_id,
                min_width=300,
            )
        if spec.name == "seed":
            self.random = gr.Button("Random", size="sm", render=False)
            made = gr.Textbox(
                value=to_component(spec, value),
                placeholder=EMPTY["seed"],
                label=spec.title,
                info=spec.help,
                interactive=True,
                elem_id=elem_id,
                min_width=150,
                buttons=[self.random],
            )
        else:
            made = super()._component(spec, value)
        if spec.name == "prompt":
            each = self._batch["each_line"]
            self.each_line = gr.Checkbox(False, label=each.title, info=each.help, elem_id="each-line")
        if spec.name == "seed":
            videos = self._batch["videos"]
            self.videos = gr.Number(
                1,
                label=videos.title,
                info=videos.help,
                precision=0,
                step=1,
                minimum=1,
                maximum=100,
                min_width=150,
                interactive=True,
                elem_id="videos",
            )
        return made

    def _uploaded(self, name: str) -> Callable[[str], str]:
        def take(file: str) -> str:
            return str(keep(self.workspace, Path(file), INPUT_FILES[name]))

        return take

    def _input_files(self, *files: str) -> str:
        """The input files, as far as the page may show them."""
        served = (self.workspace.samples, self.workspace.runs, self.workspace.datasets)
        figures = []
        for (name, kind), file in zip(INPUT_FILES.items(), files, strict=True):
            if not file:
                continue
            path = policy.resolve(file, name)
            inside = any(path.is_relative_to(folder) for folder in served) and path.is_file()
            picture = f'<img src="{render.escaped(render.url(path))}" alt="{CAPTIONS[name]}">' if inside else ""
            preview = (
                render.video(path, render.PIXEL_ART + 1, CAPTIONS[name]) if inside and kind == "video" else picture
            )
            remove = f'<button type="button" data-do="clear" data-id="{name}">Remove</button>'
            where = "" if inside else f": {render.escaped(file)}"
            figures.append(f"<figure>{preview}<figcaption>{CAPTIONS[name]}{where} {remove}</figcaption></figure>")
        return f'<div class="input-files">{"".join(figures)}</div>' if figures else ""


def _without(event: gr.EventData) -> list[Any]:
    """The files, without the one whose button was pressed."""
    return ["" if name == event.id else gr.skip() for name in INPUT_FILES]


# When a setting has an effect: those that are not named here always have one.
NEEDED: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    **dict.fromkeys(("image", "image_scale"), lambda values: task_of(str(values["model"])) != "text-to-video"),
    "video": lambda values: task_of(str(values["model"])) != "image-to-video",
    "strength": lambda values: bool(values["video"]),
    "force_loras": lambda values: bool(values["loras"]),
}


def without_effect(values: Mapping[str, Any]) -> list[str]:
    """Names of the settings without effect beside these values (raw, as a form holds them)."""
    return [name for name, needed in NEEDED.items() if not needed(values)]
