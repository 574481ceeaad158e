"""The Home tab in a browser: what an empty workspace offers, and that everything listed opens where it belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.server import Server
from tests.test_overview import add_dataset, add_sample
from tests.written_run import ended, write_run
from workbench.runs.run import Run
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request

pytestmark = pytest.mark.browser


def open_tab(page: Page) -> str:
    return page.locator("[role=tab][aria-selected=true]").first.inner_text()


# The names of the components that handlers of these numbers change.
CHANGED = """(numbers) => {
    const { components, dependencies } = window.gradio_config;
    const outputs = dependencies.filter((one) => numbers.includes(one.id)).flatMap((one) => one.outputs);
    return components.filter((one) => outputs.includes(one.id) && one.type !== "state").map((one) => one.props.elem_id);
}"""


def handlers_called(page: Page) -> list[int]:
    """The numbers of the handlers that the page calls from now on; the list grows."""
    called: list[int] = []

    def on_request(request: Request) -> None:
        if request.url.endswith("/queue/join"):
            called.append(request.post_data_json["fn_index"])

    page.on("request", on_request)
    return called


def go_home(page: Page) -> None:
    page.get_by_role("tab", name="Home", exact=True).click()
    page.locator(".home section").first.wait_for()


def test_an_empty_workspace_offers_the_demo_which_begins_at_once(server: Server, page: Page) -> None:
    server.start()
    page.goto(server.url)
    page.locator(".next-steps button").nth(1).wait_for()
    assert page.locator(".next-steps button").all_inner_texts() == ["Train the demo", "Bring your clips"]
    plain = "window.gradio_config.dependencies.filter((one) => Object.getPrototypeOf(one) === Object.prototype).length"
    assert page.evaluate(plain) == 0, "Gradio observes every listener: see assets/before_gradio.js"
    page.get_by_role("button", name="Bring your clips").click()
    page.locator("#dataset-title").wait_for()
    go_home(page)
    page.get_by_role("button", name="Train the demo").click()
    page.locator("#run-head h2", has_text="demo").wait_for()
    page.locator("#start-training").wait_for(state="hidden")  # the run is what there is to see
    assert open_tab(page) == "Train"
    run = Run.open(Workspace.open(server.workspace), "demo")
    page.locator("#stop-run").click()
    page.locator("#run-head .badge", has_text="stopped").wait_for()
    assert not run.status.state.alive
    go_home(page)
    page.locator(".home .lines li", has_text="demo").get_by_text("stopped", exact=True).wait_for()


def test_what_is_listed_opens_where_it_belongs(server: Server, page: Page) -> None:
    workspace = Workspace.open(server.workspace)
    write_run(workspace, "done", 20)
    write_run(workspace, "broken", 20)
    ended(workspace.run("broken"), "failed", 1, "something went wrong")
    add_dataset(workspace, "cats", "a cat", "")
    for number in range(3):
        add_sample(workspace, f"a ball of number {number}")
    server.start()
    called = handlers_called(page)
    page.goto(server.url)
    page.locator(".home li", has_text="broken").locator(".badge.bad").wait_for()
    changed = page.evaluate(CHANGED, called)
    assert set(changed) <= {"home", "new-run"}, "opening the page asks for the open tab, not for all"

    page.locator(".home .name", has_text="broken").click()
    page.locator("#run-head h2", has_text="broken").wait_for()
    assert open_tab(page) == "Train"

    go_home(page)
    page.locator(".home .name", has_text="Cats").click()
    page.get_by_role("heading", name="Cats").wait_for()
    assert open_tab(page) == "Dataset"

    go_home(page)
    page.locator(".home .sample", has_text="number 1").click()
    page.locator("#sample-result", has_text="a ball of number 1").wait_for()
    assert open_tab(page) == "Sample"

    go_home(page)
    page.locator(".next-steps li", has_text="done has finished").get_by_role("button").click()
    page.locator("#SampleSettings-loras", has_text="done").first.wait_for()
    assert open_tab(page) == "Sample"
