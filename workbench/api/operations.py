"""Routes generated from the operations: GET if an operation only reads, POST if it changes something.

A GET takes its inputs from the query string, a POST from a JSON object, and both from the path. A long-running
operation responds with 202 and a job; its `job` operation reads the job again.
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

Respond = Callable[[Any, int], Response]  # of (value, status)


def add_operations(app: FastAPI, workspace: Workspace, open_requests: OpenRequests, respond: Respond) -> None:
    """Add a route for each operation, and an event stream for each result that changes over time."""
    for op in operations():
        app.add_api_route(
            op.path,
            _endpoint(op, workspace, respond),
            methods=["POST" if op.changes else "GET"],
            status_code=op.status,
            summary=op.help.split("\n")[0].rstrip("."),
            description=op.help,
            response_model=op.returns,
            openapi_extra=_openapi(op),
        )
        if op.watch and not op.many:
            app.add_api_route(
                f"{op.path}/events",
                _events(op, workspace, open_requests),
                methods=["GET"],
                summary=f"The same as server-sent events, one for each change: {op.noun.removesuffix('s')}",
                openapi_extra=_openapi(op),
                response_class=StreamingResponse,
            )


def _endpoint(op: Operation, workspace: Workspace, respond: Respond) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        if op.changes:
            values = _parse_body(op, await request.body())
            if misplaced := op.inputs.model_fields.keys() & request.query_params.keys():
                raise ConfigError(f"{', '.join(sorted(misplaced))}: send it in the JSON body, not in the query string")
        else:
            values = _parse_texts(op, request.query_params.multi_items())
        values |= _parse_texts(op, list(request.path_params.items()))
        result = await asyncio.to_thread(op, workspace, values)
        return respond(op.plain(result), op.status)

    return endpoint


def _events(
    op: Operation, workspace: Workspace, open_requests: OpenRequests
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        given = [*request.query_params.multi_items(), *request.path_params.items()]
        read = await asyncio.to_thread(op.reader, workspace, _parse_texts(op, given))
        return open_requests.stream(events(op.noun.removesuffix("s"), read, request), "text/event-stream")

    return endpoint


def _parse_body(op: Operation, body: bytes) -> dict[str, Any]:
    """Parse a request's body.

    It may be empty if all inputs are in the path, or if some are and the others are optional. An operation whose path
    has no inputs never runs on its defaults alone. Raises ConfigError.
    """
    fields = op.inputs.model_fields
    in_body = [name for name in fields if f"{{{name}}}" not in op.path]
    if not body and (not in_body or ("{" in op.path and not any(fields[name].is_required() for name in in_body))):
        return {}
    return object_in(body)


def object_in(body: bytes) -> dict[str, Any]:
    """Parse a body. Raises ConfigError unless it is a JSON object."""
    try:
        values = json.loads(body)
    except ValueError as error:
        raise ConfigError(f"the body is not valid JSON ({error}): send an object with the inputs") from error
    if not isinstance(values, dict):
        raise ConfigError("the body is not a JSON object: send one with the inputs")
    return values


def _parse_texts(op: Operation, given: list[tuple[str, str]]) -> dict[str, Any]:
    """Parse the values of a query string or a path into numbers, booleans and lists."""
    known = {spec.name: spec for spec in specs(op.inputs)}
    values: dict[str, Any] = {}
    for name, text in given:
        spec = known.get(name)
        if spec is not None and spec.many:
            values[name] = [*values.get(name, []), from_text(spec, text)]
        else:
            values[name] = from_text(spec, text) if spec else text
    return values


def _openapi(op: Operation) -> dict[str, Any]:
    """Describe the input for the OpenAPI document."""
    schema = op.inputs.model_json_schema()
    required, fields = schema.get("required", []), schema.get("properties", {})
    places = {name: "path" if f"{{{name}}}" in op.path else "query" for name in fields}
    parameters = [
        {"name": name, "in": place, "required": name in required, "description": fields[name].get("description", "")}
        | {"schema": fields[name] if place == "query" else {"type": "string"}}
        for name, place in places.items()
        if place == "path" or not op.changes
    ]
    body = {"content": {"application/json": {"schema": schema}}}
    return {"parameters": parameters} | ({"requestBody": body} if op.changes and "query" in places.values() else {})
