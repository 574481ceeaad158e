"""A Hub on this machine: the routes that huggingface_hub calls for its repositories, spoken over real HTTP.

Every commit is atomic, and a pinned commit keeps serving its own files.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlparse

import yaml

if TYPE_CHECKING:
    import pytest

TOKEN = "hf_" + "x" * 34
LARGE = (".mp4", ".safetensors")  # what goes by Git LFS
KINDS = ("datasets", "spaces", "models")
Files = dict[str, bytes]


@functools.lru_cache(maxsize=4096)
def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def oid(path: str, data: bytes) -> str:
    """By which the client knows that a file is there already."""
    return sha256(data) if path.endswith(LARGE) else hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class FakeHub:
    """repos: "OWNER/NAME" of a model, "datasets/OWNER/NAME", "spaces/OWNER/NAME" -> file name -> bytes.

    private: those that only `user` sees, whose token is TOKEN;  commits: the messages;  requests: all that came in
    """

    def __init__(self, user: str = "me") -> None:
        self.user = user
        self.repos: dict[str, Files] = {}
        self.private: set[str] = set()
        self.commits: list[str] = []
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.failing = 0  # a status that requests are answered with,
        self.failing_path = ""  # where their path holds this,
        self.failing_after = 0  # once so many of those went well
        self.url = ""
        self._revisions: dict[tuple[str, str], Files] = {}
        self._lock = threading.RLock()

    def head(self, repo: str) -> str:
        """The newest commit of a repository. Tests may have put files into `repos` by hand: those count."""
        with self._lock:
            files = dict(self.repos[repo])
            listing = json.dumps({name: sha256(data) for name, data in sorted(files.items())})
            commit = hashlib.sha1(f"{repo} {listing}".encode()).hexdigest()
            self._revisions[repo, commit] = files
            return commit

    def files(self, repo: str, revision: str) -> tuple[str, Files] | None:
        """(commit, files) of a branch or commit; None when there is no such."""
        with self._lock:
            commit = self.head(repo) if revision == "main" else revision
            found = self._revisions.get((repo, commit))
        return None if found is None else (commit, found)

    def commit(self, repo: str, lines: list[dict[str, Any]]) -> str | None:
        """Make one commit; its id, None when somebody else was faster than the client thought."""
        with self._lock:
            files, summary, before = dict(self.repos[repo]), "", self.head(repo)
            for line in lines:
                value = line["value"]
                if line["key"] == "header":
                    summary = value["summary"]
                    if value.get("parentCommit") not in (None, before):
                        return None
                elif line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    files[value["path"]] = self.objects[value["oid"]]
                elif line["key"] == "deletedFile":
                    files.pop(value["path"], None)
            self.repos[repo] = files
            self.commits.append(summary)
            return self.head(repo)

    def fails(self, path: str) -> bool:
        """Whether this request is to go wrong."""
        with self._lock:
            if not self.failing or self.failing_path not in path:
                return False
            self.failing_after -= 1
            return self.failing_after < 0

    def handler(self) -> type[Handler]:
        """What answers requests."""
        return Handler

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


class Handler(BaseHTTPRequestHandler):
    """Answers one connection's requests."""

    state: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing: tests look at `requests`."""

    @property
    def known(self) -> bool:
        """Whether the request comes with the user's token."""
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, body: bytes | Mapping[str, Any] | list[Any] = b"", **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def handle_request(self) -> None:
        hub, body = self.state, self.body()
        path = unquote(urlparse(self.path).path)
        hub.requests.append(f"{self.command} {path}")
        if hub.fails(path):
            return self.answer(hub.failing)
        stores = "/store/" in path
        if self.command in ("POST", "PUT") and not stores and not self.known:
            return self.answer(401, {"error": "Invalid credentials"})
        if path == "/api/whoami-v2":
            return self._whoami()
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            wrong = [{"message": '"license" must be one of [apache-2.0, mit, other]'}] if b"no-license" in body else []
            return self.answer(400 if wrong else 200, {"errors": wrong, "warnings": []})
        if stores:
            hub.objects[path.rpartition("/")[2]] = body
            return self.answer(200)
        parts = path.strip("/").removeprefix("api/").split("/")
        kind = parts.pop(0) if parts[0] in KINDS else "models"
        name = "/".join(parts[:2]).removesuffix(".git")
        repo = name if kind == "models" else f"{kind}/{name}"
        if repo not in hub.repos or (repo in hub.private and not self.known):
            return self.answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        return self._repo(repo, parts[2:], body)

    def _whoami(self) -> None:
        if not self.known:
            return self.answer(401, {"error": "Invalid user token."})
        token = {"displayName": "test", "role": "write"}
        about = {"type": "user", "name": self.state.user, "orgs": [{"name": "studio"}], "auth": {"accessToken": token}}
        return self.answer(200, about)

    def _create(self, asked: dict[str, Any]) -> None:
        kind = f"{asked.get('type') or 'model'}s"
        name = f"{asked.get('organization') or self.state.user}/{asked['name']}"
        repo = name if kind == "models" else f"{kind}/{name}"
        address = {"url": f"{self.state.url}/{repo}", "name": name}
        if repo in self.state.repos:
            return self.answer(409, {"error": "exists", **address})
        self.state.repos[repo] = {}
        if asked.get("private") or asked.get("visibility") == "private":
            self.state.private.add(repo)
        return self.answer(200, address)

    def _repo(self, repo: str, rest: list[str], body: bytes) -> None:
        what = rest[0] if rest else "revision"
        if what == "info":  # info/lfs/objects/batch
            return self._batch(json.loads(body)["objects"])
        if what == "commit":
            return self._commit(repo, body)
        found = self.state.files(repo, rest[1] if len(rest) > 1 else "main")
        if found is None:
            return self.answer(404, {"error": "Revision not found"}, X_Error_Code="RevisionNotFound")
        commit, files = found
        if what == "resolve":
            return self._resolve(commit, files, "/".join(rest[2:]))
        if what == "preupload":
            return self._preupload(files, json.loads(body)["files"])
        if what == "tree":
            return self.answer(200, [_entry(path, files[path]) for path in files])
        if what == "paths-info":
            asked = parse_qs(body.decode()).get("paths", [])
            return self.answer(200, [_entry(path, files[path]) for path in asked if path in files])
        siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
        name = "/".join(repo.split("/")[-2:])
        about = {"id": name, "sha": commit, "private": repo in self.state.private, "siblings": siblings}
        if (front := files.get("README.md", b"").split(b"---\n"))[0] == b"" and len(front) > 2:
            about["cardData"] = yaml.safe_load(front[1])
        return self.answer(200, about)

    def _resolve(self, commit: str, files: Files, name: str) -> None:
        if name not in files:
            return self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        return self.answer(200, files[name], ETag=f'"{sha256(files[name])}"', X_Repo_Commit=commit)

    def _preupload(self, files: Files, asked: list[dict[str, Any]]) -> None:
        modes = []
        for path in (one["path"] for one in asked):
            there = oid(path, files[path]) if path in files else None
            mode = "lfs" if path.endswith(LARGE) else "regular"
            modes.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": there})
        return self.answer(200, {"files": modes})

    def _batch(self, objects: list[dict[str, Any]]) -> None:
        for one in objects:
            if one["oid"] not in self.state.objects:
                one["actions"] = {"upload": {"href": f"{self.state.url}/store/{one['oid']}"}}
        return self.answer(200, {"transfer": "basic", "objects": objects})

    def _commit(self, repo: str, body: bytes) -> None:
        commit = self.state.commit(repo, [json.loads(line) for line in body.splitlines()])
        if commit is None:
            return self.answer(412, {"error": "A commit has happened since. Please refresh and try again."})
        return self.answer(200, {"commitUrl": f"{self.state.url}/{repo}/commit/{commit}", "commitOid": commit})

    do_GET = do_POST = do_PUT = do_HEAD = lambda self: self.handle_request()


def _entry(path: str, data: bytes) -> dict[str, Any]:
    """A line of a listing."""
    more = {"lfs": {"oid": sha256(data), "size": len(data), "pointerSize": 130}} if path.endswith(LARGE) else {}
    return {"type": "file", "path": path, "size": len(data), "oid": oid(path, data), **more}


def login(monkeypatch: pytest.MonkeyPatch, server: FakeHub, home: Path) -> None:
    """From now on huggingface_hub speaks to this server, with its user logged in: in this process and in new ones."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "token").write_text(TOKEN)
    for name, value in (("HF_ENDPOINT", server.url), ("HF_HOME", str(home)), ("HF_HUB_DISABLE_XET", "1")):
        monkeypatch.setenv(name, value)
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    constants = {
        "ENDPOINT": server.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": server.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
        "HF_TOKEN_PATH": str(home / "token"),
    }
    for name, value in constants.items():
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
