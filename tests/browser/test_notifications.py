"""Desktop notifications: asked for by a switch, only of what ends while the page is hidden."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.server import Server
from tests.written_run import ended, write_run
from workbench import jobs
from workbench.jobs import processes
from workbench.runs.run import Run
from workbench.workspace import Workspace, write_json

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
# The constructor is ours, the permission and its question are the browser's; a test decides whether the page is hidden.
STUB = """(() => {
    window.told = [];
    const Real = window.Notification;
    window.Notification = class {
        constructor(title, options) { this.title = title; this.options = options; window.told.push(this); }
        close() {}
        static get permission() { return Real.permission === 'default' ? 'denied' : Real.permission; }
        static requestPermission() { return Real.requestPermission(); }
    };
    Object.defineProperty(document, 'visibilityState', { get: () => window.seen ? 'visible' : 'hidden' });
    const every = window.setInterval.bind(window);
    window.setInterval = (work, wait, ...rest) => every(work, wait === 10000 ? 300 : wait, ...rest);
})()"""


@pytest.fixture
def alive() -> Iterator[Callable[[Run], None]]:
    """Make a run's folder look as if a process ran it, which is none of ours."""
    with subprocess.Popen(["sleep", "3600"]) as process:

        def alive(run: Run) -> None:
            (run.folder / jobs.RESULT).unlink()
            write_json(run.folder / jobs.PROCESS, {**processes.identity(process.pid), "started_at": time.time()})

        yield alive
        process.kill()


def looked(page: Page, times: int = 2) -> None:
    """Wait until the page has looked at the runs some times more."""
    for _ in range(times):
        with page.expect_response(lambda response: "run_ends" in (response.request.post_data or "")):
            pass


def test_a_run_that_ends_while_the_page_is_hidden_is_told_of(
    server: Server, page: Page, alive: Callable[[Run], None]
) -> None:
    workspace = Workspace.open(server.workspace)
    _, one, two = (write_run(workspace, name, 20) for name in ("old", "one", "two"))
    for run in (one, two):
        alive(run)
    server.start()
    page.context.grant_permissions(["notifications"])
    page.add_init_script(STUB)
    page.goto(server.url)
    switch = page.get_by_label("Notify me of ended runs")
    assert not switch.is_checked()
    switch.check()
    looked(page)
    ended(one.folder, "failed", 1, "cannot read /secret/folder/clip.mp4: it is damaged")
    page.wait_for_function("window.told.length === 1")
    found = page.evaluate("[told[0].title, told[0].options.body]")
    assert found == ["one: failed", "cannot read clip.mp4: it is damaged"]
    page.evaluate("window.seen = true")
    ended(two.folder, "finished", 0)
    looked(page, 8)
    assert page.evaluate("told.length") == 1  # once, nothing of what was over before, nothing that the person sees
    assert page.evaluate("localStorage.getItem('workbench-notifications')") == "on"
    page.evaluate("told[0].onclick()")
    page.locator("#run-head h2", has_text="one").wait_for()


def test_a_browser_that_refuses_is_named_beside_the_switch(server: Server, page: Page) -> None:
    server.start()
    page.goto(server.url)
    switch, problem = page.get_by_label("Notify me of ended runs"), page.locator(".notifications .problem")
    switch.click()
    problem.get_by_text("This browser blocks notifications of this page").wait_for()
    assert not switch.is_checked()
    page.context.grant_permissions(["notifications"])
    page.reload()
    switch.check()
    page.wait_for_function("localStorage.getItem('workbench-notifications') === 'on'")
    problem.wait_for(state="hidden")
    page.context.clear_permissions()  # taken back, in the browser's settings
    page.reload()
    problem.get_by_text("notifications").wait_for()
    assert not switch.is_checked()
