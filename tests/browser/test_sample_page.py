"""The Sample tab, alone on its page, in a real browser with the real worker: ask, see it come, cancel, reload.

Not covered: the other tabs beside it (test_browser).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from tests.browser.server import ROOT
from workbench import jobs
from workbench.sampler import queue
from workbench.sampler.samples import Samples
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
SHOTS = os.environ.get("WORKBENCH_SHOTS", "")  # a folder: how the tab looks is left there


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Workspace, str]]:
    """A workspace and the address of its page."""
    workspace = Workspace.open(tmp_path / "workspace")
    command = [sys.executable, "-m", "tests.browser.sample_page", str(workspace.root)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield workspace, server.stdout.readline().split(": ", 1)[1].strip()
        server.kill()
    jobs.kill(queue.worker_folder(workspace))


def shot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)


def field(page: Page, name: str, value: str) -> None:
    page.locator(f"#{name} input, #{name} textarea").first.fill(value)


def test_a_request_comes_live_can_be_cancelled_and_survives_a_reload(
    served: tuple[Workspace, str], page: Page, tmp_path: Path
) -> None:
    workspace, url = served
    page.goto(url)
    page.locator("#sample-result .note.empty").wait_for()
    page.locator("#SampleSettings-image").wait_for(state="hidden")  # the model takes the prompt alone

    # Three seeds: one is generated, one cancelled while it waits, one follows.
    field(page, "SampleSettings-prompt", "a red ring moves left on a black background")
    field(page, "SampleSettings-steps", "80")
    page.locator("#SampleSettings-seed button", has_text="Random").click()
    page.wait_for_function("!document.querySelector('#SampleSettings-seed input, #SampleSettings-seed textarea').value")
    field(page, "SampleSettings-seed", "5")
    field(page, "videos", "3")
    page.locator("#generate").click()
    requests = page.locator("#sample-queue .requests > li")
    requests.nth(2).wait_for()
    requests.nth(2).locator(".cancel").click()
    requests.nth(2).wait_for(state="detached")
    generating = page.locator("#sample-queue li[data-state=generating]")
    generating.locator("img.preview").wait_for()
    assert page.evaluate("document.querySelector('#sample-queue img.preview').naturalWidth") > 0
    generating.locator(".status", has_text="left").wait_for()
    shot(page, "generating")
    page.locator("#sample-result figure.result video").wait_for()
    page.locator("#sample-history .sample").nth(1).wait_for()
    requests.first.wait_for(state="detached")
    assert sorted(sample.settings.seed for sample in Samples(workspace).history()) == [5, 6]

    # A LoRA that is not there: refused with a sentence, and nothing is submitted.
    page.locator("#SampleSettings-loras .add").click()
    page.locator("#SampleSettings-loras select").select_option(label="A file, or one on the Hub …")
    page.locator("#SampleSettings-loras input[type=text]").fill("nobody.safetensors")
    page.locator("#SampleSettings-loras input[type=number]").fill("0.6")
    page.locator("#generate").click()
    page.locator(".problems", has_text="nobody.safetensors").wait_for()
    page.locator("#SampleSettings-loras .about.bad").wait_for()
    page.locator("#SampleSettings-loras .away").click()

    # The older one is opened, and the form goes on from it.
    page.locator("#sample-history .sample").nth(1).click()
    page.locator("#sample-result dd", has_text="5").first.wait_for()
    page.locator("#sample-result [data-do=continue]").click()
    page.locator("#sample-input-files video").wait_for()
    page.locator("#sample-input-files [data-do=clear]").click()
    page.locator("#sample-input-files video").wait_for(state="detached")

    page.reload()
    page.locator("#sample-result figure.result").wait_for()
    page.wait_for_function(
        "document.querySelector('#SampleSettings-steps input, #SampleSettings-steps textarea')?.value === '80'"
    )
    page.locator("#sample-history .sample").nth(1).wait_for()
    shot(page, "done")

    picture = tmp_path / "mine.png"
    Image.new("RGB", (64, 64), "navy").save(picture)
    page.locator("#SampleSettings-model input").click()
    page.get_by_role("option", name="Tiny CogVideoX, image to video").first.click()
    page.locator("#SampleSettings-image").wait_for()
    with page.expect_file_chooser() as chooser:
        page.locator("#upload-image").click()
    chooser.value.set_files(picture)
    page.locator("#sample-input-files img").wait_for()
    (copied,) = (workspace.samples / "inputs").iterdir()
    assert copied.read_bytes() == picture.read_bytes()

    for theme in ("light", "dark"):
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(f"{url}?__theme={theme}")
        page.locator("#sample-result figure.result").wait_for()
        page.locator("#sample-history .sample").nth(1).wait_for()
        page.locator("#prompt-enhancer button").first.click()
        page.locator("#write-prompt").wait_for()
        shot(page, f"narrow-{theme}")
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
