"""The public address of the demo: an ASGI application that forwards a visitor's requests to their own session.

Visitors are recognized by a signed cookie. A session starts once the browser has returned the cookie, so programs that
only fetch the address cost little. The owner of a Space gets the full workbench instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import html
import ipaddress
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

from workbench.demo_space.sessions import DemoSession, DemoSessions, Full

COOKIE = "workbench-visitor"
STRANGER = "Open the demo's page first: it makes a workspace of your own."
UPLOAD = "/gradio_api/upload"
# Headers of the connection, which a proxy does not forward.
HOP = {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection"}
BUSY, STARTING, NO_COOKIES, EXPIRED = range(4)
PAGES = {
    BUSY: (
        503,
        "All sessions are in use",
        "This demo gives each visitor a workspace of their own. All workspaces, or all for your network address, are "
        "in use. This page tries again every 15 seconds.",
        15,
    ),
    STARTING: (
        200,
        "Preparing your workspace",
        "Creating your private workspace takes a few seconds. It is removed after you leave.",
        1,
    ),
    NO_COOKIES: (
        200,
        "This browser keeps no cookies here",
        "The demo recognizes you by a cookie, which your browser blocks inside another site's page.",
        None,
    ),
    EXPIRED: (
        410,
        "This workspace is gone",
        "It was idle for too long, or reached the demo's time limit. Reload the page for a new one.",
        None,
    ),
}
STYLE = "body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:18vh auto;padding:0 1.2rem;color:#1d2738;\
background:#fff}h1{font-size:1.3rem}a{color:#2f6fd0}@media(prefers-color-scheme:dark){body{color:#e6ebf4;\
background:#111827}a{color:#6aa3f5}}"


class SessionProxy:
    """The proxy in front of all visitors' sessions.

    framed: Whether another site shows the demo in a frame, as for a Space. Its cookies must be marked for that.
    is_owner: Returns whether a request comes from the owner, who gets the session that `owner_session` returns.
    """

    def __init__(
        self,
        sessions: DemoSessions,
        framed: bool = False,
        is_owner: Callable[[Request], bool] = lambda _: False,
        owner_session: Callable[[], DemoSession] | None = None,
    ) -> None:
        self.sessions, self.framed, self.is_owner, self.owner_session = sessions, framed, is_owner, owner_session
        self._key = secrets.token_bytes(32)
        self._client: httpx.AsyncClient | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await _lifespan(receive, send)
        if scope["type"] == "http":
            response = await self._answer(Request(scope, receive))
            await response(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def refusal(self, scope: Any) -> str:
        """Return why to refuse a request before reading its body: the sender has no session. Otherwise ""."""
        request = Request(scope)
        known = self._visitor(request) or (self.owner_session is not None and self.is_owner(request))
        return "" if known else STRANGER

    async def _answer(self, request: Request) -> Response:
        if self.owner_session is not None and self.is_owner(request):
            own = await run_in_threadpool(self.owner_session)
            return await self._forward(request, own) if own.port else self._page(STARTING, request)
        visitor = self._visitor(request)
        opened = request.url.path == "/" and request.method in ("GET", "HEAD")
        if not visitor:
            if not opened:
                return PlainTextResponse(STRANGER, 401)
            return self._welcome(request)
        session = self.sessions.get(visitor)
        if session is None and opened:
            session = await run_in_threadpool(self.sessions.open, visitor, _address(request))
            if session is None:
                return self._page(BUSY, request)
        if session is None:
            return self._page(EXPIRED, request)
        if not session.port:
            return self._page(STARTING, request)
        return await (self._upload if request.url.path.rstrip("/") == UPLOAD else self._forward)(request, session)

    # ---- visitors

    def _visitor(self, request: Request) -> str:
        """Return the visitor's name, or "" without a valid cookie."""
        name, _, signature = request.cookies.get(COOKIE, "").partition(".")
        return signature if name and hmac.compare_digest(signature.encode(), self._sign(name).encode()) else ""

    def _sign(self, name: str) -> str:
        return hmac.new(self._key, name.encode(), hashlib.sha256).hexdigest()

    def _welcome(self, request: Request) -> Response:
        """Set a cookie and check whether it comes back."""
        if "text/html" not in request.headers.get("accept", ""):
            return PlainTextResponse("Video LoRA Workbench: open this address in a browser.")
        if request.query_params.get("visit"):
            return self._page(NO_COOKIES, request)
        answer = RedirectResponse("/?visit=1", 303, {"cache-control": "no-store"})
        name = secrets.token_urlsafe(32)
        value = f"{COOKIE}={name}.{self._sign(name)}; HttpOnly; Path=/; "
        answer.headers["set-cookie"] = value + ("SameSite=None; Secure; Partitioned" if self.framed else "SameSite=Lax")
        return answer

    # ---- forwarding

    async def _upload(self, request: Request, session: DemoSession) -> Response:
        length = request.headers.get("content-length", "")
        try:
            size = int(length) if length.isdecimal() else None
            reserved = await run_in_threadpool(self.sessions.reserve, session, size)
        except Full as full:
            return PlainTextResponse(str(full), 413)
        try:
            return await self._forward(request, session)
        finally:
            self.sessions.release(session, reserved)

    async def _forward(self, request: Request, session: DemoSession) -> Response:
        if self._client is None:  # made inside the event loop that uses it
            self._client = httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None), trust_env=False)
        dropped = {*HOP, b"cookie", b"x-workbench-proxy"}
        headers = [(name, value) for name, value in request.headers.raw if name not in dropped]
        headers.append((b"x-workbench-proxy", session.secret.encode()))
        if (cookies := _own_cookies(request)) is not None:
            headers.append((b"cookie", cookies))
        raw = request.scope.get("raw_path") or request.url.path.encode()
        if query := request.scope.get("query_string"):
            raw += b"?" + query
        try:
            url = httpx.URL(f"http://127.0.0.1:{session.port}").copy_with(raw_path=raw)
        except (httpx.InvalidURL, UnicodeError):
            return PlainTextResponse("This is not an address of the demo.", 400)
        length = request.headers.get("content-length", "0")
        body = request.stream() if length != "0" or "transfer-encoding" in request.headers else None
        forwarded = self._client.build_request(request.method, url, headers=headers, content=body)
        try:
            answer = await self._client.send(forwarded, stream=True)
        except httpx.TransportError:
            return self._page(EXPIRED if session.broken else STARTING, request)
        response = StreamingResponse(_bytes(answer), answer.status_code, background=BackgroundTask(answer.aclose))
        kept = [(name.lower(), value) for name, value in answer.headers.raw]
        response.raw_headers = [(name, value) for name, value in kept if name not in {*HOP, b"server", b"date"}]
        return response

    def _page(self, which: int, request: Request) -> Response:
        status, title, text, again = PAGES[which]
        if request.url.path != "/":
            return PlainTextResponse(f"{title}. {text}", status if status != 200 else 503)
        refresh = f'<meta http-equiv="refresh" content="{again}">' if again else ""
        link = '<p><a href="/" target="_blank" rel="noopener">Open the demo in a tab of its own</a></p>'
        page = f"""<!doctype html><html lang="en"><head><meta charset="utf-8">{refresh}
<title>{html.escape(title)}</title>
<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body><h1>{html.escape(title)}</h1>
<p>{html.escape(text)}</p>{link if which == NO_COOKIES else ""}</body></html>"""
        return HTMLResponse(page, status, {"cache-control": "no-store"})


async def _bytes(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    except httpx.TransportError:  # the session was removed while answering
        return
    finally:
        await answer.aclose()


def _own_cookies(request: Request) -> bytes | None:
    """Return the cookies for the session, without those of the proxy and of a login."""
    given = [part.strip() for name, value in request.headers.raw if name == b"cookie" for part in value.split(b";")]
    kept = [part for part in given if part.partition(b"=")[0].strip() not in (COOKIE.encode(), b"session")]
    return b"; ".join(kept) or None


def _address(request: Request) -> str:
    """Return a visitor's IPv4 address or IPv6 /64 network.

    Behind a Space's proxies it is the last public address that they added. Anybody can forge the ones before it.
    """
    noted = request.headers.get("x-forwarded-for", "").split(",")
    for host in reversed(noted):
        with contextlib.suppress(ValueError):
            if (address := ipaddress.ip_address(host.strip())).is_global:
                return str(ipaddress.ip_network((address, 64), strict=False) if address.version == 6 else address)
    return request.client.host if request.client else ""


async def _lifespan(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
