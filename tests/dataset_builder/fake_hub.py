"""A Hub on this machine: the routes that huggingface_hub calls for a dataset repository, spoken over real HTTP."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlparse

TOKEN = "hf_" + "x" * 34


class FakeHub:
    """repos: id -> file name -> bytes. Uploads need the token; `requests` are all that came in."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.commits: list[str] = []
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.failing = 0  # a status that requests are answered with,
        self.failing_path = ""  # where their path holds this
        self.url = ""

    def commit_id(self, repo: str) -> str:
        listing = json.dumps({name: hashlib.sha1(data).hexdigest() for name, data in self.repos[repo].items()})
        return hashlib.sha1(listing.encode()).hexdigest()

    def commit(self, repo: str, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.commits.append(value["summary"])
            elif line["key"] == "file":
                self.repos[repo][value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.repos[repo][value["path"]] = self.objects[value["oid"]]

    def handler(self) -> type[_Handler]:
        """What answers requests."""
        return _Handler

    @contextmanager
    def serving(self) -> Iterator[FakeHub]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (self.handler(),), {"state": self}))
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing: tests look at `requests`."""

    def _answer(self, status: int, body: bytes | dict[str, Any] = b"", **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _handle(self) -> None:
        hub = self.state
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlparse(self.path).path)
        hub.requests.append(f"{self.command} {path}")
        if hub.failing and hub.failing_path in path:
            return self._answer(hub.failing)
        writes = self.command in ("POST", "PUT") and "/store/" not in path
        if writes and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer(401, {"error": "Invalid credentials"})
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return self._answer(200, {"errors": [], "warnings": []})
        if "/store/" in path:
            hub.objects[path.rpartition("/")[2]] = body
            return self._answer(200)
        parts = path.strip("/").split("/")
        start = parts.index("datasets") + 1 if "datasets" in parts else 0
        repo = "/".join(parts[start : start + 2]).removesuffix(".git")
        if repo not in hub.repos:
            return self._answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        return self._repo(repo, parts[start + 2 :], body)

    def _create(self, asked: dict[str, Any]) -> None:
        repo = f"{asked['organization']}/{asked['name']}"
        address = {"url": f"{self.state.url}/datasets/{repo}"}
        if repo in self.state.repos:
            return self._answer(409, {"error": "exists", **address})
        self.state.repos[repo] = {}
        if asked.get("private") or asked.get("visibility") == "private":
            self.state.private.add(repo)
        return self._answer(200, address)

    def _repo(self, repo: str, rest: list[str], body: bytes) -> None:
        hub, files = self.state, self.state.repos[repo]
        what = rest[0] if rest else "revision"
        if what == "resolve":
            name = "/".join(rest[2:])
            if name not in files:
                return self._answer(404, X_Error_Code="EntryNotFound")
            etag = f'"{hashlib.sha256(files[name]).hexdigest()}"'
            return self._answer(200, files[name], ETag=etag, X_Repo_Commit=rest[1])
        if what == "preupload":
            asked = json.loads(body)["files"]
            modes = [
                {"path": f["path"], "uploadMode": "lfs" if f["path"].endswith(".mp4") else "regular",
                 "shouldIgnore": False, "oid": None} for f in asked
            ]  # fmt: skip
            return self._answer(200, {"files": modes})
        if what == "info":  # info/lfs/objects/batch
            objects = json.loads(body)["objects"]
            for one in objects:
                if one["oid"] not in hub.objects:
                    one["actions"] = {"upload": {"href": f"{hub.url}/store/{one['oid']}"}}
            return self._answer(200, {"transfer": "basic", "objects": objects})
        if what == "commit":
            hub.commit(repo, [json.loads(line) for line in body.splitlines()])
            commit = hub.commit_id(repo)
            return self._answer(200, {"commitUrl": f"{hub.url}/datasets/{repo}/commit/{commit}", "commitOid": commit})
        if rest[1:2] not in ([], ["main"], [hub.commit_id(repo)]):
            return self._answer(404, X_Error_Code="RevisionNotFound")
        siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
        about = {"id": repo, "sha": hub.commit_id(repo), "private": repo in hub.private, "siblings": siblings}
        return self._answer(200, about)

    do_GET = do_POST = do_PUT = do_HEAD = _handle
