"""What axe-core finds on every tab, light and dark, wide and narrow; and what a keyboard and a calm screen get.

axe-core is a package for contributors (package.json): `make lint` installs it, and without it its test is skipped.
$AXE_REPORT names a file for what it counts in each state of the page (benchmarks/results/axe.json).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workbench.ui.datasets.tab import PANELS

from tests.browser.server import Server, frames
from tests.browser.stripes import few_clips
from tests.loras.making import layer, put_lora
from tests.test_overview import add_sample
from tests.written_grid import write_grid
from tests.written_run import ended, write_run
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.checks.findings import finding_of, write_report
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
AXE = Path(__file__).resolve().parents[2] / "node_modules" / "axe-core" / "axe.min.js"
# What stands on each tab once it is there.
TABS = {
    "home": ".home section",
    "dataset": "#dataset-choice",
    "train": "#TrainSettings-model .help-button",
    "sample": "#SampleSettings-model .help-button",
    "compare": "#GridSettings-run .help-button",
    "loras": "#lora-library .card",
}
WIDTHS = (1400, 390)
IMPACTS = ("minor", "moderate", "serious", "critical")
# What axe looks at, what is hidden, too, takes its time: other tabs, once they were opened, are lifted out meanwhile.
FINDINGS = """async (whole) => {
    const hidden = [...document.querySelectorAll('[role=tabpanel]')].filter((one) => !whole && !one.checkVisibility());
    const lifted = hidden.map((panel) => {
        const held = document.createDocumentFragment();
        held.append(...panel.childNodes);
        return [panel, held];
    });
    try {
        return (await axe.run(document, {resultTypes: ['violations']})).violations
            .map((one) => ({id: one.id, impact: one.impact, nodes: one.nodes.map((node) => node.html.slice(0, 150))}));
    } finally {
        for (const [panel, held] of lifted) panel.prepend(held);
    }
}"""
WHOLE = "all tabs at once"  # such as a name that two of them have
MORE = "#tab-{} .more > button:not(.open)"

# Where the focus is, in one look: nowhere, at the button in the bar, in view, or below the bar.
PLACE_OF_FOCUS = """() => {
    const one = document.activeElement, bar = document.querySelector('#start-training').getBoundingClientRect();
    if (one === document.body) return 'nowhere';
    if (one.id === 'start-training') return 'start';
    const {top, bottom} = one.getBoundingClientRect();
    return bottom <= bar.top || top >= bar.bottom ? 'clear' : 'below';
}"""
# The tabs of `full` that show videos, and where.
VIDEOS = {"home": "video", "sample": "#sample-result video", "compare": ".video-grid video"}
# All videos in view, those in components' own trees, too; and whether each has begun if it ever does.
SEEN = """() => {
    const below = (one) => [one, ...(one.shadowRoot ? within(one.shadowRoot) : [])];
    const within = (root) => [...root.querySelectorAll('*')].flatMap(below);
    return within(document).filter((one) => one.tagName === 'VIDEO' && one.checkVisibility() && one.src);
}"""
LOADED = f"() => ({SEEN})().every((one) => one.readyState >= 2 || one.preload === 'none' || !one.autoplay)"


@pytest.fixture
def full(server: Server) -> Server:
    """A server over a workspace in which every tab has something to show."""
    workspace = Workspace.open(server.workspace)
    few_clips(workspace)
    write_run(workspace, "done", 20)
    write_run(workspace, "broken", 20)
    ended(workspace.run("broken"), "failed", 3, "CUDA out of memory. Tried to allocate 2.00 GiB")
    add_sample(workspace, "a ball rolls over the floor")
    put_lora(workspace, "cat", layer("blocks.0.to_q", 4, 8, 8))
    write_grid(workspace)
    dataset = Dataset.open(workspace, "stripes")
    clips = dataset.clips
    write_report(dataset.folder, 0.0, "any", clips, [finding_of("still", "it stands still", clips[:1])])
    server.start()
    return server


def show(page: Page, tab: str) -> None:
    page.locator(f"#tab-{tab}-button").evaluate("button => button.click()")  # the focus stays where it is
    if tab == "train":
        open_form(page)
    if tab == "compare":  # its form is closed while there is nothing to compare
        page.locator("#grid-form > button").evaluate("button => button.classList.contains('open') || button.click()")
    page.locator(f"{TABS[tab]} >> visible=true").first.wait_for()


def open_form(page: Page) -> None:
    """The form of a new run, which is closed beside a run."""
    page.locator("#run-head h2").wait_for()
    page.locator("#new-run > button").evaluate("button => button.classList.contains('open') || button.click()")
    frames(page, 3)  # as in `unfold`: a field that has the focus would lose it


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: npm ci --ignore-scripts, or make lint")
def test_axe_finds_nothing_serious_on_any_tab(full: Server, browser: Browser, page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")  # colours that still change are none that a person reads
    page.goto(full.url)
    page.locator("#header").wait_for()
    page.evaluate(AXE.read_text(encoding="utf-8"))
    counts: list[dict[str, object]] = []
    found = [one for state in states(page) for one in findings(page, state, counts)]
    if report := os.environ.get("AXE_REPORT"):
        version = page.evaluate("axe.version")
        Path(report).write_text(json.dumps({"axe_core": version, "states": counts}, indent=1) + "\n", encoding="utf-8")
    assert not found, "\n".join(found)


def states(page: Page) -> Iterator[str]:
    """Show each tab, then what else there is on it; yields the name of what is shown."""
    for tab in TABS:
        show(page, tab)
        yield tab
        if tab == "dataset":
            for name, title, _ in PANELS:
                page.locator(f"#panel-{name}-button").evaluate("button => button.click()")
                page.locator(f"#panel-{name}").wait_for()
                yield f"dataset, {title}"
        if tab == "compare":
            page.locator("#tab-curves-button").evaluate("button => button.click()")
            page.locator("#tab-curves").wait_for()
            yield "compare, Curves"
        if tab in ("dataset", "train", "sample"):
            page.locator(MORE.format(tab)).evaluate_all("buttons => buttons.forEach(button => button.click())")
            frames(page, 5)
            yield f"{tab}, all settings"
        if tab == "sample":
            page.locator("#SampleSettings-steps :is(input, textarea)").first.fill("0")
            page.locator("#generate").evaluate("button => button.click()")
            page.locator("[role=alert] li", has_text="steps is 0").wait_for()
            yield "sample, refused"
    yield WHOLE


def findings(page: Page, state: str, counts: list[dict[str, object]]) -> Iterator[str]:
    """What is serious in each width and theme; `counts` gets a row for each."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for theme in ("light", "dark"):
            page.evaluate("dark => document.body.classList.toggle('dark', dark)", theme == "dark")
            if state == WHOLE and (width, theme) != (WIDTHS[0], "light"):
                continue
            found = page.evaluate(FINDINGS, state == WHOLE)
            by_impact = {impact: sum(one["impact"] == impact for one in found) for impact in IMPACTS}
            counts.append({"state": state, "width": width, "theme": theme, **by_impact})
            for one in found:
                if one["impact"] in ("serious", "critical"):
                    yield f"{state}, {width} px, {theme}: {one['id']}: " + "\n    ".join(one["nodes"])
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                yield f"{state}, {width} px, {theme}: scrolls sideways"
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})


def help_stands_behind_a_question_mark(page: Page) -> None:
    show(page, "train")
    page.evaluate("document.documentElement.lang = 'de'")  # as Gradio does in a German browser
    page.wait_for_function("document.documentElement.lang === 'en'")
    rank, help_text = page.locator("#TrainSettings-rank"), page.locator("#TrainSettings-rank .info-text")
    field = rank.locator("input")
    described = field.get_attribute("aria-describedby")
    assert described == help_text.get_attribute("id")
    assert field.get_attribute("aria-label") == "Rank"
    assert not help_text.is_visible()

    rank.get_by_role("button", name="Help: Rank").click()
    help_text.wait_for(state="visible")
    rank.get_by_role("button", name="Help: Rank").click()
    help_text.wait_for(state="hidden")
    ends = [
        page.locator(f"#TrainSettings-{name} input, #TrainSettings-{name} textarea")
        for name in ("learning_rate", "rank")
    ]
    boxes = [end.first.bounding_box() for end in ends]
    assert len({box["y"] + box["height"] for box in boxes if box}) == 1, "fields of a row end at one height"
    field.click()  # what a pointer is about to press must not move away from it
    assert not help_text.is_visible()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    help_text.wait_for(state="visible")
    page.keyboard.press("Tab")
    help_text.wait_for(state="hidden")


def the_keyboard_skips_the_tabs_and_never_goes_below_the_bar(page: Page) -> None:
    show(page, "home")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip-link"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "tabpanel"
    stops = page.locator("[role=tablist] >> nth=0").locator("[role=tab]")
    assert stops.evaluate_all("tabs => tabs.filter((tab) => tab.tabIndex === 0).length") == 1
    page.locator("#tab-home-button").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.locator("#run-head h2").wait_for()
    assert page.evaluate("document.activeElement.id") == "tab-train-button"
    open_form(page)
    page.locator("#TrainSettings-rank .help-button").wait_for()

    name = page.locator("#run-name textarea, #run-name input").first
    name.focus()
    looked_at = 0
    for _ in range(28):
        page.keyboard.press("Tab")
        place = page.evaluate(PLACE_OF_FOCUS)
        if place == "nowhere":  # answers of the server fill a form that was just opened, and can take the focus
            name.focus()
            continue
        if place == "start" or looked_at == 13:
            break
        assert place == "clear", page.evaluate("document.activeElement.outerHTML")
        looked_at += 1
    assert looked_at > 5


def the_tabs_are_a_rail_and_on_a_phone_a_bar_at_the_bottom(page: Page) -> None:
    """All of them in view, and nothing of a tab below them."""
    boxes = "tabs => tabs.map((tab) => { const {left, right, top, bottom} = tab.getBoundingClientRect();"
    boxes += " return {left, right, top, bottom}; })"
    tabs, panel = page.locator("#main-tabs > .tab-wrapper [role=tab]"), page.locator("#tab-home")
    found = tabs.evaluate_all(boxes)
    assert len(found) == len(TABS)
    assert len({box["left"] for box in found}) == 1
    assert max(box["right"] for box in found) < panel.evaluate("panel => panel.getBoundingClientRect().left")
    page.set_viewport_size({"width": 390, "height": 844})
    found = tabs.evaluate_all(boxes)
    assert len({box["top"] for box in found}) == 1
    assert max(box["bottom"] for box in found) <= 844
    assert min(box["left"] for box in found) >= 0
    assert max(box["right"] for box in found) <= 390
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    bar = "document.querySelector('#main-tabs > .tab-wrapper').getBoundingClientRect().top"
    assert panel.evaluate(f"panel => panel.getBoundingClientRect().bottom <= {bar}"), (
        "the end of a tab is above the bar"
    )
    page.set_viewport_size({"width": 1400, "height": 900})
    page.evaluate("scrollTo(0, 0)")


def nothing_moves_by_itself(page: Page) -> None:
    page.mouse.move(0, 0)  # a sample plays below the pointer: that is a person's wish
    for tab in TABS:
        show(page, tab)
        if tab in VIDEOS:
            page.locator(f"#tab-{tab} {VIDEOS[tab]}").first.wait_for()
        page.wait_for_function(f"() => ({LOADED})()")
        frames(page, 3)
        assert page.evaluate(f"({SEEN})().filter((one) => !one.paused).map((one) => one.src)") == [], tab
    show(page, "sample")
    video = page.locator("#sample-result video")
    video.wait_for()
    page.wait_for_function("document.querySelector('#sample-result video').readyState >= 2")
    page.wait_for_function("document.querySelector('#sample-result video').controls")
    assert video.evaluate("one => one.paused")


def test_help_keyboard_and_reduced_motion(full: Server, page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.goto(full.url)
    page.locator("#header").wait_for()
    show(page, "home")
    the_tabs_are_a_rail_and_on_a_phone_a_bar_at_the_bottom(page)
    the_keyboard_skips_the_tabs_and_never_goes_below_the_bar(page)
    help_stands_behind_a_question_mark(page)
    nothing_moves_by_itself(page)
