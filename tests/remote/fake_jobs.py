"""A Hub on this machine that also takes jobs: each runs as a real process with the environment that was asked for."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from tests.fake_hub import FakeHub, Handler

USER = "somebody"


class Job:
    """One job: what was asked, and its process."""

    def __init__(self, number: int, spec: dict[str, Any], environment: dict[str, str], log: Path) -> None:
        self.id, self.spec, self.log = f"{number:024x}", spec, log
        self.canceled = False
        environment = {**environment, **spec["environment"], **spec.get("secrets", {})}
        with log.open("wb") as output:
            self.process = subprocess.Popen(spec["command"], env=environment, stdout=output, stderr=subprocess.STDOUT)

    def record(self) -> dict[str, Any]:
        code = self.process.poll()
        stage = "CANCELED" if self.canceled else "RUNNING" if code is None else "ERROR" if code else "COMPLETED"
        kept = {name: value for name, value in self.spec.items() if name != "secrets"}
        return {
            "id": self.id,
            "createdAt": "2026-01-01T00:00:00.000Z",
            "owner": {"id": "1", "name": USER, "type": "user"},
            "status": {"stage": stage, "message": None},
            **kept,
        }


class FakeJobs(FakeHub):
    """jobs: id -> Job. folder: where their logs and homes are."""

    def __init__(self, folder: Path) -> None:
        super().__init__(USER)
        self.folder, self.jobs = folder, dict[str, Job]()

    def environment(self) -> dict[str, str]:
        """Of a job's container: this machine's, with a home of its own and no login."""
        home = self.folder / "container"
        home.mkdir(exist_ok=True)
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "PYTHONUNBUFFERED": "1",
            "WORKBENCH_PUSH_SECONDS": "1",
            "WORKBENCH_COMMAND_SECONDS": "0.5",
            "TMPDIR": str(home),
        }

    def handler(self) -> type[_JobsHandler]:
        return _JobsHandler

    @contextmanager
    def serving(self) -> Iterator[FakeJobs]:
        try:
            with super().serving():
                yield self
        finally:
            for job in self.jobs.values():
                job.process.kill()
                job.process.wait()


class _JobsHandler(Handler):
    state: FakeJobs

    def handle_request(self) -> None:
        path = unquote(urlparse(self.path).path)
        parts = path.strip("/").split("/")
        if parts[:2] != ["api", "jobs"]:
            return super().handle_request()
        body = self.body()
        self.state.requests.append(f"{self.command} {path}")
        if not self.known:
            return self.answer(401, {"error": "Invalid credentials"})
        return self._jobs(parts[2:], body)

    def _jobs(self, rest: list[str], body: bytes) -> None:
        hub = self.state
        if rest == ["hardware"]:
            names = ("cpu-basic", "a10g-large")
            return self.answer(200, [_hardware(name) for name in names])
        if len(rest) == 1:  # run it
            number = len(hub.jobs) + 1
            job = Job(number, json.loads(body), hub.environment(), hub.folder / f"job-{number}.log")
            hub.jobs[job.id] = job
            return self.answer(200, job.record())
        job = hub.jobs[rest[1]]
        if rest[2:] == ["cancel"]:
            job.canceled = True
            job.process.terminate()
            return self.answer(200, {})
        return self._log(job) if rest[2:] == ["logs"] else self.answer(200, job.record())

    def _log(self, job: Job) -> None:
        """Every line from the first, then those that come, until the process has ended."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        with job.log.open("rb") as file:
            while True:
                over, line = job.process.poll() is not None, file.readline()
                if line.endswith(b"\n"):
                    stamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
                    event = {"timestamp": stamp, "data": line.decode("utf-8", "replace").rstrip("\n")}
                    try:
                        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                        self.wfile.flush()
                    except OSError:
                        return
                elif over:
                    return
                else:
                    file.seek(-len(line), 1)
                    time.sleep(0.05)


def _hardware(name: str) -> dict[str, Any]:
    about = {"name": name, "prettyName": name, "cpu": "2 vCPU", "ram": "16 GB", "accelerator": None}
    return {**about, "unitCostMicroUSD": 1, "unitCostUSD": 0.01, "unitLabel": "minute"}
