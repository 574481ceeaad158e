"""Datasets as a whole in a real browser: search, rename, group, notes, remove and restore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.server import Server, unfold
from tests.browser.stripes import FILES
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.sources.survey import survey
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]


def test_datasets_are_searched_renamed_grouped_removed_and_restored(server: Server, page: Page, tmp_path: Path) -> None:
    workspace = Workspace.open(server.workspace)
    for name in ("Ants", "Birds", "Cats", "Dogs", "Eels"):
        Dataset.create(workspace, name)
    dataset = Dataset.create(workspace, "Stripes")
    dataset.import_files(FILES[:2])
    dataset.write_notes("made at night")
    Dataset.open(workspace, "eels").set_group("sea")
    server.start()
    page.goto(server.url)
    page.get_by_role("tab", name="Dataset", exact=True).click()

    page.locator("#dataset-summary h2").wait_for()
    page.locator("#dataset-search textarea, #dataset-search input").fill("NIGHT")
    found = page.locator("#datasets-found label")
    page.locator("#datasets-found", has_text="1 found").wait_for()
    assert found.all_inner_texts() == ["stripes"]
    found.click()
    page.locator("#clips .card").first.wait_for()

    unfold(page, "#about-dataset button")
    page.locator("#dataset-dates", has_text="created").wait_for()
    assert page.locator("#dataset-notes textarea").input_value() == "made at night"
    page.locator("#dataset-new-title textarea, #dataset-new-title input").fill("Bold stripes")
    page.locator("#rename-dataset").click()
    page.wait_for_function("document.querySelector('#dataset-choice input').value === 'bold-stripes'")
    page.locator("#dataset-summary h2", has_text="Bold stripes").wait_for()
    page.locator("#dataset-notes textarea").fill("by day")
    page.locator("#dataset-group input").fill("art")
    page.locator("#dataset-group input").press("Enter")
    page.locator("#save-dataset-notes").click()
    page.get_by_text("Group and notes are saved.").first.wait_for()
    renamed = Dataset.open(workspace, "stripes")  # by its former name
    assert (renamed.notes, renamed.group) == ("by day", "art")
    page.wait_for_function("document.querySelector('#dataset-choice input').value === 'art / bold-stripes'")
    page.locator("#dataset-choice input").click()
    listed = ["art / bold-stripes", "sea / eels", "ants", "birds", "cats", "dogs"]
    options = page.locator("#dataset-choice [role=option]")
    options.nth(5).wait_for()
    assert [one.replace("✓", "").strip() for one in options.all_inner_texts()] == listed
    page.keyboard.press("Escape")

    page.locator("#remove-dataset").click()
    page.locator("#dataset-removing", has_text="Remove bold-stripes?").wait_for()
    page.locator("#dataset-remove-sure").click()
    page.wait_for_function("document.querySelector('#dataset-choice input').value === 'ants'")
    page.locator("#dataset-remove-sure").wait_for(state="hidden")
    assert (workspace.datasets / ".removed" / "bold-stripes" / "bold-stripes" / "metadata.jsonl").exists()
    unfold(page, "#removed-datasets button")
    page.locator("#restore-dataset").click()
    page.wait_for_function("document.querySelector('#dataset-choice input').value === 'art / bold-stripes'")
    page.locator("#removed-datasets").wait_for(state="hidden")

    page.get_by_role("tab", name="Export", exact=True).click()
    page.locator("#export-download").click()
    link = page.locator("#export-link a")
    link.wait_for()
    with page.expect_download() as arriving:
        link.click()
    arriving.value.save_as(tmp_path / "got.zip")
    assert arriving.value.suggested_filename.startswith("bold-stripes-20")
    assert [one.caption for one in survey([tmp_path / "got.zip"], "videofolder").sources] != ["", ""]
    page.reload()
    page.wait_for_function("document.querySelector('#dataset-choice input')?.value === 'art / bold-stripes'")
