"""Samples and grids in the shell."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from tests.shell import Shell
from tests.written_grid import FRAMES, write_grid
from workbench.compare import Grid
from workbench.errors import ExitCode
from workbench.runs import checkpoints
from workbench.workspace import Workspace

# ---- grids


@pytest.fixture
def grid(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Grid:
    monkeypatch.setattr(Grid, "measure", lambda self: None)  # a process that these tests do not need
    return write_grid(workspace)


def test_show_prints_a_line_a_video_and_all_of_it_as_json(grid: Grid, shell: Shell) -> None:
    text = shell("grid", "show", grid.name).out
    assert "2 of 6 videos · 4 not generated" in text
    assert f"cells/{grid.plan.keys[0][0]}.mp4" in text
    data = json.loads(shell("grid", "show", grid.name, "--json").out)
    assert [[cell["state"] for cell in row] for row in data["cells"]] == [["done", "missing", "missing"]] * 2
    assert dict(data["cells"][0][0]["details"])["Prompt"] == "a cat"


def test_export_writes_a_page_or_one_video(grid: Grid, shell: Shell) -> None:
    folder = grid.folder / "export"
    assert shell("grid", "export", grid.name).out.strip() == str(folder / f"{grid.name}.html")
    gif = shell("grid", "export", grid.name, "--row", "2", "--column", "1", "--format", "gif").out.strip()
    with Image.open(gif) as picture:
        assert picture.n_frames == FRAMES
    assert sorted(path.name for path in folder.iterdir()) == [f"{grid.name}-2-1.gif", f"{grid.name}.html"]
    assert "4 of the grid's 6 videos are missing" in shell("grid", "export", grid.name, "--format", "gif").err
    video = shell("grid", "export", grid.name, "--row", "2", "--column", "1", "--format", "png")
    assert "has more than one frame: choose gif" in video.err
    missing = shell("grid", "export", grid.name, "--row", "1", "--column", "2")
    assert (missing.code, "no such video" in missing.err) == (ExitCode.BAD_CONFIG, True)
    outside = shell("grid", "export", grid.name, "--row", "3", "--column", "1")
    assert "the grid has 2 rows and 3 columns" in outside.err


def test_marks_votes_and_the_best(workspace: Workspace, grid: Grid, shell: Shell) -> None:
    assert shell("grid", "star", grid.name, "1", "1").out.strip() == "starred"
    assert grid.state().cells[0][0].starred
    assert "too few votes to say" in shell("grid", "vote", grid.name, "1", "2", "1").out
    assert "step 100 is now the best checkpoint of first" in shell("grid", "best", grid.name, "2").out
    assert checkpoints.chosen_best(workspace.run("first"))["step"] == 100
    shell("grid", "remove", grid.name, "--yes")
    assert "no grids yet" in shell("grid", "list").out
