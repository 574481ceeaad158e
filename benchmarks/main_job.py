"""The main job as a person does it in the browser: `python benchmarks/main_job.py [--json FILE] [--smallest]`.

An empty workspace, four clips, and a headless Chromium: import, caption, train, first preview, a sample, the grid. A
row per stage: clicks, fields filled in, and seconds, most of which are the machine's. The built-in model trains for
--steps steps on this machine's processor. Needs a browser (`make browser`).
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
    """A person's hand: it counts what it does, stage by stage."""

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

    def give(self, what: Locator, files: list[Path]) -> None:
        what.set_input_files([str(path) for path in files])
        self.rows[-1]["clicks"] += 1

    def done(self) -> list[dict[str, Any]]:
        """All stages, and their sum."""
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
    """Every stage, in order."""
    hand = Hand(page)
    hand.begin("open the page")
    page.goto(url)
    bring = page.get_by_role("button", name="Bring your clips")
    bring.wait_for()
    hand.begin("import 4 clips")
    import_clips(hand, bring)
    hand.begin("caption them")
    for number, caption in enumerate(page.locator("#clips .card textarea").all()):
        hand.fill(caption, f"a red circle moves left on a striped background, {number}")
        caption.blur()
    page.locator("#clips .card .state", has_text="saved").nth(3).wait_for()
    hand.begin("start training")
    hand.click(page.locator("#use-dataset"))
    hand.fill(page.locator("#TrainSettings-preview_prompts textarea"), "a red circle on a striped background")
    hand.fill(page.locator("#TrainSettings-steps input"), str(steps))
    hand.click(page.locator("#start-training"))
    page.locator("#run-head .badge.going").wait_for()
    hand.begin("first preview")
    page.locator("#previews video").first.wait_for()
    hand.begin("the LoRA")
    page.locator("#run-head .badge.good").wait_for()
    hand.begin("a sample")
    hand.click(page.locator("#sample-run"))
    hand.click(page.locator("#generate"))
    page.locator("#sample-result figure.result").wait_for()
    hand.begin("compare")
    hand.click(page.locator("#sample-result [data-do=grid]"))
    page.locator(".video-grid figure[data-state=done]").first.wait_for()
    return hand.done()


def import_clips(hand: Hand, bring: Locator) -> None:
    page = hand.page
    hand.click(bring)
    hand.fill(page.locator("#dataset-title input, #dataset-title textarea"), "Stripes")
    hand.click(page.locator("#create-dataset"))
    page.get_by_role("heading", name="Stripes").wait_for()
    hand.give(page.locator("#dataset-files input[type=file]"), CLIPS)
    page.locator("#dataset-files").get_by_text(CLIPS[-1].stem).first.wait_for()
    hand.click(page.locator("#import-clips"))
    page.locator("#clips .card").nth(3).wait_for()


if __name__ == "__main__":
    main()
