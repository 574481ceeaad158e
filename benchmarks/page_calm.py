"""Measure how calm a page looks: `python benchmarks/page_calm.py [NAME=URL ...] [--workspace FOLDER] [--json FILE]`.

It counts what is visible without scrolling, at each size and theme: font sizes and weights, colors, elements with a
border, words, controls, the share of the screen with videos, pictures and charts, and how far the page scrolls
sideways. Without an address it measures this workbench's own pages over a workspace. `--pictures FOLDER` keeps the
screenshots.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import arguments, report  # noqa: E402
from docs.screenshots import PLACES, opened, show  # noqa: E402
from scripts.browser import REMEDY, find  # noqa: E402
from tests.browser.server import Server, launch  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SIZES = ("1280x860", "1920x1080", "390x844")
SETTLED_MS = 4000  # for videos and charts
COUNTS = """() => {
    const text = new Map(), weights = new Set(), colors = new Set(), cells = new Set(), CELL = 4;
    const found = {words: 0, controls: 0, borders: 0};
    const controls = 'a[href], button, input, select, textarea, summary, [role=button], [role=tab], [role=switch]';
    const content = 'video, canvas, img, svg, iframe', SMALLEST = 40;
    const seen = (color) => !/[,/] 0(\\.0\\d*)?\\)$|transparent/.test(color);
    const within = (box, edge) => ({left: Math.max(box.left, edge.left), top: Math.max(box.top, edge.top),
        right: Math.min(box.right, edge.right), bottom: Math.min(box.bottom, edge.bottom)});
    const large = (box) => box.right - box.left > 1 && box.bottom - box.top > 1;
    const read = (element, edge) => {
        const style = getComputedStyle(element), box = element.getBoundingClientRect(), mine = within(box, edge);
        if (style.display === 'none' || style.opacity === '0') return;
        const shown = style.visibility === 'visible' && large(mine);
        if (shown) {
            found.controls += element.matches(controls);
            if (seen(style.backgroundColor)) colors.add(style.backgroundColor);
            const lines = ['Top', 'Right', 'Bottom', 'Left'].map((side) => [parseFloat(style[`border${side}Width`]) &&
                style[`border${side}Style`] !== 'none', style[`border${side}Color`]]);
            const drawn = lines.filter(([wide, color]) => wide && seen(color));
            if (drawn.length && !(element instanceof SVGElement)) found.borders += 1;
            for (const [, color] of drawn) colors.add(color);
            const svg = element.closest('svg');
            const own = box.width > SMALLEST && box.height > SMALLEST && (!svg || svg === element);
            if (own && element.matches(content)) {
                for (let x = mine.left; x < mine.right; x += CELL)
                    for (let y = mine.top; y < mine.bottom; y += CELL)
                        cells.add(`${Math.floor(x / CELL)} ${Math.floor(y / CELL)}`);
            }
            if (element.matches('input, textarea, select') && !/checkbox|radio|range|file/.test(element.type ?? '')) {
                count(element.value || element.placeholder || '', style);
            }
        }
        const inner = /visible/.test(style.overflow) || style.display === 'contents' ? edge : within(box, edge);
        if (style.display !== 'contents' && inner !== edge && !large(inner)) return;
        for (const node of (element.shadowRoot ?? element).childNodes) {
            if (node.nodeType === Node.ELEMENT_NODE && !/^(SCRIPT|STYLE|TITLE|DESC)$/i.test(node.tagName)) {
                read(node, inner);
            } else if (node.nodeType === Node.TEXT_NODE && node.data.trim() && style.visibility === 'visible') {
                const range = document.createRange();
                range.selectNodeContents(node);
                if ([...range.getClientRects()].some((one) => large(within(one, inner)))) count(node.data, style);
            }
        }
    };
    const count = (words, style) => {
        const all = words.trim().split(/\\s+/).filter((one) => /[\\p{L}\\p{N}]/u.test(one));
        if (!all.length) return;
        found.words += all.length;
        const size = parseFloat(style.fontSize).toFixed(1);
        text.set(size, (text.get(size) ?? 0) + all.length);
        weights.add(style.fontWeight);
        colors.add(style.color);
    };
    const edge = {left: 0, top: 0, right: innerWidth, bottom: innerHeight};
    read(document.body, edge);
    const own = document.scrollingElement;
    return {sizes: text.size, weights: weights.size, colors: colors.size, ...found,
        'content %': Math.round(100 * cells.size * CELL * CELL / (innerWidth * innerHeight)),
        'sideways px': Math.max(0, own.scrollWidth - innerWidth),
        px: [...text].sort((one, other) => one[0] - other[0]).map(([size, words]) => `${+size}:${words}`).join(' ')};
}"""


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], sizes=["390x844"], places=["home"])
    parser.add_argument("pages", nargs="*", metavar="NAME=URL", help="pages to measure instead of this workbench's")
    parser.add_argument("--workspace", type=Path, help="workspace to show; default: an empty one")
    parser.add_argument(
        "--places", nargs="+", choices=PLACES, help="default: home, and what the workspace has of: run, compare, sample"
    )
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="WxH")
    parser.add_argument("--themes", nargs="+", default=["light"], choices=["light", "dark"])
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="keep each screenshot as a PNG")
    options = parser.parse_args()
    if not options.places:
        held = {"run": "runs", "compare": "grids", "sample": "samples"}
        root = options.workspace
        options.places = ["home", *(place for place, name in held.items() if root and any((root / name).glob("*")))]
    path = find()
    if path is None:
        sys.exit(REMEDY)
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = launch(playwright, path)
        server = None if options.pages else Server(options.workspace or Path(folder))
        if server is not None:
            server.start()
        try:
            rows = list(measure(browser, server, options))
        finally:
            browser.close()
            if server is not None:
                server.kill()
    report(rows, options.json)


def measure(browser: Browser, server: Server | None, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Return a row for each screen, size and theme."""
    for theme in options.themes:
        for size in options.sizes:
            width, height = map(int, size.split("x"))
            view: Any = {"width": width, "height": height}
            found = (
                others(browser, options.pages, view, theme)
                if server is None
                else own(opened(browser, server, view, theme), options.places)
            )
            for name, page in found:
                page.wait_for_timeout(SETTLED_MS)
                if options.pictures:
                    options.pictures.mkdir(parents=True, exist_ok=True)
                    page.screenshot(path=options.pictures / f"{name} {width} {theme}.png".replace(" ", "-"))
                yield {"case": f"{name}, {size}, {theme}", **page.evaluate(COUNTS)}


def others(browser: Browser, pages: list[str], view: Any, theme: Any) -> Iterator[tuple[str, Page]]:
    """Return the other pages by name."""
    for name, _, url in (one.partition("=") for one in pages):
        page = browser.new_context(viewport=view, color_scheme=theme).new_page()
        page.goto(url)
        yield name, page
        page.context.close()


def own(page: Page, places: list[str]) -> Iterator[tuple[str, Page]]:
    """Return the workbench's own pages by name."""
    for name in places:
        show(page, name)
        yield name, page
    page.context.close()


if __name__ == "__main__":
    main()
