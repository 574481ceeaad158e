"""What stands before every way of serving the page: who may ask, from where, for what, and how much at once.

Gradio checks neither the name by which it is called nor the page that calls it. Without this any web site could use the
page of whoever looks at it: a foreign page may post to 127.0.0.1, and a name that points there may read the answers.

    421  the Host is none of this server's names
    403  the Origin is another page's; the browser says that the request comes from another site; a remote address to
         be fetched in the visitor's place
    404  what Gradio serves and this page never uses
    413  a body that is too large, whether it says its length or not
    429  too many wrong passwords in a row from one address

`Guard` is plain ASGI middleware. Not covered: passwords (Gradio), which files may be read (Gradio, and of the demo's
visitors workbench.visitors), a lock on the door of a server without a password.
"""

from __future__ import annotations

import re
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import psutil

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LOCAL = ("localhost", "127.0.0.1", "[::1]")
ANY = "*"
API = "/gradio_api"
UPLOAD, STARTED = f"{API}/upload", f"{API}/startup-events"
# Pages that may be opened from a link on another site: the page itself, and the way back from a login.
DOORS = ("/", "/login/callback", "/login/huggingface")
UNUSED = re.compile(
    r"(/gradio_api)?/(proxy=|deep_link|process_recording|vibe|undo-vibe|dev/|run-history|runs|monitoring|profiling"
    r"|openapi\.json|docs|redoc|mcp)"
)
SERVED = re.compile(r"/gradio_api/file[=/]")
REMOTE = re.compile(r"[=/]\s*[a-z][a-z0-9+.-]+:", re.IGNORECASE)  # file=http://..., never a path of a system we run on
FORWARDED = re.compile(rb"x-forwarded-.*|forwarded|x-real-ip|x-original-.*|x-rewrite-url", re.IGNORECASE)
# A served file that is a page of its own (a report, a wall) may run its scripts, but as nobody's: it reaches nothing.
SANDBOX = "sandbox allow-scripts allow-downloads; connect-src 'none'; form-action 'none'"
LOGINS, LOGIN_SECONDS = 5, 60.0
MEGABYTE = 1024**2


@dataclass(frozen=True)
class Rules:
    """hosts: names of this server, patterns allowed; ("*",) where somebody else checks them (a Space's own proxy)
    uploads, bodies: bytes of one request at most, of uploads and of all others
    frames: pages beside our own that may show this one in a frame
    proxied: a proxy that cannot be gone round says in X-Forwarded-Host and -Proto what the visitor called
    secret: what every request must bring in X-Workbench-Door; "" asks for nothing
    """

    hosts: Sequence[str] = LOCAL
    uploads: int = 20 * 1024 * MEGABYTE
    bodies: int = 64 * MEGABYTE
    frames: Sequence[str] = ()
    proxied: bool = False
    secret: str = ""


class Refused(Exception):
    """A request that is answered here."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Guard:
    """ASGI middleware that applies the rules to every request."""

    def __init__(self, app: App, rules: Rules | None = None) -> None:
        self.app, self.rules = app, rules or Rules()
        self._wrong: dict[str, deque[float]] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        try:
            scope = self._checked(scope)
        except Refused as refused:
            return await _answer(scope, send, refused)
        if scope["type"] == "websocket":
            return await self.app(scope, receive, send)
        meter = _Meter(receive, self._limit(scope["path"]))
        await self.app(scope, meter.receive, self._dressed(scope, send, meter))

    # ---- before

    def _checked(self, scope: Message) -> Message:
        headers = _headers(scope)
        path: str = scope["path"]
        # Gradio asks itself whether it is there, once, and learns nothing by it.
        if self.rules.secret and path != STARTED and headers.get("x-workbench-door") != self.rules.secret:
            raise Refused(421, "This is a visitor's own page; it is reached through the demo's address alone.")
        host = self._host(headers)
        self._check_origin(scope, headers, host)
        if UNUSED.match(path):
            raise Refused(404, "Not found.")
        if SERVED.match(path) and REMOTE.search(path[len(f"{API}/file") :]):
            raise Refused(403, "Files of this workspace are served, nothing from elsewhere.")
        if int(headers.get("content-length") or 0) > self._limit(path):
            raise Refused(413, f"A request may have {self._limit(path) // MEGABYTE} MB at most.")
        if scope.get("method") == "POST" and path.rstrip("/") == "/login":
            self._check_logins(_peer(scope))
        kept = [(name, value) for name, value in scope["headers"] if self._keeps(name)]
        return {**scope, "headers": kept}

    def _host(self, headers: dict[str, str]) -> str:
        """The name and port by which the server was called. Raises Refused for one that is not its own."""
        host = headers.get("host", "")
        if self.rules.proxied:
            host = headers.get("x-forwarded-host", host).split(",")[0].strip()
        if not _named(_name(host), self.rules.hosts):
            raise Refused(
                421, f"This server is not called {_name(host)[:80]!r}. If that is a name of it: start it with "
                f"--allow-host {_name(host)[:80]}",
            )  # fmt: skip
        return host

    def _check_origin(self, scope: Message, headers: dict[str, str], host: str) -> None:
        origin = headers.get("origin")
        if origin is not None and not self._ours(origin, host):
            raise Refused(403, "Another page may not use this one.")
        site = headers.get("sec-fetch-site", "none")
        if site in ("none", "same-origin"):
            return
        opened = headers.get("sec-fetch-mode") == "navigate" and scope.get("method") in ("GET", "HEAD")
        framed = headers.get("sec-fetch-dest") in ("iframe", "frame", "embed", "object")
        if not opened or scope["path"] not in DOORS or (framed and not self.rules.frames):
            raise Refused(403, "Another site may open this page, not use what is behind it.")

    def _ours(self, origin: str, host: str) -> bool:
        """Whether an Origin is this very page, or one by a name that was allowed by hand (a proxy's, of Jupyter)."""
        called = urlsplit(origin).netloc.lower()
        given = [name for name in self.rules.hosts if name not in LOCAL and name != ANY]
        return bool(called) and (called == host.lower() or _named(_name(called), given))

    def _limit(self, path: str) -> int:
        return self.rules.uploads if path.rstrip("/") == UPLOAD else self.rules.bodies

    def _keeps(self, name: bytes) -> bool:
        """What anybody may write into a request does not decide how the page calls itself."""
        return self.rules.proxied or not FORWARDED.fullmatch(name)

    def _check_logins(self, peer: str) -> None:
        times = self._wrong.get(peer, deque())
        while times and times[0] < time.monotonic() - LOGIN_SECONDS:
            times.popleft()
        if len(times) >= LOGINS:
            raise Refused(429, "Too many wrong passwords: wait a minute.")

    # ---- after

    def _dressed(self, scope: Message, send: Send, meter: _Meter) -> Send:
        """The answer with our headers; 413 in place of what the application makes of a body that was cut off."""
        over = False

        async def dressed(message: Message) -> None:
            nonlocal over
            if over:
                return
            if message["type"] == "http.response.start":
                if meter.over:
                    over = True
                    await _answer(scope, send, Refused(413, "The request is too large."))
                    return
                self._note_login(scope, message["status"])
                ours = self._ours_headers(scope["path"])
                kept = [(name, value) for name, value in message.get("headers", []) if name.lower() not in ours]
                message = {**message, "headers": [*kept, *ours.items()]}
            await send(message)

        return dressed

    def _ours_headers(self, path: str) -> dict[bytes, bytes]:
        frames = " ".join(["frame-ancestors 'self'", *self.rules.frames])
        policy = f"{SANDBOX}; {frames}" if SERVED.match(path) else frames
        return {
            b"x-content-type-options": b"nosniff",
            b"referrer-policy": b"same-origin",
            b"content-security-policy": policy.encode(),
        }

    def _note_login(self, scope: Message, status: int) -> None:
        if scope.get("method") == "POST" and scope["path"].rstrip("/") == "/login" and status >= 400:
            self._wrong.setdefault(_peer(scope), deque(maxlen=LOGINS)).append(time.monotonic())


class _Meter:
    """Counts the bytes of a body as they come, and ends it where it is too long."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._left, self.over = receive, limit, False

    async def receive(self) -> Message:
        if self.over:
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                self.over = True
                return {"type": "http.request", "body": b"", "more_body": False}
        return message


def outermost(app: Any) -> None:
    """Put the guard of a started FastAPI application before all else that is around it, such as Gradio's own CORS
    headers, which would tell any page that it may read the answers."""
    guards = [one for one in app.user_middleware if one.cls is Guard]
    app.user_middleware[:] = [*guards, *(one for one in app.user_middleware if one.cls is not Guard)]
    app.middleware_stack = app.build_middleware_stack()


def own_names() -> list[str]:
    """What other machines may call this one: its name, and its addresses."""
    name = socket.gethostname().lower()
    families = (socket.AF_INET, socket.AF_INET6)
    addresses = [a.address for each in psutil.net_if_addrs().values() for a in each if a.family in families]
    plain = [address.split("%")[0] for address in addresses]
    return [*LOCAL, name, f"{name}.local", *(f"[{one}]" if ":" in one else one for one in plain)]


def _headers(scope: Message) -> dict[str, str]:
    """The request's headers by their names in small letters; of two of a name the first. Raises Refused."""
    found: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1").lower()
        if name in ("host", "origin", "content-length") and name in found:
            raise Refused(400, f"Two headers named {name}.")
        found.setdefault(name, value.decode("latin-1"))
    if not (found.get("content-length") or "0").isdigit():
        raise Refused(400, "The content length is no number.")
    return found


def _name(host: str) -> str:
    """A host without its port, in small letters."""
    return re.sub(r":\d+$", "", host.strip().lower())


def _named(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name is one of these, of which * stands for anything."""
    return any(re.fullmatch(re.escape(pattern.lower()).replace(r"\*", ".*"), name) for pattern in patterns if name)


def _peer(scope: Message) -> str:
    return str((scope.get("client") or ("",))[0])


async def _answer(scope: Message, send: Send, refused: Refused) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": str(refused)})
        return
    body = str(refused).encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()),
               (b"x-content-type-options", b"nosniff"), (b"connection", b"close")]  # fmt: skip
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
