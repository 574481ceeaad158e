"""Grids in a notebook: made, watched, judged, changed and exported by the panel's buttons, drawn by a real worker."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from tests.compare.conftest import PROMPTS
from tests.patience import PATIENCE, until
from workbench.compare import Grid
from workbench.errors import ConfigError
from workbench.notebook import GridPanel, grid_panel
from workbench.runs import retention
from workbench.workspace import Workspace

pytestmark = pytest.mark.long


def page_of(panel: GridPanel) -> str:
    """The page of the player that the panel shows, "" while it shows none."""
    found = re.search(r'srcdoc="([^"]*)"', panel._view.player.value)
    return html.unescape(found[1]) if found else ""


def test_a_grid_is_made_drawn_judged_changed_and_exported(served: Workspace) -> None:
    panel = grid_panel(served, run="demo", prompts=PROMPTS[:1], checkpoints=["base", "10", "20"])
    assert "No grid yet" in panel.state.value
    assert panel.making.selected_index == 0
    assert "3 videos: 1 row by 3 columns" in panel.cost.value
    with pytest.raises(ConfigError, match="there is no grid yet"):
        panel.draw()
    panel.make_button.click()
    assert panel.said.value == ""
    grid = panel.grid
    assert panel.making.selected_index is None
    assert [type(one).__name__ for one in panel._view.videos.children] == ["HTML"] * 8  # heads, and a line of videos
    assert panel.wait(PATIENCE).complete
    until(lambda: page_of(panel))
    assert page_of(panel).count('type="text/plain"') == 3
    assert "3 videos" in panel.state.value
    assert panel.stop_button.layout.display == "none"

    judging = panel.judging
    assert [name.rpartition(" · ")[2] for name, _ in judging.video.options] == ["base model", "step 10", "step 20"]
    judging.video.value = judging.video.options[0][1]
    judging.reject_button.click()
    judging.video.value = judging.video.options[1][1]
    judging.star_button.click()
    assert f"Starred: {PROMPTS[0]} · step 10." in judging.marked.value
    assert "Rejected" in judging.marked.value
    judging.right_button.click()
    assert "press Vote blind" in judging.said.value
    judging.vote_button.click()
    assert judging.pair.value.count("<video") == 2
    assert "step" not in judging.pair.value, "nothing says which is which"
    judging.right_button.click()
    assert {"step 10", "step 20"} == set(re.findall(r"step \d+", judging.pair.value)), "a rejected one is left out"
    assert len(grid.marked.votes) == 1
    assert "won 1 of 1 votes" in judging.marked.value
    judging.column.value = judging.column.options[1][1]
    judging.why.value = "moves <best>"
    judging.best_button.click()
    assert retention.chosen_best(served.run("demo"))["step"] == 20
    assert "moves &lt;best&gt;" in judging.marked.value

    before = {path: path.stat().st_mtime_ns for path in (grid.folder / "cells").iterdir()}
    panel.form.set({"prompts": ["something else"], "checkpoints": ["base"]})
    panel.edit_button.click()
    assert panel.form.settings == grid.settings
    panel.form.set({"checkpoints": ["base", "10", "20", "30"]})
    assert "1 row by 4 columns" in panel.cost.value
    panel.change_button.click()
    assert panel.wait(PATIENCE).complete
    until(lambda: page_of(panel).count('type="text/plain"') == 4)
    assert before.items() <= {path: path.stat().st_mtime_ns for path in (grid.folder / "cells").iterdir()}.items()
    panel.export_button.click()
    until(lambda: panel.files.value.count("download=") == 3)
    panel.close()
    assert not panel.ticker.running


def test_a_panel_finds_what_is_under_way_and_another_grid(served: Workspace) -> None:
    panel = grid_panel(served, run="demo", prompts=PROMPTS[:2], steps=["300"], scales=["0", "1"], title="Slow")
    slow = panel.make()
    until(lambda: "step " in "".join(one.value for one in panel._view.videos.children))
    panel.close()
    again = grid_panel(served)
    assert again.form.settings.run == "demo", "what the newest run suggests"
    assert again.grid.name == slow.name, "the newest grid"
    until(lambda: "step " in "".join(one.value for one in again._view.videos.children))
    again.stop_button.click()
    until(lambda: "not drawn" in again.state.value)
    assert again.draw_button.layout.display == ""
    if len(again.choice.options) > 1:
        again.choice.value = again.choice.options[1][1]
        assert again.grid.name == again.choice.options[1][1]
    slow.delete()
    until(lambda: slow.name not in [name for _, name in again.choice.options])
    again.close()


def test_what_cannot_be_made_is_said(served: Workspace, tmp_path: Path) -> None:
    panel = grid_panel(served, run="demo", checkpoints=["10", "15"])
    assert "checkpoints has 15, demo has base" in panel.cost.value
    known = [grid.name for grid in Grid.all(served)]
    panel.make_button.click()
    assert "checkpoints has 15" in panel.said.value
    assert [grid.name for grid in Grid.all(served)] == known
    panel.close()
    empty = grid_panel(Workspace.open(tmp_path / "empty"))
    assert "Choose a run" in empty.cost.value
    empty.close()
