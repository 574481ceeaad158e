"""Visitors of a demo over HTTP: come in, wait for the session, call operations as a browser would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.patience import PATIENCE
from tests.platforms import NO_DEMO
from workbench.jobs import platform
from workbench.operations.registry import operations
from workbench.settings import Spec, specs

ROOT = Path(__file__).resolve().parent.parent
HTML = {"accept": "text/html"}


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
        line = self._process.stdout.readline()
        assert "http" in line, self.log.read_text()
        self.url = line.split(": ", 1)[1].split()[0].rstrip("/")

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.communicate(timeout=PATIENCE)


def call_everything(client: httpx.Client, words: Sequence[str], without: Collection[str] = ()) -> str:
    """Call every operation with these words wherever it takes a text; return all that was answered.

    Args:
        without: Operations that are left out: "runs/create".
    """
    said = []
    for number, one in enumerate(operations()):
        if f"{one.noun}/{one.verb}" in without:
            continue
        for shift in range(len(words)):
            values = {
                spec.name: hostile(spec, words[(number + place + shift) % len(words)])
                for place, spec in enumerate(specs(one.inputs))
                if spec.kind in ("text", "texts", "object")
            }
            if not values:  # nothing can be named to it
                break
            answer = client.post(f"/api/v1/call/{one.noun}/{one.verb}", json=values)
            assert answer.status_code < 500, (one.command, values, answer.text)
            said.append(answer.text)
    return "\n".join(said)


def hostile(spec: Spec, text: str) -> Any:
    """A text of ours as a setting takes it; where it takes an object, in it under every name of a setting of a file."""
    if spec.kind == "object":
        return dict.fromkeys(("dataset", "model", "start_from", "image", "run", "source"), text)
    return [text] if spec.kind == "texts" else text


class Visitor:
    """Somebody with a browser's cookies."""

    def __init__(self, demo: Demo) -> None:
        self.client = httpx.Client(base_url=demo.url, follow_redirects=True, timeout=PATIENCE)
        end = time.monotonic() + PATIENCE
        while "elements" not in (page := self.client.get("/", headers=HTML)).text:
            assert page.status_code == 200, page.text
            assert time.monotonic() < end, [log.read_text() for log in demo.sessions.glob("*/page.log")]
            time.sleep(0.3)
        self.session = demo.sessions / Path(self.upload("hello.txt", b"hello")).relative_to(demo.sessions).parts[0]

    def upload(self, name: str, content: bytes) -> str:
        answer = self.client.post("/gradio_api/upload", files={"files": (name, content)})
        assert answer.status_code == 200, answer.text
        return str(answer.json()[0])

    def fetch(self, path: Path | str) -> int:
        return self.client.get(f"/gradio_api/file={path}").status_code
