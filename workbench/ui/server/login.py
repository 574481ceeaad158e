"""Who may use the page: whoever brings the token of the printed address, or the password, and from then on a cookie.

    GET /?token=TOKEN   sets the cookie and goes on to the page, so that the token does not stay in the address
    POST /login         the same for the password (or the token) from a form, as gradio_client sends it, too
    GET /logout         takes the cookie back

Everything else is answered with 401 before it reaches the application: no request without the cookie costs
memory, and no body is read. The cookie is signed with a key that lies in the workspace, readable for its owner alone,
so that an open page goes on after a restart. It is kept per port and per path, not per user: whoever has it can do all
that the page can. Not covered: names and origins (guard), visitors of the demo (workbench.demo_space).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import html
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from workbench.ui.server.bodies import App, Message, Receive, Send, route_of
from workbench.ui.server.guard import API, headers_of, peer_of
from workbench.ui.server.throttle import Throttle, TooMany

KEY_FILE = ".page-key"  # of the workspace
KEY_BYTES = 32
COOKIE = "workbench"
KEPT_SECONDS = 30 * 24 * 3600
FORM_BYTES, FORM_SECONDS = 8192, 10.0
OPEN = (f"{API}/startup-events",)  # Gradio asks itself whether it is there, once, and learns nothing by it
STYLE = "body{font:16px/1.5 system-ui,sans-serif;max-width:30rem;margin:18vh auto;padding:0 1.2rem;color:#1d2738;\
background:#fff}h1{font-size:1.3rem}input,button{font:inherit;padding:.45rem .7rem;border-radius:6px;border:1px solid \
#8a94a6}input{width:16rem}button{background:#2f6fd0;color:#fff;border-color:#2f6fd0}.problem{color:#c0362c}\
@media(prefers-color-scheme:dark){body{color:#e6ebf4;background:#111827}input{background:#1d2738;color:inherit}}"
FORMS = {
    "token": ("Token", "Open the address that was printed in the terminal, with the token in it; or enter the token."),
    "password": ("Password", "This page asks for the password it was started with."),
}


@dataclass(frozen=True)
class Access:
    """What opens the page. kind: "token" (printed, made at each start) or "password" (the person's own)
    key: signs cookies; frames: whether another site may show the page, whose cookies must be marked for that
    """

    kind: str
    secret: str = field(repr=False)
    key: bytes = field(repr=False)
    frames: bool = False

    @classmethod
    def made(cls, folder: Path, password: str = "", frames: Sequence[str] = ()) -> Access:
        """With a password, or a fresh token. folder: where the key that signs cookies is kept"""
        key = _key(folder / KEY_FILE)
        if password:
            return cls("password", password, hashlib.sha256(key + password.encode()).digest(), bool(frames))
        return cls("token", secrets.token_urlsafe(32), key, bool(frames))

    def address(self, url: str) -> str:
        """What to open in a browser: the page's address, with the token where there is one."""
        return f"{url}?token={self.secret}" if self.kind == "token" else url

    def is_secret(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.secret.encode("utf-8", "replace"))

    def cookie(self) -> str:
        until = str(int(time.time() + KEPT_SECONDS))
        return f"{until}.{self._signed(until)}"

    def is_cookie(self, value: str) -> bool:
        """Whether it was signed here and is not too old. Any text is accepted."""
        until, _, signature = value.partition(".")
        right = hmac.compare_digest(signature.encode("utf-8", "replace"), self._signed(until).encode())
        return right and until.isascii() and until.isdigit() and len(until) < 16 and int(until) > time.time()

    def _signed(self, text: str) -> str:
        return hmac.new(self.key, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


class Login:
    """ASGI middleware that lets nobody by who has no cookie of this page."""

    def __init__(self, app: App, access: Access, throttle: Throttle | None = None) -> None:
        self.app, self.access, self.throttle = app, access, throttle or Throttle()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        path = route_of(scope)
        known = self.access.is_cookie(_cookie(scope))
        if scope["type"] == "http":
            if path.rstrip("/") == "/login" and scope["method"] == "POST":
                return await self._log_in(scope, receive, send)
            if path.rstrip("/") == "/logout" and known:
                return await _answer(send, 303, "", ("location", "./"), self._set_cookie(scope, ""))
            if path == "/" and scope["method"] in ("GET", "HEAD"):
                given = _query(scope).get("token")
                if given is not None and (known or self._is_token(given)):
                    return await _answer(send, 303, "", _without_token(scope), self._set_cookie(scope))
                if not known:
                    wrong = "This token is not valid: the page was started again since." if given is not None else ""
                    return await _answer(send, 200, _page(self.access.kind, wrong), HTML)
        if known or path in OPEN:
            return await self.app(scope, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008, "reason": "Log in first."})
        await _answer(send, 401, "Log in first: open the page's address, as it was printed in the terminal.")

    def _is_token(self, given: str) -> bool:
        """A password does not belong into an address."""
        return self.access.kind == "token" and self.access.is_secret(given)

    async def _log_in(self, scope: Message, receive: Receive, send: Send) -> None:
        browser = "text/html" in headers_of(scope).get("accept", "")
        body = await _read(receive)
        if body is None:
            return await _answer(send, 413, f"A login has {FORM_BYTES} bytes at most, and {FORM_SECONDS:.0f} seconds.")
        given = _field(body, "password")
        try:
            right = await self.throttle.check(peer_of(scope), lambda: self.access.is_secret(given))
        except TooMany as error:
            wait = ("retry-after", str(int(error.seconds) + 1))
            answer = _page(self.access.kind, str(error)) if browser else str(error)
            return await _answer(send, 429, answer, wait, *([HTML] if browser else []))
        if right and browser:
            await _answer(send, 303, "", ("location", "./"), self._set_cookie(scope))
        elif right:
            await _answer(send, 200, '{"success":true}', ("content-type", "application/json"), self._set_cookie(scope))
        elif browser:
            await _answer(send, 400, _page(self.access.kind, f"This {self.access.kind} is not right."), HTML)
        else:
            await _answer(send, 400, f"This {self.access.kind} is not right.")

    def _set_cookie(self, scope: Message, value: str | None = None) -> tuple[str, str]:
        """The header that gives the cookie; with an empty value the one that takes it back."""
        value = self.access.cookie() if value is None else value
        headers = headers_of(scope)
        secure = "https" in (scope.get("scheme"), headers.get("x-forwarded-proto", "").split(",")[0].strip())
        below = urlsplit(scope.get("root_path") or "").path or "/"
        kept = KEPT_SECONDS if value else 0
        text = f"{_cookie_name(scope)}={value}; Path={below}; Max-Age={kept}; HttpOnly"
        site = "; SameSite=None; Secure; Partitioned" if secure and self.access.frames else "; SameSite=Lax"
        return "set-cookie", text + site + ("; Secure" if secure and not self.access.frames else "")


HTML = ("content-type", "text/html; charset=utf-8")


def _key(path: Path) -> bytes:
    """The key that signs cookies, made once; where it cannot be kept, one that ends with this process."""
    fresh = secrets.token_bytes(KEY_BYTES)
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError), os.fdopen(_created(path), "wb") as file:
            file.write(fresh)
        kept = path.read_bytes()
        if len(kept) == KEY_BYTES:
            return kept
        path.unlink()  # cut short by a full disk or a crash
        with os.fdopen(_created(path), "wb") as file:
            file.write(fresh)
    return fresh


def _created(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)


def _cookie_name(scope: Message) -> str:
    """Cookies are kept per host, whatever the port: two pages on one machine need two names."""
    return f"{COOKIE}-{(scope.get('server') or ('', 0))[1] or 0}"


def _cookie(scope: Message) -> str:
    """The value of our cookie; "" where there is none."""
    name = _cookie_name(scope)
    for raw, value in scope["headers"]:
        if raw.lower() == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, _, found = part.strip().partition("=")
                if key == name:
                    return str(found)
    return ""


def _query(scope: Message) -> dict[str, str]:
    return dict(parse_qsl(scope.get("query_string", b"")[:4096].decode("latin-1"), keep_blank_values=True))


def _without_token(scope: Message) -> tuple[str, str]:
    rest = urlencode({name: value for name, value in _query(scope).items() if name != "token"})
    return "location", f"./?{rest}" if rest else "./"


async def _read(receive: Receive) -> bytes | None:
    """The body of a login; None when it is too long, too slow or broken off."""
    body = b""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FORM_SECONDS):
            while len(body) <= FORM_BYTES:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                body += message.get("body", b"")
                if not message.get("more_body"):
                    return body if len(body) <= FORM_BYTES else None
    return None


def _field(body: bytes, name: str) -> str:
    """A field of a form, "" where there is none or the body is no form."""
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


async def _answer(send: Send, status: int, text: str, *headers: tuple[str, str]) -> None:
    """The connection is closed after it, so that nothing more of a body is waited for."""
    body = text.encode()
    common: dict[str, Any] = {"content-type": "text/plain; charset=utf-8", "cache-control": "no-store"}
    common |= {"content-length": str(len(body)), "connection": "close", **dict(headers)}
    raw = [(name.encode("latin-1"), str(value).encode("latin-1")) for name, value in common.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
