"""A workspace with nothing in it: each tab says what will be there, and its one button leads to what comes first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.server import Server
from tests.loras.making import layer, put_lora
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path)
    running.start()
    yield running
    running.kill()


def test_one_button_leads_to_what_comes_first(server: Server, page: Page) -> None:
    page.goto(f"{server.url}&tab=sample")
    empty = page.locator(".empty-state >> visible=true")
    train = page.locator("#tab-train-button[aria-selected=true]")
    empty.locator("button", has_text="Describe a video").click()
    page.locator("#SampleSettings-prompt textarea:focus").wait_for()

    page.locator("#tab-loras-button").click()
    empty.locator("p", has_text="is a card here").wait_for()
    assert not page.locator("#lora-library input, #publish-account >> visible=true").count()
    empty.locator("button", has_text="Train a LoRA").click()
    train.wait_for()

    page.locator("#tab-compare-button").click()
    empty.locator("button", has_text="Train a LoRA first").wait_for()
    assert not page.locator("#GridSettings-run").is_visible(), "there is nothing to make a grid of"
    page.locator("#tab-curves-button").click()
    empty.locator("button", has_text="Start a run").click()
    train.wait_for()

    put_lora(Workspace.open(server.workspace), "cat", layer("blocks.0.to_q", 4, 8, 8))
    page.goto(f"{server.url}&tab=compare")
    page.locator("#tab-videos-button").click()
    empty.locator("button", has_text="Make a grid").click()
    page.locator("#grid-form :is(input, textarea):focus").wait_for()
