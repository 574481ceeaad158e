"""Companion files in the browser: from dropped files to a control clip, a tracked mask and a trained LoRA."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site
from tests.patience import PATIENCE
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.runs.run import Run

SIDE, FRAMES = 96, 9
LONG = 1000 * PATIENCE


def moving(path: Path, color: int) -> Path:
    """A square that goes from left to right over a gray ground."""
    frames = np.full((FRAMES, SIDE, SIDE, 3), 120, np.uint8)
    for index in range(FRAMES):
        frames[index, 30:62, 8 + 4 * index : 40 + 4 * index] = (color, 40, 40)
    media.encode(frames, path, 8)
    return path


def test_from_dropped_files_to_a_tracked_mask_and_a_lora_that_learned_inside_of_it(
    site: Site, page: Page, tmp_path: Path
) -> None:
    site.open(page, "#/")
    with page.expect_file_chooser() as chooser:
        page.locator(".dropzone").click()
    chooser.value.set_files([moving(tmp_path / "square.mp4", 220), moving(tmp_path / "other.mp4", 140)])
    expect(page).to_have_url(re.compile("#/dataset/clips-of-[\\w-]+$"), timeout=LONG)
    expect(page.locator(".clip")).to_have_count(2)
    dataset = Dataset.open(site.workspace, page.url.rpartition("/")[2])
    clip = next(one for one in dataset.clips if one.source == "square.mp4")

    # -- a control clip
    site.open(page, f"#/dataset/{dataset.name}/clip/{clip.id}")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Drop its control clip").click()
    chooser.value.set_files([moving(tmp_path / "edges.mp4", 255)])
    expect(page.locator("[data-kind=control]")).to_contain_text(f"same {FRAMES} frames", timeout=LONG)

    # -- a mask: painted on the first frame, tracked through the others
    page.locator("[data-kind=mask]").get_by_role("link", name="Paint a mask").click()
    expect(page).to_have_url(re.compile("/mask$"))
    page.get_by_label("Size").fill("8")
    box = page.locator("canvas.paint").bounding_box()
    assert box is not None
    scale = box["width"] / SIDE
    page.mouse.move(box["x"] + 10 * scale, box["y"] + 46 * scale)
    page.mouse.down()
    for row in (38, 46, 54):
        page.mouse.move(box["x"] + 14 * scale, box["y"] + row * scale)
        page.mouse.move(box["x"] + 34 * scale, box["y"] + row * scale, steps=4)
    page.mouse.up()
    expect(page.locator(".bars-of-mask")).to_contain_text("1 painted frame, not tracked yet")
    page.get_by_role("button", name=re.compile("^Track 9 frames")).click()
    expect(page.locator(".bars-of-mask")).to_contain_text("Tracked through 9 frames", timeout=LONG)
    expect(page.locator(".certainty i")).to_have_count(FRAMES)
    page.get_by_role("link", name="Done").click()
    expect(page.locator("[data-kind=mask]")).to_contain_text(f"tracked, {FRAMES} of {FRAMES} frames sure")
    now = next(one for one in dataset.clips if one.id == clip.id)
    assert set(now.companions) == {"control", "mask"}
    inside = [frame for _, frame in media.decode(dataset.folder / now.mask)]
    assert inside[-1][46, 56].min() > 200, "it followed the square"
    assert inside[-1][46, 12].max() < 50

    # -- a LoRA that learns inside of it
    site.open(page, "#/train/new")
    page.locator("[name=dataset]").select_option(dataset.name)
    page.get_by_text("All settings").click()
    page.locator("[name=loss_mask]").select_option("inside")
    page.locator("[name=unmasked_clips]").select_option("whole")
    page.locator("[name=steps]").fill("2")
    page.locator("[name=name]").fill("inside")
    page.get_by_role("button", name=re.compile("^Start")).click()
    expect(page).to_have_url(re.compile("#/train/inside"), timeout=LONG)
    expect(page.get_by_text("Finished").first).to_be_visible(timeout=LONG)
    run = Run.open(site.workspace, "inside")
    assert run.settings.loss_mask == "inside"
    assert (run.folder / "lora.safetensors").is_file()
