"""Routes of the operations: `/NOUN/VERB`, GET for what looks and POST for what changes, made from their declarations.

A GET takes its inputs from the query string, a POST from a JSON object, and both from the path. A long-running
operation responds with 202 and its job, which the operation named as its `job` reads again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from workbench.api.open_requests import OpenRequests, events
from workbench.errors import ConfigError
from workbench.operations.registry import Operation, operations
from workbench.settings import from_text, specs
from workbench.workspace import Workspace

Answer = Callable[[Any, int], Response]


def add_operations(app: FastAPI, workspace: Workspace, open_requests: OpenRequests, answer: Answer) -> None:
    """Add a route for each operation, and one of events where its answer changes by itself.

    Args:
        answer: (value, status) -> the response.
    """
    for one in operations():
        app.add_api_route(
            one.path,
            _endpoint(one, workspace, answer),
            methods=["POST" if one.changes else "GET"],
            status_code=one.status,
            summary=one.help.split("\n")[0].rstrip("."),
            response_model=one.returns,
            openapi_extra=_described(one),
        )
        if one.watch and not one.many:
            app.add_api_route(
                f"{one.path}/events",
                _events(one, workspace, open_requests),
                methods=["GET"],
                summary=f"The same as server-sent events, one after each change: {one.noun.removesuffix('s')}",
                openapi_extra=_described(one),
                response_class=StreamingResponse,
            )


def _endpoint(one: Operation, workspace: Workspace, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        values = (
            _of_body(one, await request.body()) if one.changes else _of_texts(one, request.query_params.multi_items())
        )
        elsewhere = one.inputs.model_fields.keys() & request.query_params.keys() if one.changes else ()
        if elsewhere:
            raise ConfigError(f"{', '.join(sorted(elsewhere))}: send it in the JSON of the body, not in the address")
        values |= _of_texts(one, list(request.path_params.items()))
        made = await asyncio.to_thread(one, workspace, values)
        return answer(one.plain(made), one.status)

    return endpoint


def _events(
    one: Operation, workspace: Workspace, open_requests: OpenRequests
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        given = [*request.query_params.multi_items(), *request.path_params.items()]
        read = await asyncio.to_thread(one.reader, workspace, _of_texts(one, given))
        return open_requests.stream(events(one.noun.removesuffix("s"), read, request), "text/event-stream")

    return endpoint


def _of_body(one: Operation, body: bytes) -> dict[str, Any]:
    """The values of a body, which may be empty where the path names what is meant and all else has a default.

    Raises:
        ConfigError: Also for an empty body elsewhere: nothing is changed by its defaults alone.
    """
    fields = one.inputs.model_fields
    open_ones = [name for name in fields if f"{{{name}}}" not in one.path]
    if not body and (not open_ones or ("{" in one.path and not any(fields[name].is_required() for name in open_ones))):
        return {}
    return object_in(body)


def object_in(body: bytes) -> dict[str, Any]:
    """Parse a body. Raises ConfigError unless it is a JSON object."""
    try:
        values = json.loads(body)
    except ValueError as error:
        raise ConfigError(f"the body is no JSON ({error}): send an object of the operation's fields") from error
    if not isinstance(values, dict):
        raise ConfigError("the body is no JSON object: send one with the operation's fields")
    return values


def _of_texts(one: Operation, given: list[tuple[str, str]]) -> dict[str, Any]:
    """Parse the texts of a query or a path into numbers, switches and lists."""
    known = {spec.name: spec for spec in specs(one.inputs)}
    values: dict[str, Any] = {}
    for name, text in given:
        spec = known.get(name)
        if spec is not None and spec.many:
            values[name] = [*values.get(name, []), from_text(spec, text)]
        else:
            values[name] = from_text(spec, text) if spec else text
    return values


def _described(one: Operation) -> dict[str, Any]:
    """The input, for the API's document."""
    schema = one.inputs.model_json_schema()
    required, fields = schema.get("required", []), schema.get("properties", {})
    places = {name: "path" if f"{{{name}}}" in one.path else "query" for name in fields}
    parameters = [
        {"name": name, "in": place, "required": name in required, "description": fields[name].get("description", "")}
        | {"schema": fields[name] if place == "query" else {"type": "string"}}
        for name, place in places.items()
        if place == "path" or not one.changes
    ]
    body = {"content": {"application/json": {"schema": schema}}}
    return {"parameters": parameters} | ({"requestBody": body} if one.changes and "query" in places.values() else {})
