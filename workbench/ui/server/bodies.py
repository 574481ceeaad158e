"""Limits of request bodies: size, time, and the depth and number of values of JSON.

Uploads are streamed to the application. Other bodies are read to the end first, so that neither half a request nor one
that would exhaust a parser reaches the application.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

Check = Callable[[Scope, bytes], None]

UPLOAD = "/gradio_api/upload"
BODILESS = ("GET", "HEAD", "OPTIONS")
MEGABYTE = 1024**2
PIECE_SECONDS = 30.0  # between two pieces of an upload
WHOLE_SECONDS = 60.0  # for any other body
DEEPEST = 64  # nesting of lists and objects; the page's own requests nest ten deep at most
MOST_MARKS = 500_000  # commas, colons, brackets and quotes of a JSON text, which parses in a fifth of a second
LARGE = 64 * 1024  # bytes; larger bodies are checked in a thread
LATE, ABORTED = "The request came too slowly.", "The upload was interrupted."
OTHER_ENCODINGS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")  # json.loads would accept them
# Brackets, and strings so that brackets inside them are skipped. Possessive, so that no text takes long.
BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
# UTF-16 surrogates: a pair of JSON escapes is a character; a single escape, or one as bytes, is invalid.
PAIR = re.compile(rb"(?<!\\)(?:\\\\)*+\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
ESCAPED = re.compile(rb"(?<!\\)(?:\\\\)*+\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
SURROGATE = re.compile(rb"\xed[\xa0-\xbf]")


class Refusal(Exception):
    """A request that is refused before it reaches the application. As an ASGI application, it sends the refusal.

    It closes the connection, so that the rest of the request's body is not read.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            return await WebSocketClose(1008, self.sentence)(scope, receive, send)
        headers = {"connection": "close", "x-content-type-options": "nosniff"}
        await PlainTextResponse(self.sentence, self.status, headers)(scope, receive, send)


class Bodies:
    """ASGI middleware that limits bodies.

    uploads: Maximum bytes of an upload.
    bodies: Maximum bytes of any other body.
    check: A further check of a whole body, which raises Refusal.
    stranger: Returns why a request is refused before its body is read, or "".
    """

    def __init__(
        self,
        app: ASGIApp,
        uploads: int,
        bodies: int,
        check: Check = lambda *_: None,
        stranger: Callable[[Scope], str] = lambda _: "",
    ) -> None:
        self.app, self.uploads, self.bodies, self.check, self.stranger = app, uploads, bodies, check, stranger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        upload = route_of(scope).rstrip("/") == UPLOAD
        limit = self.uploads if upload else self.bodies
        try:
            if scope["method"] not in BODILESS and (sentence := self.stranger(scope)):
                raise Refusal(401, sentence)
            length = Headers(scope=scope).get("content-length", "")
            if length.isdecimal() and int(length) > limit:
                raise Refusal(413, f"A request may have {limit // MEGABYTE} MB at most.")
            if upload:
                return await self._pass_on(scope, Upload(receive, limit), send)
            if scope["method"] not in BODILESS:
                body = await whole(receive, limit)
                self.check(scope, body)
                receive = _given(body, receive)
        except Refusal as refused:
            return await refused(scope, receive, send)
        await self.app(scope, receive, send)

    async def _pass_on(self, scope: Scope, upload: Upload, send: Send) -> None:
        """Stream an upload to the application, and replace its answer if the upload is refused."""
        answered = started = False

        async def checked(message: Message) -> None:
            nonlocal answered, started
            if upload.refusal and not started:
                if not answered:
                    answered = True
                    await upload.refusal(scope, upload.receive, send)
                return
            started = True
            await send(message)

        try:
            await self.app(scope, upload.receive, checked)
        except MultiPartException:  # from an application that forwards the upload instead of parsing it
            if upload.refusal and not started and not answered:
                await upload.refusal(scope, upload.receive, send)


class Upload:
    """Stream an upload, and abort it if it is too long, too slow or ends early.

    `receive` then raises the exception after which Gradio's form parser removes what it has written. `refusal` is the
    answer.
    """

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._left, self._open = receive, limit, True
        self.refusal: Refusal | None = None

    async def receive(self) -> Message:
        if not self._open:
            return await self._receive()  # only the disconnect follows
        try:
            message = await asyncio.wait_for(self._receive(), PIECE_SECONDS)
        except TimeoutError:
            raise self._broken(408, LATE) from None
        if message["type"] != "http.request":
            raise self._broken(400, ABORTED)
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise self._broken(413, "The request is too large.")
        self._open = bool(message.get("more_body"))
        return message

    def _broken(self, status: int, sentence: str) -> MultiPartException:
        self._open, self.refusal = False, Refusal(status, sentence)
        return MultiPartException(sentence)


async def whole(receive: Receive, limit: int, seconds: float = 0) -> bytes:
    """Read a whole body of at most `limit` bytes. seconds: replaces WHOLE_SECONDS. Raises Refusal."""
    pieces, left = [], limit
    try:
        async with asyncio.timeout(seconds or WHOLE_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise Refusal(400, "The request was interrupted.")
                pieces.append(message.get("body", b""))
                left -= len(pieces[-1])
                if left < 0:
                    raise Refusal(413, "The request is too large.")
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise Refusal(408, LATE) from None
    body = b"".join(pieces)
    if len(body) > LARGE:
        await asyncio.to_thread(check_json, body)
    else:
        check_json(body)
    return body


def check_json(body: bytes) -> None:
    """Raise Refusal for JSON that would take long to parse. Other bodies pass."""
    if body.startswith(OTHER_ENCODINGS) or b"\0" in body[:4]:
        raise Refusal(400, "The request must be UTF-8 without a byte order mark.")
    if body.lstrip()[:1] not in (b"[", b"{"):
        return
    if too_many(body):
        raise Refusal(413, f"The request's JSON has more than {MOST_MARKS:,} commas, colons, brackets and quotes.")
    if too_deep(body):
        raise Refusal(400, f"The request's JSON is nested more than {DEEPEST} levels deep.")
    if b"\\u" in body or SURROGATE.search(body):
        check_characters(body)


def _given(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body in one piece, then the disconnect."""
    given = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replayed() -> Message:
        return next(given, None) or await receive()

    return replayed


def check_characters(body: bytes) -> None:
    """Raise Refusal for lone surrogates, which JSON may hold but files cannot."""
    whole = PAIR.sub(b"", body)
    if ESCAPED.search(whole) or SURROGATE.search(whole):
        raise Refusal(400, "The request's text holds half of a character (a lone surrogate): send it whole.")


def too_many(body: bytes) -> bool:
    """Return whether a JSON text may have too many values.

    Marks inside strings count, too, because telling them apart would take longer than parsing.
    """
    return sum(body.count(mark) for mark in (b",", b":", b"[", b"{", b'"')) > MOST_MARKS


def too_deep(body: bytes) -> bool:
    """Return whether a JSON text, valid or not, nests lists and objects deeper than DEEPEST."""
    depth = 0
    for found in BRACKETS.finditer(body):
        first = found[0][:1]
        if first in b"[{":
            depth += 1
            if depth > DEEPEST:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def route_of(scope: Scope) -> str:
    """Return the path that the application's routes match, without a proxy's prefix."""
    path, prefix = str(scope["path"]), str(scope.get("root_path") or "")
    below = path.removeprefix(prefix)
    return (below or "/") if below[:1] in ("", "/") else path


class Mounted:
    """A mounted application that also works behind a proxy that strips its prefix from the address.

    Such a request has the prefix only in `root_path`. The mounted application would find no route, because it strips
    the whole `root_path`, to which the mount has added its own path.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = str(scope.get("app_root_path") or "")
        if "path" in scope and not f"{scope['path']}/".startswith(f"{prefix}/"):
            scope = {**scope, "path": prefix + scope["path"]}
        await self.app(scope, receive, send)
