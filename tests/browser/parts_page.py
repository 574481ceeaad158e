"""A small page with nothing but the clip grid and the timeline: `python -m tests.browser.parts_page WORKSPACE`.

Every event becomes a line of WORKSPACE/events.jsonl; findings come from a file {file_name: [mark]} in the dataset.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gradio as gr

from workbench.clips import media
from workbench.clips.records import Clip
from workbench.dataset_builder.dataset import Dataset
from workbench.ui.app import launch_options
from workbench.ui.core.boundary import QUIET, handler
from workbench.ui.datasets.clip_grid import ClipGrid
from workbench.ui.datasets.timeline import Timeline, TimelineClip
from workbench.workspace import Workspace, append_line, read_json

TILES = 16
EVENTS, FINDINGS = "events.jsonl", "findings.json"


def build(workspace: Workspace) -> gr.Blocks:
    """The grid over the first dataset, looked at again every second as the Dataset tab does, and a timeline for the
    clip that is opened."""
    gr.set_static_paths([workspace.datasets, workspace.cache])

    def findings(folder: Path) -> dict[str, list[str]]:
        return read_json(folder / FINDINGS) if (folder / FINDINGS).exists() else {}

    def value() -> dict[str, Any]:
        return grid.value(next(iter(Dataset.all(workspace)), None))

    def opened(event: gr.EventData) -> dict[str, Any]:
        dataset = Dataset.open(workspace, event.dataset)
        clip = dataset.clip(event.file_name)
        strip, times = filmstrip(dataset, clip, workspace.cache)
        cuts = [clip.frames // 3, clip.frames // 2]
        taken = [(0, clip.frames // 4)]
        reel = TimelineClip(
            clip.file_name,
            dataset.path_of(clip),
            clip.frames,
            clip.fps,
            clip.width,
            clip.height,
            strip=strip,
            times=times,
            cuts=cuts,
            taken=taken,
            shape=(720, 480),
        )
        return Timeline.value(reel)

    def listener(name: str) -> Any:
        def listen(event: gr.EventData) -> None:
            append_line(workspace.root / EVENTS, json.dumps([name, event._data]))

        return handler(listen)

    with gr.Blocks(title="Parts", analytics_enabled=False, fill_width=True) as page:
        timeline = Timeline()
        grid = ClipGrid(workspace, findings)
        for part, names in ((grid, ("open", "selection", "changed", "undo")), (timeline, ("span", "cuts", "crop"))):
            for name in names:
                getattr(part.component, name)(listener(name), None, None, trigger_mode="multiple", **QUIET)
        grid.component.open(handler(opened), None, timeline.component, **QUIET)
        page.load(value, None, grid.component, **QUIET)
        gr.Timer(1.0).tick(value, None, grid.component, **QUIET)
    return page


def filmstrip(dataset: Dataset, clip: Clip, folder: Path) -> tuple[Path, list[float]]:
    """A strip of frames side by side, and when each is shown."""
    import numpy as np
    from PIL import Image

    wanted = [round(place * (clip.frames - 1) / (TILES - 1)) for place in range(TILES)]
    path = folder / f"{clip.id}-strip.png"
    frames = media.read_frames(dataset.path_of(clip), wanted)
    Image.fromarray(np.concatenate(list(frames), axis=1)).resize((TILES * 74 * clip.width // clip.height, 74)).save(
        path
    )
    return path, [frame / clip.fps for frame in wanted]


def main() -> None:
    page = build(Workspace.open(sys.argv[1]))
    _, address, _ = page.launch(**launch_options(Workspace.open(sys.argv[1])), prevent_thread_lock=True)
    print(address, flush=True)
    page.block_thread()


if __name__ == "__main__":
    main()
