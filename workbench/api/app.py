"""The routes of the HTTP API over one workspace. Responses hold what the page and the shell show, as JSON.

An error is {"error": sentence, "problems": {setting: sentence}} with status 400 for a bad value, 404 for an unknown
name, 409 for a busy device or a command that the run cannot take now, 429 for too many open requests, and 507 for a
full disk. docs/api.md has examples.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Annotated, Any

from fastapi import Body, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.routing import Route

from workbench.api.mcp import OverHttp
from workbench.api.open_requests import CountedStream, OpenRequests, TooManyOpen, wait_for_sample
from workbench.api.operations import add_operations, object_in
from workbench.api.watching import Watching
from workbench.dataset_builder import Dataset
from workbench.dataset_builder import library as dataset_library
from workbench.dataset_builder.export import export_stream
from workbench.dataset_builder.settings import ExportSettings, LayoutName
from workbench.display.inline_html import escaped
from workbench.errors import (
    CannotWrite,
    ConfigError,
    DataError,
    DeviceBusy,
    ModelUnavailable,
    NotNow,
    ResumeRefused,
    Unknown,
    WorkbenchError,
)
from workbench.operations import datasets
from workbench.operations.samples import Requested, request_of, submitted
from workbench.runs.run import Run
from workbench.sampler import queue
from workbench.sampler.samples import Samples, zip_contents
from workbench.sampler.settings import BatchSettings, SampleSettings
from workbench.settings import parse
from workbench.workspace import Workspace, finite
from workbench.workspace.lora_names import why_none
from workbench.workspace.zip_stream import zip_stream

COMPRESSED_BYTES = 2000  # larger responses are compressed
ROOT = "/api/v1"
MOST_SECONDS = 600.0  # the longest that a request may wait for a sample


# The first match wins.
STATUS: dict[type[WorkbenchError], int] = {
    Unknown: 404,
    NotNow: 409,
    TooManyOpen: 429,
    ConfigError: 400,
    DataError: 400,
    DeviceBusy: 409,
    ResumeRefused: 409,
    ModelUnavailable: 502,
    CannotWrite: 507,
}


class DatasetChange(BaseModel):
    """Changes to a dataset. A new title also changes its name."""

    model_config = ConfigDict(extra="forbid")

    title: str | None = Field(default=None, max_length=200)
    notes: str | None = None
    group: str | None = None


Values = Annotated[dict[str, Any], Body(description="Settings that differ from their defaults.")]
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS)]


def api(workspace: Workspace) -> FastAPI:
    """Create the API as an application to be mounted at ROOT."""
    app = FastAPI(
        title="Video LoRA Workbench",
        version="1",
        docs_url=None,
        redoc_url=None,
        default_response_class=AnyJSON,
        redirect_slashes=False,  # redirecting fails for names that are not valid UTF-8
    )
    app.add_exception_handler(WorkbenchError, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _no_such_route)
    open_requests = OpenRequests()

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    def docs(request: Request) -> str:
        return reference(app.openapi(), f"{request.scope.get('root_path', '')}")

    _datasets(app, workspace, open_requests)
    _runs_and_samples(app, workspace, open_requests)
    add_operations(app, workspace, open_requests, AnyJSON)
    _elements(app, workspace)
    tools = Route("/mcp", OverHttp(workspace), methods=["GET", "POST", "DELETE"], include_in_schema=False)
    app.router.routes.append(tools)
    return app


def _elements(app: FastAPI, workspace: Workspace) -> None:
    watching = Watching(workspace)

    @app.post("/call/{noun}/{verb}", include_in_schema=False)
    async def call(noun: str, verb: str, request: Request) -> Response:
        values = object_in(await request.body() or b"{}")
        response = AnyJSON(await watching.call(f"{noun}/{verb}", values), 200)
        if len(response.body) > COMPRESSED_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
            response.body = await asyncio.to_thread(gzip.compress, bytes(response.body), 6)
            response.headers.update({"content-encoding": "gzip", "content-length": str(len(response.body))})
        return response

    @app.get("/watch", include_in_schema=False)
    async def watch(what: str, request: Request) -> Response:
        shown = await asyncio.to_thread(watching.open, what)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(watching.events(shown, request), media_type="text/event-stream", headers=headers)


def _datasets(app: FastAPI, workspace: Workspace, open_requests: OpenRequests) -> None:
    @app.get("/datasets", summary="List the names of the datasets; search: only those with these words")
    def names(search: str = "") -> list[str]:
        return [one.name for one in datasets.list_(workspace, search=search)]

    @app.patch("/datasets/{name}", summary="Rename a dataset, replace its notes, or change its group")
    def change(name: str, new: DatasetChange) -> datasets.Details:
        dataset = Dataset.open(workspace, name)
        datasets.note(dataset, new.notes)
        datasets.group(dataset, new.group)
        if new.title is not None:
            dataset = dataset_library.rename(workspace, dataset, new.title)
        return datasets.show(workspace, dataset)

    @app.delete("/datasets/{name}", summary="Move a dataset to the bin")
    def remove(name: str) -> dict[str, str]:
        return {"message": dataset_library.remove(workspace, Dataset.open(workspace, name))}

    @app.get("/datasets/{name}/export", summary="Download a dataset as a zip; layout: the tool it is for")
    async def export(name: str, layout: LayoutName = "videofolder", trigger_word: bool = True) -> CountedStream:
        dataset = await asyncio.to_thread(Dataset.open, workspace, name)
        settings = ExportSettings(layout=layout, trigger_word=trigger_word)
        return open_requests.zip(await asyncio.to_thread(export_stream, dataset.folder, settings), name)

    @app.get("/removed-datasets", summary="List the ids of the removed datasets, last removed first")
    def removed() -> list[str]:
        return [one.id for one in datasets.bin_(workspace)]


def _runs_and_samples(app: FastAPI, workspace: Workspace, open_requests: OpenRequests) -> None:
    @app.get("/runs/{name}/lora", summary="Download the LoRA of a finished run as a safetensors file")
    def lora(name: str) -> FileResponse:
        run = Run.open(workspace, name)
        if run.lora is None:
            raise Unknown(f"the run {name!r} {why_none(workspace, name)}")
        return FileResponse(run.lora, filename=f"{name}.safetensors")

    @app.get("/samples/export", summary="Download samples and their settings as a zip; id: repeat it for several")
    async def export(id: Annotated[list[str], Query(min_length=1, max_length=1000)]) -> CountedStream:
        chosen = [await asyncio.to_thread(Samples(workspace).get, one) for one in dict.fromkeys(id)]
        return open_requests.zip(zip_stream(zip_contents(chosen, workspace.root)), "samples")

    @app.post("/samples/batch", status_code=202, summary="Request several samples: each_line, videos, scenes (joined)")
    def request_samples(settings: Values) -> list[Requested]:
        of_batch = {name: value for name, value in settings.items() if name in BatchSettings.model_fields}
        of_sample = {name: value for name, value in settings.items() if name not in of_batch}
        batch = parse(BatchSettings, of_batch)
        ids = submitted(workspace, parse(SampleSettings, of_sample), batch)
        return [request_of(queue.progress(workspace, one)) for one in ids]

    @app.get("/samples/{sample}", summary="Show the progress of a sample; wait: how many seconds to wait for it")
    async def sample(sample: str, request: Request, wait: Seconds = 0) -> Requested:
        found = await asyncio.to_thread(queue.progress, workspace, sample)
        if wait and not found.state.over:
            with open_requests.one():
                found = await wait_for_sample(workspace, sample, wait, request)
        return request_of(found)

    @app.get("/samples/{sample}/video", summary="Download the video of a sample as mp4")
    def video(sample: str) -> FileResponse:
        return FileResponse(Samples(workspace).get(sample).video, media_type="video/mp4")


class AnyJSON(JSONResponse):
    """JSON of any content: NaN and infinity become null, lone surrogates are escaped."""

    def render(self, content: Any) -> bytes:
        try:
            return super().render(content)
        except ValueError:
            return json.dumps(finite(content), separators=(",", ":")).encode()


async def _refused(_: Request, error: Exception) -> JSONResponse:
    code = next((STATUS[kind] for kind in STATUS if isinstance(error, kind)), 500)
    return AnyJSON({"error": str(error), "problems": getattr(error, "problems", {})}, code)


async def _malformed(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = {".".join(map(str, one["loc"])): str(one["msg"]) for one in error.errors()}
    sentence = "; ".join(f"{field}: {message}" for field, message in problems.items())
    return AnyJSON({"error": sentence, "problems": problems}, 400)


async def _no_such_route(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    where = f"{request.scope.get('root_path') or ROOT}/docs"
    sentence = f"{request.method} {request.url.path[:200]}: {error.detail}; see the list of calls at {where}"
    return AnyJSON({"error": sentence, "problems": {}}, error.status_code, error.headers)


# ---- the reference page; Swagger's own would load scripts from another site

STYLE = "body{font:15px/1.5 system-ui,sans-serif;max-width:52rem;margin:3rem auto;padding:0 1.2rem;color:#1d2738}\
code,pre{font:13px/1.5 ui-monospace,monospace;background:#f4f6fa;border-radius:5px;padding:1px 5px}\
pre{padding:12px;overflow:auto}h2{font-size:1rem;margin:1.6rem 0 .2rem}p{margin:.2rem 0}"
EXAMPLE = """curl -H "Authorization: Bearer $(workbench api-token)" http://localhost:7860/api/v1/status"""


def reference(document: dict[str, Any], root: str) -> str:
    """Render the reference page of the OpenAPI document. root: the path at which the API is mounted."""
    calls = ""
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            names = [one["name"] for one in call.get("parameters", []) if one["in"] == "query"]
            query = f"<p>Query: <code>{escaped(', '.join(names))}</code></p>" if names else ""
            head = f"<h2><code>{method.upper()} {escaped(f'{root}{path}')}</code></h2>"
            calls += f"{head}<p>{escaped(call.get('summary', ''))}</p>{query}"
    title = escaped(document["info"]["title"])
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}: HTTP API</title>
<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body><h1>HTTP API</h1>
<p>Requests and responses are JSON. Send the workspace's token with each request: <code>workbench api-token</code>
prints it. A browser that is logged in needs none.</p><pre>{escaped(EXAMPLE)}</pre>
<p>For programs: <a href="openapi.json">openapi.json</a>.</p>{calls}</body></html>"""
