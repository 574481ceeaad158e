"""What a person typed or chose stays: over a reload, beside a button, and when an answer of the server comes late."""

from __future__ import annotations

from functools import partial
from operator import eq
from typing import TYPE_CHECKING

import pytest

from tests.browser.server import Server, choose, frames, unfold
from tests.loras.making import layer, put_lora
from tests.written_run import write_run
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

pytestmark = pytest.mark.browser
CALLS = "**/queue/join*"
STORED = "localStorage.getItem('workbench-repositories-lora')"


class Held:
    """The page's calls of listeners: none reaches the server before `release`."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._routes: list[Route] | None = []
        page.route(CALLS, self._take)

    def _take(self, route: Route) -> None:
        if self._routes is None:
            route.continue_()
        else:
            self._routes.append(route)

    def release(self) -> None:
        """Let them go in their order: each once the server has the one before."""
        held, self._routes = self._routes, None
        assert held, "the page has asked for nothing"
        for route in held:
            with self._page.expect_event("requestfinished", partial(eq, route.request)):
                route.continue_()


def field(page: Page, name: str) -> Locator:
    return page.locator(f"#{name} :is(input, textarea)").first


def fill(page: Page, name: str, value: str) -> None:
    field(page, name).fill(value)
    field(page, name).press("Tab")


def values(page: Page, *names: str) -> list[str]:
    return [field(page, name).input_value() for name in names]


def test_what_is_changed_before_the_first_answers_stays(server: Server, page: Page) -> None:
    workspace = Workspace.open(server.workspace)
    run = write_run(workspace, "cats", 20)
    put_lora(workspace, "dog", layer("blocks.0.to_q", 4, 8, 8))
    server.start()
    held = Held(page)
    page.goto(f"{server.url}&tab=train")
    page.wait_for_function("window.workbenchTabs")  # what the browser kept is filled in: only the server's answers lack
    unfold(page, "#new-run > button")
    typed = {"TrainSettings-dataset": "mine", "TrainSettings-rank": "7", "run-name": "first"}
    for name, value in typed.items():
        fill(page, name, value)
    held.release()
    page.locator("#run-head h2", has_text="cats").wait_for()
    page.locator("#fit-line").inner_text()
    assert values(page, *typed) == list(typed.values())
    assert page.locator("#TrainSettings-rank").is_visible(), "the fold stays open"

    held = Held(page)
    page.get_by_role("tab", name="Sample", exact=True).click()
    typed = {"SampleSettings-prompt": "a cat", "SampleSettings-steps": "3", "SampleSettings-seed": "5"}
    for name, value in typed.items():
        fill(page, name, value)
    held.release()
    page.locator("#sample-result .empty-state").wait_for()
    page.locator("#SampleSettings-loras .add").click()
    page.locator("#SampleSettings-loras select").select_option("loras/dog")
    assert values(page, *typed) == list(typed.values())

    # Notes that are not saved yet stay when another button of the run is pressed.
    page.get_by_role("tab", name="Train", exact=True).click()
    unfold(page, "#run-notes-box > button")
    fill(page, "run-notes", "half a sentence")
    unfold(page, "#checkpoints > button")
    page.locator("#star-checkpoint").click()
    page.locator("#checkpoint-table", has_text="starred").wait_for()
    assert values(page, "run-notes") == ["half a sentence"]
    assert not run.notes

    page.reload()
    page.locator("#run-head h2", has_text="cats").wait_for()
    unfold(page, "#new-run > button")
    assert values(page, "TrainSettings-rank", "run-name") == ["7", "first"]
    page.get_by_role("tab", name="Sample", exact=True).click()
    page.locator("#SampleSettings-loras .lora-row").wait_for()
    assert page.locator("#SampleSettings-loras select").input_value() == "loras/dog"


def test_ticked_loras_end_with_a_reload_and_a_typed_repository_stays(server: Server, page: Page) -> None:
    workspace = Workspace.open(server.workspace)
    for name in ("cat", "dog"):
        put_lora(workspace, name, layer("blocks.0.to_q", 4, 8, 8))
    server.start()
    page.goto(f"{server.url}&tab=loras")
    tick = {name: page.get_by_role("checkbox", name=f"Choose {name}") for name in ("cat", "dog")}
    tick["cat"].check()
    fill(page, "LoraPush-repo_id", "ann/lion")
    page.locator("#lora-star").click()
    page.locator("#lora-unstar").wait_for()
    tick["dog"].check()  # of two LoRAs none is published
    field(page, "LoraPush-repo_id").wait_for(state="hidden")
    tick["cat"].uncheck()
    field(page, "LoraPush-repo_id").wait_for()
    assert values(page, "LoraPush-repo_id") == [""], "of the other LoRA"
    held = Held(page)  # both are ticked before the server answers to one
    tick["dog"].uncheck()
    tick["cat"].check()
    page.wait_for_timeout(300)
    held.release()
    page.wait_for_function("document.querySelector('#LoraPush-repo_id :is(input, textarea)')?.value === 'ann/lion'")
    assert tick["cat"].is_checked()
    assert not tick["dog"].is_checked()
    frames(page, 30)  # by then ann/lion is kept, which is written anew whenever the field changes
    stored = page.evaluate(STORED)
    field(page, "LoraPush-repo_id").fill("ann/tiger")  # it is kept before the field is left
    page.wait_for_function(f"before => {STORED} !== before", arg=stored)

    page.reload()
    tick["cat"].wait_for()
    page.locator("#lora-detail", has_text="Choose a LoRA above").wait_for()
    assert not tick["cat"].is_checked()
    assert not page.locator("#lora-remove").is_visible()
    page.locator("#lora-library .count", has_text="2 LoRAs").wait_for()
    tick["cat"].check()
    page.wait_for_function("document.querySelector('#LoraPush-repo_id :is(input, textarea)')?.value === 'ann/tiger'")


def test_of_two_quick_choices_the_last_counts(server: Server, page: Page) -> None:
    server.start()
    page.goto(f"{server.url}&tab=train")
    choose(page, "TrainSettings-model", "CogVideoX 5B")
    choose(page, "recipe", "Style")
    page.wait_for_function("document.querySelector('#TrainSettings-learning_rate input').value === '0.0003'")
    held = Held(page)
    choose(page, "recipe", "Style")
    choose(page, "recipe", "Character")
    held.release()
    page.wait_for_function("document.querySelector('#TrainSettings-learning_rate input').value === '0.0001'")


def test_a_page_that_is_slow_comes_back_to_its_tab(server: Server, page: Page) -> None:
    """Gradio selects the first tab by itself, and says so late on a busy machine."""
    server.start()
    page.goto(f"{server.url}&tab=compare")
    page.get_by_role("tab", name="Curves", exact=True).click()
    page.wait_for_function("localStorage.getItem('workbench-compare') === 'curves'")
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": 6})
    for _ in range(3):
        page.reload()
        page.wait_for_function("window.workbenchTabs")
        page.locator("#tab-curves-button[aria-selected=true]").wait_for()
        frames(page, 3)
        assert page.evaluate("localStorage.getItem('workbench-tab')") == "compare"
