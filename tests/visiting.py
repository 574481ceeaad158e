"""Visitors of a demo over HTTP: come in, wait for the session, call its handlers as a browser would."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.patience import PATIENCE
from tests.platforms import NO_DEMO
from workbench.jobs import platform

ROOT = Path(__file__).resolve().parent.parent
HTML = {"accept": "text/html"}
TOGETHER = 60  # calls at once


class Demo:
    """`python webui.py --demo` as a process; `sessions` is the folder that holds its visitors' sessions.

    Where there is none, the test is skipped.
    """

    def __init__(self, sessions: Path, **environment: str) -> None:
        if not platform.LIMITS_VISITORS:
            pytest.skip(NO_DEMO)
        self.sessions, self.log = sessions, sessions.with_suffix(".log")
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(ROOT / "webui.py"), "--demo", "--workspace", str(sessions)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **environment},
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "http" in line, self.log.read_text()
        self.url = line.split(": ", 1)[1].split()[0].rstrip("/")

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=PATIENCE)


class Caller:
    """Calls a page's handlers as a browser would."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.config: dict[str, Any] = client.get("/config").json()
        self.components = {component["id"]: component for component in self.config["components"]}

    def handlers(self) -> Iterator[tuple[str, int, list[dict[str, Any]]]]:
        """(name, number, components of its inputs) of each handler, those that refresh views by one function once."""
        known = set()
        for function in self.config["dependencies"]:
            name = re.sub(r"^(_?tick|whole|quick_values|lambda)_\d+$", r"\1", function["api_name"] or "")
            if function.get("backend_fn", True) and name not in known:
                known.add(name)
                yield name, function["id"], [self.components[i] for i in function["inputs"]]

    def asked(self, component: int, function: str, value: Any) -> str:
        """What a function answers that a component of our own asks by itself."""
        asked = {"session_hash": "a", "component_id": component, "fn_name": function, "data": value}
        return self.client.post("/gradio_api/component_server", json=asked, headers={"connection": "close"}).text

    def call(self, calls: list[tuple[int, list[Any]]]) -> str:
        """Call handlers (number, inputs) and return all that was answered, as text."""
        return "".join(self._call(calls[i : i + TOGETHER]) for i in range(0, len(calls), TOGETHER))

    def _call(self, calls: list[tuple[int, list[Any]]]) -> str:
        session, said, left = secrets.token_hex(5), [], len(calls)
        for number, data in calls:
            asked = {"fn_index": number, "data": data, "session_hash": session, "event_data": None}
            answer = self.client.post("/gradio_api/queue/join", json=asked)
            assert answer.status_code == 200, (number, answer.text)
        with self.client.stream("GET", f"/gradio_api/queue/data?session_hash={session}") as stream:
            for line in stream.iter_lines():
                said.append(line)
                left -= line.startswith("data:") and json.loads(line[5:])["msg"] == "process_completed"
                if not left:
                    break
        return "\n".join(said)


class Visitor(Caller):
    """Somebody with a browser's cookies."""

    def __init__(self, demo: Demo) -> None:
        self.client = httpx.Client(base_url=demo.url, follow_redirects=True, timeout=PATIENCE)
        end = time.monotonic() + PATIENCE
        while "gradio" not in (page := self.client.get("/", headers=HTML)).text:
            assert page.status_code == 200, page.text
            assert time.monotonic() < end, [log.read_text() for log in demo.sessions.glob("*/page.log")]
            time.sleep(0.3)
        super().__init__(self.client)
        self.session = demo.sessions / Path(self.upload("hello.txt", b"hello")).relative_to(demo.sessions).parts[0]

    def upload(self, name: str, content: bytes) -> str:
        answer = self.client.post("/gradio_api/upload", files={"files": (name, content)})
        assert answer.status_code == 200, answer.text
        return str(answer.json()[0])

    def fetch(self, path: Path | str) -> int:
        return self.client.get(f"/gradio_api/file={path}").status_code


def hostile(component: dict[str, Any], text: str) -> Any:
    """A text of ours where the component takes one, what the page would send elsewhere."""
    value = component["props"].get("value")
    if component["type"] in ("textbox", "dropdown", "browserstate", "html"):
        return [text] if component["props"].get("multiselect") else text
    if component["type"] in ("file", "image", "video", "uploadbutton"):
        return {"path": text, "url": text, "meta": {"_type": "gradio.FileData"}}
    return value
