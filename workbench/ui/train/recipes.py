"""What to train: a choice above the form of a new run that fills it in and says why; below it presets of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import gradio as gr

from workbench import policy
from workbench.families.recipes import SUBJECTS, Source
from workbench.fit.gpus import HERE
from workbench.fit.levels import suggest
from workbench.runs.recipes import Reason, Suggestion, add_preset, load_preset, preset_names, preset_text, save_preset
from workbench.runs.settings import TrainSettings
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, on, tell
from workbench.ui.core.form import Form
from workbench.ui.core.guide import guide_fold
from workbench.workspace import Workspace

HELP = "Fills in the settings below, for the chosen model, dataset and GPU, and says where each value comes from."
SAVE_HELP = "The form's settings, without the datasets, to be chosen again in any run of this workspace."


class RecipesPart:
    """The choice, built here; with `more` its reasons, the guide and the presets: choose, save, download, add."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        choices = [("Choose to fill in the form", ""), *((name.capitalize(), name) for name in SUBJECTS)]
        self.subject = gr.Dropdown(choices, value="", label="What to train", info=HELP, elem_id="recipe")

    def more(self) -> None:
        """Build what stands below the choice: the reasons, and two folds."""
        self.reasons = gr.HTML(elem_id="recipe-reasons")
        title = "Guide: clips, steps, captions, over-training"
        with gr.Row(elem_classes="folds"):
            guide_fold(title, "guide")
            with gr.Accordion("Presets of your own", open=False, elem_id="presets"):
                self.preset = gr.Dropdown(
                    [], value=None, label="Preset", info="Choosing one fills in the form.", elem_id="preset"
                )
                self.file = gr.HTML(elem_id="preset-file")
                self.name = gr.Textbox(
                    "", label="Save as", info=SAVE_HELP, placeholder="my-style", elem_id="preset-name"
                )
                with gr.Row(elem_classes="buttons"):
                    self.save = gr.Button("Save preset", size="sm", elem_id="save-preset")
                    self.upload = gr.UploadButton(
                        "Add a preset from a file", file_types=[".json"], size="sm", elem_id="add-preset"
                    )

    def wire(self, opened: Any, form: Form[TrainSettings], gpu: gr.Dropdown) -> None:
        """Connect the listeners; `form` is what is filled in, for the chosen `gpu`.

        opened: the event when a person opens the tab
        """
        form.fill(self.subject.input, self._suggested, [self.subject, gpu], [self.reasons], parsed=True)
        form.fill(self.preset.input, self._chosen, [self.preset], [self.file])
        opened(lambda: gr.update(choices=preset_names(self.workspace)), None, self.preset, **QUIET)
        form.submit(self.save.click, self._saved, [self.name], [self.preset, self.file])
        on(self.upload.upload, self._added, [self.upload], [self.preset, self.file])

    def _suggested(self, subject: str, gpu: str | None, settings: TrainSettings) -> list[Any]:
        """The reasons, and the settings for the form."""
        if not subject:
            return ["", {}]
        found = suggest(self.workspace, subject, settings, gpu or HERE)
        return [reasons(found), found.settings]

    def _chosen(self, name: str | None) -> list[Any]:
        values: Mapping[str, Any] = load_preset(self.workspace, name) if name else {}
        return [self._link(name) if name else "", values]

    def _saved(self, title: str, settings: TrainSettings) -> list[Any]:
        return self._listed(save_preset(self.workspace, title, settings), "saved")

    def _added(self, file: str) -> list[Any]:
        return self._listed(add_preset(self.workspace, policy.resolve(file)), "added: choose it to fill in the form")

    def _listed(self, name: str, what: str) -> list[Any]:
        tell(f"Preset {name} is {what}.")
        return [gr.update(choices=preset_names(self.workspace), value=name), self._link(name)]

    def _link(self, name: str) -> str:
        """The preset as a file to download."""
        text = quote(preset_text(self.workspace, name))
        file = render.escaped(f"{name}.json")
        return f'<a class="download" href="data:application/json,{text}" download="{file}">Download {file}</a>'


def reasons(found: Suggestion) -> str:
    """How well it is documented, what to bring, and in a fold a line for each value with its reason and sources."""
    warning = render.note(found.warning, "bad") if found.warning else ""
    advice = _lines(one for one in found.reasons if not one.setting)
    values = _lines(one for one in found.reasons if one.setting)
    folded = f"<details><summary>Why these values</summary>{values}</details>" if values else ""
    return f"{render.note(found.evidence)}{warning}{advice}{folded}"


def _lines(listed: Iterable[Reason]) -> str:
    lines = "".join(f"<dt>{_head(one)}</dt><dd>{_why(one)}</dd>" for one in listed)
    return f'<dl class="reasons">{lines}</dl>' if lines else ""


def _head(one: Reason) -> str:
    return render.escaped(f"{one.title}: {one.value}" if one.setting else one.title)


def _why(one: Reason) -> str:
    named = ", ".join(map(_link, one.sources)) or (
        "" if one.reason.startswith("No published") else "no published source"
    )
    return f'{render.escaped(one.reason)} <span class="sources">{named}</span>'


def _link(source: Source) -> str:
    title = render.escaped(source.title)
    url = render.escaped(source.url)
    return f'<a href="{url}" target="_blank" rel="noopener noreferrer">{title}</a>' if url else title
