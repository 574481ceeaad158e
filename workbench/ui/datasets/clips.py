"""The clips as cards with a caption each, the clip that was opened, and what can be done to many at once."""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.clips.records import Clip, clip_file
from workbench.dataset_builder.captions import editing
from workbench.dataset_builder.captions.editing import Search
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError
from workbench.ui.core import render
from workbench.ui.core.boundary import EACH
from workbench.ui.core.view import Values, visible
from workbench.ui.datasets.clip_grid import ClipGrid
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel, DatasetView
from workbench.workspace import Workspace

MOST_PREVIEWED = 8  # captions in the preview of a replacement


class ClipsPanel(DatasetPanel):
    """The grid, the player, the tools for many captions."""

    def __init__(self, workspace: Workspace) -> None:
        self.player = gr.HTML(elem_id="clip-player")
        with gr.Accordion("Change many captions", open=False, elem_id="caption-tools"):
            self._build_tools()
        with gr.Row(elem_classes="buttons", visible=False, elem_id="selection") as self.selection:
            self.count = gr.HTML()
            self.remove = gr.Button("Remove", variant="stop", elem_id="remove-clips")
            self.tag = gr.Textbox("", show_label=False, container=False, placeholder="a tag", min_width=110)
            self.put_tag = gr.Button("Tag")
            self.whole = gr.Button("Reset the cut")
        self.grid = ClipGrid(workspace)
        self.view = [self.grid.component, self.selection, self.count, self.player]

    def _build_tools(self) -> None:
        gr.HTML("<p>For the clips that are marked, or for all when none is. Every change can be undone.</p>")
        with gr.Row(elem_classes="fields"):
            self.find = gr.Textbox("", label="Find", elem_id="caption-find")
            self.put = gr.Textbox("", label="Replace by", elem_id="caption-put")
        with gr.Row(elem_classes="fields"):
            self.case = gr.Checkbox(False, label="Match case")
            self.word = gr.Checkbox(False, label="Whole words")
            self.expression = gr.Checkbox(False, label="Regular expression")
        with gr.Row(elem_classes="buttons"):
            self.preview = gr.Button("Show what would change")
            self.replace = gr.Button("Replace", variant="primary", elem_id="caption-replace")
        self.would = gr.HTML()
        with gr.Row(elem_classes="fields"):
            self.text = gr.Textbox("", label="A text", info="To add at the beginning or the end, or the tag to remove.")
        with gr.Row(elem_classes="buttons"):
            self.prefix = gr.Button("Add at the beginning")
            self.suffix = gr.Button("Append")
            self.untag = gr.Button("Remove this tag")
            self.trigger = gr.Button("Add the trigger word")
            self.untrigger = gr.Button("Remove the trigger word")

    def values(self, look: DatasetView) -> Values:
        value = self.grid.value(look.dataset)
        chosen, clip = look.selected, look.clip
        words = "1 clip is marked" if len(chosen) == 1 else f"{len(chosen):,} clips are marked"
        return {
            self.grid.component: (value, lambda: value),
            self.selection: visible(bool(chosen)),
            self.count: f"<p>{words}</p>" if chosen else "",
            self.player: ((look.dataset.name, clip), lambda: _player(look.dataset, clip)),
        }

    def wire(self, host: DatasetHost) -> None:
        grid, names = self.grid.component, host.selected
        host.act(grid.open, _opened, outputs=[host.clip], **EACH)
        host.act(grid.selection, _selected, outputs=[names], **EACH)
        host.act(grid.changed, lambda: None, **EACH)
        host.change(grid.undo, lambda dataset: f"Undone: {dataset.undo().what}.")
        host.change(self.remove.click, self._remove, [names])
        host.change(self.put_tag.click, self._tag, [names, self.tag])
        host.change(self.whole.click, self._whole, [names])
        searching = [names, self.put, self.find, self.expression, self.case, self.word]
        host.ask(self.preview.click, self._preview, searching, [self.would])
        host.change(self.replace.click, self._replace, searching)
        for button, edit, inputs in (
            (self.prefix, editing.add_prefix, [self.text]),
            (self.suffix, editing.add_suffix, [self.text]),
            (self.untag, editing.remove_tag, [self.text]),
            (self.trigger, editing.add_trigger_word, []),
            (self.untrigger, editing.remove_trigger_word, []),
        ):
            host.change(button.click, _texts(edit), [names, *inputs])

    # ---- doing

    def _remove(self, dataset: Dataset, names: list[str]) -> str:
        dataset.remove(*_marked(dataset, names))
        return "Removed; Undo brings it back."

    def _tag(self, dataset: Dataset, names: list[str], tag: str) -> str:
        return f"Tagged {dataset.tag(tag, *_marked(dataset, names)):,} clips."

    def _whole(self, dataset: Dataset, names: list[str]) -> str:
        dataset.reset_cut(*_marked(dataset, names))
        return "Reset the cut."

    def _preview(self, dataset: Dataset, names: list[str], put: str, *search: Any) -> str:
        found = editing.preview_replace(dataset.folder, Search(*search), put, _of(dataset, names))
        rows = [(one.name, one.before, one.after) for one in found[:MOST_PREVIEWED]]
        return f"<p>{len(found):,} captions would change.</p>" + render.table(("clip", "now", "then"), rows)

    def _replace(self, dataset: Dataset, names: list[str], put: str, *search: Any) -> str:
        count = editing.replace(dataset.folder, Search(*search), put, _of(dataset, names))
        return f"{count:,} captions changed."


def _texts(edit: Any) -> Any:
    """A listener for an edit of captions: (dataset, marked names, what it needs) -> how many changed."""

    def listen(dataset: Dataset, names: list[str], *values: str) -> str:
        return f"{edit(dataset.folder, *values, names=_of(dataset, names)):,} captions changed."

    return listen


def _of(dataset: Dataset, names: list[str]) -> set[str] | None:
    """The marked clips that are still there; None, which means all, when none is marked."""
    there = {clip.file_name for clip in dataset.clips} & set(names or ())
    return there or None


def _marked(dataset: Dataset, names: list[str]) -> list[str]:
    found = _of(dataset, names)
    if found is None:
        raise ConfigError("no clip is marked: tick the boxes of some cards")
    return sorted(found)


def _opened(event: gr.EventData) -> str:
    return str(event.file_name)


def _selected(event: gr.EventData) -> list[str]:
    return list(event.file_names)


def _player(dataset: Dataset, clip: Clip | None) -> str:
    """The clip that was opened, playing."""
    if clip is None:
        return ""
    facts = f"{clip.frames} frames, {clip.fps:g} fps, {clip.seconds:.1f} s, {clip.width}x{clip.height}"
    part = ", a part of a source video" if clip.master else ""
    if clip.is_latents:
        made = f"{clip.name}: latents of {clip.latents_model or 'an unknown model'}, which decode to {facts}"
        player = f'<figure class="player"><figcaption>{render.escaped(made)}</figcaption></figure>'
    else:
        player = figure(dataset.path_of(clip), clip.width, f"{clip.name}: {facts}{part}")
    if not (picture := clip.first_frame):
        return player
    label = "the first frame that came with it"
    image = f'<img src="{render.escaped(render.url(clip_file(dataset.folder, picture)))}" alt="{label}">'
    return f'{player}<figure class="player">{image}<figcaption>{label}</figcaption></figure>'


def figure(path: Any, width: int, caption: str) -> str:
    """A playing video with a line below."""
    video = render.video(path, width, caption)
    return f'<figure class="player">{video}<figcaption>{render.escaped(caption)}</figcaption></figure>'
