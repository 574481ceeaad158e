"""Train: the table of runs, a run and its tabs, the form of a new run. Runs are written, not trained."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Site
from tests.browser.stripes import few_clips
from tests.patience import until
from tests.written_run import ended, write_run
from workbench import jobs
from workbench.errors import ExitCode
from workbench.runs.metrics import MetricsWriter
from workbench.runs.run import Run

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

# Methods of elements that hide one of the browser's: a `remove` of ours would be called when an element goes.
HIDING = """async () => {
    await customElements.whenDefined('wb-new-run'); // which the page loads a moment later
    const ours = ['constructor', 'connectedCallback', 'disconnectedCallback', 'connectedMoveCallback'];
    const here = [...document.querySelectorAll('*')].map((one) => one.localName).filter((name) => /^wb-/.test(name));
    const tags = new Set([...here, 'wb-run', 'wb-new-run', 'wb-run-overview', 'wb-run-checkpoints', 'wb-run-notes']);
    const found = [];
    for (const tag of tags) {
        for (let kind = customElements.get(tag); kind !== HTMLElement; kind = Object.getPrototypeOf(kind)) {
            for (const name of Object.getOwnPropertyNames(kind.prototype)) {
                if (!ours.includes(name) && name in HTMLElement.prototype) found.push(`${tag}.${name}`);
            }
        }
    }
    return found;
}"""
LONG, MOST_DRAWN = 20_000, 100_000  # steps; characters of a chart's drawing


@pytest.fixture(scope="module", autouse=True)
def filled(site: Site) -> None:
    few_clips(site.workspace)
    for name, rate in (("stripes-low", 1e-4), ("stripes-high", 1e-3)):
        write_run(site.workspace, name, learning_rate=rate).set_group("stripes: learning rate")
    failed = write_run(site.workspace, "broken", 200, rank=32)
    ended(failed.folder, "failed", int(ExitCode.NON_FINITE_LOSS), "the loss is not finite at step 200")


def row(page: Page, name: str) -> str:
    return page.locator(f"tr[data-name={name}]").inner_text()


def test_no_method_of_an_element_hides_one_of_the_browsers(site: Site, page: Page) -> None:
    site.open(page, "#/train")
    page.locator("wb-run-table").wait_for()
    assert page.evaluate(HIDING) == []


def test_the_table_says_what_differs_folds_groups_and_finds(site: Site, page: Page) -> None:
    site.open(page, "#/train")
    page.get_by_role("link", name="broken").wait_for()
    assert "rank 32" in row(page, "broken")
    assert "The loss diverged" in row(page, "broken")
    assert "lr 1e-4" in row(page, "stripes-low")
    page.get_by_role("button", name="Group stripes: learning rate").click()
    page.locator("tr[data-name=stripes-low]").wait_for(state="detached")
    page.get_by_role("button", name="Group stripes: learning rate").click()
    page.get_by_label("Find runs").fill("rank 32")
    page.locator("tr[data-name=stripes-low]").wait_for(state="detached")
    assert page.locator("tr[data-name]").count() == 1
    page.get_by_label("Find runs").fill("")
    page.get_by_role("link", name="Compare both").click()
    page.locator("wb-run-comparison wb-chart svg").first.wait_for()
    page.get_by_text("What differs").wait_for()
    page.get_by_role("cell", name="Learning rate", exact=True).first.wait_for()


def test_chosen_runs_go_to_the_bin_and_come_back_with_undo(site: Site, page: Page) -> None:
    write_run(site.workspace, "spare", 20)
    site.open(page, "#/train")
    page.locator("wb-runs .head .menu summary").click()
    page.get_by_role("button", name="Choose several").click()
    page.get_by_label("Choose spare").check()
    page.get_by_role("button", name="Move to the bin").click()
    page.locator("tr[data-name=spare]").wait_for(state="detached")
    page.get_by_role("button", name="Undo").click()
    page.locator("tr[data-name=spare]").wait_for()
    assert (site.workspace.runs / "spare").is_dir()


def test_a_failed_run_says_why_and_one_button_does_what_it_says(site: Site, page: Page) -> None:
    site.open(page, "#/train/broken")
    verdict = page.locator("wb-run .verdict")
    verdict.get_by_text("The loss diverged at step 200.").wait_for()
    assert "The last checkpoint is from step 200." in verdict.inner_text()
    assert page.locator("wb-run .primary").count() == 1
    # Leaving it for another one leaves it where it is.
    page.keyboard.press("j")
    page.wait_for_url(re.compile("#/train/stripes-"))
    site.open(page, "#/train")
    page.locator("tr[data-name=broken]").wait_for()
    assert Run.open(site.workspace, "broken").folder.is_dir()


def test_tabs_have_addresses_and_notes_are_kept_as_they_are_typed(site: Site, page: Page) -> None:
    site.open(page, "#/train/stripes-low/notes")
    notes = page.locator("wb-run-notes [name=notes]")
    notes.fill("does a lower rate hold the look?")
    page.reload()
    notes.wait_for()
    until(lambda: Run.open(site.workspace, "stripes-low").notes == "does a lower rate hold the look?")
    assert notes.input_value() == "does a lower rate hold the look?"
    page.get_by_role("link", name="Settings", exact=True).click()
    page.get_by_label("Find a setting").fill("max train steps")
    page.locator("wb-run-settings .key-values").get_by_text("200 steps").wait_for()
    page.get_by_role("link", name=re.compile("^Checkpoints")).click()
    page.get_by_role("button", name="Star step 100").click()
    page.locator("button[aria-label='Star step 100'][aria-pressed=true]").wait_for()


def test_a_chart_is_read_with_the_keyboard_and_zoomed(site: Site, page: Page) -> None:
    site.open(page, "#/train/stripes-low")
    chart = page.locator("wb-chart").first
    chart.locator("svg").wait_for()
    chart.locator(".plot").focus()
    page.keyboard.press("Home")
    chart.locator(".legend", has_text=re.compile(r"^\s*step 0\D")).wait_for()
    page.keyboard.press("End")
    chart.locator(".legend", has_text="step 200").wait_for()
    page.keyboard.press("+")
    chart.get_by_role("button", name="Show all").click()
    held_out = chart.get_by_role("button", name=re.compile("^held-out"))
    held_out.click()
    assert held_out.get_attribute("aria-pressed") == "false"


def test_a_chart_of_many_steps_draws_no_more_than_is_seen(site: Site, page: Page) -> None:
    run = write_run(site.workspace, "long", 20)
    writer = MetricsWriter(run.folder, 0)
    for step in range(21, LONG):
        writer.write(step=step, loss=1 / step, lr=1e-4, seconds=0.1, samples=[[(step * 37) % 1000 / 1000, 1 / step]])
    writer.close()
    site.open(page, "#/train/long")
    page.locator("wb-chart svg").first.wait_for()
    assert len(page.locator("wb-chart svg").first.evaluate("(one) => one.outerHTML")) < MOST_DRAWN


def test_what_was_typed_survives_a_reload_and_problems_stand_under_their_field(site: Site, page: Page) -> None:
    site.open(page, "#/train/new")
    steps = page.locator("wb-setting [name=steps]")
    steps.fill("-5")
    page.locator("[data-id=setting-steps] .hint.bad", has_text="must be 1 to 1000000 steps").wait_for()
    steps.fill("12")
    page.locator("wb-setting [name=rank]").fill("4, 8")
    page.get_by_role("button", name=re.compile("^Start 2 runs")).wait_for()
    page.get_by_label("Find a setting").fill("flip_aug random flip")
    page.locator("[name=horizontal_flip]").fill("0.5")
    page.reload()
    page.locator("wb-setting [name=rank]").wait_for()
    assert [page.locator(f"wb-setting [name={name}]").input_value() for name in ("steps", "rank")] == ["12", "4, 8"]
    page.locator("wb-settings .setting.differs", has_text="Horizontal flip").wait_for()
    page.get_by_role("button", name="Horizontal flip: back to 0").click()
    page.locator("wb-settings .setting.differs").wait_for(state="detached")


def test_what_is_not_listed_can_be_typed(site: Site, page: Page) -> None:
    site.open(page, "#/train/new")
    page.get_by_label("Frames and size").select_option(label="Another…")
    page.locator(".by-hand [name=frames]").wait_for()
    page.locator("[name=model]").select_option(label="Another…")
    page.locator("input[name=model]").fill("/nowhere/model")
    page.locator("[data-id=setting-model] .hint.bad", has_text="/nowhere/model").wait_for()
    page.locator("[aria-label=Presets]").click()
    page.get_by_text("Clear the form").click()


def test_a_slider_from_prompts_takes_no_dataset_and_gives_it_back(site: Site, page: Page) -> None:
    site.open(page, "#/train/new")
    page.wait_for_function("document.querySelector('[name=dataset]')?.value === 'stripes'")
    page.locator("[name=subject]").select_option("slider")
    page.locator("[name=dataset]").wait_for(state="detached")
    page.locator("[name=slider_positive]").fill("a large ball rolls")
    page.locator("[name=slider_negative]").fill("a small ball rolls")
    page.locator("wb-new-run .start-bar .primary:not(:disabled)").wait_for()
    page.wait_for_function("document.querySelector('[name=name]').placeholder.startsWith('slider')")
    page.reload()
    page.wait_for_function("document.querySelector('[name=slider_positive]')?.value === 'a large ball rolls'")
    assert not page.locator("[name=dataset]").count()
    page.locator("[name=subject]").select_option("")
    page.wait_for_function("document.querySelector('[name=dataset]')?.value === 'stripes'")
    page.wait_for_function("document.querySelector('[name=name]').placeholder.startsWith('stripes')")
    page.locator("[name=subject]").select_option("slider")
    page.wait_for_function("document.querySelector('[name=slider_negative]')?.value === 'a small ball rolls'")
    page.locator("[aria-label=Presets]").click()
    page.get_by_text("Clear the form").click()


def test_a_choice_and_a_switch_are_tried_with_several_values(site: Site, page: Page) -> None:
    site.open(page, "#/train/new")
    page.get_by_label("Dataset", exact=True).select_option("stripes")
    page.locator("wb-setting [name=steps]").fill("2")
    for title, options in (("Learning-rate schedule", ("linear",)), ("DoRA", ("On", "Off"))):
        line = page.locator("wb-settings .setting", has=page.get_by_text(title, exact=True)).first
        line.hover()
        line.get_by_role("button", name="Try several").click()
        for option in options:
            line.get_by_label(option, exact=True).check()
    page.get_by_role("button", name=re.compile("^Start 4 runs")).wait_for()
    page.reload()
    page.get_by_role("button", name=re.compile("^Start 4 runs")).click()
    page.wait_for_url(re.compile("#/train/stripes-"))
    made = [run.settings for run in Run.all(site.workspace) if run.settings.steps == 2]
    assert {(one.lr_schedule, one.dora) for one in made} == {
        (schedule, dora) for schedule in ("constant_with_warmup", "linear") for dora in (True, False)
    }
    for run in Run.all(site.workspace):
        if run.settings.steps == 2:
            jobs.kill(run.folder)


def test_a_run_is_started_once_however_often_it_is_clicked(site: Site, page: Page) -> None:
    before = {run.name for run in Run.all(site.workspace)}
    site.open(page, "#/train/new/from/stripes-high")
    page.locator("wb-setting [name=steps]").wait_for()
    page.get_by_label("Dataset", exact=True).select_option("stripes")
    page.locator("wb-setting [name=steps]").fill("3")
    page.get_by_label("Name", exact=True).fill("once")
    start = page.get_by_role("button", name=re.compile("^(Start|Add to queue)"))
    page.locator("wb-new-run .start-bar .primary:not(:disabled)").wait_for()
    start.dblclick()
    page.wait_for_url(re.compile("#/train/once$"))
    page.locator("wb-run h1", has_text="once").wait_for()
    assert {run.name for run in Run.all(site.workspace)} - before == {"once"}
    once = Run.open(site.workspace, "once")
    assert once.settings.learning_rate == 1e-3
    until(lambda: once.status.state is not jobs.State.NEW)
