"""Check host, origin and path of every request, and add security headers to every answer.

Gradio checks neither Host nor Origin. Without these checks any web site could use its visitors' page: a foreign page
may post to 127.0.0.1, and a host name that resolves to it may read the answers.

    421  Host is not a name of this server
    403  Origin is another page, the browser reports a cross-site request, or the path names a remote file
    404  a route of Gradio that the page does not use

Path rules apply to the path within the application (`route_of`), without a proxy's prefix. Browsers display served
pictures, videos, sound and plain text. Other files can only be saved, because HTML or SVG could run as the page.
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
REMOTE = re.compile(r"[=/]\s*[a-z][a-z0-9+.-]+:", re.IGNORECASE)  # file=http://..., never a path of a supported system
FORWARDED = re.compile(rb"x-forwarded-.*|forwarded|x-real-ip|x-original-.*|x-rewrite-url", re.IGNORECASE)
# Types of served files that a browser may display. It saves all others, which could be pages with scripts.
DISPLAYED = re.compile(rb"(video|audio)/[\w.+-]+|image/(png|jpeg|gif|webp|avif|bmp|x-icon)|text/plain", re.IGNORECASE)
SANDBOX = "sandbox allow-downloads; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'"
# For the page itself: even injected HTML can neither fetch from other servers nor send to them.
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
    """Where the page may be used from, and what it serves."""

    hosts: Sequence[str] = LOCAL  # names of this server, or patterns; ("*",) if a proxy checks them, as on a Space
    uploads: int = 20 * 1024 * MEGABYTE  # maximum bytes of an upload
    bodies: int = 16 * MEGABYTE  # maximum bytes of any other request
    frames: Sequence[str] = ()  # other pages that may show this one in a frame
    proxied: bool = False  # all requests come through a proxy that sets X-Forwarded-Host and -Proto
    secret: str = ""  # required value of X-Workbench-Proxy, or ""
    # Returns whether a file may be served. A link may lead out of the folders that Gradio serves.
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

    # ---- requests

    def _checked(self, scope: Scope) -> Scope:
        headers = headers_of(scope)
        path = route_of(scope)
        # Gradio requests STARTED from itself once, without the secret. It reveals nothing.
        if self.rules.secret and path != STARTED and headers.get("x-workbench-proxy") != self.rules.secret:
            raise Refusal(421, "This is a visitor's own page. Use the demo's address.")
        host = self._host(headers)
        self._check_origin(scope, headers, host)
        if UNUSED.match(path):
            raise Refusal(404, "Not found.")
        if SERVED.match(path):
            named = path[len(f"{API}/file") :]
            if REMOTE.search(named) or not self.rules.files(named[1:]):
                raise Refusal(403, "Only files of this workspace are served.")
        # Without a proxy, anybody can forge these headers.
        kept = [one for one in scope["headers"] if self.rules.proxied or not FORWARDED.fullmatch(one[0])]
        # Starlette decodes the query as text, so percent-encode every other byte, as browsers do.
        query = re.sub(rb"[^!-~]", lambda found: b"%%%02X" % found[0][0], scope.get("query_string", b""))
        return {**scope, "headers": kept, "query_string": query}

    def _host(self, headers: dict[str, str]) -> str:
        """Return the host and port that the client requested. Raises Refusal for a foreign one."""
        host = headers.get("host", "")
        if self.rules.proxied:
            host = headers.get("x-forwarded-host", host).split(",")[0].strip()
        if not _named(_name(host), self.rules.hosts):
            raise Refusal(
                421,
                f"{_name(host)[:80]!r} is not a known name of this server. If it is one, start it with "
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
            raise Refusal(403, "Another site may open this page but not use it.")

    def _ours(self, origin: str, host: str) -> bool:
        """Return whether an Origin is this page, under its own host or an allowed one (such as a Jupyter proxy)."""
        try:
            called = urlsplit(origin).netloc.lower()
        except ValueError:  # such as http://[
            return False
        given = [name for name in self.rules.hosts if name not in LOCAL and name != ANY]
        return bool(called) and (called == host.lower() or _named(_name(called), given))

    # ---- answers

    def _with_headers(self, scope: Scope, send: Send) -> Send:
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
    """Move the workbench's middleware of a started FastAPI application outside of Gradio's.

    Gradio's CORS headers would otherwise allow any page to read the answers.
    """
    ours = [one for one in app.user_middleware if str(one.cls.__module__).startswith("workbench.")]
    app.user_middleware[:] = [*ours, *(one for one in app.user_middleware if one not in ours)]
    app.middleware_stack = app.build_middleware_stack()


def own_names() -> list[str]:
    """Return the names and addresses by which other machines may call this one."""
    name = socket.gethostname().lower()
    families = (socket.AF_INET, socket.AF_INET6)
    addresses = [a.address for each in psutil.net_if_addrs().values() for a in each if a.family in families]
    plain = [address.split("%")[0] for address in addresses]
    return [*LOCAL, name, f"{name}.local", *(f"[{one}]" if ":" in one else one for one in plain)]


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the first value of each header by its lower-case name. Raises Refusal for malformed headers."""
    found: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1").lower()
        if name in ("host", "origin", "content-length") and name in found:
            raise Refusal(400, f"The request has two headers named {name}.")
        found.setdefault(name, value.decode("latin-1"))
    length = found.get("content-length") or "0"
    if not (length.isascii() and length.isdigit() and len(length) < 20):
        raise Refusal(400, "The content length is not a number.")
    return found


def _name(host: str) -> str:
    """Return a host without its port, in lower case."""
    return re.sub(r":\d+$", "", host.strip().lower())


def _named(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a name matches a pattern, in which * matches anything."""
    return any(re.fullmatch(re.escape(pattern.lower()).replace(r"\*", ".*"), name) for pattern in patterns if name)


def peer_of(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])
