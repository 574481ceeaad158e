"""The Train tab in a real browser with a real server and small real runs: search, queue, the fork of a failed run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.browser.server import Server
from tests.browser.stripes import few_clips
from tests.patience import PATIENCE
from tests.written_run import ended
from workbench.errors import ExitCode
from workbench.runs import queue
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
QUICK = {"preview_every": 0, "evaluate_every": 0, "save_every": 2, "batch_size": 1, "held_out": 0, "rank": 2}
SEARCH = "#new-run input[type=search]"


@pytest.fixture
def settings(server: Server) -> TrainSettings:
    """Settings of a run that takes no longer than its model does to load."""
    return few_clips(Workspace.open(server.workspace)).changed(**QUICK)


def shown_fields(page: Page) -> set[str]:
    """Names of the settings that can be seen."""
    found = page.locator("[id^=TrainSettings-]").evaluate_all(
        "blocks => blocks.filter(block => block.offsetParent).map(block => block.id)"
    )
    return {name.removeprefix("TrainSettings-") for name in found}


def wait_for_order(workspace: Workspace, names: list[str]) -> None:
    end = time.monotonic() + PATIENCE
    while queue.order(workspace) != names:
        assert time.monotonic() < end, queue.order(workspace)
        time.sleep(0.1)


def test_settings_are_found_as_one_types(server: Server, page: Page) -> None:
    server.start()
    page.goto(server.url)
    page.locator(SEARCH).focus()
    page.keyboard.type("rate")
    page.locator("#TrainSettings-scale_learning_rate").wait_for()  # folded away before
    found = shown_fields(page)
    assert {"learning_rate", "scale_learning_rate", "lr_schedule", "fps"} <= found
    assert not found & {"seed", "rank"}
    page.keyboard.press("Enter")  # to the first that fits
    assert page.evaluate("document.activeElement.closest('[id^=TrainSettings-]')?.id") == "TrainSettings-learning_rate"
    page.locator(SEARCH).fill("flux capacitor")
    page.get_by_text("No setting is called “flux capacitor”.").wait_for()
    assert shown_fields(page) == set()
    page.locator(SEARCH).fill("")
    page.locator("#TrainSettings-rank").wait_for()
    assert "seed" not in shown_fields(page)  # folded away again


def test_settings_without_effect_are_left_out_and_keep_their_values(server: Server, page: Page) -> None:
    server.start()
    page.goto(server.url)
    page.locator("#new-run .more > button").click()
    page.locator("#TrainSettings-dora").wait_for()
    page.wait_for_function("!document.querySelector('#TrainSettings-image_dropout').offsetParent")  # text-to-video
    page.locator("#TrainSettings-alpha input").fill("8")
    page.locator("#TrainSettings-alpha[data-changed]").wait_for()
    page.locator("#new-run .more [data-count='1 changed']").wait_for()
    page.locator("#TrainSettings-method input").click()
    page.get_by_role("option", name="full").click()
    page.locator("#TrainSettings-dora").wait_for(state="hidden")
    assert page.locator("#TrainSettings-alpha").is_visible()  # somebody gave it a value
    assert page.locator("#TrainSettings-alpha input").input_value() == "8"

    # The fields of a tab that was not open come one by one when it opens.
    page.get_by_role("tab", name="Sample", exact=True).click()
    page.locator("#SampleSettings-prompt").wait_for()
    page.locator("#SampleSettings-image").wait_for(state="hidden")


def test_the_queues_order_is_changed_and_a_waiting_run_removed(
    server: Server, page: Page, settings: TrainSettings
) -> None:
    workspace = Workspace.open(server.workspace)
    runs = {name: Run.create(workspace, settings.changed(steps=100_000), name) for name in ("one", "two", "three")}
    for run in runs.values():
        run.start()
    wait_for_order(workspace, ["two", "three"])
    server.start()
    page.goto(server.url)
    page.get_by_role("radio", name="three").check()
    page.locator("#run-head .badge", has_text="waiting").wait_for()
    page.locator("#run-head", has_text="second in the queue, after run two").wait_for()
    page.locator("#queue-up").focus()
    page.keyboard.press("Enter")
    page.locator("#run-head", has_text="first in the queue").wait_for()
    wait_for_order(workspace, ["three", "two"])
    assert page.locator("#queue li").all_inner_texts() == ["three", "two"]
    page.locator("#queue-remove").click()
    page.locator("#run-head .badge", has_text="stopped").wait_for()
    wait_for_order(workspace, ["two"])
    assert runs["one"].status.state.alive


def test_a_failed_run_goes_on_by_the_button_of_its_failure(server: Server, page: Page, settings: TrainSettings) -> None:
    workspace = Workspace.open(server.workspace)
    run = Run.create(workspace, settings.changed(steps=4), "failed")
    run.start()
    run.wait(PATIENCE)
    assert run.checkpoints == [2, 4]
    # As if it had ended within step 3, on a smaller GPU.
    (run.folder / "checkpoints" / "step-00000004" / "MANIFEST.json").unlink()
    (run.folder / "lora.safetensors").unlink()
    ended(run.folder, "failed", int(ExitCode.OUT_OF_MEMORY), "CUDA out of memory. Tried to allocate 2.50 GiB.")
    server.start()
    page.goto(server.url)
    page.locator("#run-ending h3", has_text="The GPU ran out of memory").wait_for()
    page.get_by_role("button", name="Go on from step 2 with gradient_checkpointing full").click()
    page.locator("#run-head h2", has_text="failed-2").wait_for()
    page.locator("#run-head .run-note", has_text="Goes on from step 2 of failed").wait_for()
    page.locator("#run-head .badge", has_text="finished").wait_for()
    fork = Run(workspace.runs / "failed-2")
    assert fork.settings == run.settings.changed(gradient_checkpointing="full")
    assert [line["step"] for line in fork.metrics if "loss" in line] == [3, 4]
