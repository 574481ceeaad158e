"""The elements that show everything (assets/elements), as one script and one style sheet.

The files are one text in the order of `order.txt`, without modules: a notebook takes a single module's text, and page,
notebook and report load the same.
"""

from __future__ import annotations

import json
import re
from functools import cache

from workbench.paths import ASSETS

FOLDER = ASSETS / "elements"
COMMENT = re.compile(r"^[ \t]*//.*\n|^[ \t]+", re.MULTILINE)
STYLE_COMMENT = re.compile(r"/\*.*?\*/\n?", re.DOTALL)
ROOTS = ":is(wb-app, .workbench)"  # of the elements, in which all style sheets but the tokens hold


def order() -> list[str]:
    """Names of the elements' files, without suffix, in the order in which they are one text."""
    return (FOLDER / "order.txt").read_text(encoding="utf-8").split()


@cache
def script() -> str:
    """Return all elements as one script. Each file has its own comments and "use strict", which are left out."""
    return f"(() => {{'use strict';\n{_text(order())}}})();"


def _text(names: list[str]) -> str:
    files = [FOLDER / f"{name}.js" for name in names]
    return "\n".join(COMMENT.sub("", file.read_text(encoding="utf-8")).replace("'use strict';\n", "") for file in files)


@cache
def style() -> str:
    """Return the style sheet: tokens for the whole document, all else for the elements alone."""
    parts = [file.read_text(encoding="utf-8") for name in order() if (file := FOLDER / f"{name}.css").exists()]
    base = (FOLDER / "base.css").read_text(encoding="utf-8")
    tokens = (FOLDER / "tokens.css").read_text(encoding="utf-8")
    return STYLE_COMMENT.sub("", f"{tokens}{ROOTS} {{\n{base}\n{''.join(parts)}}}\n")


@cache
def module() -> str:
    """Return the ES module of a notebook's widget, which shows the elements in a frame of their own."""
    host = (FOLDER / "notebook_host.js").read_text(encoding="utf-8")
    text = f"(() => {{'use strict';\n{_text([*order()[:-1], 'notebook'])}}})();".replace("</script", "<\\/script")
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><base href="about:srcdoc"><title>Workbench</title>'
        f"<style>body{{margin:0}}{style()}</style></head><body><script>{text}</script></body></html>"
    )
    return f"const PAGE = {json.dumps(page)};\n{host}\nexport default {{ render }};\n"
