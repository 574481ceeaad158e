"""The Videos sub-tab's parts without a browser: what the player is given and may ask, the form, the page's answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, TypeVar

import gradio as gr
import pytest

from tests.written_grid import run_to_compare, write_grid
from workbench.compare import Grid
from workbench.compare.export import export_page
from workbench.runs import checkpoints
from workbench.ui.compare.form import GridForm
from workbench.ui.compare.player import Best, Mark, OfCell, Player, Vote
from workbench.ui.compare.videos import VideosPart, exported
from workbench.workspace import Workspace

EVIL = "<img src=x onerror=alert(1)>"
T = TypeVar("T")


def built(make: Callable[[], T]) -> T:
    """What `make` builds inside a page."""

    async def build() -> T:
        with gr.Blocks():
            return make()

    return asyncio.run(build())  # outside of a loop Gradio makes one and never closes it


@pytest.fixture
def grid(workspace: Workspace) -> Grid:
    return write_grid(workspace, (EVIL, "a cat"))


def test_the_player_is_given_the_whole_grid(workspace: Workspace, grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Grid, "measure", lambda self: None)  # a process that this test does not need
    shown = built(lambda: Player(workspace)).value(grid)
    assert [column["name"] for column in shown["columns"]] == ["base model", "step 100", "step 200"]
    assert [[head["text"] for head in line] for line in shown["heads"]] == [["base model", "step 100", "step 200"]]
    assert [row["prompt"] for row in shown["rows"]] == [EVIL, "a cat"]
    states = [[cell["state"] for cell in row] for row in shown["cells"]]
    assert states == [["done", "missing", "missing"]] * 2
    assert shown["progress"]["text"] == "2 of 6 videos · 4 not generated"
    assert shown["cells"][0][0]["url"].startswith("/gradio_api/file=")


def test_the_browser_may_mark_vote_and_choose(workspace: Workspace, grid: Grid) -> None:
    player = built(lambda: Player(workspace))
    keys = grid.plan.keys[0]
    ask: dict[str, Any] = {"grid": grid.name}
    player.mark(Mark(**ask, key=keys[0], starred=True))
    assert grid.state().cells[0][0].starred
    said = player.vote(Vote(**ask, left=keys[0], right=keys[1], chosen=keys[1]))["votes"]
    assert said == "base model: 0 of 1 votes (too few votes to say) · step 100: 1 of 1 votes (too few votes to say)"
    assert "step 100" in player.choose_best(Best(**ask, column=1))["message"]
    assert checkpoints.chosen_best(workspace.run("first"))["step"] == 100
    named = dict(player.details(OfCell(**ask, key=keys[0]))["details"])
    assert named["Prompt"] == EVIL
    for method, request in (("mark", {**ask, "key": "0" * 20, "starred": True}), ("mark", {"grid": "../x", "key": ""})):
        answer = next(one for one in player.component.server_fns if one.__name__ == method)(request)
        assert "problem" in answer


def test_a_run_fills_in_the_form_and_it_says_what_that_costs(workspace: Workspace) -> None:
    run_to_compare(workspace, (EVIL, "a cat"))
    form = built(lambda: GridForm(workspace))
    names = [spec.name for spec in form.specs]
    values = dict.fromkeys(names, "") | {"run": "first", "checkpoints": ["base", "100", "200"], "scales": "0.5, 1"}
    assert "10 videos: 2 rows by 5 columns" in form._cost("", "exact", *(values[name] for name in names))
    values["guidance"] = "4 6"
    assert "two at most" in form._cost("", "exact", *(values[name] for name in names))
    assert form._first()[0]["value"] == "first"
    filled = form._suggested("first")
    assert filled[0]["value"] == f"{EVIL}\na cat"
    assert [value for _, value in filled[3]["choices"]] == ["base", "100", "200", "final"]
    assert filled[3]["value"] == ["base", "100", "200"]


def test_the_tab_says_what_to_do_first(workspace: Workspace) -> None:
    tab = built(lambda: VideosPart(workspace))
    shown = tab._values(None)
    assert "Train a LoRA first" in shown[tab.note][1]()
    assert shown[tab.player.component] == {"grid": ""}


def test_the_browser_gets_a_gif_of_one_video(workspace: Workspace, grid: Grid) -> None:
    player = built(lambda: Player(workspace))
    url = player.gif(OfCell(grid=grid.name, key=grid.plan.keys[0][0]))["url"]
    assert url.endswith(f"/grids/{grid.name}/export/{grid.name}-1-1.gif")
    answer = next(one for one in player.component.server_fns if one.__name__ == "gif")
    assert "no such video" in answer({"grid": grid.name, "key": grid.plan.keys[0][1]})["problem"]


def test_an_export_has_a_link_that_tells_when_it_is_old(grid: Grid) -> None:
    assert exported(grid) == ""
    page = export_page(grid)
    assert f'download="{page.name}"' in exported(grid)
    assert "export again" not in exported(grid)
    os.utime(page, (1, 1))
    assert "export again" in exported(grid)
