"""What if in the browser: a change that is refused, and an answer with its videos side by side."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site
from tests.patience import PATIENCE
from tests.written_run import write_run
from workbench.sampler.samples import write_sample
from workbench.trainer import what_if
from workbench.trainer.what_if import Answer, Changed
from workbench.workspace import write_json

LONG = 1000 * PATIENCE
pytestmark = [pytest.mark.browser, pytest.mark.long]


def test_a_change_is_asked_about_and_its_answer_is_shown(site: Site, page: Page) -> None:
    run = write_run(site.workspace, "asked")
    before = [0.62, 0.60, 0.65, 0.61]
    changes = [
        Changed(change="words:neon", measures=[what_if.told("effect", before, [0.31, 0.28, 0.33, 0.30])], samples=1),
        Changed(change="clips:07_cat", measures=[what_if.told("effect", before, before)], samples=1),
    ]
    told = Answer(
        sample="", box=[], frames=[], begin=100, steps=40, repeats=4, seeds=1, prompts=["a cat"], width=60, height=40,
        asked=["clips:07_cat", "words:neon"], changes=changes, seconds=1.0, time=1.0,
    )  # fmt: skip
    folder = run.folder / what_if.KEPT / "0000abcd"
    write_json(folder / what_if.ANSWER, told.model_dump(mode="json"))
    for number in range(3):
        write_sample(folder / f"{number}-0.mp4", np.full((9, 40, 60, 3), 90, np.uint8), 8, {})

    page.set_default_timeout(LONG)
    site.open(page, "#/train/asked")
    page.get_by_role("link", name="What if").click()
    shown = page.locator("wb-run-what-if")
    expect(shown.locator(".verdict").first).to_contain_text("Without the word neon: effect 62% → 30%", timeout=LONG)
    expect(shown.locator(".verdict").nth(1)).to_contain_text("no difference at all", timeout=LONG)
    expect(shown.locator("wb-video")).to_have_count(3, timeout=LONG)
    expect(shown.locator(".column")).to_have_text(["As it was", "Without the word neon", "Without clip 07_cat"])

    # -- an invalid change is refused next to the form, which keeps what was typed
    shown.get_by_label("With setting").fill("rank=0")
    shown.get_by_role("button", name="Try it").click()
    expect(shown.get_by_role("alert")).to_contain_text("must be 1 to 1024", timeout=LONG)
    expect(shown.get_by_label("With setting")).to_have_value("rank=0", timeout=LONG)
