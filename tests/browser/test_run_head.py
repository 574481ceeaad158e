"""The head of a run in a browser, with run folders that nobody trained: actions, times, a person's notes, the bin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.page_calm import COUNTS
from tests.browser.server import Server
from tests.written_run import ended, write_run
from workbench.errors import ExitCode
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def buttons(page: Page) -> list[str]:
    """Labels of the buttons that can be seen in the row and beside the failure."""
    shown = page.locator("[id^=failure-], #resume-run, #sample-run, #pause-run, #stop-run, #copy-run, #write-report")
    return shown.evaluate_all(
        "every => every.filter(one => one.checkVisibility()).map(one => one.innerText.trim()).filter(Boolean)"
    )


def test_a_repaired_run_resumes_and_no_two_buttons_are_equal(server: Server, page: Page) -> None:
    workspace = Workspace.open(server.workspace)
    run = write_run(workspace, "repaired")
    ended(run.folder, "failed", int(ExitCode.BAD_CONFIG), "the model's folder is gone: put it back")
    server.start()
    page.goto(f"{server.url}&tab=train")
    page.locator("#run-ending h3", has_text="A setting does not fit").wait_for()
    page.get_by_role("button", name="Resume from step 200").wait_for()
    # A minute of training, though its process lived longer, and much longer ago.
    page.locator("#run-head .facts", has_text="training time").get_by_text("1 min 10 s").wait_for()
    in_sight = ["loss, smoothed", "held-out loss", "time per step", "training time"]
    assert page.locator("#run-head dt").all_inner_texts() == in_sight
    page.get_by_role("button", name="All figures").click()
    page.locator("#run-figures dt", has_text="lowest held-out loss").wait_for()
    calm = page.evaluate(COUNTS)
    assert (calm["sizes"] <= 5, calm["weights"], calm["sideways px"]) == (True, 2, 0), calm
    found = buttons(page)
    assert sorted(found) == ["Copy settings to the form", "Resume from step 200", "Write a report"]

    # Notes are kept; the run is removed and restored.
    page.get_by_role("button", name="Name, group and notes").click()
    page.locator("#run-notes textarea").fill("the best so far")
    page.locator("#save-notes").click()
    page.get_by_text("Name, group and notes are saved.").wait_for()
    assert run.notes == "the best so far"
    page.locator("#remove-run").click()
    page.locator("#run-head", has_text="No run is chosen").wait_for()
    page.locator("#copy-run").wait_for(state="hidden")
    assert not run.folder.exists()
    page.get_by_role("button", name="Removed runs").click()
    page.locator("#restore-run").click()
    page.locator("#run-head h2", has_text="repaired").wait_for()
    assert run.notes == "the best so far"
