"""What the page asks of grids: a proposal with its cost, a lean view, other columns, removal that is undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.operations.conftest import Call
from tests.written_grid import write_grid
from workbench.compare import Grid
from workbench.errors import ConfigError, Unknown
from workbench.operations.registry import REGISTRY
from workbench.workspace import Workspace


@pytest.fixture
def grid(workspace: Workspace) -> Grid:
    return write_grid(workspace)


def test_a_proposal_has_its_cost_or_what_is_wrong(call: Call, workspace: Workspace, grid: Grid) -> None:
    found = call("grids/suggest")
    assert found["grid"]["run"] == "first"
    assert found["cost"].startswith("14 videos: 2 rows by 7 columns")
    assert call("grids/suggest", run="first") == found
    wrong = call("grids/propose", grid={**found["grid"], "scales": ["loud"]})
    assert (list(wrong["problems"]), wrong["cost"]) == (["scales"], "")


def test_the_list_says_what_is_compared_and_how_far_it_is(call: Call, workspace: Workspace, grid: Grid) -> None:
    (line,) = call("grids/list")
    assert (line["title"], line["about"], line["done"], line["videos"]) == ("first", "base, 2 checkpoints", 2, 6)
    assert Path(line["video"]).exists()


def test_who_watches_gets_a_lean_view_and_asks_for_one_video(call: Call, workspace: Workspace, grid: Grid) -> None:
    watched = REGISTRY["grids", "show"].reader(workspace, {"name": grid.name})()
    whole = REGISTRY["grids", "show"](workspace, {"name": grid.name})
    assert "details" not in watched.cells[0][0]
    assert watched.settings["run"] == "first"
    key = watched.cells[0][0]["key"]
    found = call("grids/details", name=grid.name, key=key)
    assert [list(one) for one in whole.cells[0][0]["details"]] == found["details"]
    assert found["settings"]["prompt"] == "a cat"
    grid.mark(key, starred=True)
    assert REGISTRY["grids", "show"].reader(workspace, {"name": grid.name})().cells[0][0]["starred"]


def test_a_grid_that_was_removed_comes_back(call: Call, workspace: Workspace, grid: Grid) -> None:
    gone = call("grids/remove", name=grid.name)
    assert call("grids/list") == []
    back = call("grids/restore", name=gone["id"])
    assert (back["grid"], back["progress"]["done"]) == (grid.name, 2)
    with pytest.raises(Unknown, match="was not removed"):
        call("grids/restore", name=gone["id"])


def test_a_name_that_an_address_has_is_not_a_grids(call: Call, workspace: Workspace, grid: Grid) -> None:
    assert Grid.create(workspace, grid.settings.changed(title="New")).name == "new-2"


def test_other_columns_are_refused_where_they_are_none(call: Call, workspace: Workspace, grid: Grid) -> None:
    with pytest.raises(ConfigError, match="checkpoints has 700"):
        call("grids/change", name=grid.name, grid={"run": "first", "checkpoints": ["700"]})
