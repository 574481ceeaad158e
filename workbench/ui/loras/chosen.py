"""What can be done with the chosen LoRAs: use, open, star, remove; merge, resize, bake, convert.

Not covered: which are chosen (grid), how it is done (workbench.loras), publishing (ui.publishing).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from workbench.errors import ConfigError
from workbench.loras import library, removal
from workbench.loras.converting import formats
from workbench.loras.library import ShelfLora
from workbench.loras.settings import BakeSettings, ConvertSettings, MergeSettings, ResizeSettings
from workbench.settings import Settings, parse, specs
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET
from workbench.ui.loras.grid import detail, size
from workbench.workspace import Workspace

NOTHING = "Choose a LoRA above to see all about it, and what can be made of it; choose several to merge them."
STRENGTHS = (
    "One LoRA a line with =STRENGTH behind it: how much it counts in a merge, or in the model it is worked into."
)


class ChosenPart:
    """Builds the components; the tab connects them. `view` are those that follow the choice."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        help_of = {f"{cls.__name__}.{spec.name}": spec.help for cls in (MergeSettings, ResizeSettings, ConvertSettings)
                   for spec in specs(cls)}  # fmt: skip
        self.detail = gr.HTML(render.note(NOTHING, "empty"), elem_id="lora-detail")
        with gr.Column(visible=False) as self.acts:
            with gr.Row(elem_classes="buttons"):
                self.use = gr.Button("Use in Sample", variant="primary", elem_id="lora-use")
                self.run = gr.Button("Open its run", elem_id="lora-run")
                self.star = gr.Button("Star", elem_id="lora-star")
                self.unstar = gr.Button("Take the star off", elem_id="lora-unstar")
                self.remove = gr.Button("Remove", elem_id="lora-remove")
            self.going = gr.HTML(elem_id="lora-going")
            with gr.Row(elem_classes="buttons", visible=False) as self.sure:
                self.removed = gr.Button("Remove, can be brought back", variant="stop", elem_id="lora-removed")
                self.kept = gr.Button("Keep")
            with gr.Accordion("For other programs", open=False):
                with gr.Row(elem_classes="choosing"):
                    known = [(one.title, one.id) for one in formats()]
                    self.format = gr.Dropdown(known, value=known[0][1], label="Format", elem_id="lora-format", scale=2)
                    self.convert = gr.Button("Write the file", elem_id="lora-convert")
                self.about = gr.HTML(_about(known[0][1]))
            with gr.Accordion("Make another LoRA or a model of it", open=False, elem_id="lora-make"):
                self.strengths = gr.Textbox(
                    lines=2, max_lines=12, label="Strengths", info=STRENGTHS, elem_id="strengths"
                )
                with gr.Row(elem_classes="fields"):
                    self.rank = gr.Textbox("", label="Rank", info=help_of["MergeSettings.rank"], elem_id="lora-rank")
                    self.share = gr.Textbox("", label="Kept share (change rank)", info=help_of["ResizeSettings.share"],
                                            elem_id="lora-share")  # fmt: skip
                    self.name = gr.Textbox("", label="Name", info=help_of["MergeSettings.name"], elem_id="lora-name")
                with gr.Row(elem_classes="buttons"):
                    self.merge = gr.Button("Merge", elem_id="lora-merge")
                    self.resize = gr.Button("Change rank", elem_id="lora-resize")
                    self.bake = gr.Button("Work into the model", elem_id="lora-bake")
        self.view = [self.detail, self.acts, self.run, self.star, self.unstar, self.strengths, self.going, self.sure]

    def values(self, names: Sequence[str]) -> list[Any]:
        """Updates for `view`."""
        loras = _found(self.workspace, names)
        starred = [lora.starred for lora in loras]
        return [
            said(loras),
            gr.update(visible=bool(loras)),
            gr.update(visible=len(loras) == 1 and loras[0].run is not None),
            gr.update(visible=not all(starred)),
            gr.update(visible=any(starred)),
            "\n".join(f"{lora.name}=1" for lora in loras),
            "",
            gr.update(visible=False),
        ]

    def wire(self, asked: Any) -> None:
        """Connect the buttons that begin a job.

        asked(event, function, inputs): the function makes settings of the chosen names and the inputs' values
        """
        made = [self.strengths, self.rank, self.name]
        self.format.change(_about, self.format, self.about, **QUIET)
        asked(self.merge.click, _merge, made)
        asked(self.resize.click, _resize, [self.rank, self.share, self.name])
        asked(self.bake.click, _bake, [self.strengths, self.name])
        asked(self.convert.click, _convert, [self.format])

    def ask(self, names: Sequence[str] | None) -> list[Any]:
        """What would be removed, before it is: for `going` and `sure`. Raises ConfigError."""
        going = removal.preview(self.workspace, list(names or ()))
        rows = [[one.lora.title, one.lora.name, size(one.bytes)] for one in going]
        total = size(sum(one.bytes for one in going))
        what = "It goes" if len(going) == 1 else f"These {len(going)} go"
        note = render.note(
            f"{what} from the shelf, {total}, and can be brought back below until that is emptied.", "bad"
        )
        return [note + render.table(["LoRA", "name", "size"], rows), gr.update(visible=True)]


def said(loras: Sequence[ShelfLora]) -> str:
    """One LoRA whole, several as a table."""
    if not loras:
        return render.note(NOTHING, "empty")
    if len(loras) == 1:
        return detail(loras[0], library.notes(loras[0]).get("made_of", []))
    models = {lora.base_model for lora in loras}
    warning = render.note("These are for different models and cannot be merged.", "bad") if len(models) > 1 else ""
    rows = [[lora.title, lora.name, lora.base_model, str(lora.rank), size(lora.bytes)] for lora in loras]
    return warning + render.table(["LoRA", "name", "base model", "rank", "size"], rows)


def _found(workspace: Workspace, names: Sequence[str]) -> list[ShelfLora]:
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


# ---- settings from what the page says


def _merge(names: Sequence[str], strengths: str, rank: str, name: str) -> Settings:
    return parse(MergeSettings, {"loras": lines(strengths), "rank": number(rank), "name": name})


def _resize(names: Sequence[str], rank: str, share: str, name: str) -> Settings:
    return parse(ResizeSettings, {"lora": only(names), "rank": number(rank), "share": number(share), "name": name})


def _bake(names: Sequence[str], strengths: str, name: str) -> Settings:
    return parse(BakeSettings, {"loras": lines(strengths), "name": name})


def _convert(names: Sequence[str], format: str) -> Settings:
    return parse(ConvertSettings, {"lora": only(names), "format": format})


def only(names: Sequence[str]) -> str:
    """The one name that is chosen. Raises ConfigError."""
    if len(names) != 1:
        raise ConfigError(f"{len(names)} LoRAs are chosen, this is done with one at a time: choose one")
    return names[0]


def lines(text: str) -> list[str]:
    return [line.strip() for line in (text or "").splitlines() if line.strip()]


def number(text: str) -> Any:
    """What a field that may be empty holds; what is no number is left for the settings to refuse."""
    text = (text or "").strip()
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
