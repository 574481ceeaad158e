"""Actions on the chosen LoRAs: use, open, star, remove; merge, resize, fuse, convert.

Not covered: which are chosen (grid), the operations (workbench.loras), publishing (publish).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from workbench.errors import ConfigError
from workbench.loras import library, removal, view
from workbench.loras.converting import formats
from workbench.loras.library import LibraryLora
from workbench.loras.removal import PlannedRemoval
from workbench.loras.settings import ConvertSettings, FuseSettings, MergeSettings, ResizeSettings
from workbench.settings import Settings, parse, specs
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET
from workbench.ui.loras.grid import detail
from workbench.workspace import Workspace

NOTHING = "Choose a LoRA above for its facts and actions; choose several to merge them."
STRENGTHS = "One LoRA a line, with =STRENGTH behind it: its weight in the merge or the fused model."


class ChosenPart:
    """Builds the components; the tab connects them. `view` are those that follow the selection."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        used = (MergeSettings, ResizeSettings)
        help_of = {f"{settings.__name__}.{spec.name}": spec.help for settings in used for spec in specs(settings)}
        self.detail = gr.HTML(render.note(NOTHING, "empty"), elem_id="lora-detail")
        with gr.Column(visible=False) as self.acts:
            with gr.Row(elem_classes="buttons"):
                self.use = gr.Button("Use in Sample", variant="primary", elem_id="lora-use")
                self.run = gr.Button("Open its run", elem_id="lora-run")
                self.star = gr.Button("Star", elem_id="lora-star")
                self.unstar = gr.Button("Unstar", elem_id="lora-unstar")
                self.remove = gr.Button("Remove", elem_id="lora-remove")
            self.removing = gr.HTML(elem_id="lora-removing")
            with gr.Row(elem_classes="buttons", visible=False) as self.sure:
                self.removed = gr.Button("Remove (can be restored)", variant="stop", elem_id="lora-removed")
                self.kept = gr.Button("Keep")
            with gr.Accordion("For other programs", open=False):
                with gr.Row(elem_classes="choosing"):
                    known = [(one.title, one.id) for one in formats()]
                    self.format = gr.Dropdown(known, value=known[0][1], label="Format", elem_id="lora-format", scale=2)
                    self.convert = gr.Button("Write the file", elem_id="lora-convert")
                self.about = gr.HTML(_about(known[0][1]))
            with gr.Accordion("Merge, resize or fuse", open=False, elem_id="lora-make"):
                self.strengths = gr.Textbox(
                    lines=2, max_lines=12, label="Strengths", info=STRENGTHS, elem_id="strengths"
                )
                with gr.Row(elem_classes="fields"):
                    self.rank = gr.Textbox("", label="Rank", info=help_of["MergeSettings.rank"], elem_id="lora-rank")
                    self.share = gr.Textbox(
                        "", label="Kept share (resize)", info=help_of["ResizeSettings.share"], elem_id="lora-share"
                    )
                    self.name = gr.Textbox("", label="Name", info=help_of["MergeSettings.name"], elem_id="lora-name")
                with gr.Row(elem_classes="buttons"):
                    self.merge = gr.Button("Merge", elem_id="lora-merge")
                    self.resize = gr.Button("Resize", elem_id="lora-resize")
                    self.fuse = gr.Button("Fuse into the model", elem_id="lora-fuse")
        self.view = [self.detail, self.acts, self.run, self.star, self.unstar, self.strengths, self.removing, self.sure]

    def values(self, names: Sequence[str]) -> list[Any]:
        """Updates for `view`."""
        loras = _found(self.workspace, names)
        starred = [lora.starred for lora in loras]
        return [
            description(loras),
            gr.update(visible=bool(loras)),
            gr.update(visible=len(loras) == 1 and loras[0].run is not None),
            gr.update(visible=not all(starred)),
            gr.update(visible=any(starred)),
            "\n".join(f"{lora.name}=1" for lora in loras),
            "",
            gr.update(visible=False),
        ]

    def wire(self, start: Any) -> None:
        """Connect the buttons that start a job.

        start(event, function, inputs): the function makes settings from the chosen names and the inputs' values
        """
        made = [self.strengths, self.rank, self.name]
        self.format.change(_about, self.format, self.about, **QUIET)
        start(self.merge.click, _merge, made)
        start(self.resize.click, _resize, [self.rank, self.share, self.name])
        start(self.fuse.click, _fuse, [self.strengths, self.name])
        start(self.convert.click, _convert, [self.format])

    def preview(self, names: Sequence[str] | None) -> list[Any]:
        """What would be removed: for `removing` and `sure`. Raises ConfigError."""
        return [planned(removal.preview(self.workspace, list(names or ()))), gr.update(visible=True)]


def planned(removals: Sequence[PlannedRemoval]) -> str:
    """The LoRAs that would be removed, as a table."""
    note = f"{len(removals)} would be removed, {view.total_size(removals)}. They can be restored until deleted below."
    rows = [[one.lora.title, one.lora.name, view.size(one.bytes)] for one in removals]
    return render.note(note, "bad") + render.table(["LoRA", "name", "size"], rows)


def description(loras: Sequence[LibraryLora]) -> str:
    """One LoRA in detail, several as a table."""
    if not loras:
        return render.note(NOTHING, "empty")
    if len(loras) == 1:
        return detail(loras[0])
    models = {lora.base_model for lora in loras}
    warning = render.note("These are for different models and cannot be merged.", "bad") if len(models) > 1 else ""
    rows = [[lora.title, lora.name, lora.base_model, view.strength(lora), view.size(lora.bytes)] for lora in loras]
    return warning + render.table(["LoRA", "name", "base model", "rank", "size"], rows)


def _found(workspace: Workspace, names: Sequence[str]) -> list[LibraryLora]:
    """Those of the names that are still there."""
    found = []
    for name in names:
        try:
            found.append(library.find(workspace, name))
        except ConfigError:
            continue
    return found


def _about(format: str) -> str:
    return next((f'<p class="hint">{render.escaped(one.help)}</p>' for one in formats() if one.id == format), "")


# ---- settings from the fields


def _merge(names: Sequence[str], strengths: str, rank: str, name: str) -> Settings:
    return parse(MergeSettings, {"loras": lines(strengths), "rank": number(rank), "name": name})


def _resize(names: Sequence[str], rank: str, share: str, name: str) -> Settings:
    return parse(ResizeSettings, {"lora": only(names), "rank": number(rank), "share": number(share), "name": name})


def _fuse(names: Sequence[str], strengths: str, name: str) -> Settings:
    return parse(FuseSettings, {"loras": lines(strengths), "name": name})


def _convert(names: Sequence[str], format: str) -> Settings:
    return parse(ConvertSettings, {"lora": only(names), "format": format})


def only(names: Sequence[str]) -> str:
    """The one name that is chosen. Raises ConfigError."""
    if len(names) != 1:
        raise ConfigError(f"{len(names)} LoRAs are chosen, this needs one: choose one")
    return names[0]


def lines(text: str) -> list[str]:
    return [line.strip() for line in (text or "").splitlines() if line.strip()]


def number(text: str) -> Any:
    """The number in a field that may be empty; other text is left for the settings to refuse."""
    text = (text or "").strip()
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
