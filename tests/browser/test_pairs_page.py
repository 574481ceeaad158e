"""Pairs of a dataset in the browser: what is missing is made for all, what does not fit is cut to its clip."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site
from tests.browser.stripes import few_clips
from tests.patience import PATIENCE
from workbench import jobs
from workbench.clips import media
from workbench.clips.records import read_clips, write_clips
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.checks.findings import finding_of, write_report
from workbench.dataset_builder.companions import detach
from workbench.dataset_builder.settings import MakeSettings

pytestmark = pytest.mark.browser
LONG = 1000 * PATIENCE


def test_what_is_missing_is_made_and_what_does_not_fit_is_cut(site: Site, page: Page) -> None:
    expect.set_options(timeout=LONG)
    few_clips(site.workspace)
    dataset = Dataset.open(site.workspace, "stripes")
    detach(dataset.folder, dataset.clips, "control")  # when it is run again
    number = len(dataset.clips)
    site.open(page, "#/dataset/stripes/pairs")
    expect(page.locator(".partner")).to_have_count(number)
    expect(page.locator(".partner", has_text="No control clip")).to_have_count(number)
    expect(page.locator(".partner .warn")).to_have_count(0)  # since no clip has one
    page.get_by_text(f"Make for {number} clips").click()
    page.get_by_role("button", name="Edges…", exact=True).click()
    page.get_by_label("Edge threshold").fill("5")
    page.get_by_role("button", name="Make", exact=True).click()
    page.evaluate("document.querySelector('wb-app').draw()")  # as once a second, while a person types
    expect(page.get_by_role("dialog")).to_be_visible()  # 10 at least
    page.get_by_label("Edge threshold").fill("150")
    page.keyboard.press("Enter")
    fits = page.locator(".partner .good", has_text=re.compile(r"same \d+ frames"))
    expect(fits).to_have_count(number)
    page.get_by_label("Show").select_option("lacking")
    expect(page.get_by_text("Every clip has its control clip.")).to_be_visible()
    assert MakeSettings.load(dataset.task("make").folder / jobs.CONFIG).amount == 150
    page.get_by_label("Show").select_option("all")

    # -- one that does not fit: named, found by the filter, cut to its clip, and taken back by Undo
    clip = dataset.clips[0]
    name = f"clips/{clip.id}.control-0.mp4"
    media.encode(np.zeros((clip.frames + 4, clip.height, clip.width, 3), np.uint8), dataset.folder / name, clip.fps)
    records = read_clips(dataset.folder)
    records[0] = clip = clip.changed(control=name)
    write_clips(dataset.folder, records)
    about = {"kind": "control", "beside": name}
    finding = finding_of("beside_long", f"The control clip of {clip.name} is longer.", [clip], about=about)
    write_report(dataset.folder, 0.0, "any", records, [finding])
    expect(page.locator("wb-checks")).to_contain_text("Longer than its clip")
    expect(page.get_by_label("Show")).to_contain_text("Mismatched (1)")
    page.get_by_label("Show").select_option("unfit")
    expect(page.locator(".partner")).to_have_count(1)
    page.locator(".partner").get_by_role("button", name="Fit it to the clip").click()
    expect(page.get_by_text("All linked files match their clips.")).to_be_visible(timeout=LONG)
    assert media.probe(dataset.folder / dataset.clips[0].control).frames == clip.frames

    # -- all roles in rows
    page.get_by_label("Role").select_option("every")
    expect(page).to_have_url(re.compile("/pairs/every$"))
    page.get_by_label("Show").select_option("all")
    expect(page.locator(".pair-row")).to_have_count(number)
    expect(page.locator(".pair-row").first.locator("[data-kind]")).to_have_count(4)
