"""The film of a run's previews: every step in order, of one size, readable."""

from __future__ import annotations

import numpy as np
import pytest

from tests.written_run import write_run
from workbench.clips import media
from workbench.errors import ConfigError
from workbench.operations.runs import film
from workbench.runs.previews import FILM_HEIGHT, write_film
from workbench.runs.run import Run
from workbench.sampler.samples import write_sample
from workbench.workspace import Workspace


def preview(run: Run, step: int, gray: int, index: int = 0, size: int = 40) -> None:
    frames = np.full((9, size, size + 20, 3), gray, np.uint8)
    record = {"prompt": "a cat", "fps": 8.0, "step": step}
    write_sample(run.folder / "previews" / f"step-{step:08d}" / f"{index}.mp4", frames, 8, record)


def test_a_film_has_every_step_in_order(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    for step, gray in ((100, 120), (0, 40), (200, 200)):
        preview(run, step, gray)
    preview(run, 150, 90, size=80)  # previews had another size then
    preview(run, 0, 255, index=1)
    path, steps = write_film(run.folder)
    assert steps == [0, 100, 200]
    pictures = [picture for _, picture in media.decode(path)]
    assert len(pictures) == 27
    height, width, _ = pictures[0].shape
    assert height == FILM_HEIGHT
    assert width == height * 60 // 40
    # The middle of a picture is the preview; its corner says the step, and a bar grows below it.
    middles = [int(picture[height // 2, width // 2].mean()) for picture in pictures[::9]]
    assert middles == pytest.approx([40, 120, 200], abs=4)
    assert all(picture[-40:-8, : width // 3].std() > 15 for picture in pictures)
    bars = [float((picture[-2].mean(-1) > 235).mean()) for picture in pictures[::9]]
    assert bars == pytest.approx([0, 0.5, 1], abs=0.06)
    assert film(run).file == str(path)
    assert run.previews[0].video.exists()  # the film is no preview


def test_a_film_needs_two_steps(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    preview(run, 0, 40)
    with pytest.raises(ConfigError, match="cats has no two previews of video 1 to film: choose from 1"):
        write_film(run.folder)
