"""Checks of a call of one of the page's handlers, before Gradio makes a session for it.

Gradio takes a session's name, a handler's number and its values as they come, keeps something for every new name, and
answers what it did not expect with 500. Here a call that no page of ours makes gets 400 or 404, and costs nothing; and
of the sessions whose answers nobody fetches only the newest are kept.
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
UNREAD = 200  # sessions whose answers are kept though nobody has fetched them
MOST_DIGITS = 17  # of a number
UNKNOWN = "There is no such handler."


def check(scope: Scope, body: bytes) -> None:
    """Raises Refusal for a call that cannot be one of the page's. Other requests pass."""
    path, page = route_of(scope), getattr(scope.get("app"), "blocks", None)
    call = CALL.fullmatch(path)
    if page is None or not (call or path.rstrip("/") in (SERVER, CANCEL)):
        return
    if Headers(scope=scope).get("content-type", "").startswith("multipart/form-data"):  # of a component's own upload
        return
    fields = _object(body)
    if call:
        _check_call(page, fields, call["name"])
        _forget(page)
    else:
        _named(fields)
    if path.rstrip("/") == SERVER:
        block = page.blocks.get(fields.get("component_id")) if isinstance(fields.get("component_id"), int) else None
        if not getattr(getattr(block, str(fields.get("fn_name")), None), "_is_server_fn", False):
            raise Refusal(404, UNKNOWN)


def _check_call(page: Any, fields: Mapping[str, Any], name: str | None) -> None:
    if name is None or "session_hash" in fields:
        _named(fields)
    number, data = fields.get("fn_index"), fields.get("data")
    if name is not None:
        number = next((key for key, one in page.fns.items() if one.api_name == name), None)
    if not isinstance(number, int) or number not in page.fns:
        raise Refusal(404, UNKNOWN)
    if not isinstance(data, list) or len(data) != len(page.fns[number].inputs):
        raise Refusal(400, "The values are not those of this handler's inputs.")
    kinds = {"event_id": str, "trigger_id": int, "batched": bool}
    if wrong := [key for key, kind in kinds.items() if not isinstance(fields.get(key), kind | None)]:
        raise Refusal(400, f"{wrong[0]} is of the wrong kind.")


def _named(fields: Mapping[str, Any]) -> None:
    """Raises Refusal when the session has no proper name."""
    name = fields.get("session_hash")
    if not isinstance(name, str) or not SESSION.fullmatch(name):
        raise Refusal(400, "session_hash is no name of a session.")


def _object(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body, parse_constant=_no_number, parse_int=_whole, parse_float=_real)
    except ValueError:
        raise Refusal(400, "The request is no JSON.") from None
    if not isinstance(fields, dict):
        raise Refusal(400, "The request is no JSON object.")
    return fields


def _no_number(text: str) -> float:
    """NaN and Infinity are Python's, not JSON's, and numbers beyond these no page of ours sends."""
    raise Refusal(400, f"{text[:40]} is no number that this page takes.")


def _whole(text: str) -> float:
    return int(text) if len(text) < MOST_DIGITS else _no_number(text)


def _real(text: str) -> float:
    return value if abs(value := float(text)) < 10.0**MOST_DIGITS else _no_number(text)


def _forget(page: Any) -> None:
    """Drop the answers of the sessions that called first and fetch nothing; an answer that is fetched is gone."""
    queue = page._queue
    waiting, numbers = queue.pending_messages_per_session, queue.pending_event_ids_session
    unread = [name for name, answers in waiting.items() if answers.qsize()]
    for name in unread[: max(len(unread) - UNREAD, 0)]:
        del waiting[name]
    if len(numbers) > 2 * (len(waiting) + UNREAD):
        for name in [one for one in numbers if one not in waiting]:
            del numbers[name]
