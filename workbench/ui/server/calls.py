"""Check calls of the page's handlers before Gradio makes a session for them.

Gradio does not check session names, handler numbers and values. It keeps state for every new name and answers
unexpected input with 500. Here a call that the page would not make gets 400 or 404 at no cost, and only the newest
sessions with unread answers are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

from workbench.ui.server.bodies import Refusal, route_of

API = "/gradio_api"
CALL = re.compile(rf"{API}/(queue/join|(?:run|api|call|call/v2)/(?P<name>[^/]+))/?")
SERVER, CANCEL = f"{API}/component_server", f"{API}/cancel"
SESSION = re.compile(r"[A-Za-z0-9_-]{1,64}")
UNREAD = 200  # sessions that are kept with unread answers
MOST_DIGITS = 17  # of a number
UNKNOWN = "There is no such handler."


def check(scope: Scope, body: bytes) -> None:
    """Raise Refusal for a call that the page would not make. Other requests pass."""
    path, page = route_of(scope), getattr(scope.get("app"), "blocks", None)
    call = CALL.fullmatch(path)
    if page is None or not (call or path.rstrip("/") in (SERVER, CANCEL)):
        return
    if Headers(scope=scope).get("content-type", "").startswith("multipart/form-data"):  # a component's upload
        return
    fields = _object(body)
    if call:
        _check_call(page, fields, call["name"])
        _drop_unread(page)
    else:
        _check_session(fields)
    if path.rstrip("/") == SERVER:
        block = page.blocks.get(fields.get("component_id")) if isinstance(fields.get("component_id"), int) else None
        if not getattr(getattr(block, str(fields.get("fn_name")), None), "_is_server_fn", False):
            raise Refusal(404, UNKNOWN)


def _check_call(page: Any, fields: Mapping[str, Any], name: str | None) -> None:
    if name is None or "session_hash" in fields:
        _check_session(fields)
    number, data = fields.get("fn_index"), fields.get("data")
    if name is not None:
        number = next((key for key, one in page.fns.items() if one.api_name == name), None)
    if not isinstance(number, int) or number not in page.fns:
        raise Refusal(404, UNKNOWN)
    if not isinstance(data, list) or len(data) != len(page.fns[number].inputs):
        raise Refusal(400, "The values do not match this handler's inputs.")
    kinds = {"event_id": str, "trigger_id": int, "batched": bool}
    if wrong := [key for key, kind in kinds.items() if not isinstance(fields.get(key), kind | None)]:
        raise Refusal(400, f"{wrong[0]} has the wrong type.")


def _check_session(fields: Mapping[str, Any]) -> None:
    name = fields.get("session_hash")
    if not isinstance(name, str) or not SESSION.fullmatch(name):
        raise Refusal(400, "session_hash is not the name of a session.")


def _object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body, parse_constant=_no_number, parse_int=_whole, parse_float=_real)
    except ValueError:
        raise Refusal(400, "The request is not JSON.") from None
    if not isinstance(fields, dict):
        raise Refusal(400, "The request is not a JSON object.")
    return fields


def _no_number(text: str) -> float:
    """Refuse NaN and Infinity, which are not JSON, and numbers that the page would not send."""
    raise Refusal(400, f"{text[:40]} is not a number that this page accepts.")


def _whole(text: str) -> float:
    return int(text) if len(text) < MOST_DIGITS else _no_number(text)


def _real(text: str) -> float:
    return value if abs(value := float(text)) < 10.0**MOST_DIGITS else _no_number(text)


def _drop_unread(page: Any) -> None:
    """Drop the answers of the oldest sessions that fetch nothing. Fetching removes an answer."""
    queue = page._queue
    waiting, numbers = queue.pending_messages_per_session, queue.pending_event_ids_session
    unread = [name for name, answers in waiting.items() if answers.qsize()]
    for name in unread[: max(len(unread) - UNREAD, 0)]:
        del waiting[name]
    if len(numbers) > 2 * (len(waiting) + UNREAD):
        for name in [one for one in numbers if one not in waiting]:
            del numbers[name]
