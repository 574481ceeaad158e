"""The head of a run in a browser, with run folders that nobody trained: actions, times, a person's notes, the bin."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from benchmarks.page_calm import COUNTS
from tests.browser.server import Server
from tests.browser.stripes import few_clips
from tests.written_run import ended, write_run
from workbench import jobs
from workbench.errors import ExitCode
from workbench.jobs import processes, queue
from workbench.runs.metrics import METRICS, MetricsWriter
from workbench.runs.run import Run
from workbench.workspace import Workspace, write_json

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


def measured(run: Run, steps: tuple[int, ...], held_out: float, change: float) -> None:
    """Instead of its metrics: few measurements, of which the first is the untrained model's."""
    (run.folder / METRICS).unlink()
    writer = MetricsWriter(run.folder, 0)
    writer.write(step=0, held_out_loss=1.3, change_own=0.0, change_others=0.0)
    for step in steps:
        writer.write(step=step, loss=held_out, lr=10.0, samples=[[0.5, held_out]])
        writer.write(step=step, held_out_loss=held_out, change_own=change, change_others=change)
    writer.close()


def test_a_run_that_ended_early_says_so_and_a_destroyed_one_is_diagnosed_at_once(server: Server, page: Page) -> None:
    workspace = Workspace.open(server.workspace)
    measured(write_run(workspace, "early", 20), (2, 4, 6), held_out=1.29, change=0.001)
    measured(write_run(workspace, "burnt", 20, learning_rate=10.0), (5, 10), held_out=1.31, change=0.82)
    server.start()
    page.goto(f"{server.url}&tab=train")
    page.locator("#runs li", has_text="early").click()
    page.locator("#run-head .note.diagnosis").get_by_text("Too short to tell: it ended at step 6").wait_for()
    page.locator("#runs li", has_text="burnt").click()
    page.locator("#run-head .note.diagnosis.bad").get_by_text("changed by 82%").wait_for()


def test_a_waiting_run_names_the_paused_one_that_holds_the_queue(server: Server, page: Page) -> None:
    workspace = Workspace.open(server.workspace)
    settings = few_clips(workspace)
    paused, waiting = (Run.create(workspace, settings, name) for name in ("paused", "waiting"))
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as sleeper:
        try:
            write_json(paused.folder / jobs.PROCESS, {**processes.identity(sleeper.pid), "started_at": time.time()})
            write_json(paused.folder / jobs.HEARTBEAT, {"phase": "paused", "paused": True, "time": time.time()})
            queue.join(workspace, "paused", first=True)
            waiting.start()
            server.start()
            page.goto(f"{server.url}&tab=train")
            page.locator("#runs li", has_text="waiting").click()
            says = "run paused is paused and goes first: resume or stop it"
            page.locator("#run-head").get_by_text(says).wait_for()
        finally:
            waiting.stop()
            sleeper.kill()
