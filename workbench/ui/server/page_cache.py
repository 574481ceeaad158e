"""Answers that are the same for everybody who has logged in, made once: the page itself, and Gradio's own files.

Gradio renders the page anew for each visitor, a second of work and a megabyte, though it depends on nothing but the
address that it was called by and what was built; and it compresses its files at each request. Here the first answer is
kept, compressed, and a browser that has it already is told so (304). This middleware is behind the login, so nothing of
it reaches anybody who has not logged in; nothing of a person is in it: Gradio's own login is not used, and answers with
cookies are not kept.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any
from urllib.parse import parse_qs

import brotli
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workbench.ui.server.bodies import route_of

FILES = re.compile(r"/(assets|static|svelte)/|/theme\.css$|/favicon\.ico$")
NAMED_BY_CONTENT = re.compile(r"/assets/.*-[\w-]{8}\.\w+")  # another content has another name
COMPRESSED = re.compile(r"text/|application/(javascript|json)|image/(svg\+xml|x-icon|vnd)")
# What the page depends on, beside what was built: all that Gradio takes the page's own address from.
ADDRESSED = ("host", "x-forwarded-host", "x-forwarded-proto", "x-gradio-server")
# Parts of an address that are for the browser alone. With others, of which Gradio reads some, the page is made anew.
OF_THE_BROWSER = {"tab", "__theme"}
NOT_PASSED_ON = (b"accept-encoding", b"if-none-match", b"if-modified-since")
KEPT_BYTES = 48 * 1024**2
END_OF_HEAD = b"</head>"
BEST = 11  # of Brotli's qualities


class Answer:
    """An answer that is kept, and its compressed forms as they are asked for.

    config: the page's, when it was made;  improving: what makes the page's form shorter, once it was asked for
    """

    improving: asyncio.Task[None] | None = None

    def __init__(self, kind: str, body: bytes, config: Any) -> None:
        self.kind, self.body, self.config = kind, body, config
        self.tag = hashlib.sha256(body).hexdigest()[:24]
        self._forms: dict[str, bytes] = {"": body}

    @property
    def size(self) -> int:
        return sum(map(len, self._forms.values()))

    async def form(self, accepted: str) -> tuple[str, bytes]:
        """The encoding that a browser accepts, "" for none, and the body in it."""
        known = {one.split(";")[0].strip() for one in accepted.split(",")}
        name = next((one for one in ("br", "gzip") if one in known and COMPRESSED.match(self.kind)), "")
        if name not in self._forms:
            self._forms[name] = await asyncio.to_thread(_compressed, name, self.body)
            if name == "br" and self.kind.startswith("text/html"):
                self.improving = asyncio.create_task(self._improve(name))
        return name, self._forms[name]

    async def _improve(self, name: str) -> None:
        """Make the page an eighth shorter: a second of work, for which nobody waits."""
        self._forms[name] = await asyncio.to_thread(_compressed, name, self.body, BEST)


class PageCache:
    """ASGI middleware that keeps the page and Gradio's files."""

    def __init__(self, app: ASGIApp, kept_bytes: int = KEPT_BYTES, head: str = "") -> None:
        """head: HTML that the page's head ends with; what Gradio is given for it comes there once Gradio has started"""
        self.app, self._most, self._head = app, kept_bytes, head.encode()
        self._kept: OrderedDict[Hashable, Answer] = OrderedDict()
        self._making = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = _key(scope)
        if key is None:
            return await (self._anew if _is_page(scope) else self.app)(scope, receive, send)
        config = getattr(getattr(scope.get("app"), "blocks", None), "config", None)
        messages: list[Message] = []
        async with self._making:  # of many who ask at once, one has it made
            answer = self._kept.get(key)
            if answer is None or answer.config is not config:
                messages = await self._fetched(scope, receive)
                answer = _kept(messages, config, self._head)
            if answer:
                encoding, body = await answer.form(Headers(scope=scope).get("accept-encoding", ""))
                self._keep(key, answer)
        if answer:
            return await _response(scope, answer, encoding, body)(scope, receive, send)
        for message in messages:
            await send(message)

    async def _anew(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the page at an address of which Gradio reads some part perhaps: nothing of it is kept."""
        messages = await self._fetched(scope, receive)
        answer = _kept(messages, None, self._head)
        if answer is None:
            for message in messages:
                await send(message)
            return
        accepted = Headers(scope=scope).get("accept-encoding", "")
        encoding, body = await answer.form("gzip" if "gzip" in accepted else "")
        headers = {"content-type": answer.kind, "vary": "accept-encoding", "cache-control": "private, no-cache"}
        await Response(body, headers=headers | ({"content-encoding": encoding} if encoding else {}))(
            scope, receive, send
        )

    async def _fetched(self, scope: Scope, receive: Receive) -> list[Message]:
        """The whole answer of the application, not compressed."""
        messages: list[Message] = []

        async def record(message: Message) -> None:
            messages.append(message)

        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in NOT_PASSED_ON]
        await self.app({**scope, "headers": headers}, receive, record)
        return messages

    def _keep(self, key: Hashable, answer: Answer) -> None:
        """Keep an answer, and forget what was used longest ago when there is too much."""
        self._kept[key] = answer
        self._kept.move_to_end(key)
        size = sum(kept.size for kept in self._kept.values())
        while size > self._most and len(self._kept) > 1:
            size -= self._kept.popitem(last=False)[1].size


def _is_page(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["method"] == "GET" and route_of(scope) == "/"


def _key(scope: Scope) -> Hashable | None:
    """What an answer depends on; None for a request whose answer is not kept."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    path, headers = route_of(scope), Headers(scope=scope)
    if "range" in headers:
        return None
    if FILES.match(path):
        return path
    names = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    if path != "/" or set(names) - OF_THE_BROWSER:
        return None
    address = scope["scheme"], scope["path"], scope.get("root_path", "")
    return (*address, *(tuple(headers.getlist(name)) for name in ADDRESSED))


def _kept(messages: list[Message], config: Any, head: bytes) -> Answer | None:
    """An answer as it is kept, `head` in the page; None for an error, one with a cookie, and one that is no whole."""
    start = messages[0] if messages else {}
    headers = Headers(raw=start.get("headers", []))
    whole = bool(messages) and messages[-1]["type"] == "http.response.body" and not messages[-1].get("more_body")
    if start.get("status") != 200 or "set-cookie" in headers or not whole:
        return None
    body = b"".join(message.get("body", b"") for message in messages[1:])
    kind = headers.get("content-type", "")
    if kind.startswith("text/html"):
        body = body.replace(END_OF_HEAD, head + END_OF_HEAD, 1)
    return Answer(kind, body, config)


def _compressed(encoding: str, body: bytes, quality: int = 9) -> bytes:
    return brotli.compress(body, quality=quality) if encoding == "br" else gzip.compress(body, quality)


def _response(scope: Scope, answer: Answer, encoding: str, body: bytes) -> Response:
    """The answer, or that the browser has it already."""
    tag = f'"{answer.tag}{"-" if encoding else ""}{encoding}"'
    lasting = NAMED_BY_CONTENT.fullmatch(route_of(scope))
    headers = {
        "content-type": answer.kind,
        "etag": tag,
        "vary": "accept-encoding",
        # The page is asked for each time: who has logged out gets the login, a new version is seen at once.
        "cache-control": "private, max-age=31536000, immutable" if lasting else "private, no-cache",
    }
    if tag in Headers(scope=scope).get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if encoding:
        headers["content-encoding"] = encoding
    return Response(body, headers=headers)
