"""Do the main job in the browser like a person: `python benchmarks/main_job.py [--json FILE] [--smallest]`.

It starts with an empty workspace, four clips and a headless Chromium: import, caption, train, first preview, a sample,
the grid. Each stage is a row with clicks, filled fields and seconds, which are mostly the machine's. The built-in model
trains for --steps steps on this machine's CPU. Needs a browser (`make browser`).
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from common import arguments, report

from scripts.browser import REMEDY, find
from tests.browser.server import Server, launch
from workbench import jobs
from workbench.paths import ASSETS
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

CLIPS = sorted((ASSETS / "demo_clips" / "stripes").glob("*.mp4"))[:4]
PATIENCE_MS = 600_000


class Hand:
    """A person's hand, which counts its actions by stage."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.rows: list[dict[str, Any]] = []

    def begin(self, stage: str) -> None:
        self._end()
        self.rows.append({"stage": stage, "clicks": 0, "fields": 0, "seconds": time.monotonic()})

    def click(self, what: Locator) -> None:
        what.click()
        self.rows[-1]["clicks"] += 1

    def fill(self, what: Locator, text: str) -> None:
        what.fill(text)
        self.rows[-1]["fields"] += 1

    def done(self) -> list[dict[str, Any]]:
        """Return all stages and their sum."""
        self._end()
        total = {name: sum(row[name] for row in self.rows) for name in ("clicks", "fields", "seconds")}
        return [*self.rows, {"stage": "all", **total}]

    def _end(self) -> None:
        if self.rows:
            self.rows[-1]["seconds"] = time.monotonic() - self.rows[-1]["seconds"]


def main() -> None:
    options = arguments(__doc__ or "", steps=4)
    options.add_argument("--steps", type=int, default=60)
    chosen = options.parse_args()
    path = find()
    if path is None:
        sys.exit(REMEDY)
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, sync_playwright() as playwright:
        workspace = Workspace.open(Path(folder))
        server = Server(workspace.root)
        server.start()
        browser = launch(playwright, path)
        try:
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            page.set_default_timeout(PATIENCE_MS)
            report(do(page, server.url, chosen.steps), chosen.json, steps=chosen.steps)
        finally:
            browser.close()
            server.kill()
            for job in [*workspace.runs.glob("*"), workspace.samples / ".worker"]:
                jobs.kill(job)


def do(page: Page, url: str, steps: int) -> list[dict[str, Any]]:
    """Do every stage in order."""
    hand = Hand(page)
    hand.begin("open the page")
    page.goto(url)
    bring = page.get_by_role("button", name="Choose files").first
    bring.wait_for()
    hand.begin("import 4 clips")
    with page.expect_file_chooser() as chooser:
        hand.click(bring)
    chooser.value.set_files([str(path) for path in CLIPS])
    captions = page.locator("main article textarea")
    captions.nth(3).wait_for()
    page.locator("main wb-import, main .strip").get_by_text("4 taken").first.wait_for()
    hand.begin("caption them")
    for number, caption in enumerate(captions.all()):
        hand.fill(caption, f"a red circle moves left on a striped background, {number}")
        caption.press("Control+Enter")
    hand.begin("start training")
    hand.click(page.get_by_role("button", name="Train on 4 clips"))
    hand.fill(page.locator("main input[name=steps]").first, str(steps))
    hand.fill(page.locator("main textarea[name=preview_prompts]").first, "a red circle on a striped background")
    hand.click(page.locator("main button[data-do=start].large"))
    page.locator("main wb-run .state.going, main wb-run .state.good").first.wait_for()
    hand.begin("first preview")
    page.locator("main wb-run wb-video video").first.wait_for()
    hand.begin("the LoRA")
    page.locator("main wb-run .head .state", has_text="Finished").wait_for()
    hand.begin("a sample")
    hand.click(page.get_by_role("link", name="Sample it").or_(page.get_by_role("link", name="Sample", exact=True)).last)
    hand.click(page.locator("main button[data-do=generate]"))
    page.locator("main wb-result video").first.wait_for()
    hand.begin("compare")
    hand.click(page.locator("main wb-result").get_by_role("button", name="Compare"))
    make = page.locator("dialog[open] button[data-do=make]")
    make.or_(page.locator("main wb-grid")).first.wait_for()
    if make.count():
        hand.click(make)
    page.locator("main wb-grid wb-video video").first.wait_for()
    return hand.done()


if __name__ == "__main__":
    main()
