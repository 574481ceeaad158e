"""Visitors of a demo over HTTP: come in, wait for the room, call its handlers as a browser would."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent
HTML = {"accept": "text/html"}
TOGETHER = 60  # calls at once


class Demo:
    """`python webui.py --demo` as a process; `rooms` is the folder that holds its visitors' rooms."""

    def __init__(self, rooms: Path, **environment: str) -> None:
        self.rooms, self.log = rooms, rooms.with_suffix(".log")
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(ROOT / "webui.py"), "--demo", "--workspace", str(rooms)],
                stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **environment},
            )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "http" in line, self.log.read_text()
        self.url = line.split(": ", 1)[1].split()[0].rstrip("/")

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=PATIENCE)


class Visitor:
    """Somebody with a browser's cookies."""

    def __init__(self, demo: Demo) -> None:
        self.client = httpx.Client(base_url=demo.url, follow_redirects=True, timeout=PATIENCE)
        end = time.monotonic() + PATIENCE
        while "gradio" not in (page := self.client.get("/", headers=HTML)).text:
            assert page.status_code == 200, page.text
            assert time.monotonic() < end, [log.read_text() for log in demo.rooms.glob("*/page.log")]
            time.sleep(0.3)
        self.config: dict[str, Any] = self.client.get("/config").json()
        self.components = {component["id"]: component for component in self.config["components"]}
        self.room = demo.rooms / Path(self.upload("hello.txt", b"hello")).relative_to(demo.rooms).parts[0]

    def upload(self, name: str, content: bytes) -> str:
        answer = self.client.post("/gradio_api/upload", files={"files": (name, content)})
        assert answer.status_code == 200, answer.text
        return str(answer.json()[0])

    def fetch(self, path: Path | str) -> int:
        return self.client.get(f"/gradio_api/file={path}").status_code

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
