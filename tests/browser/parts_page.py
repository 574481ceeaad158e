"""A small page with nothing but the clip grid and the timeline: `python -m tests.browser.parts_page WORKSPACE`.

Every event becomes a line of WORKSPACE/events.jsonl.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import gradio as gr
from workbench.ui.core.boundary import QUIET, on
from workbench.ui.datasets import timeline
from workbench.ui.datasets.clip_grid import ClipGrid

from workbench.dataset_builder.cuts.cutting import master_of
from workbench.dataset_builder.cuts.scenes import filmstrip
from workbench.dataset_builder.dataset import Dataset
from workbench.ui.app import launch_options
from workbench.workspace import Workspace, append_line

TILES, TILE_HEIGHT = 16, 74
EVENTS = "events.jsonl"


def build(workspace: Workspace) -> gr.Blocks:
    """The grid over the first dataset, looked at again every second as the Dataset tab does, and a timeline for the
    clip that is opened."""
    gr.set_static_paths([workspace.datasets, workspace.cache])

    def value() -> dict[str, Any]:
        return grid.value(Dataset.all(workspace)[0])

    def opened(event: gr.EventData) -> dict[str, Any]:
        dataset = Dataset.open(workspace, event.dataset)
        clip = dataset.clip(event.file_name)
        master = master_of(dataset.folder, clip)
        strip = filmstrip(master.path, workspace.cache, TILES, TILE_HEIGHT)
        cuts, taken = [clip.frames // 3, clip.frames // 2], [(0, clip.frames // 4)]
        return timeline.value(clip.file_name, master, strip, master.whole, cuts, taken)

    def listener(name: str) -> Any:
        def listen(event: gr.EventData) -> None:
            append_line(workspace.root / EVENTS, json.dumps([name, event._data]))

        return listen

    with gr.Blocks(title="Parts", analytics_enabled=False, fill_width=True) as page:
        reel, grid = timeline.build(), ClipGrid(workspace)
        for part, names in (
            (grid.component, ("open", "selection", "changed", "undo")),
            (reel, ("span", "cuts", "crop")),
        ):
            for name in names:
                on(getattr(part, name), listener(name), trigger_mode="multiple")
        on(grid.component.open, opened, outputs=[reel])
        page.load(value, None, grid.component, **QUIET)
        gr.Timer(1.0).tick(value, None, grid.component, **QUIET)
    return page


def main() -> None:
    page = build(Workspace.open(sys.argv[1]))
    _, address, _ = page.launch(**launch_options(Workspace.open(sys.argv[1])), prevent_thread_lock=True)
    print(address, flush=True)
    page.block_thread()


if __name__ == "__main__":
    main()
