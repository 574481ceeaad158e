"""What the page does everywhere: drops, the queue, switching between runs, previews, and mistakes with a way out."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site, training
from tests.browser.stripes import FILES, few_clips
from tests.dataset_builder.small import write_dataset
from tests.patience import PATIENCE, until
from tests.written_run import add_preview, ended, write_run
from workbench import jobs
from workbench.clips import media
from workbench.dataset_builder import Dataset, library
from workbench.jobs import queue
from workbench.runs.run import Run

pytestmark = [pytest.mark.browser, pytest.mark.long]
LONG = 1000 * PATIENCE
DROP = """async ([name, text]) => {
    const given = new DataTransfer(), bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    given.items.add(new File([bytes], name));
    for (const kind of ['dragenter', 'dragover', 'drop']) {
        document.querySelector('main').dispatchEvent(new DragEvent(kind, {bubbles: true, dataTransfer: given}));
        if (kind === 'dragover') await new Promise((done) => requestAnimationFrame(done));
    }
}"""
SWITCH = """async () => {
    const seen = [], text = (selector) => document.querySelector(selector)?.textContent.trim() ?? '';
    location.hash = '#/train/two';
    for (let at = 0; at < 30; at++) {
        await new Promise((done) => requestAnimationFrame(done));
        seen.push([text('wb-run h1'), text('wb-run .facts')]);
    }
    return seen;
}"""
# Click what comes under the pointer the moment it is there, as the second half of a double click would.
CLICK_WHAT_COMES = """() => document.addEventListener('pointerover', ({target}) => {
    const link = target.closest('main a[href]');
    if (!link || window.came) return;
    link.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true, detail: 1}));
    window.came = link.textContent.trim();
})"""
WIDTHS = "[...document.querySelectorAll('.previews video')].map((one) => Math.round(one.getBoundingClientRect().width))"
TIMES = "() => [...document.querySelectorAll('.previews video')].map((one) => one.currentTime)"


def drop(page: Page, path: Path) -> None:
    """Drop a file onto the page, as from the desktop."""
    page.evaluate(DROP, [path.name, base64.b64encode(path.read_bytes()).decode()])


@pytest.fixture(scope="module", autouse=True)
def filled(site: Site) -> None:
    """A dataset of the demo's clips, one of other clips, and two runs with previews of the tiny model's size."""
    expect.set_options(timeout=LONG)
    few_clips(site.workspace)
    write_dataset(site.workspace.datasets / "small", ("a red square", "a blue square"))
    clip = site.workspace.root / "preview.mp4"
    media.encode(np.full((9, 40, 40, 3), 90, np.uint8), clip, 8)
    for name, steps in (("one", 100), ("two", 200)):
        run = write_run(site.workspace, name, steps)
        for step in (0, steps // 2, steps):
            add_preview(run, step, clip, "a cat that walks over a very long wall in the evening sun " * 4, height=40)


def test_a_file_dropped_anywhere_becomes_a_clip_at_once(site: Site, page: Page) -> None:
    site.open(page, "#/loras/nowhere")
    site.open(page, "#/compare")
    drop(page, FILES[0])
    expect(page).to_have_url(re.compile("#/dataset/[\\w-]+$"))
    expect(page.locator("wb-import .strip")).to_contain_text("1 taken")
    expect(page.locator(".clip")).to_have_count(1)


def test_the_newest_runs_numbers_never_stand_under_another_name(site: Site, page: Page) -> None:
    site.open(page, "#/train/one")
    expect(page.locator("wb-run .facts")).to_contain_text("step 100")
    # At the moment of the change there is the other name, and its numbers or none.
    shown = page.evaluate(SWITCH)
    assert not [facts for name, facts in shown if name == "two" and "100 of 100" in facts]
    expect(page.locator("wb-run .facts")).to_contain_text("step 200")


def test_previews_are_of_equal_size_on_one_clock_and_tiny_ones_stay_small(site: Site, page: Page) -> None:
    site.open(page, "#/train/two")
    expect(page.locator(".previews wb-video")).to_have_count(3)
    page.wait_for_function(f"{WIDTHS}.length === 3")
    assert page.evaluate(WIDTHS) == [200, 200, 200]
    prompt = page.locator(".previews .prompt .one-line").first
    assert len(prompt.get_attribute("title")) > 200
    page.locator("wb-run-overview wb-scrubber").get_by_role("button", name="Pause").click()
    page.locator("wb-run-overview wb-scrubber input").fill("5")
    page.wait_for_function(f"new Set(({TIMES})().map((one) => one.toFixed(2))).size === 1 && ({TIMES})()[0] > 0.4")


def test_a_waiting_run_is_moved_by_keys_and_undo_puts_it_back(site: Site, page: Page) -> None:
    settings = few_clips(site.workspace).changed(steps=100_000)
    for name in ("ahead", "first", "second"):
        Run.create(site.workspace, settings, name).start()
    site.open(page, "#/train")
    grip = page.locator("[data-grip=second]")
    grip.focus()
    page.keyboard.press("Alt+ArrowUp")
    expect(page.locator(".toast")).to_contain_text("second is next in the queue.")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    until(lambda: queue.order(site.workspace) == ["first", "second"])
    for name in ("second", "first", "ahead"):
        jobs.kill(site.workspace.runs / name)


def test_continue_from_a_checkpoint_fills_the_form_and_names_the_changes(site: Site, page: Page) -> None:
    site.open(page, "#/train/two/checkpoints")
    page.get_by_role("link", name=re.compile("^Continue from here")).first.click()
    expect(page.locator("h1")).to_have_text("Continue two from step 200")
    page.locator("wb-setting [name=rank]").wait_for()


def test_a_removed_dataset_is_restored_from_the_form(site: Site, page: Page) -> None:
    gone = Dataset.ensure(site.workspace, "gone")
    gone.import_files(FILES[:2])
    write_run(site.workspace, "of-gone", 20).settings.changed(dataset="gone").save(
        site.workspace.runs / "of-gone" / "config.json"
    )
    library.remove(site.workspace, gone)
    site.open(page, "#/train/new/from/of-gone")
    page.get_by_text("gone is in the bin.").wait_for()
    page.get_by_role("button", name="Restore the dataset").click()
    expect(page.get_by_text("gone is in the bin.")).to_have_count(0)
    assert Dataset.open(site.workspace, "gone").clips


def test_the_built_in_model_says_what_it_is_for(site: Site, page: Page) -> None:
    site.open(page, "#/train/new")
    page.get_by_label("Dataset", exact=True).select_option("small")
    expect(page.locator("wb-new-run")).to_contain_text("shows the workflow, not quality")
    page.get_by_label("Dataset", exact=True).select_option("stripes")
    expect(page.locator("wb-new-run")).not_to_contain_text("shows the workflow, not quality")


def test_the_palette_takes_the_last_change_back(site: Site, page: Page) -> None:
    site.open(page, "#/dataset/small")
    page.get_by_label("Trigger word").fill("ohwx")
    page.get_by_label("Trigger word").blur()
    until(lambda: Dataset.open(site.workspace, "small").info.trigger_word == "ohwx")
    page.locator(".head .menu summary").click()
    page.get_by_role("button", name=re.compile("^Undo: ")).wait_for()
    page.keyboard.press("Control+k")
    page.keyboard.type("undo")
    page.keyboard.press("Enter")
    until(lambda: Dataset.open(site.workspace, "small").info.trigger_word == "")


def test_curves_of_runs_are_chosen_where_they_are_shown(site: Site, page: Page) -> None:
    site.open(page, "#/compare/curves")
    page.get_by_label("one", exact=True).check()
    page.get_by_label("two", exact=True).check()
    page.wait_for_url(re.compile("#/compare/curves/one%2Ctwo$"))
    page.locator("wb-run-comparison wb-chart svg").first.wait_for()
    page.get_by_role("cell", name="Steps", exact=True).first.wait_for()
    page.go_back()
    expect(page.get_by_label("two", exact=True)).not_to_be_checked()


def test_everything_after_a_change_is_undone_from_the_history(site: Site, page: Page) -> None:
    dataset = Dataset.open(site.workspace, "small")
    for word in ("first", "second", "third"):
        dataset.set_trigger_word(word)
    site.open(page, "#/dataset/small/history")
    row = page.locator(".history li", has_text="trigger word first")
    row.get_by_role("button", name="Undo to here").click()
    expect(page.locator(".toast")).to_contain_text("2 changes undone.")
    assert dataset.info.trigger_word == "first"
    expect(row.get_by_role("button", name="Undo to here")).to_have_count(0)  # nothing after it is left to undo
    page.locator(".toast").get_by_role("button", name="Undo").click()
    until(lambda: dataset.info.trigger_word == "third")


def test_a_click_meant_for_another_button_is_not_taken(site: Site, page: Page) -> None:
    run = write_run(site.workspace, "ending", 100)
    with training(run, step=99, total=100):
        site.open(page, "#/train/ending")
        stop = page.get_by_role("button", name="Stop", exact=True).bounding_box()
        x, y = stop["x"] + stop["width"] / 2, stop["y"] + stop["height"] / 2
        page.mouse.move(x, y)
        page.evaluate(CLICK_WHAT_COMES)
        ended(run.folder, "finished", 0)
        page.wait_for_function("window.came")  # a link to Sample, under the pointer that was on Stop
        assert page.evaluate("[window.came, location.hash]") == ["Sample", "#/train/ending"]
        until(lambda: page.mouse.click(x, y) or "/sample" in page.url)  # a later click is meant for it


def test_the_run_just_started_is_in_view(site: Site, page: Page) -> None:
    for number in range(40):
        write_run(site.workspace, f"many-{number:02}", 4)
    page.set_viewport_size({"width": 1760, "height": 800})
    site.open(page, "#/train/new")
    page.evaluate("localStorage.setItem('workbench order of runs', '\"name\"')")  # which puts it below all others
    page.get_by_label("Dataset", exact=True).select_option("stripes")
    page.get_by_label("Name", exact=True).fill("zebra")
    page.get_by_role("button", name=re.compile("^(Start|Add to queue)")).click()
    page.wait_for_url(re.compile("#/train/zebra$"))
    row = page.locator(".run-list tr[data-name=zebra]")
    expect(row).to_be_in_viewport(ratio=1)
    page.evaluate("location.hash = '#/train/many-39'")
    expect(page.locator(".run-list tr[data-name=many-39]")).to_be_in_viewport(ratio=1)
    jobs.kill(site.workspace.runs / "zebra")


def test_a_place_that_could_not_be_loaded_comes_when_it_can(site: Site, page: Page) -> None:
    later = re.compile(r"/elements/elements-\w+\.js\?")
    page.route(later, lambda route: route.abort())
    site.open(page, "#/train")
    page.evaluate("location.hash = '#/train/new'")
    expect(page.locator("main[aria-busy=true]")).to_have_count(1)
    page.unroute(later)
    expect(page.locator("h1")).to_have_text("New run")
