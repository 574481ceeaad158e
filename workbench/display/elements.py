"""The elements that show everything (assets/elements), as one script and one style sheet for page, notebook and report.

The files are one text in the order of `order.txt`, without modules: a notebook takes a single module's text.
"""

from __future__ import annotations

import re
from functools import cache

from workbench.paths import ASSETS

FOLDER = ASSETS / "elements"
START = "start"  # the file with which the page begins
# Lines of comments, indentation, and the "use strict" that each file has for itself.
FOR_READERS = re.compile(r"^[ \t]*//.*\n|^[ \t]+|^'use strict';\n", re.MULTILINE)
STYLE_COMMENT = re.compile(r"/\*.*?\*/\n?", re.DOTALL)
ROOTS = ":is(wb-app, .workbench)"  # of the elements, in which all style sheets but the tokens hold


def order() -> list[str]:
    """Return the names of the files, without suffix, in the order in which they are one text."""
    return (FOLDER / "order.txt").read_text(encoding="utf-8").split()


@cache
def script() -> str:
    """Return the definitions of all elements: statements for the inside of a function or a module."""
    files = [FOLDER / f"{name}.js" for name in order() if name != START]
    return "\n".join(FOR_READERS.sub("", file.read_text(encoding="utf-8")) for file in files)


@cache
def page_script() -> str:
    """Return the script of the page: the definitions, and its beginning."""
    start = FOR_READERS.sub("", (FOLDER / f"{START}.js").read_text(encoding="utf-8"))
    return f"(() => {{'use strict';\n{script()}\n{start}}})();"


@cache
def style() -> str:
    """Return the style sheet: tokens for the whole document, all else for the elements alone."""
    parts = [file.read_text(encoding="utf-8") for name in order() if (file := FOLDER / f"{name}.css").exists()]
    base, tokens = ((FOLDER / f"{name}.css").read_text(encoding="utf-8") for name in ("base", "tokens"))
    return STYLE_COMMENT.sub("", f"{tokens}{ROOTS} {{\n{base}\n{''.join(parts)}}}\n")
