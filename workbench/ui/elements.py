"""The elements as files of the page. Their names say the content, so a browser keeps them for good."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache

import brotli
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from workbench.display import elements

ROUTE = "/elements"
FRESH = True  # read the files anew at each opening, while they are written


@cache
def _file(suffix: str) -> tuple[str, str, dict[str, bytes]]:
    """(name, media type, {encoding: body}) of the script or the style sheet."""
    text, kind = (elements.script(), "text/javascript") if suffix == "js" else (elements.style(), "text/css")
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
            for one in (elements.script, elements.style, _file):
                one.cache_clear()
        return HTMLResponse(
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1"><title>Video LoRA Workbench</title>'
            f"<style>body{{margin:0}}</style>{head()}</head><body></body></html>"
        )

    return [Route(f"{ROUTE}/{{name}}", answer), Route("/next", next_page)]
