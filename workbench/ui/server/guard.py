"""Checks of every request before the application: host, origin, path; and the security headers of every answer.

Gradio checks neither the name by which it is called nor the page that calls it. Without this any web site could use the
page of its visitors: a foreign page may post to 127.0.0.1, and a name that points there may read the answers.

    421  the Host is none of this server's names
    403  the Origin is another page's; the browser says that the request comes from another site; a remote address to
         be fetched for the visitor
    404  what Gradio serves and this page never uses

Rules of paths hold for the path within the application (`route_of`), whatever prefix a proxy puts before it. Of served
files a browser shows pictures, videos, sound and plain text; everything else it can only save, since a person's HTML or
SVG would run as a page of ours. `Guard` is plain ASGI middleware.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import psutil
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workbench.ui.server.bodies import Refusal, route_of

LOCAL = ("localhost", "127.0.0.1", "[::1]")
ANY = "*"
API = "/gradio_api"
STARTED = f"{API}/startup-events"
# Pages that may be opened from a link on another site: the page itself, and the way back from a login.
ENTRY_PAGES = ("/", "/login/callback", "/login/huggingface")
UNUSED = re.compile(
    r"(/gradio_api)?/(proxy=|deep_link|process_recording|vibe|undo-vibe|dev/|run-history|runs|monitoring|profiling"
    r"|openapi\.json|docs|redoc|mcp)"
)
SERVED = re.compile(r"/gradio_api/file[=/]")
REMOTE = re.compile(r"[=/]\s*[a-z][a-z0-9+.-]+:", re.IGNORECASE)  # file=http://..., never a path of a system we run on
FORWARDED = re.compile(rb"x-forwarded-.*|forwarded|x-real-ip|x-original-.*|x-rewrite-url", re.IGNORECASE)
# What a browser may show of the files that are served. Everything else it saves: it could be a page with scripts.
DISPLAYED = re.compile(rb"(video|audio)/[\w.+-]+|image/(png|jpeg|gif|webp|avif|bmp|x-icon)|text/plain", re.IGNORECASE)
SANDBOX = "sandbox allow-downloads; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'"
# Of the page itself: whatever HTML came to stand in it, nothing is fetched from elsewhere or sent there.
PAGE = "; ".join(
    (
        *(f"{kind}-src 'self' data: blob:" for kind in ("img", "media", "font")),
        "connect-src 'self' data: blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
    )
)
BYTES = b"application/octet-stream"
MEGABYTE = 1024**2


@dataclass(frozen=True)
class Rules:
    """hosts: names of this server, patterns allowed; ("*",) where somebody else checks them (a Space's own proxy)
    uploads, bodies: bytes of one request at most, of uploads and of all others
    frames: pages beside our own that may show this one in a frame
    proxied: a proxy that cannot be gone round says in X-Forwarded-Host and -Proto what the visitor called
    files: whether a file of this path may be served: a link may lead out of the folders that Gradio serves
    secret: what every request must bring in X-Workbench-Proxy; "" asks for nothing
    """

    hosts: Sequence[str] = LOCAL
    uploads: int = 20 * 1024 * MEGABYTE
    bodies: int = 16 * MEGABYTE
    frames: Sequence[str] = ()
    proxied: bool = False
    secret: str = ""
    files: Callable[[str], bool] = lambda _: True


class Guard:
    """ASGI middleware that applies the rules to every request."""

    def __init__(self, app: ASGIApp, rules: Rules | None = None) -> None:
        self.app, self.rules = app, rules or Rules()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        try:
            scope = self._checked(scope)
        except Refusal as refused:
            return await refused(scope, receive, send)
        await self.app(scope, receive, send if scope["type"] == "websocket" else self._with_headers(scope, send))

    # ---- before

    def _checked(self, scope: Scope) -> Scope:
        headers = headers_of(scope)
        path = route_of(scope)
        # Gradio asks itself whether it is there, once, and learns nothing by it.
        if self.rules.secret and path != STARTED and headers.get("x-workbench-proxy") != self.rules.secret:
            raise Refusal(421, "This is a visitor's own page; it is reached through the demo's address alone.")
        host = self._host(headers)
        self._check_origin(scope, headers, host)
        if UNUSED.match(path):
            raise Refusal(404, "Not found.")
        if SERVED.match(path):
            named = path[len(f"{API}/file") :]
            if REMOTE.search(named) or not self.rules.files(named[1:]):
                raise Refusal(403, "Files of this workspace are served, nothing from elsewhere.")
        # What anybody may write into a request does not decide how the page calls itself.
        kept = [one for one in scope["headers"] if self.rules.proxied or not FORWARDED.fullmatch(one[0])]
        # Starlette takes the query for text. A browser writes every other byte so, as a URL must.
        query = re.sub(rb"[^!-~]", lambda found: b"%%%02X" % found[0][0], scope.get("query_string", b""))
        return {**scope, "headers": kept, "query_string": query}

    def _host(self, headers: dict[str, str]) -> str:
        """The name and port by which the server was called. Raises Refusal for one that is not its own."""
        host = headers.get("host", "")
        if self.rules.proxied:
            host = headers.get("x-forwarded-host", host).split(",")[0].strip()
        if not _named(_name(host), self.rules.hosts):
            raise Refusal(
                421,
                f"This server is not called {_name(host)[:80]!r}. If that is a name of it: start it with "
                f"--allow-host {_name(host)[:80]}",
            )
        return host

    def _check_origin(self, scope: Scope, headers: dict[str, str], host: str) -> None:
        origin = headers.get("origin")
        if origin is not None and not self._ours(origin, host):
            raise Refusal(403, "Another page may not use this one.")
        site = headers.get("sec-fetch-site", "none")
        if site in ("none", "same-origin"):
            return
        opened = headers.get("sec-fetch-mode") == "navigate" and scope.get("method") in ("GET", "HEAD")
        framed = headers.get("sec-fetch-dest") in ("iframe", "frame", "embed", "object")
        if not opened or route_of(scope) not in ENTRY_PAGES or (framed and not self.rules.frames):
            raise Refusal(403, "Another site may open this page, not use what is behind it.")

    def _ours(self, origin: str, host: str) -> bool:
        """Whether an Origin is this very page, or one by a name that was allowed by hand (a proxy's, of Jupyter)."""
        try:
            called = urlsplit(origin).netloc.lower()
        except ValueError:  # anybody may write anything there, such as http://[
            return False
        given = [name for name in self.rules.hosts if name not in LOCAL and name != ANY]
        return bool(called) and (called == host.lower() or _named(_name(called), given))

    # ---- after

    def _with_headers(self, scope: Scope, send: Send) -> Send:
        """The answer with our headers."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = self._headers(route_of(scope), message.get("headers", []))
                kept = [(name, value) for name, value in message.get("headers", []) if name.lower() not in ours]
                message = {**message, "headers": [*kept, *ours.items()]}
            await send(message)

        return with_headers

    def _headers(self, path: str, headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
        frames = " ".join(["frame-ancestors 'self'", *self.rules.frames])
        served = SERVED.match(path)
        ours = {
            b"x-content-type-options": b"nosniff",
            b"referrer-policy": b"same-origin",
            b"content-security-policy": f"{SANDBOX if served else PAGE}; {frames}".encode(),
        }
        kind = next((value for name, value in headers if name.lower() == b"content-type"), b"").split(b";")[0]
        if served and not DISPLAYED.fullmatch(kind.strip()):
            ours |= {b"content-type": BYTES, b"content-disposition": b"attachment"}
        return ours


def outermost(app: Any) -> None:
    """Put ours of a started FastAPI application before all else that is around it, such as Gradio's own CORS headers,
    which would tell any page that it may read the answers."""
    ours = [one for one in app.user_middleware if str(one.cls.__module__).startswith("workbench.")]
    app.user_middleware[:] = [*ours, *(one for one in app.user_middleware if one not in ours)]
    app.middleware_stack = app.build_middleware_stack()


def own_names() -> list[str]:
    """What other machines may call this one: its name, and its addresses."""
    name = socket.gethostname().lower()
    families = (socket.AF_INET, socket.AF_INET6)
    addresses = [a.address for each in psutil.net_if_addrs().values() for a in each if a.family in families]
    plain = [address.split("%")[0] for address in addresses]
    return [*LOCAL, name, f"{name}.local", *(f"[{one}]" if ":" in one else one for one in plain)]


def headers_of(scope: Scope) -> dict[str, str]:
    """The request's headers by their names in small letters; of two of a name the first. Raises Refusal."""
    found: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1").lower()
        if name in ("host", "origin", "content-length") and name in found:
            raise Refusal(400, f"Two headers named {name}.")
        found.setdefault(name, value.decode("latin-1"))
    length = found.get("content-length") or "0"
    if not (length.isascii() and length.isdigit() and len(length) < 20):
        raise Refusal(400, "The content length is no number.")
    return found


def _name(host: str) -> str:
    """A host without its port, in small letters."""
    return re.sub(r":\d+$", "", host.strip().lower())


def _named(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name is one of these, of which * stands for anything."""
    return any(re.fullmatch(re.escape(pattern.lower()).replace(r"\*", ".*"), name) for pattern in patterns if name)


def peer_of(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])
