"""The form of a sample: SampleSettings with rows for LoRAs, files from the browser, and the number of videos."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from workbench import policy
from workbench.families import models
from workbench.loras.library import words_of
from workbench.sampler.inputs import INPUT_FILES, keep
from workbench.sampler.settings import BatchSettings, SampleSettings, chosen_model, expand
from workbench.settings import Settings, Spec, parse, specs
from workbench.ui.core import render
from workbench.ui.core.boundary import handler, on
from workbench.ui.core.form import Form, from_component
from workbench.ui.core.triggers import TriggerPart
from workbench.ui.sample.result import BUTTONS
from workbench.workspace import Workspace

TYPES = {"picture": [".png", ".jpg", ".jpeg", ".webp", ".bmp"], "video": ["video"]}
BATCH = EACH_LINE, VIDEOS, SCENES = specs(BatchSettings)


class SampleForm(Form[SampleSettings]):
    """The form; `batch` are the fields of BatchSettings, which stand among its own."""

    def __init__(self, workspace: Workspace) -> None:
        self._uploads: dict[str, Any] = {}
        super().__init__(SampleSettings, workspace, SampleSettings(), search=True)
        self.batch = [self._each_line, self._videos, self._scenes]
        self.input_files = gr.HTML(js_on_load=BUTTONS, elem_id="sample-input-files")

    def wire(self, opened: Any) -> None:
        super().wire(opened)
        self._triggers.wire(self, "prompt", ["loras"], self._each_line)
        fields = [self.field(name) for name in INPUT_FILES]
        for name, button in self._uploads.items():
            on(button.upload, self._uploaded(name), [button], [self.field(name)])
        drop = self._drop
        on(drop.upload, lambda file: [None, self._uploaded("image")(file)], [drop], [drop, self.field("image")])
        for figures in (self._first_frame, self.input_files):
            on(figures.action, _without, [], fields)
        self.watch(("image",), handler(self._picture), [self.field("image")], [drop, self._first_frame])
        videos = [name for name, kind in INPUT_FILES.items() if kind == "video"]
        self.watch(videos, handler(self._videos_html), [self.field(name) for name in videos], [self.input_files])
        # A model that a person chooses brings its negative prompt; typed text that is no model's own stays.
        negative = self.field("negative_prompt")
        on(self.model.input, _own_negative_prompt, [self.model, negative], [negative])
        self._random.click(None, None, self.field("seed"), js="() => ''", queue=False, show_progress="hidden")

    def read(self, values: Sequence[Any]) -> dict[str, Any]:
        """As a form does; the model's own negative prompt counts as not set."""
        found = super().read(values)
        if found["negative_prompt"] == getattr(chosen_model(found), "negative_prompt", ""):
            found["negative_prompt"] = None
        return found

    def write(self, settings: Settings | Mapping[str, Any]) -> list[Any]:
        """As a form does; where the model is filled in and no negative prompt, the model's own."""
        values = settings.model_dump(mode="json") if isinstance(settings, Settings) else dict(settings)
        if "model" in values and values.get("negative_prompt") is None:
            values["negative_prompt"] = getattr(chosen_model(values), "negative_prompt", "")
        return super().write(values)

    def each(self, settings: SampleSettings, *batch: Any) -> tuple[list[SampleSettings], int]:
        """(the settings of each video, their `chains`). batch: values of the fields of BatchSettings.

        Raises ConfigError.
        """
        given = {spec.name: from_component(spec, value) for spec, value in zip(BATCH, batch, strict=True)}
        parsed = parse(BatchSettings, given)
        return expand(settings, parsed), parsed.chains

    def _shares_row(self, spec: Spec) -> bool:
        return super()._shares_row(spec) and spec.name not in ("negative_prompt", *INPUT_FILES)

    def _component(self, spec: Spec, value: Any, **more: Any) -> Any:
        if spec.name == "image":
            with gr.Column(elem_classes="fields first-frame"):
                made = super()._component(spec, value, placeholder="drop a picture below, or name a file")
                self._drop = gr.File(
                    label="Drop a picture", file_types=TYPES["picture"], height=72, elem_id="drop-image"
                )
                self._first_frame = gr.HTML(js_on_load=BUTTONS, elem_id="sample-first-frame")
            return made
        if spec.name in INPUT_FILES:
            with gr.Row(elem_classes="fields input-file"):
                made = super()._component(spec, value)
                kind = INPUT_FILES[spec.name]
                self._uploads[spec.name] = gr.UploadButton(
                    f"{spec.title}: upload a {kind}", file_types=TYPES[kind], size="sm", elem_id=f"upload-{spec.name}"
                )
            return made
        if spec.name == "seed":
            self._random = gr.Button("Random", size="sm", render=False)
            return super()._component(spec, value, buttons=[self._random])
        if spec.name in ("height", "width"):
            more["label"] = spec.title  # the field is narrow, and pixels go without saying
        made = super()._component(spec, value, **more)
        if spec.name == "prompt":
            self._triggers = TriggerPart(partial(words_of, self.workspace))
        elif spec.name == "width":
            self._videos = super()._component(VIDEOS, VIDEOS.default)
        return made

    def _above_advanced(self) -> None:
        self._each_line = super()._component(EACH_LINE, EACH_LINE.default)
        self._scenes = super()._component(SCENES, SCENES.default)
        self.again = gr.File(
            label="Settings of a video: one made here, or its JSON",
            file_types=[".mp4", ".json"],
            height=72,
            elem_id="sample-again",
        )

    def _uploaded(self, name: str) -> Callable[[str], str]:
        def take(file: str) -> str:
            return str(keep(self.workspace, Path(file), INPUT_FILES[name]))

        return take

    def _picture(self, file: str) -> list[Any]:
        """The first frame in place of where it is dropped."""
        return [gr.update(visible=not file), self._input_files({"image": file})]

    def _videos_html(self, *files: str) -> str:
        names = [name for name, kind in INPUT_FILES.items() if kind == "video"]
        return self._input_files(dict(zip(names, files, strict=True)))

    def _input_files(self, files: Mapping[str, str]) -> str:
        """The input files, as far as the page may show them."""
        served = (self.workspace.samples, self.workspace.runs, self.workspace.datasets)
        titles = {spec.name: spec.title for spec in self.specs}
        figures = []
        for name, file in files.items():
            if not file:
                continue
            path, title, element = policy.resolve(file, name), titles[name], ""
            inside = any(path.is_relative_to(folder) for folder in served) and path.is_file()
            if inside and INPUT_FILES[name] == "video":
                element = render.video(path, render.PIXEL_ART + 1, title)
            elif inside:
                element = f'<img src="{render.escaped(render.url(path))}" alt="{title}">'
            remove = f'<button type="button" data-do="clear" data-id="{name}">Remove</button>'
            where = "" if inside else f": {render.escaped(file)}"
            figures.append(f"<figure>{element}<figcaption>{title}{where} {remove}</figcaption></figure>")
        return f'<div class="input-files">{"".join(figures)}</div>' if figures else ""


def _without(event: gr.EventData) -> list[Any]:
    """The files, without the one whose button was pressed."""
    return ["" if name == event.id else gr.skip() for name in INPUT_FILES]


def _own_negative_prompt(model: str, text: str) -> Any:
    chosen = chosen_model({"model": model})
    if chosen is None or text.strip() not in {"", *(one.negative_prompt for one in models())}:
        return gr.skip()
    return chosen.negative_prompt
