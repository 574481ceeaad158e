"""The elements that show everything (assets/elements), as one script and one style sheet.

The files are one text in the order of `order.txt`, without modules: a notebook takes a single module's text, and page,
notebook and report load the same. Names say the content, so a browser keeps them for good.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from functools import cache

import brotli
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from workbench.paths import ASSETS

FOLDER = ASSETS / "elements"
COMMENT = re.compile(r"^[ \t]*//.*\n|^[ \t]+", re.MULTILINE)
STYLE_COMMENT = re.compile(r"/\*.*?\*/\n?", re.DOTALL)
ROOTS = ":is(wb-app, .workbench)"  # of the elements, in which all style sheets but the tokens hold
ROUTE = "/elements"


def order() -> list[str]:
    """Names of the elements' files, without suffix, in the order in which they are one text."""
    return (FOLDER / "order.txt").read_text(encoding="utf-8").split()


@cache
def script() -> str:
    """Return all elements as one script. Each file has its own comments and "use strict", which are left out."""
    files = [FOLDER / f"{name}.js" for name in order()]
    text = "\n".join(COMMENT.sub("", file.read_text(encoding="utf-8")).replace("'use strict';\n", "") for file in files)
    return f"(() => {{'use strict';\n{text}}})();"


@cache
def style() -> str:
    """Return the style sheet: tokens for the whole document, all else for the elements alone."""
    parts = [file.read_text(encoding="utf-8") for name in order() if (file := FOLDER / f"{name}.css").exists()]
    base = (FOLDER / "base.css").read_text(encoding="utf-8")
    tokens = (FOLDER / "tokens.css").read_text(encoding="utf-8")
    return STYLE_COMMENT.sub("", f"{tokens}{ROOTS} {{\n{base}\n{''.join(parts)}}}\n")


@cache
def _file(suffix: str) -> tuple[str, str, dict[str, bytes]]:
    """(name, media type, {encoding: body}) of the script or the style sheet."""
    text, kind = (script(), "text/javascript") if suffix == "js" else (style(), "text/css")
    body = text.encode()
    name = f"elements-{hashlib.sha256(body).hexdigest()[:12]}.{suffix}"
    return name, kind, {"br": brotli.compress(body, quality=9), "gzip": gzip.compress(body, 9), "": body}


def head() -> str:
    """Return the end of the page's head: the style sheet, and the script, which starts once the page is parsed."""
    return (
        f'<link rel="stylesheet" href=".{ROUTE}/{_file("css")[0]}">'
        f'<script src=".{ROUTE}/{_file("js")[0]}" defer></script>'
    )


def routes() -> list[BaseRoute]:
    """Return the routes of the two files."""

    async def answer(request: Request) -> Response:
        found = next((one for one in map(_file, ("js", "css")) if one[0] == request.path_params["name"]), None)
        if found is None:
            return Response("The page has changed: reload it.", 404)
        _, kind, forms = found
        known = {one.split(";")[0].strip() for one in request.headers.get("accept-encoding", "").split(",")}
        encoding = next((one for one in ("br", "gzip") if one in known), "")
        headers = {"cache-control": "private, max-age=31536000, immutable", "vary": "accept-encoding"}
        return Response(
            forms[encoding], media_type=kind, headers=headers | ({"content-encoding": encoding} if encoding else {})
        )

    async def next_page(request: Request) -> Response:
        if FRESH:
            for one in (script, style, _file):
                one.cache_clear()
        return HTMLResponse(
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1"><title>Video LoRA Workbench</title>'
            f"<style>body{{margin:0}}</style>{head()}</head><body></body></html>"
        )

    return [Route(f"{ROUTE}/{{name}}", answer), Route("/next", next_page)]


FRESH = True  # read the files anew at each opening, while they are written
