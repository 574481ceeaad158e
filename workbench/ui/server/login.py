"""Log in to the page with the token in the printed address or with a password, then with a cookie.

    GET /?token=TOKEN   set the cookie and redirect to the page, so that the token does not stay in the address
    POST /login         the same for a password (or token) from a form or from gradio_client
    GET /logout         remove the cookie

    Authorization: Bearer TOKEN    for programs, only for the API: the token from `workbench api-token`

All other requests get 401 before they reach the application, and their bodies are not read. The cookie is signed with a
key in the workspace that only its owner can read, so an open page survives a restart. It is set per port and path, not
per user, and grants everything that the page can do.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import html
import ipaddress
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from workbench.api.key import api_token_of, server_key
from workbench.ui.server.bodies import Refusal, route_of, whole
from workbench.ui.server.guard import API, peer_of

COOKIE = "workbench"
KEPT_SECONDS = 30 * 24 * 3600
FORM_BYTES, FORM_SECONDS = 8192, 10.0
# Headers of every answer. Closing the connection stops the rest of a body.
CLOSED = {"cache-control": "no-store", "connection": "close"}
PROGRAMS = "/api/v1"  # the HTTP API
FREE = 4  # wrong attempts without a delay
LONGEST = 30.0  # seconds between two attempts
WAITING = 8  # attempts per address that may wait
ADDRESSES = 4096  # addresses to remember; the least recent is forgotten first
FORGOTTEN = 900.0  # seconds without an attempt after which the count restarts
OPEN = (f"{API}/startup-events",)  # Gradio requests it from itself once; it reveals nothing
STYLE = "body{font:16px/1.5 system-ui,sans-serif;max-width:30rem;margin:18vh auto;padding:0 1.2rem;color:#1d2738;\
background:#fff}h1{font-size:1.3rem}input,button{font:inherit;padding:.45rem .7rem;border-radius:6px;border:1px solid \
#8a94a6}input{width:16rem}button{background:#2f6fd0;color:#fff;border-color:#2f6fd0}.problem{color:#c0362c}\
@media(prefers-color-scheme:dark){body{color:#e6ebf4;background:#111827}input{background:#1d2738;color:inherit}}"
FORMS = {
    "token": ("Token", "Open the address with the token that was printed in the terminal, or enter the token here."),
    "password": ("Password", "This page asks for the password it was started with."),
}
WRONG = {  # messages for a token in the address
    "token": "This token is not valid. The page makes a new one each time it starts.",
    "password": "This page was started with a password, so a token does not open it.",
}


@dataclass(frozen=True)
class Access:
    """What opens the page."""

    kind: str  # "token" (printed and new at each start) or "password" (chosen by a person)
    secret: str = field(repr=False)  # the token or password
    key: bytes = field(repr=False)  # signs cookies
    frames: bool = False  # another site may show the page in a frame. Its cookies must be marked for that.
    api_token: str = field(default="", repr=False)  # token of programs, or ""

    @classmethod
    def made(cls, folder: Path, password: str = "", frames: Sequence[str] = ()) -> Access:
        """Make access with a password, or a new token. folder: holds the key that signs cookies."""
        key, framed, api_token = server_key(folder), bool(frames), api_token_of(folder)
        if password:
            return cls("password", password, hashlib.sha256(key + password.encode()).digest(), framed, api_token)
        return cls("token", secrets.token_urlsafe(32), key, framed, api_token)

    def address(self, url: str) -> str:
        """Return the address to open in a browser, with the token if there is one."""
        return f"{url}?token={self.secret}" if self.kind == "token" else url

    def is_secret(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.secret.encode("utf-8", "replace"))

    def is_api_token(self, header: str) -> bool:
        """Return whether an Authorization header has the API token."""
        scheme, _, given = header.partition(" ")
        right = hmac.compare_digest(given.encode("utf-8", "replace"), self.api_token.encode())
        return right and bool(self.api_token) and scheme.casefold() == "bearer"

    def cookie(self) -> str:
        until = str(int(time.time() + KEPT_SECONDS))
        return f"{until}.{self._signed(until)}"

    def is_cookie(self, value: str) -> bool:
        """Return whether a text is a cookie that was signed here and has not expired."""
        until, _, signature = value.partition(".")
        right = hmac.compare_digest(signature.encode("utf-8", "replace"), self._signed(until).encode())
        return right and until.isascii() and until.isdigit() and len(until) < 16 and int(until) > time.time()

    def _signed(self, text: str) -> str:
        return hmac.new(self.key, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


class Login:
    """ASGI middleware that refuses requests without a cookie of this page."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access, self.throttle = app, access, Throttle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        request, path = HTTPConnection(scope), route_of(scope)
        known = self.access.is_cookie(request.cookies.get(_cookie_name(scope), ""))
        if scope["type"] == "http" and path.startswith(f"{PROGRAMS}/"):
            known = known or self.access.is_api_token(request.headers.get("authorization", ""))
        answer: ASGIApp | None = None
        if scope["type"] == "http":
            answer = await self._answer(request, receive, path, known)
        if answer is None and not known and path not in OPEN:
            if scope["type"] == "websocket":
                answer = WebSocketClose(1008, "Log in first.")
            else:
                sentence = "Log in first: open the address that was printed in the terminal."
                answer = PlainTextResponse(sentence, 401, CLOSED)
        await (answer or self.app)(scope, receive, send)

    async def _answer(self, request: HTTPConnection, receive: Receive, path: str, known: bool) -> Response | None:
        """Answer requests that belong to the login. Returns None for all others."""
        method = request.scope["method"]
        if path.rstrip("/") == "/login" and method == "POST":
            return await self._log_in(request, receive)
        if path.rstrip("/") == "/logout" and known:
            return RedirectResponse("./", 303, self._with_cookie(request, ""))
        if path != "/" or method not in ("GET", "HEAD"):
            return None
        given = request.query_params.get("token")
        # A password in an address is never accepted.
        if given is not None and (known or (self.access.kind == "token" and self.access.is_secret(given))):
            rest = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
            return RedirectResponse(f"./?{rest}" if rest else "./", 303, self._with_cookie(request))
        if known:
            return None
        return HTMLResponse(_page(self.access.kind, "" if given is None else WRONG[self.access.kind]), headers=CLOSED)

    async def _log_in(self, request: HTTPConnection, receive: Receive) -> Response:
        try:
            body = await whole(receive, FORM_BYTES, FORM_SECONDS)
        except Refusal as refusal:
            if refusal.status == 400:
                return PlainTextResponse(refusal.sentence, 400, CLOSED)
            sentence = f"A login may take {FORM_BYTES} bytes and {FORM_SECONDS:.0f} seconds at most."
            return PlainTextResponse(sentence, 413, CLOSED)
        given = _field(body, "password")
        browser = "text/html" in request.headers.get("accept", "")
        problem, status, headers = f"Wrong {self.access.kind}.", 400, CLOSED
        try:
            if await self.throttle.check(peer_of(request.scope), lambda: self.access.is_secret(given)):
                headers = self._with_cookie(request)
                return (
                    RedirectResponse("./", 303, headers) if browser else JSONResponse({"success": True}, 200, headers)
                )
        except TooMany as error:
            problem, status, headers = str(error), 429, CLOSED | {"retry-after": str(int(error.seconds) + 1)}
        if browser:
            return HTMLResponse(_page(self.access.kind, problem), status, headers)
        return PlainTextResponse(problem, status, headers)

    def _with_cookie(self, request: HTTPConnection, value: str | None = None) -> dict[str, str]:
        """Return headers that set the cookie, or remove it if the value is empty."""
        value = self.access.cookie() if value is None else value
        scope = request.scope
        secure = "https" in (scope.get("scheme"), request.headers.get("x-forwarded-proto", "").split(",")[0].strip())
        below = urlsplit(scope.get("root_path") or "").path or "/"
        kept = KEPT_SECONDS if value else 0
        text = f"{_cookie_name(scope)}={value}; Path={below}; Max-Age={kept}; HttpOnly"
        site = "; SameSite=None; Secure; Partitioned" if secure and self.access.frames else "; SameSite=Lax"
        return CLOSED | {"set-cookie": text + site + ("; Secure" if secure and not self.access.frames else "")}


def cookie_name(port: int) -> str:
    """Return the name of the cookie. It contains the port, because browsers share a host's cookies between ports."""
    return f"{COOKIE}-{port}"


def _cookie_name(scope: Scope) -> str:
    return cookie_name((scope.get("server") or ("", 0))[1] or 0)


def _field(body: bytes, name: str) -> str:
    """Return a field of a form, or "" if it is missing or the body is not a form."""
    with contextlib.suppress(ValueError):
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=20)
        return fields.get(name, [""])[-1]
    return ""


def _page(kind: str, problem: str = "") -> str:
    label, text = FORMS[kind]
    alert = f'<p class="problem" role="alert">{html.escape(problem)}</p>' if problem else ""
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Video LoRA Workbench</title>
<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body><h1>Video LoRA Workbench</h1>
<p>{html.escape(text)}</p>{alert}<form method="post" action="login"><input type="hidden" name="username" value="me">
<input type="password" name="password" aria-label="{label}" placeholder="{label}" autofocus
autocomplete="current-password"> <button>Log in</button></form></body></html>"""


# ---- guessing secrets


class TooMany(Exception):
    """Too many attempts are waiting. seconds: when to try again."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Too many attempts: try again in {seconds:.0f} seconds.")
        self.seconds = seconds


@dataclass
class _Attempts:
    """Attempts from one address."""

    wrong: int = 0  # wrong attempts in a row
    free_at: float = 0.0  # when the next one may be checked, in seconds of the monotonic clock
    waiting: int = 0  # attempts that wait


class Throttle:
    """Limits how fast secrets can be guessed, with growing delays and without a lockout. For one event loop only.

    Attempts from one address are checked one after another, so parallel attempts are no faster. Each wrong one makes
    the next wait longer, up to half a minute. A right one waits its turn, gets in, and clears the count.
    """

    def __init__(self, longest: float = LONGEST) -> None:
        self._longest = longest
        self._by_network: OrderedDict[str, _Attempts] = OrderedDict()

    async def check(self, address: str, right: Callable[[], bool]) -> bool:
        """Call `right` when it is this attempt's turn, and return its result. Raises TooMany."""
        tries = self._tries(address)
        if tries.waiting >= WAITING:
            raise TooMany(max(tries.free_at - time.monotonic(), 1.0))
        tries.waiting += 1
        try:
            while (left := tries.free_at - time.monotonic()) > 0:
                await asyncio.sleep(left)
            # No await between here and the new delay, so that only one of the attempts that woke up is checked.
            if right():
                tries.wrong, tries.free_at = 0, 0.0
                return True
            tries.wrong += 1
            delay = min(2.0 ** (tries.wrong - FREE - 1), self._longest) if tries.wrong > FREE else 0.0
            tries.free_at = time.monotonic() + delay
            return False
        finally:
            tries.waiting -= 1

    def _tries(self, address: str) -> _Attempts:
        key = _network(address)
        tries = self._by_network.setdefault(key, _Attempts())
        self._by_network.move_to_end(key)
        if tries.wrong and not tries.waiting and time.monotonic() > tries.free_at + FORGOTTEN:
            tries.wrong = 0
        if len(self._by_network) > ADDRESSES:
            idle = next((old for old, other in self._by_network.items() if not other.waiting), key)
            if idle != key:
                del self._by_network[idle]
        return tries


def _network(address: str) -> str:
    """Return what one person usually has: an IPv4 address, an IPv6 /64 network, or all addresses of this machine."""
    try:
        known = ipaddress.ip_address(address.split("%")[0])
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv6Address) and known.ipv4_mapped:
        known = known.ipv4_mapped
    if known.is_loopback:
        return "loopback"
    return str(ipaddress.ip_network(f"{known}/64", strict=False)) if known.version == 6 else str(known)
