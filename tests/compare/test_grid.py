"""A grid on the real worker: each video generated once, extended, resumed after a crash, judged, exported."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.compare.conftest import PROMPTS, written
from tests.patience import until
from tests.sampler.conftest import WriteLora
from workbench import jobs
from workbench.clips import media
from workbench.compare import CellState, Grid, GridSettings, GridState
from workbench.compare.export import export_cell, export_page
from workbench.compare.grid import tallies
from workbench.errors import ConfigError
from workbench.runs import checkpoints
from workbench.runs.checkpoints import LORA, folder_of
from workbench.sampler import queue
from workbench.sampler.samples import settings_of
from workbench.workspace import Workspace

pytestmark = pytest.mark.long


def finished(grid: Grid) -> GridState:
    """Wait until nothing is pending."""

    def rests() -> bool:
        state = grid.state()
        grid.maintain(state)
        return not state.going

    until(rests)
    return grid.state()


def stamps(grid: Grid) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (grid.folder / "cells").iterdir()}


@pytest.fixture(scope="module")
def grid(served: Workspace) -> Grid:
    """Two prompts by base model and two checkpoints, generated and measured."""
    made = Grid.create(served, GridSettings(run="demo", prompts=PROMPTS[:2], checkpoints=("base,10,20",)))
    assert made.generate() == 6
    state = finished(made)
    assert state.complete, [cell.message for cell in state.all]
    until(lambda: made.state().measured)
    return made


def test_videos_are_generated_as_requested_and_found_again(served: Workspace, grid: Grid) -> None:
    state = Grid.open(served, grid.name).state()
    assert [column.name for column in state.columns] == ["base model", "step 10", "step 20"]
    run = served.run("demo")
    for row, prompt in zip(state.cells, PROMPTS, strict=False):
        for cell, step in zip(row, (0, 10, 20), strict=True):
            assert cell.video is not None
            settings = settings_of(cell.video, served)
            assert (settings.prompt, settings.steps, settings.frames) == (prompt, 2, 9)
            assert settings.loras == ((f"{folder_of(run, step) / LORA}=1",) if step else ())
            assert cell.record["loras"] == [] if not step else len(cell.record["loras"]) == 1
    assert not list(served.samples.glob("2*"))  # its videos are no part of the history
    assert grid.generate() == 0


def test_a_video_that_is_done_while_its_state_is_read_is_not_missing(
    grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    video = grid.state().all[0].video
    record, aside, progress = video.with_suffix(".json"), video.with_suffix(".aside"), queue.progress
    record.rename(aside)

    def done_meanwhile(workspace: Workspace, request: str) -> queue.Progress:
        if aside.exists():
            aside.rename(record)
        return progress(workspace, request)

    monkeypatch.setattr(queue, "progress", done_meanwhile)
    assert grid.state().complete


def test_extending_generates_only_what_is_new(grid: Grid) -> None:
    before = stamps(grid)
    grid.extend(checkpoints=["30"])
    state = grid.state()
    assert state.count(CellState.MISSING) == 2
    assert grid.generate() == 2
    assert finished(grid).complete
    grid.extend(scales=["0.5", "1"])  # 1 is the scale that it has already
    assert [column.labels for column in grid.plan.columns][:3] == [
        ("base model", ""),
        ("step 10", "scale 0.5"),
        ("step 10", "scale 1"),
    ]
    assert grid.state().count(CellState.DONE) == 8
    grid.change(grid.settings.changed(scales=[], prompts=[PROMPTS[1]]))
    assert grid.state().complete
    assert before.items() <= stamps(grid).items(), "nothing was generated or written again"
    grid.change(grid.settings.changed(prompts=list(PROMPTS[:2])))
    assert grid.state().complete


def test_a_killed_worker_costs_one_video_and_one_press(served: Workspace, grid: Grid) -> None:
    long = Grid.create(served, GridSettings(run="demo", title="long", scales=("0", "1"), steps=("400",)))
    assert long.generate() == 6
    until(lambda: any(cell.step > 2 for cell in long.state().all))
    pid = jobs.status(queue.worker_folder(served)).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: not jobs.status(queue.worker_folder(served)).state.alive)
    state = long.state()
    assert [cell.state for cell in state.all].count(CellState.FAILED) == 1
    failed = next(cell for cell in state.all if cell.state is CellState.FAILED)
    assert "ended before this video was done" in failed.message
    long.cancel()
    assert not long.state().going
    assert {cell.state for cell in long.state().all} == {CellState.FAILED, CellState.MISSING}
    long.change(long.settings.changed(steps=["2"]))  # the same two columns, and quick
    assert long.generate() == 6
    assert finished(long).complete
    long.delete()
    assert [one.name for one in Grid.all(served)] == [grid.name]
    assert (served.grids / ".removed" / "long" / "cells").is_dir()


def test_a_checkpoint_that_is_gone_says_so(workspace: Workspace, toy_folder: Path, write_lora: WriteLora) -> None:
    run = written(workspace, toy_folder, write_lora)
    grid = Grid.create(workspace, GridSettings(run="demo", checkpoints=("10", "20")))
    shutil.rmtree(folder_of(run.folder, 10))
    cells = grid.state().cells[0]
    assert cells[0].state is CellState.FAILED
    assert "no longer exists" in cells[0].message
    assert cells[1].state is CellState.MISSING
    with pytest.raises(ConfigError, match="checkpoints has 10, but demo has base, 20, 30, final"):
        grid.extend(seeds=["1", "2"])
    with pytest.raises(ConfigError, match="not a checkpoint of a run"):
        Grid.create(workspace, GridSettings(run="demo", scales=("0", "1"))).choose_best(0)


def test_what_one_finds_best_goes_back_to_the_run(served: Workspace, grid: Grid) -> None:
    cells = grid.state().cells[0]
    grid.mark(cells[0].key, rejected=True)
    grid.mark(cells[1].key, starred=True)
    grid.mark(cells[0].key, starred=True)
    assert [cell.starred for cell in grid.state().cells[0][:2]] == [True, True]
    assert not grid.state().cells[0][0].rejected, "one excludes the other"
    for _ in range(6):
        grid.vote(cells[0].key, cells[2].key, cells[2].key)
    grid.vote(cells[0].key, cells[1].key, "")
    assert [(one.won, one.lost, one.tied, one.confidence) for one in tallies(grid.plan, grid.marked.votes)[:3]] == [
        (0, 6, 1, "clearly worse"),
        (0, 0, 1, "too few votes to say"),
        (6, 0, 0, "clearly better"),
    ]
    with pytest.raises(ConfigError, match="one row"):
        grid.vote(cells[0].key, grid.state().cells[1][0].key, "")
    grid.choose_best(2, "moves best")
    run = served.run("demo")
    assert checkpoints.starred(run) == [20]
    chosen = checkpoints.chosen_best(run)
    assert (chosen["step"], chosen["why"]) == (20, "moves best")


def test_the_page_opens_elsewhere(grid: Grid) -> None:
    page = export_page(grid)
    assert page == grid.folder / "export" / f"{grid.name}.html"
    columns, rows = len(grid.plan.columns), len(grid.plan.rows)
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)=["']?https?://""", text.partition("<script>")[0])
    assert text.count('type="text/plain"') == columns * rows
    first = next(iter(grid.state().all))
    assert first.video is not None
    size = f"{media.probe(first.video).width}"
    assert f'"width": {size}' in text
    assert '["Prompt", ' in text  # the settings of each video, without a server


def test_a_cell_is_exported_as_mp4_and_gif(grid: Grid) -> None:
    cell = grid.state().cells[1][0]
    mp4, gif = (export_cell(grid, cell.key, name) for name in ("mp4", "gif"))
    assert (mp4.name, gif.name) == (f"{grid.name}-2-1.mp4", f"{grid.name}-2-1.gif")
    assert mp4.read_bytes() == cell.video.read_bytes()
    with Image.open(gif) as picture:
        assert (picture.n_frames, picture.info["duration"], picture.width) == (9, 120, 192)
    with pytest.raises(ConfigError, match="must be one of mp4, gif"):
        export_cell(grid, cell.key, "webm")
    with pytest.raises(ConfigError, match="has no such video"):
        export_cell(grid, "0" * 20, "gif")
    assert not list((grid.folder / "export").glob(".*"))


def test_measurements_of_known_clips(tmp_path: Path) -> None:
    from tests.drawing import draw
    from workbench.compare import measurements

    still = np.repeat(draw(1, (64, 64)), 16, 0)
    clips = {"moving": draw(16, (64, 64)), "still": still, "brighter": still + 20}
    for name, frames in clips.items():
        media.encode(frames, tmp_path / f"{name}.mp4", 8)
    found = {name: measurements.of_video(tmp_path / f"{name}.mp4") for name in clips}
    assert found["still"]["motion"] < 0.5 < 1 < found["moving"]["motion"]
    assert found["still"]["sharpness"] > 0.5
    away = media.difference(tmp_path / "brighter.mp4", tmp_path / "still.mp4")
    assert away.levels == pytest.approx(20, abs=1.5)
    assert away.psnr == pytest.approx(22.1, abs=0.7)
    assert media.difference(tmp_path / "still.mp4", tmp_path / "still.mp4") == (0, 99)
    words = {one.name: one.words for one in measurements.describe({"motion": 0.1, "distance": 0.0, "sharpness": 0.2})}
    assert words == {"motion": "stands still", "distance": "the same", "sharpness": "blurred"}
