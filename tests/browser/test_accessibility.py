"""What axe-core finds in every view, light and dark, wide and narrow; no view scrolls sideways; nothing moves unasked.

axe-core is a package for contributors (package.json): `make lint` installs it, and its test is skipped without it.
$AXE_REPORT names a file for the counts in each state of the page (benchmarks/results/axe.json).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import Site
from tests.browser.stripes import few_clips
from tests.loras.making import layer, put_lora
from tests.test_overview import add_sample
from tests.written_grid import write_grid
from tests.written_run import ended, write_run
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.checks.findings import finding_of, write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
AXE = Path(__file__).resolve().parents[2] / "node_modules" / "axe-core" / "axe.min.js"
# Colors do not depend on the size, nor anything but colors on the theme: two states at every change, all before a
# release.
USUAL = (((1280, 800), "light"), ((390, 844), "dark"))
STATES = [
    pytest.param(size, theme, id=f"{size[0]}-{theme}", marks=[] if (size, theme) in USUAL else [pytest.mark.release])
    for size in ((1280, 800), (1920, 1080), (390, 844))
    for theme in ("light", "dark")
]
IMPACTS = ("minor", "moderate", "serious", "critical")
FINDINGS = """async () => (await axe.run(document, {resultTypes: ['violations']})).violations
    .map(({id, impact, nodes}) => ({id, impact, nodes: nodes.map(({html}) => html.slice(0, 150))}))"""
# The address of each view, and an element that shows it has loaded.
VIEWS = {
    "home": ("#/", "main h1"), "datasets": ("#/dataset", "main wb-video"),
    "a dataset": ("#/dataset/stripes", "main textarea"),
    "pairs": ("#/dataset/stripes/pairs", "main .partner"),
    "all that lies beside clips": ("#/dataset/stripes/pairs/every", "main .pair-row"),
    "history of a dataset": ("#/dataset/stripes/history", "main li"),
    "export of a dataset": ("#/dataset/stripes/export", "main .button.primary"),
    "a clip": ("#/dataset/stripes/clip/CLIP", "main textarea"),
    "a mask": ("#/dataset/stripes/clip/CLIP/mask", "main canvas"), "runs": ("#/train", "main table"),
    "a new run": ("#/train/new", "main .input"), "a run": ("#/train/done", "main svg"),
    "checkpoints": ("#/train/done/checkpoints", "main table"),
    "settings of a run": ("#/train/done/settings", "main .input"), "log": ("#/train/done/log", "main h1"),
    "notes": ("#/train/done/notes", "main textarea"), "a failed run": ("#/train/broken", "main .bad"),
    "sample": ("#/sample", "main textarea"), "compare": ("#/compare/GRID", "main wb-video"),
    "wipe": ("#/compare/GRID/wipe", "main input[type=range]"), "vote": ("#/compare/GRID/vote", "main wb-video"),
    "film": ("#/compare/GRID/film", "main input[type=range]"), "loras": ("#/loras", "main article"),
    "a lora": ("#/loras/loras%2Fcat", "main aside"),
}  # fmt: skip


@pytest.fixture(scope="module")
def full(site: Site) -> Iterator[Site]:
    """A workspace that fills every view."""
    workspace = site.workspace
    few_clips(workspace)
    write_run(workspace, "done", 20)
    broken = write_run(workspace, "broken", 20)
    ended(broken.folder, "failed", 3, "CUDA out of memory. Tried to allocate 2.00 GiB")
    add_sample(workspace, "a ball rolls over the floor")
    put_lora(workspace, "cat", layer("blocks.0.to_q", 4, 8, 8))
    write_grid(workspace, done=2)
    dataset = Dataset.open(workspace, "stripes")
    clips = dataset.clips
    write_report(dataset.folder, 0.0, "any", clips, [finding_of("still", "it stands still", clips[:1])])
    yield site
    for run in ("done", "broken"):
        (workspace.run(run) / jobs.PROCESS).unlink(missing_ok=True)


def views(site: Site) -> Iterator[tuple[str, str, str]]:
    clip = Path(Dataset.open(site.workspace, "stripes").clips[0].file_name).stem
    grid = next(path.name for path in site.workspace.grids.iterdir() if path.is_dir())
    for name, (address, ready) in VIEWS.items():
        yield name, address.replace("CLIP", clip).replace("GRID", grid), ready


def opened(browser: Browser, site: Site, size: tuple[int, int], theme: Any) -> Page:
    profile = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=theme, reduced_motion="reduce"
    )
    page = profile.new_page()
    site.open(page)
    return page


def show(page: Page, address: str, ready: str) -> None:
    page.evaluate("(address) => { location.hash = address }", address)
    page.locator(f"{ready} >> visible=true").first.wait_for()


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: npm ci --ignore-scripts, or make lint")
@pytest.mark.parametrize(("size", "theme"), STATES)
def test_axe_finds_nothing_serious_in_any_view(full: Site, browser: Browser, size: tuple[int, int], theme: str) -> None:
    report = os.environ.get("AXE_REPORT")
    counts: list[dict[str, object]] = []
    wrong: list[str] = []
    page = opened(browser, full, size, theme)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    for name, address, ready in views(full):
        show(page, address, ready)
        found = page.evaluate(FINDINGS)
        by_impact = {impact: sum(one["impact"] == impact for one in found) for impact in IMPACTS}
        counts.append({"view": name, "theme": theme, "width": size[0], **by_impact})
        wrong += [f"{name}: {one['id']} {one['nodes'][:3]}" for one in found if one["impact"] in IMPACTS[2:]]
        wide = page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
        wrong += [f"{name}: scrolls sideways by {wide} px"] if wide > 0 else []
    version = page.evaluate("axe.version")
    page.context.close()
    if report:
        path = Path(report)
        before = json.loads(path.read_text(encoding="utf-8"))["states"] if path.exists() else []
        path.write_text(json.dumps({"axe_core": version, "states": [*before, *counts]}, indent=1) + "\n", "utf-8")
    assert not wrong, "\n".join(wrong)


def test_nothing_plays_by_itself_where_less_motion_is_wanted(full: Site, browser: Browser) -> None:
    page = opened(browser, full, (1280, 800), "light")
    for address in ("#/", "#/sample", "#/dataset", "#/loras"):
        page.evaluate("(address) => { location.hash = address }", address)
        page.locator("main h1").first.wait_for(state="attached")
        page.wait_for_function("[...document.querySelectorAll('main video')].every((one) => one.readyState >= 2)")
        assert page.evaluate("[...document.querySelectorAll('main video')].every((one) => one.paused)"), address
    page.context.close()
