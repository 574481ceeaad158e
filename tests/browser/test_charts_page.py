"""Charts in a browser: values under the pointer and by key, zoom, log axis, hidden curves, saved and live."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.server import Server
from tests.patience import PATIENCE
from tests.written_run import write_run
from workbench.runs.display import write_report
from workbench.runs.metrics import METRICS
from workbench.runs.run import Run
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser
expect.set_options(timeout=PATIENCE * 1000)


def first_step(chart: Locator) -> str:
    """The first number below the chart."""
    return chart.locator("svg text[text-anchor=middle]").first.text_content() or ""


def at(chart: Locator, share: float) -> tuple[float, float]:
    """A point of the plot, so far across."""
    box = chart.locator(".plot").bounding_box()
    assert box is not None
    return box["x"] + 44 + share * (box["width"] - 58), box["y"] + box["height"] / 2


def drag(page: Page, chart: Locator, one: float, other: float) -> None:
    page.mouse.move(*at(chart, one))
    page.mouse.down()
    page.mouse.move(*at(chart, other), steps=3)
    page.mouse.up()


def test_charts_of_a_saved_report_are_read_and_zoomed_without_a_server(page: Page, tmp_path: Path) -> None:
    run = write_run(Workspace.open(tmp_path), "cats")
    page.goto(write_report(run).as_uri())
    chart = page.locator("figure.chart[data-charts=Loss]")
    plot, reading = chart.locator(".plot"), chart.locator(".reading")
    # Drawn again once its width is known, and when a scroll bar takes some of it.
    page.wait_for_function(
        """() => {
            const svg = document.querySelector('figure.chart[data-charts=Loss] .plot > svg');
            return svg.viewBox.baseVal.width === svg.parentElement.clientWidth;
        }"""
    )

    # The pointer reads the nearest point of every curve.
    page.mouse.move(*at(chart, 0.5))
    expect(reading).to_contain_text("step 100")
    expect(reading).to_contain_text(re.compile(r"smoothed0\.\d+.*held-out clips0\.\d+", re.DOTALL))
    page.mouse.move(5, 5)
    expect(reading).to_be_hidden()

    # A range is dragged and shown, the values' axis follows; a double click shows all.
    before = chart.locator("svg text[text-anchor=end]").all_text_contents()
    drag(page, chart, 0.5, 0.9)
    assert int(first_step(chart)) >= 100
    assert chart.locator("svg text[text-anchor=end]").all_text_contents() != before
    plot.dblclick()
    assert first_step(chart) == "0"

    # The keyboard does the same, and what is read is announced.
    page.mouse.move(5, 5)
    plot.focus()
    page.keyboard.press("Home")
    expect(reading).to_contain_text("step 0")
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    expect(reading).to_contain_text("step 1")
    expect(page.locator(".chart-spoken[aria-live=polite]")).to_contain_text(re.compile(r"^step 1, .*smoothed 0\.\d+"))
    page.keyboard.press("+")
    expect(page.locator(".chart-spoken")).to_have_text("steps 1 to 101")
    expect(chart.get_by_role("button", name="Show all steps: Loss")).to_be_visible()
    page.keyboard.press("-")
    page.keyboard.press("+")
    page.keyboard.press("Escape")
    expect(chart.get_by_role("button", name="Show all steps: Loss")).to_be_hidden()
    expect(reading).to_be_hidden()

    # Curves are hidden and shown; charts of one legend act as one.
    chart.get_by_role("button", name="held-out clips").click()
    expect(chart.locator("path.curve")).to_have_count(2)
    bands = page.locator(".charts-together")
    expect(bands.locator("path.curve")).to_have_count(10)
    bands.get_by_role("button", name="held-out clips").click()
    expect(bands.locator("path.curve")).to_have_count(5)
    bands.locator(".plot").first.focus()
    page.keyboard.press("+")
    firsts = {first_step(one) for one in bands.locator("figure").all()}
    assert len(firsts) == 1
    assert int(firsts.pop()) >= 50

    # A log axis is remembered; a curve that begins at zero has none.
    labels = chart.locator("svg text[text-anchor=end]")
    linear = labels.all_text_contents()
    chart.get_by_role("button", name="Log axis: Loss").click()
    assert labels.all_text_contents() != linear
    expect(page.get_by_role("button", name="Log axis: Change of the model's output")).to_be_hidden()
    page.reload()
    expect(chart.get_by_role("button", name="Log axis: Loss")).to_have_attribute("aria-pressed", "true")


def measured(run: Run, step: int) -> None:
    """One more measurement, after which the page sends its charts again."""
    line = {"step": step, "time": time.time(), "held_out_loss": 0.3, "change_own": 0.4, "change_others": 0.05}
    with (run.folder / METRICS).open("a") as file:
        file.write(json.dumps(line) + "\n")


def test_a_tick_keeps_zoom_reading_and_focus(server: Server, page: Page) -> None:
    run = write_run(Workspace.open(server.workspace), "cats")
    server.start()
    page.goto(f"{server.url}&tab=train")
    chart = page.locator("#loss-chart figure[data-charts=Loss]")
    chart.locator(".plot").focus()
    page.keyboard.press("End")
    for key in ("+", "ArrowLeft"):
        page.keyboard.press(key)
    expect(chart.locator(".reading")).to_contain_text("step 199")
    chart.get_by_role("button", name="held-out clips").click()
    chart.locator(".plot").focus()
    measured(run, 201)
    expect(chart.locator(".plot")).to_have_attribute("data-lines", re.compile(r"200,201\]"))
    expect(chart.locator(".reading")).to_contain_text("step 199")
    assert int(first_step(chart)) >= 100
    expect(chart.locator("path.curve")).to_have_count(2)
    expect(chart.locator(".plot")).to_be_focused()

    # What lies under a resting pointer is read on; a drag goes on.
    page.keyboard.press("Escape")
    page.mouse.move(*at(chart, 0.5))
    expect(chart.locator(".reading")).to_contain_text("step 10")
    page.mouse.down()
    page.mouse.move(*at(chart, 0.7), steps=3)
    measured(run, 202)
    expect(chart.locator(".plot")).to_have_attribute("data-lines", re.compile(r"201,202\]"))
    page.mouse.move(*at(chart, 0.9), steps=2)
    page.mouse.up()
    expect(chart.get_by_role("button", name="Show all steps: Loss")).to_be_visible()
    expect(chart.locator(".reading")).to_contain_text("step 17")
