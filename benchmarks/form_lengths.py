"""How long the page's forms are: pixels from the first field to the last one, with what is folded away and without.

    python benchmarks/form_lengths.py            of this tree
    python benchmarks/form_lengths.py --url URL  of a page that is served, such as an earlier commit's

The window is 1400 pixels wide, the workspace empty. "ours" is with the advanced settings folded away, "all" with them.
A form whose fields a tab shows only with a dataset, a run or a LoRA is not counted.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import arguments, report
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.browser import find  # noqa: E402
from tests.browser.server import Server, launch  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

SETTLED_MS = 1500
FOLDS = ".label-wrap:visible:not(.open)"
# Of each form, whose name its fields' ids begin with: where the first field in sight begins, the last ends; how many.
MEASURED = """() => {
    const found = {};
    for (const block of document.querySelectorAll('.block[id*="Settings-"]')) {
        const {top, bottom, height} = block.getBoundingClientRect();
        if (!block.offsetParent || !height) continue;
        const form = found[block.id.split('-')[0]] ??= {top, bottom, fields: 0};
        form.top = Math.min(form.top, top);
        form.bottom = Math.max(form.bottom, bottom);
        form.fields += 1;
    }
    return found;
}"""
Row = dict[str, Any]


def unfold(page: Page, advanced: bool) -> None:
    """Open the folds in sight, those of advanced settings with `advanced` alone; some hold others."""
    for _ in range(4):
        folds = [fold for fold in page.locator(FOLDS).all() if advanced or "settings" not in fold.inner_text().lower()]
        for fold in reversed(folds):
            fold.click()
        page.wait_for_timeout(SETTLED_MS)
        if not folds:
            return


def measure(page: Page, tabs: Sequence[str]) -> dict[str, Row]:
    """A row for each form of these tabs, or of all."""
    rows: dict[str, Row] = {}
    page.locator("button[role=tab]:visible").first.wait_for()
    page.wait_for_timeout(SETTLED_MS)
    for tab in tabs or page.locator("button[role=tab]:visible").all_inner_texts():
        page.get_by_role("tab", name=tab, exact=True).click()
        page.wait_for_timeout(SETTLED_MS)
        for advanced in (False, True):
            unfold(page, advanced)
            for form, box in page.evaluate(MEASURED).items():
                row = rows.setdefault(form, {"case": form, "ours": 0, "fields": 0, "all": 0, "all fields": 0})
                length, count = ("all", "all fields") if advanced else ("ours", "fields")
                row |= {length: round(box["bottom"] - box["top"]), count: box["fields"]}
    return rows


def rows_of(url: str | None, tabs: Sequence[str]) -> list[Row]:
    """Of the page at this address, or of one that is started for it."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = Server(Path(folder))
        if not url:
            server.start()
        browser = launch(playwright, str(find()))
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(url or server.url)
        rows = measure(page, tabs)
        browser.close()
        server.kill()
    return list(rows.values())


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], tabs=["LoRAs"])
    parser.add_argument("--url", help="address of a page over an empty workspace")
    parser.add_argument("--tabs", nargs="+", default=(), help="instead of all")
    options = parser.parse_args()
    report(rows_of(options.url, options.tabs), options.json)


if __name__ == "__main__":
    main()
