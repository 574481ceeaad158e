"""The elements (assets/elements) as one script and one style sheet for page, notebook and report.

The files are plain scripts, concatenated in the order of `order.txt`, because a notebook takes a single module.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from workbench.display.inline_html import escaped
from workbench.paths import ASSETS

FOLDER = ASSETS / "elements"
START = "start"  # the file that starts the page
# What the page loads when it is shown, or when idle.
LATER = ("clip", "mask", "what_if", "new_run", "grid", "compare")
EXPORTED = ("report", "exported")  # what only exported files show
FOR_READERS = re.compile(r"^[ \t]*//.*\n|^[ \t]+|^\n|(?<=[;,{})\]]) +// .*$", re.MULTILINE)  # comments and indentation
STYLE_COMMENT = re.compile(r"/\*.*?\*/\n?|^[ \t]+", re.DOTALL | re.MULTILINE)
DEFINED = re.compile(r"^(?:(?:async )?function|const|class) (\w+)", re.MULTILINE)
ROOTS = ":is(wb-app, .workbench)"  # the elements' roots; all style sheets but the tokens apply inside them


def order() -> list[str]:
    """Return the names of the files, without suffix, in the order of concatenation."""
    return (FOLDER / "order.txt").read_text(encoding="utf-8").split()


@cache
def script() -> str:
    """Return the definitions of all elements, to be put inside a function or a module."""
    return _joined(name for name in order() if name != START)


def _source(name: str) -> str:
    return (FOLDER / f"{name}.js").read_text(encoding="utf-8")


def _joined(names: Iterable[str]) -> str:
    return "\n".join(FOR_READERS.sub("", _source(name)) for name in names)


@cache
def _page_parts() -> tuple[str, str, str]:
    """Return what the page defines at first and later, and the names of the former that the latter uses."""
    first = [name for name in order() if name not in (START, *LATER, *EXPORTED)]
    later = _joined(name for name in order() if name in LATER)
    used = set(re.findall(r"\w+", later))
    shared = [name for file in first for name in DEFINED.findall(_source(file)) if name in used]
    return _joined(first), later, ", ".join(shared)


@cache
def page_script() -> str:
    """Return the script of the page, which starts it and loads `later_script` from beside it."""
    first, _, shared = _page_parts()
    # A browser remembers an import that failed, so that each try has an address of its own.
    load = f"import(`./{named(later_script(), 'js')}?${{tries}}`).then((later) => later.default({{{shared}}}))"
    return f"(() => {{'use strict';\n{first}\npage.more = (tries) => {load};\n{_joined([START])}}})();"


@cache
def later_script() -> str:
    """Return the module with the page's other elements."""
    _, later, shared = _page_parts()
    return f"export default ({{{shared}}}) => {{\n{later}\n}};\n"


def named(text: str, suffix: str) -> str:
    """Return a name for a file that changes with its text, so that browsers cache it for good."""
    return f"elements-{hashlib.sha256(text.encode()).hexdigest()[:12]}.{suffix}"


@cache
def module() -> str:
    """Return the ES module of a notebook's widget, which shows the elements in an iframe."""
    host, inside = (
        FOR_READERS.sub("", (FOLDER / f"{name}.js").read_text("utf-8")) for name in ("notebook_host", "notebook")
    )
    text = f"(() => {{'use strict';\n{script()}\n{inside}}})();".replace("</script", "<\\/script")
    document = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><base href="about:srcdoc"><title>Workbench</title>'
        f"<style>body{{margin:0}}{style()}</style></head><body><script>{text}</script></body></html>"
    )
    return f"const PAGE = {json.dumps(document)};\n{host}\nexport default {{ render }};\n"


@cache
def style() -> str:
    """Return the style sheet: tokens for the whole document, everything else only for the elements."""
    parts = [file.read_text(encoding="utf-8") for name in order() if (file := FOLDER / f"{name}.css").exists()]
    base, tokens = ((FOLDER / f"{name}.css").read_text(encoding="utf-8") for name in ("base", "tokens"))
    return STYLE_COMMENT.sub("", f"{tokens}{ROOTS} {{\n{base}\n{''.join(parts)}}}\n")


def exported(
    title: str, element: str, properties: Mapping[str, Any], files: Mapping[str, Path], answers: Mapping[str, Any] = {}
) -> Iterator[str]:
    """Yield the pieces of a self-contained document that shows an element. Files are read as their piece is requested.

    Args:
        element: The element's tag.
        properties: The element's properties as JSON values. Numbers must be finite.
        files: Videos and pictures by their name in the data.
        answers: Answers of operations by their call, such as '["runs/show",{"name":"cats"}]'.

    Raises:
        OSError: A file cannot be read.
    """
    show = f"(() => {{'use strict';\n{script()}\nshowExported(document.querySelector('.workbench'));}})();"
    show = show.replace("</script", "<\\/script")
    digest = base64.b64encode(hashlib.sha256(show.encode()).digest()).decode()
    # Whatever a prompt contains, the browser loads nothing and runs no other script.
    policy = (
        "default-src 'none'; media-src blob:; img-src blob: data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )
    # "<" is escaped below, because text from a person could end the script element.
    data = json.dumps({"element": element, "properties": properties, "answers": answers}, ensure_ascii=False)
    yield (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escaped(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<style>{style()}\nbody {{ margin: 0; background: var(--wb-page); }} .workbench {{ padding: 24px; }}</style>"
        f'</head>\n<body><div class="exported workbench"></div>\n<script type="application/json" id="wb-data">'
        f"{data.replace('<', chr(92) + 'u003c')}</script>\n"
    )
    for name, path in files.items():
        encoded = base64.b64encode(path.read_bytes()).decode()
        yield f'<script type="text/plain" id="{escaped(name)}">{encoded}</script>\n'
    yield f"<script>{show}</script></body></html>\n"
