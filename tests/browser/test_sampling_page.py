"""Sample on the page: a form that is kept, videos that come and are cancelled, what fills the form, the history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from tests.browser.conftest import Site
from tests.browser.test_behavior import drop
from tests.loras.making import layer, put_lora
from tests.patience import PATIENCE, until
from workbench.sampler.samples import Samples, new_id, video_path, write_sample
from workbench.sampler.settings import SampleSettings

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
HOSTILE = '<img src=x onerror="window.broken = 1">'
TILES = "document.querySelectorAll('.sample-tile').length"
VALUE = "document.querySelector('{}')?.value"


@pytest.fixture(scope="module", autouse=True)
def samples(site: Site) -> list[str]:
    """Thirty finished samples, the last one newest."""
    made = []
    for number in range(30):
        frames = np.full((9, 48, 96, 3), 8 * number, np.uint8)
        settings = SampleSettings(prompt=f"a cat number {number} {HOSTILE}", seed=number)
        about = {"seed": number, "fps": 8.0, "frames": 9, "width": 96, "height": 48, "steps": 4}
        made.append(new_id())
        record = {"settings": settings.model_dump(mode="json"), **about}
        write_sample(video_path(site.workspace, made[-1]), frames, 8, record)
    put_lora(site.workspace, "cat", layer("blocks.0.to_q", 4, 8, 8), trigger="ohwx")
    return made


@pytest.fixture(autouse=True)
def patient(page: Page) -> None:
    page.set_default_timeout(1000 * PATIENCE)


def test_the_history_is_searched_turned_starred_emptied_and_brought_back(site: Site, page: Page) -> None:
    site.open(page, "#/sample")
    page.wait_for_function(f"{TILES} === 24")
    page.get_by_text("1 to 24 of 30").wait_for()
    page.get_by_role("button", name="Older").click()
    page.wait_for_function(f"{TILES} === 6")
    page.fill(".history-search", "number 12")
    page.wait_for_function(f"{TILES} === 1")
    page.locator(".sample-tile a").focus()
    page.keyboard.press("s")
    page.locator(".sample-tile [aria-pressed=true]").wait_for()
    page.fill(".history-search", "")
    page.locator(".segments label", has_text="Starred").click()
    page.wait_for_function(f"{TILES} === 1")
    page.keyboard.press("Escape")
    page.locator(".sample-tile a").focus()
    page.keyboard.press("Delete")
    page.wait_for_function(f"{TILES} === 0")
    page.locator(".toast .button", has_text="Undo").click()
    page.wait_for_function(f"{TILES} === 1")
    assert page.evaluate("window.broken") is None
    assert len(Samples(site.workspace).history(100)) == 30


def test_a_sample_has_an_address_and_fills_the_form(site: Site, samples: list[str], page: Page) -> None:
    site.open(page, f"#/sample/{samples[3]}")
    page.locator("wb-result .facts b", has_text="96×48").wait_for()
    page.get_by_role("button", name="Use these settings").click()
    page.wait_for_function(f"{VALUE.format('textarea[name=prompt]')}.includes('number 3')")
    assert page.input_value("#sample-seed") == "3"
    page.get_by_role("button", name="Continue it").click()
    page.locator("[data-slot=continue_from] .slot-filled").wait_for()
    page.reload()  # nothing that was filled in is lost
    page.locator("[data-slot=continue_from] .slot-filled").wait_for()
    assert "number 3" in page.input_value("textarea[name=prompt]")
    page.locator(".toast .button", has_text="Undo").wait_for(state="detached")
    page.get_by_role("button", name="Clear").click()
    page.wait_for_function(f"{VALUE.format('#sample-seed')} === ''")
    page.locator(".toast .button", has_text="Undo").click()
    page.wait_for_function(f"{VALUE.format('#sample-seed')} === '3'")


def test_wrong_settings_are_said_at_their_fields(site: Site, page: Page) -> None:
    site.open(page, "#/sample")
    page.fill("input[name=steps]", "0")
    page.locator(".field", has_text="Steps").locator("[role=alert]", has_text="steps is 0").wait_for()
    page.fill("input[name=steps]", "")
    page.fill("textarea[name=prompt]", "a cat")
    page.get_by_role("button", name="Add", exact=True).click()
    page.fill("dialog.add-lora input", "cat")
    page.locator(".lora-choices .button", has_text="cat").click()
    page.get_by_role("button", name="Insert ohwx").click()
    page.wait_for_function(f"{VALUE.format('textarea[name=prompt]')} === 'ohwx a cat'")
    page.locator(".lora-stack li > .input").fill("0.4")
    page.locator(".lora-stack li > .input").press("Tab")
    page.wait_for_function(f"{VALUE.format('.lora-stack input[type=range]')} === '0.4'")
    page.get_by_role("button", name="Remove cat").click()
    page.locator(".lora-stack li").wait_for(state="detached")


def test_files_that_are_chosen_fill_the_form(site: Site, samples: list[str], page: Page, tmp_path: Path) -> None:
    site.open(page, "#/sample")
    page.locator("[data-slot=video] .dropzone").wait_for()
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Settings from a file").click()
    chooser.value.set_files(video_path(site.workspace, samples[5]))
    page.wait_for_function(f"{VALUE.format('textarea[name=prompt]')}.includes('number 5')")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Settings from a file").click()
    chooser.value.set_files(site.workspace.root / "loras" / "cat" / "lora.safetensors")
    page.locator(".lora-stack li", has_text="cat").wait_for()
    page.select_option("select[name=model]", label="Tiny CogVideoX, image to video (built in)")
    picture = tmp_path / "mine.png"
    Image.new("RGB", (64, 64), "navy").save(picture)
    with page.expect_file_chooser() as chooser:
        page.locator("[data-slot=image] .dropzone").click()
    chooser.value.set_files(picture)
    page.locator("[data-slot=image] .slot-filled img").wait_for()
    (copied,) = (site.workspace.samples / "inputs").glob("*.png")
    assert copied.read_bytes() == picture.read_bytes()


def test_our_own_video_or_lora_dropped_anywhere_fills_the_form(site: Site, samples: list[str], page: Page) -> None:
    site.open(page, "#/sample")
    page.locator("textarea[name=prompt]").wait_for()
    drop(page, video_path(site.workspace, samples[7]))
    page.wait_for_function(f"{VALUE.format('textarea[name=prompt]')}.includes('number 7')")
    assert page.input_value("#sample-seed") == "7"
    drop(page, site.workspace.root / "loras" / "cat" / "lora.safetensors")
    page.locator(".lora-stack li", has_text="cat").wait_for()
    assert "number 7" in page.input_value("textarea[name=prompt]")  # a LoRA leaves the prompt as it was
    page.locator(".toast .button", has_text="Undo").click()
    page.locator(".lora-stack li").wait_for(state="detached")


def test_videos_come_live_and_one_is_cancelled(site: Site, page: Page) -> None:
    before = len(Samples(site.workspace).history(100))
    site.open(page, "#/sample")
    page.fill("textarea[name=prompt]", "a red ring moves left")
    page.fill("input[name=steps]", "80")
    page.fill("#sample-seed", "5")
    page.fill("input[name=videos]", "3")
    page.get_by_role("button", name="Generate 3").wait_for()
    page.locator("textarea[name=prompt]").press("Control+Enter")
    rows = page.locator("wb-queue .queue > li")
    rows.nth(2).wait_for()
    rows.nth(2).get_by_role("button", name="Cancel").click()
    rows.nth(2).wait_for(state="detached")
    page.locator("wb-queue .queue .going", has_text="step").wait_for()
    page.reload()  # what was requested goes on
    page.locator("wb-result", has_text="a red ring moves left").wait_for()
    page.locator("wb-result .facts", has_text="80").wait_for()
    until(lambda: len(Samples(site.workspace).history(100)) == before + 2)
    page.wait_for_function("!document.querySelector('wb-queue .queue')")
