"""The Dataset tab in a real browser: what an import, the cut editor, the check and an export show where people look."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.server import Server
from tests.browser.stripes import FILES
from tests.dataset_builder.ingest.test_given_latents import write
from tests.dataset_builder.ingest.test_pictures import SAVE, animation
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.checks.findings import finding_of, write_report
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
CLIPS = [path for path in FILES if path.suffix == ".mp4"]


# Whether a choice ends before its arrow, and the "?" of a field among buttons is a circle.
CLEAR = """() => {
    const field = document.querySelector('#dataset-model input');
    const mark = document.querySelector('#cut-buttons .help-button');
    const arrow = field.closest('.wrap-inner').querySelector('.icon-wrap').getBoundingClientRect();
    const end = field.getBoundingClientRect().right - parseFloat(getComputedStyle(field).paddingRight);
    return {arrow: end <= arrow.left, round: mark.offsetWidth === mark.offsetHeight};
}"""


# The list scrolls by itself where it is long; its first results, those that were refused, are in sight.
IN_THE_WINDOW = """() => {
    const box = document.querySelector('#import-progress .file-results').getBoundingClientRect();
    return box.top >= 0 && box.bottom <= innerHeight;
}"""


def open_dataset(page: Page, server: Server) -> None:
    server.start()
    page.goto(server.url)
    page.get_by_role("tab", name="Dataset", exact=True).click()


def drop(page: Page, *files: Path) -> None:
    page.locator("#dataset-files input[type=file]").set_input_files([str(file) for file in files])
    page.locator("#dataset-files").get_by_text(files[-1].stem).first.wait_for()


def test_an_import_shows_what_became_of_each_file(server: Server, page: Page, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "broken.mp4").write_bytes(b"no video")
    (given / "notes.docx").write_bytes(b"PK")
    (given / "words.txt").write_text("a caption of nothing")
    moving = [animation(given / f"{kind}.{kind}") for kind in SAVE]
    again = given / "the same again.mp4"
    again.write_bytes(CLIPS[0].read_bytes())
    page.set_viewport_size({"width": 1280, "height": 800})
    Dataset.create(Workspace.open(server.workspace), "Mixed")
    open_dataset(page, server)

    drop(page, given / "words.txt")
    page.locator("#import-clips").click()
    page.get_by_text("captions without their videos are not imported").first.wait_for()
    assert not (server.workspace / "datasets" / "mixed" / ".import" / "result.json").exists()
    page.reload()
    page.get_by_role("tab", name="Dataset", exact=True).click()

    drop(page, CLIPS[0], given / "broken.mp4", given / "notes.docx", *moving, again)
    page.locator("#survey-clips").click()
    page.locator("#survey").get_by_text("and 4 more").first.wait_for()
    assert page.locator("#survey").get_by_text(CLIPS[0].name).first.is_visible()
    assert page.locator("#survey").get_by_text("No video was opened yet").is_visible()
    page.locator("#import-clips").click()
    results = page.locator("#import-progress .file-results li")
    results.first.wait_for()
    texts = [" ".join(one.split()) for one in results.all_inner_texts()]
    refused, skipped, known, *made = texts
    for text, name in zip(sorted((refused, skipped)), ("broken.mp4", "notes.docx"), strict=True):
        assert text.startswith(f"refused {name} not a video that can be read: give mp4, mov, "), text
    assert known == f"already here {again.name} the same content as '{CLIPS[0].name}': kept once"
    assert sorted(text.split(":")[0] for text in made) == [
        "converted gif.gif rewritten for exact frame access (gif bgra)",
        "converted png.png full-range colours brought to video range, transparent parts made white",
        "converted webp.webp an animated WebP",
        f"taken {CLIPS[0].name}",
    ]
    page.wait_for_function(IN_THE_WINDOW)
    page.locator("#dismiss-import").click()
    page.locator("#import-progress .file-results").wait_for(state="detached")
    page.reload()
    page.get_by_role("tab", name="Dataset", exact=True).click()
    page.locator("#clips .card").nth(1).wait_for()
    assert not page.locator("#import-progress .file-results").count()


def test_a_clip_that_is_opened_is_in_view_and_stays_open_while_it_is_cut(server: Server, page: Page) -> None:
    dataset = Dataset.create(Workspace.open(server.workspace), "Cut")
    dataset.import_files(CLIPS[:3])
    first = dataset.clips[0]
    page.set_viewport_size({"width": 1000, "height": 420})
    open_dataset(page, server)
    page.locator("#clips .card .picture").first.click()
    page.locator("#clip-player video").wait_for()
    page.wait_for_function(
        """() => { const box = document.querySelector("#clip-player video").getBoundingClientRect();
                   return box.top >= -1 && box.top < innerHeight / 2; }"""
    )
    page.get_by_role("tab", name="Cut", exact=True).click()
    page.set_viewport_size({"width": 1280, "height": 420})
    tabs = page.locator("#dataset-panels > .tab-wrapper [role=tab]")
    tabs.nth(7).wait_for()
    assert tabs.last.inner_text() == "Export", "none is behind a menu"
    page.set_viewport_size({"width": 1000, "height": 420})
    page.locator("#timeline .edge.start").focus()
    page.keyboard.press("ArrowRight")
    page.locator("#timeline .cropping").click()
    page.get_by_label("Width of the crop").fill("32")
    page.keyboard.press("Tab")
    page.wait_for_timeout(1500)  # the timeline speaks a moment after the last key
    changes = len(dataset.history)
    page.locator("#apply-cut").click()
    page.locator("#undo-change", has_text=f"span and crop of {first.name}").wait_for()
    assert len(dataset.history) == changes + 1
    (cut,) = (clip for clip in dataset.clips if clip.source == first.source)
    assert (cut.width, cut.frames) == (32, first.frames - 1)
    page.locator("#apply-cut").wait_for(state="visible")
    assert page.evaluate(CLEAR) == {"arrow": True, "round": True}
    opened = page.locator("#panel-cut h4.section")
    opened.get_by_text(f"{first.name} 0:00.1-").wait_for()
    page.locator("#undo-change").click()
    page.locator("#redo-change", has_text=f"span and crop of {first.name}").wait_for()
    assert (dataset.clip(first.file_name).width, dataset.clip(first.file_name).span) == (first.width, first.span)
    opened.get_by_text(first.name, exact=True).wait_for()
    page.locator("#timeline .edge.start").focus()  # the editor stays on what the clip is now
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    page.wait_for_timeout(1500)
    page.locator("#apply-cut").click()
    opened.get_by_text(f"{first.name} 0:00.2-").wait_for()
    assert page.locator("#clips .card .times").first.text_content().startswith("0:00.2-")
    page.locator("#redo-change").wait_for(state="hidden")
    page.locator("#next-clip").click()
    page.locator("#previous-clip").click()
    opened.get_by_text(f"{first.name} 0:00.2-").wait_for()
    page.locator("#split-here").click()  # no cut is marked
    page.get_by_text("there is no cut in this part").first.wait_for()
    page.locator("#next-clip").click()
    page.locator("#previous-clip").click()
    page.locator("#timeline .edge.start").wait_for()

    # Pictures whose files went meanwhile leave their places empty.
    page.route("**/thumbs/*", lambda route: route.fulfill(status=403))
    page.set_viewport_size({"width": 1400, "height": 900})
    page.reload()
    page.locator("#clips .card").first.scroll_into_view_if_needed()  # pictures out of sight are not asked for
    missing = page.locator("#clips .card img.missing").first
    missing.wait_for(state="attached")
    assert missing.evaluate("one => getComputedStyle(one).visibility") == "hidden"


def test_all_findings_of_a_kind_are_fixed_at_once_after_what_it_does_was_said(server: Server, page: Page) -> None:
    dataset = Dataset.create(Workspace.open(server.workspace), "Found")
    dataset.import_files(CLIPS[:6])
    clips = dataset.clips
    still = [finding_of("still", f"{clip.name} stands still", [clip]) for clip in clips[:5]]
    write_report(dataset.folder, 0.0, "any", clips, [*still, finding_of("shake", "it jerks", clips[5:])])
    changes = len(dataset.history)
    open_dataset(page, server)
    page.get_by_role("tab", name="Check", exact=True).click()
    groups = page.locator("#findings .group")
    groups.nth(1).wait_for()
    assert groups.first.locator(".badge.warn:has(svg[aria-hidden=true])").inner_text() == "hurts it"
    assert not groups.first.locator("li").first.is_visible()  # five are folded, one is not
    assert groups.nth(1).locator("li").first.is_visible()

    groups.first.get_by_role("button", name="Fix all: Stands still").click()
    ways = page.locator("#findings .fix-question label")
    ways.nth(1).wait_for()
    assert [one.strip() for one in ways.all_inner_texts()] == ["Remove 5 clips.", "Tag 5 clips for later."]
    page.keyboard.press("Escape")
    assert not ways.count()
    assert len(dataset.history) == changes
    groups.first.get_by_role("button", name="Fix all: Stands still").click()
    ways.nth(1).click()
    page.locator("#findings .fix-question .primary").click()
    page.locator("#findings .outcome", has_text="Tagged 5 clips for later. Undo takes it back.").wait_for()
    page.locator("#undo-change", has_text="tagged 5 clips for later").wait_for()
    assert len(dataset.history) == changes + 1

    groups.first.locator("summary").click()
    groups.first.locator("li").nth(2).get_by_role("button", name="Fix").click()
    ways.first.wait_for()
    assert ways.first.inner_text().strip() == "Remove 1 clip."
    page.locator("#findings .fix-question .primary").click()
    page.locator("#undo-change", has_text="removed 1 clip").wait_for()
    groups.first.locator("h4", has_text="Stands still").wait_for()
    page.locator("#findings .group summary", has_text="4 findings").wait_for()
    assert len(dataset.clips) == 5


def test_latents_have_a_picture_that_says_so_and_no_broken_video(server: Server, page: Page, tmp_path: Path) -> None:
    file = write(tmp_path / "walk.safetensors")
    Dataset.create(Workspace.open(server.workspace), "Walks")
    open_dataset(page, server)
    drop(page, file)
    page.locator("#import-clips").click()
    card = page.locator("#clips .card").first
    card.locator(".picture img").wait_for()
    page.wait_for_function("() => document.querySelector('#clips .card .picture img').naturalWidth > 0")
    card.hover()
    card.locator(".picture").click()
    page.locator("#clip-player", has_text="latents of tiny-cogvideox, which decode to 9 frames").wait_for()
    assert not page.locator("#clip-player video, #clips video").count()
