"""Datasets and Home in the browser: files are imported, captions written in place, a clip is cut, all is undone."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site
from tests.dataset_builder.small import write_dataset
from tests.patience import PATIENCE
from workbench import demo
from workbench.clips import media
from workbench.dataset_builder import Dataset

CAPTIONS = ("a red square", "", "a blue square", "", "a cat on a sofa")


@pytest.fixture(scope="module", autouse=True)
def _datasets(site: Site) -> None:
    for name in ("small", "cutting"):
        write_dataset(site.workspace.datasets / name, CAPTIONS)


def films(folder: Path) -> list[Path]:
    found = sorted((demo.DEMO_CLIPS / demo.concept()).glob("*.mp4"))[:2]
    given = [Path(shutil.copy(one, folder / f"walk_{number}.mp4")) for number, one in enumerate(found)]
    (folder / "notes.pdf").write_bytes(b"%PDF")
    return [*given, folder / "notes.pdf"]


def test_dropped_files_become_a_dataset_at_once_and_each_says_what_became_of_it(
    site: Site, page: Page, tmp_path: Path
) -> None:
    site.open(page, "#/")
    with page.expect_file_chooser() as chooser:
        page.locator(".dropzone").click()
    chooser.value.set_files(films(tmp_path))
    strip = page.locator("wb-import .strip")
    expect(strip).to_contain_text("2 taken", timeout=1000 * PATIENCE)
    expect(strip).to_contain_text("1 refused")
    strip.get_by_text("Each file").click()
    expect(strip.locator("tr", has_text="notes.pdf")).to_be_visible()
    expect(page).to_have_url(re.compile("#/dataset/clips-of-[\w-]+$"))
    expect(page.locator(".clip")).to_have_count(2)
    # They are checked by themselves.
    expect(page.get_by_role("button", name="Check again")).to_be_visible(timeout=1000 * PATIENCE)
    page.get_by_role("button", name="Undo import").click()
    expect(page.locator(".clip")).to_have_count(0)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator(".clip")).to_have_count(2)


def test_captions_are_written_in_place_with_the_keyboard_alone(site: Site, page: Page) -> None:
    dataset = Dataset.open(site.workspace, "small")
    site.open(page, "#/dataset/small")
    page.locator("select[name=only]").select_option("missing")
    fields = page.locator("wb-clips textarea")
    expect(fields).to_have_count(2)
    fields.first.focus()
    page.keyboard.type("a green square")
    page.keyboard.press("Control+Enter")
    expect(fields.nth(1)).to_be_focused()
    expect(fields.first).to_have_value("a green square")  # it stays, although the filter finds it no longer
    assert dataset.clips[1].text == "a green square"
    page.keyboard.type("half a sen")
    page.reload()
    expect(page.locator("wb-clips textarea").nth(3)).to_have_value("half a sen")  # nothing that was typed is lost
    page.locator("wb-clips textarea").nth(3).focus()
    page.keyboard.press("Escape")
    expect(page.locator("wb-clips textarea").nth(3)).to_have_value("")
    page.keyboard.press("j")
    page.keyboard.press("Space")
    toolbar = page.get_by_role("toolbar", name="Chosen clips")
    expect(toolbar).to_contain_text("1 chosen")
    toolbar.get_by_role("button", name="Remove").click()
    expect(page.locator(".clip")).to_have_count(4)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator(".clip")).to_have_count(5)


def test_a_caption_that_somebody_else_wrote_meanwhile_is_not_lost(site: Site, page: Page) -> None:
    dataset = Dataset.open(site.workspace, "small")
    site.open(page, f"#/dataset/small/clip/{dataset.clips[4].id}")
    field = page.get_by_label("Caption of private name 4.mov")
    field.fill("mine")
    dataset.set_caption(dataset.clips[4].id, "theirs")
    page.locator("h1").click()
    expect(page.locator("wb-caption [role=alert]")).to_contain_text("'theirs'")
    page.get_by_role("button", name="Use theirs").click()
    expect(field).to_have_value("theirs")


def test_a_clip_is_trimmed_and_cropped_by_keys_and_undo_brings_it_back(site: Site, page: Page) -> None:
    dataset = Dataset.open(site.workspace, "cutting")
    before = dataset.clips[4].id
    site.open(page, f"#/dataset/cutting/clip/{before}")
    start = page.get_by_label("Start", exact=True)
    start.focus()
    page.keyboard.press("ArrowRight")
    page.get_by_role("button", name="Crop", exact=True).click()
    page.get_by_label("Width", exact=True).fill("16")
    page.get_by_role("button", name="Keep 5 frames").click()
    expect(page.locator(".about-clip")).to_contain_text("16×32", timeout=1000 * PATIENCE)
    expect(page.locator(".about-clip")).to_contain_text("5 frames")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page).to_have_url(re.compile(f"{before}$"))
    expect(page.locator(".about-clip")).to_contain_text("32×32")
    assert dataset.clips[4].id == before


def test_cuts_are_marked_and_gone_to_by_keys_on_a_strip_that_zooms(site: Site, page: Page, tmp_path: Path) -> None:
    frames = np.zeros((96, 64, 96, 3), np.uint8)
    frames[:, :, :, 1] = np.arange(96)[:, None, None] * 2
    media.encode(frames, tmp_path / "walk.mp4", 16)
    dataset = Dataset.create(site.workspace, "Marked")
    dataset.import_files([tmp_path / "walk.mp4"])
    site.open(page, f"#/dataset/marked/clip/{dataset.clips[0].id}")
    film, frame = page.locator(".film"), page.locator("wb-clip wb-scrubber .fine")
    film.locator(".playhead").wait_for()
    film.click(position={"x": film.evaluate("(one) => one.clientWidth") * 0.25, "y": 20})
    expect(frame).to_have_text("frame 25 of 96")
    page.keyboard.press("m")
    page.keyboard.press(".")
    page.keyboard.press("m")
    expect(film.locator(".mark")).to_have_count(2)
    page.keyboard.press("[")
    expect(frame).to_have_text("frame 25 of 96")
    page.keyboard.press("]")
    expect(frame).to_have_text("frame 26 of 96")
    page.keyboard.press("m")
    expect(film.locator(".mark")).to_have_count(1)
    page.keyboard.press("+")
    expect(page.get_by_label("Start", exact=True)).to_have_attribute("max", "49")
    page.keyboard.press("-")
    expect(page.get_by_label("End", exact=True)).to_have_value("96")
    page.reload()
    page.get_by_role("button", name="Split at 1 cut").click()
    expect(page.locator(".about-clip")).to_contain_text("24 frames", timeout=1000 * PATIENCE)
    assert [clip.frames for clip in dataset.clips] == [24, 72]


def test_an_export_to_the_hub_lists_its_files_first(site: Site, page: Page) -> None:
    site.open(page, "#/dataset/cutting/export")
    page.get_by_text("To a folder, an archive or the Hub").click()
    page.get_by_label("Hub dataset").fill("ann/cutting")
    plan = page.locator(".upload-plan")
    expect(plan.locator("summary")).to_contain_text("to ann/cutting")
    plan.locator("summary").click()
    expect(plan.get_by_role("cell", name="README.md")).to_be_visible()


def test_a_dataset_is_renamed_and_moved_to_the_bin_with_a_way_back(site: Site, page: Page) -> None:
    write_dataset(site.workspace.datasets / "spare", CAPTIONS)
    site.open(page, "#/dataset/spare/notes")
    page.get_by_label("Title").fill("Night walks")
    page.get_by_label("Group").focus()
    expect(page).to_have_url(re.compile("#/dataset/night-walks/notes$"))
    page.get_by_label("Group").fill("walks")
    page.get_by_label("Your notes").fill("for the talk")
    page.locator("h1").click()
    expect(page.locator(".toast")).to_contain_text("Notes saved.")
    page.locator("summary[aria-label=More]").click()
    page.get_by_role("button", name="Move to the bin").click()
    expect(page.locator("wb-datasets")).to_be_visible()
    expect(page.locator('[data-id="dataset-night-walks"]')).to_have_count(0)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator("wb-dataset h1")).to_have_text("Night walks")
    assert Dataset.open(site.workspace, "night-walks").notes == "for the talk"
