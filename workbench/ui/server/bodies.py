"""A request's body as it comes: how long it may be, how slow, how deep the JSON in it, and of how many values.

An upload is passed on piece by piece. Everything else is read to its end first, so that neither half a request nor one
that is built to exhaust a parser reaches the application.
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
PIECE_SECONDS = 30.0  # without a byte of an upload
WHOLE_SECONDS = 60.0  # for all of another body
DEEPEST = 64  # lists and objects within one another; the page's own have ten at most
MOST_MARKS = 500_000  # commas, colons, brackets and quotes of a JSON text: it is parsed in a fifth of a second
LARGE = 64 * 1024  # bytes of a body that is looked through by a thread, while others are answered
LATE, ABORTED = "The request came too slowly.", "The upload was broken off."
# A string counts for nothing, so that brackets in a caption do not; possessive, so that no text takes long.
OTHER_ENCODINGS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")  # that json.loads reads as well
BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


# UTF-16's halves of characters: written as escapes of JSON, of which two make a whole, or as bytes, which are no UTF-8.
PAIR = re.compile(rb"(?<!\\)(?:\\\\)*+\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
ESCAPED = re.compile(rb"(?<!\\)(?:\\\\)*+\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
SURROGATE = re.compile(rb"\xed[\xa0-\xbf]")


class Refusal(Exception):
    """A request that is answered before the application hears of it; called as an application, it is the answer.

    The connection is closed after it, so that no more of the request's body comes.
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
    """ASGI middleware that holds every body to these rules.

    uploads, bodies: bytes at most, of an upload and of all others
    check: a further check of a whole body; raises Refusal
    stranger: why a request is refused before its body is read, by its head; "" where it is not
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
        """Answers what is wrong with an upload in place of what the application makes of it."""
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
        except MultiPartException:  # of an application that passes it on elsewhere and reads no form
            if upload.refusal and not started and not answered:
                await upload.refusal(scope, upload.receive, send)


class Upload:
    """Passes an upload on, and breaks it off where it is too long, too slow or ends early.

    `receive` then raises what Gradio's reader of forms takes for a broken form: it removes what it has written so far.
    `refusal` says what to answer.
    """

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._left, self._open = receive, limit, True
        self.refusal: Refusal | None = None

    async def receive(self) -> Message:
        if not self._open:
            return await self._receive()  # what comes now is that the browser has gone
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
    """A body of so many bytes at most, read to its end; seconds: instead of WHOLE_SECONDS. Raises Refusal."""
    pieces, left = [], limit
    try:
        async with asyncio.timeout(seconds or WHOLE_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise Refusal(400, "The request was broken off.")
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
    """Refuse JSON that would take long to parse. Other bodies pass. Raises Refusal."""
    if body.startswith(OTHER_ENCODINGS) or b"\0" in body[:4]:
        raise Refusal(400, "The request must be UTF-8 without a byte order mark.")
    if body.lstrip()[:1] not in (b"[", b"{"):
        return
    if too_many(body):
        raise Refusal(413, f"The request's JSON has more than {MOST_MARKS:,} commas, colons, brackets and quotes.")
    if too_deep(body):
        raise Refusal(400, f"The request's JSON is deeper than {DEEPEST}.")
    if b"\\u" in body or SURROGATE.search(body):
        check_characters(body)


def _given(body: bytes, receive: Receive) -> Receive:
    """Passes a body on in one piece; what comes after it is that the browser has gone."""
    given = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def passed_on() -> Message:
        return next(given, None) or await receive()

    return passed_on


def check_characters(body: bytes) -> None:
    """Raises Refusal for halves of characters, which JSON may hold and no file can."""
    whole = PAIR.sub(b"", body)
    if ESCAPED.search(whole) or SURROGATE.search(whole):
        raise Refusal(400, "The request's text holds half of a character (a lone surrogate): send it whole.")


def too_many(body: bytes) -> bool:
    """Whether a JSON text may have too many values. What stands in its strings counts as well: telling it apart would
    take longer than parsing it."""
    return sum(body.count(mark) for mark in (b",", b":", b"[", b"{", b'"')) > MOST_MARKS


def too_deep(body: bytes) -> bool:
    """Whether a JSON text nests lists and objects deeper than DEEPEST; it need not be valid."""
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
    """The path within the application, as its routes are matched: without the prefix that a proxy put before it."""
    path, prefix = str(scope["path"]), str(scope.get("root_path") or "")
    below = path.removeprefix(prefix)
    return (below or "/") if below[:1] in ("", "/") else path


class Mounted:
    """An application at a path of ours, also behind a proxy that strips its prefix from the address.

    Such a request has the prefix in `root_path` alone; the application below the mount then finds no route of its own,
    because it takes off the whole `root_path`, which by now ends with the mount's path.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = str(scope.get("app_root_path") or "")
        if "path" in scope and not f"{scope['path']}/".startswith(f"{prefix}/"):
            scope = {**scope, "path": prefix + scope["path"]}
        await self.app(scope, receive, send)
