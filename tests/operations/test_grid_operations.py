"""What the page asks of grids: a proposal with its cost, a lean view, other columns, removal that is undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.written_grid import write_grid
from workbench.compare import Grid
from workbench.errors import ConfigError, Unknown
from workbench.operations.registry import Operation, operations
from workbench.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.open(tmp_path / "work")


@pytest.fixture
def grid(workspace: Workspace) -> Grid:
    return write_grid(workspace)


def named(verb: str) -> Operation:
    return next(one for one in operations("grids") if one.verb == verb)


def call(workspace: Workspace, verb: str, /, **values: Any) -> Any:
    return named(verb).plain(named(verb)(workspace, values))


def test_a_proposal_has_its_cost_or_what_is_wrong(workspace: Workspace, grid: Grid) -> None:
    found = call(workspace, "suggest")
    assert found["grid"]["run"] == "first"
    assert found["cost"].startswith("14 videos: 2 rows by 7 columns")
    assert call(workspace, "suggest", run="first") == found
    wrong = call(workspace, "propose", grid={**found["grid"], "scales": ["loud"]})
    assert (list(wrong["problems"]), wrong["cost"]) == (["scales"], "")


def test_the_list_says_what_is_compared_and_how_far_it_is(workspace: Workspace, grid: Grid) -> None:
    (line,) = call(workspace, "list")
    assert (line["title"], line["about"], line["done"], line["videos"]) == ("first", "base, 2 checkpoints", 2, 6)
    assert Path(line["video"]).exists()


def test_who_watches_gets_a_lean_view_and_asks_for_one_video(workspace: Workspace, grid: Grid) -> None:
    watched = named("show").reader(workspace, {"name": grid.name})()
    whole = named("show")(workspace, {"name": grid.name})
    assert "details" not in watched.cells[0][0]
    assert watched.settings["run"] == "first"
    key = watched.cells[0][0]["key"]
    found = call(workspace, "details", name=grid.name, key=key)
    assert [list(one) for one in whole.cells[0][0]["details"]] == found["details"]
    assert found["settings"]["prompt"] == "a cat"
    grid.mark(key, starred=True)
    assert named("show").reader(workspace, {"name": grid.name})().cells[0][0]["starred"]


def test_a_grid_that_was_removed_comes_back(workspace: Workspace, grid: Grid) -> None:
    gone = call(workspace, "remove", name=grid.name)
    assert call(workspace, "list") == []
    back = call(workspace, "restore", name=gone["id"])
    assert (back["grid"], back["progress"]["done"]) == (grid.name, 2)
    with pytest.raises(Unknown, match="was not removed"):
        call(workspace, "restore", name=gone["id"])


def test_a_name_that_an_address_has_is_not_a_grids(workspace: Workspace, grid: Grid) -> None:
    assert Grid.create(workspace, grid.settings.changed(title="New")).name == "new-2"


def test_other_columns_are_refused_where_they_are_none(workspace: Workspace, grid: Grid) -> None:
    with pytest.raises(ConfigError, match="checkpoints has 700"):
        call(workspace, "change", name=grid.name, grid={"run": "first", "checkpoints": ["700"]})
