"""The page's document, and the script and style sheet of the elements (workbench.display.elements) that it loads.

Their names contain a hash of their content, so browsers cache them for good.
"""

from __future__ import annotations

import gzip
import os
from functools import cache

import brotli
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workbench.display import elements
from workbench.ui.server.bodies import route_of

ROUTE = "/elements"
TITLE = "Video LoRA Workbench"
HIDDEN = "<style>gradio-app{display:none!important}</style>"
KINDS = {"css": "text/css", "js": "text/javascript"}


def on_space() -> bool:
    """Return whether this is a Space. There only calls through Gradio's own script get a GPU."""
    return "SPACE_ID" in os.environ


@cache
def _files() -> dict[str, tuple[str, bytes]]:
    """Return the style sheet, the script and what it loads later: their types and texts by their names."""
    texts = (("css", elements.style()), ("js", elements.page_script()), ("js", elements.later_script()))
    return {elements.named(text, suffix): (KINDS[suffix], text.encode()) for suffix, text in texts}


_best: dict[str, bytes] = {}  # compressed as well as can be, by name


@cache
def _quickly(name: str, encoding: str) -> bytes:
    """Return a compressed file within milliseconds."""
    text = _files()[name][1]
    return brotli.compress(text, quality=5) if encoding == "br" else gzip.compress(text) if encoding else text


def prepare() -> None:
    """Compress all files as well as can be, which takes a second. Visitors before that get an eighth more bytes."""
    for name, (_, text) in _files().items():
        _best[name] = brotli.compress(text, quality=11)


def head() -> str:
    """Return the tags that load the elements, for the document's head."""
    style, script, _ = (f".{ROUTE}/{name}" for name in _files())
    return f'<link rel="stylesheet" href="{style}"><script src="{script}" defer></script>'


def routes() -> list[BaseRoute]:
    """Return the routes of these files, and of the page's document unless this is a Space."""

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _files():
            return Response("The page has changed: reload it.", 404)
        known = {one.split(";")[0].strip() for one in request.headers.get("accept-encoding", "").split(",")}
        encoding = next((one for one in ("br", "gzip") if one in known), "")
        best = _best.get(name) if encoding == "br" else None
        body = best or await run_in_threadpool(_quickly, name, encoding)
        headers = {"cache-control": "private, max-age=31536000, immutable", "vary": "accept-encoding"}
        headers |= {"content-encoding": encoding} if encoding else {}
        return Response(body, media_type=_files()[name][0], headers=headers)

    async def document(_: Request) -> Response:
        text = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{TITLE}</title>'
            f'<link rel="icon" href="./favicon.ico"><style>body{{margin:0}}</style>{head()}</head>'
            "<body><noscript>This page needs JavaScript.</noscript></body></html>"
        )
        # Never cached, so that a logout and a new version take effect at once.
        return HTMLResponse(text, headers={"cache-control": "private, no-cache"})

    return [Route(f"{ROUTE}/{{name}}", file), *([] if on_space() else [Route("/", document)])]


class BeforeGradio:
    """ASGI middleware that adds the elements to the head of Gradio's own document, which a Space serves."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or route_of(scope) != "/":
            return await self.app(scope, receive, send)
        start: Message = {}
        pieces: list[bytes] = []

        async def changed(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
                return
            pieces.append(message.get("body", b""))
            if message.get("more_body"):
                return
            body = b"".join(pieces).replace(b"</head>", f"{head()}{HIDDEN}</head>".encode(), 1)
            kept = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
            await send({**start, "headers": [*kept, (b"content-length", str(len(body)).encode())]})
            await send({"type": "http.response.body", "body": body})

        # The document must arrive uncompressed to be changed.
        headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"accept-encoding"]
        await self.app({**scope, "headers": headers}, receive, changed)
