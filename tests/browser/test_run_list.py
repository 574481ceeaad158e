"""The list of runs in a browser, with run folders that nobody trained: search, order, groups, names, the keyboard."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.browser.server import Server
from tests.written_run import ended, write_run
from workbench import jobs
from workbench.runs.run import Run
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
NAMES = ("ants", "bats", "cats", "dogs", "eels", "frogs")


def listed(page: Page) -> list[str]:
    """The names in the list, from the top."""
    return page.locator("#runs li .name").all_inner_texts()


def until(page: Page, names: list[str]) -> None:
    page.wait_for_function(
        "names => JSON.stringify([...document.querySelectorAll('#runs li .name')].map(one => one.innerText)) === names",
        arg=str(names).replace("'", '"').replace(", ", ","),
    )


def test_runs_are_found_ordered_grouped_and_renamed(server: Server, page: Page) -> None:
    workspace = Workspace.open(server.workspace)
    for age, name in enumerate(NAMES):
        run = write_run(workspace, name, 20)
        os.utime(run.folder / jobs.CONFIG, (2_000_000_000 - age, 2_000_000_000 - age))
    ended(workspace.run("eels"), "failed", 1, "no reason")
    Run(workspace.run("dogs")).write_notes("the best so far")
    server.start()
    page.goto(f"{server.url}&tab=train")
    until(page, [*NAMES])
    assert page.locator("#runs summary").first.is_hidden()  # no group, no heading
    eels = page.locator("#runs li", has_text="eels")
    assert eels.locator(".badge.bad svg[aria-hidden=true] path").count() == 1
    assert eels.locator(".badge").inner_text() == "failed"
    assert eels.locator(".hint").first.inner_text().endswith(" · cats · tiny-cogvideox")

    # Found by its notes; the order stays what it was chosen to be.
    page.get_by_label("Find runs").fill("BEST far")
    until(page, ["dogs"])
    page.get_by_label("Find runs").fill("nothing has this")
    page.get_by_text("No run matches: search for less.").wait_for()
    page.get_by_label("Find runs").fill("")
    page.get_by_label("Order of the runs").select_option("By state")
    until(page, ["eels", "ants", "bats", "cats", "dogs", "frogs"])

    # By keyboard: one tab stop, arrow keys choose.
    page.locator("#runs li", has_text="ants").click()
    page.locator("#run-head h2", has_text="ants").wait_for()
    page.keyboard.press("ArrowDown")
    page.locator("#run-head h2", has_text="bats").wait_for()

    # A group and another name.
    page.get_by_role("button", name="Name, group and notes").click()
    page.locator("#run-group input").fill("rank study")
    page.locator("#run-group input").press("Enter")
    page.locator("#rename-run input, #rename-run textarea").fill("Big bats")
    page.locator("#save-notes").click()
    page.get_by_text("use 'big-bats'").first.wait_for()
    page.locator("#rename-run input, #rename-run textarea").fill("big-bats")
    page.locator("#save-notes").click()
    page.locator("#run-head h2", has_text="big-bats").wait_for()
    page.locator("#runs summary", has_text="rank study (1)").wait_for()
    page.locator("#runs summary", has_text="Without a group (5)").wait_for()
    assert Run(workspace.run("big-bats")).group == "rank study"
    assert page.locator("#runs input:checked").get_attribute("value") == "big-bats"
    page.locator("#runs summary", has_text="Without").click()
    page.locator("#runs li", has_text="eels").wait_for(state="hidden")
    page.reload()
    page.locator("#run-head h2", has_text="big-bats").wait_for()
    page.get_by_role("button", name="Name, group and notes").click()
    assert page.locator("#rename-run input, #rename-run textarea").input_value() == "big-bats"


def test_the_curves_of_a_run_are_there_before_gradio_has_asked_for_them(server: Server, page: Page) -> None:
    workspace = Workspace.open(server.workspace)
    for name in ("ants", "bats"):
        write_run(workspace, name, 20)
    server.start()
    page.goto(f"{server.url}&tab=train")
    for name in ("ants", "bats"):
        page.locator("#runs li", has_text=name).click()
        page.locator(f"#loss-chart [data-owner={name}] path.curve").first.wait_for()
        page.route("**/queue/join*", lambda _: None)  # not one of Gradio's requests is answered
        page.reload()
        page.locator(f"#loss-chart [data-owner={name}] path.curve").first.wait_for()
        assert not page.locator("#run-head h2").is_visible()
        page.unroute_all(behavior="ignoreErrors")
        page.reload()
        page.locator("#run-head h2", has_text=name).wait_for()
    # The run is gone, and the next one is shown as if it had never been chosen.
    workspace.run("bats").rename(server.workspace / "elsewhere")
    page.reload()
    page.locator("#run-head h2", has_text="ants").wait_for()
    page.locator("#loss-chart [data-owner=ants] path.curve").first.wait_for()
