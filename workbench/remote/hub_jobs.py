"""Runs as jobs of the Hub: the Hub starts a container, and files travel through a private repository.

The container's log carries heartbeat and metrics within seconds; commits carry everything else (container). The token
comes from `hf auth login`, and the job gets it as a secret of the Jobs API.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.errors import ConfigError, ExitCode
from workbench.hub import MAY_WRITE, client
from workbench.jobs.job import ended
from workbench.remote.base import Backend, Progress, RemoteState, Unreachable
from workbench.remote.container import LIVE, MARK, HubFolder, explained
from workbench.snapshots import Check

MODULE = "workbench.remote.container"
OVER = ("COMPLETED", "CANCELED", "ERROR", "DELETED")
POLL_SECONDS, SOON_SECONDS = 10.0, 2.0  # between requests about the job; the same once its log has ended
AGAIN_SECONDS = 5.0  # between attempts to read its log
FILES_AT_ONCE, BYTES_AT_ONCE = 200, 1 << 30  # in one commit


class HubJobsBackend(Backend):
    """One run as a job of the Hub."""

    kind = "hf-jobs"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._repository = HubFolder(self.target.repository)
        self._log: _JobLog | None = None
        self._stage, self._message, self._polled = "SCHEDULING", "", 0.0
        self._commit = ""
        self._out: dict[str, Any] = {}
        self._commands: list[tuple[int, str, dict[str, Any]]] = []

    @property
    def _folder(self) -> str:
        return f"folders/{self.record.folder}/{int(self.record.sent_at)}"

    @cached_property
    def _who(self) -> dict[str, Any]:
        """The account that owns the job. Requested once, because the Hub limits the rate of this request."""
        with explained("the account"):
            return {"namespace": self.target.namespace or client().whoami()["name"]}

    def check(self) -> list[Check]:
        self._require_settings()
        with explained("the account"):
            about = client().whoami()
            hardware = [one.name for one in client().list_jobs_hardware()]
        known = self.target.flavor in hardware
        found = [Check.of("login", str(about["name"])), Check.of("image", self.target.image)]
        remedy = "" if known else f"choose one of {', '.join(hardware)}"
        found.append(Check.of("hardware", self.target.flavor, remedy))
        return [*found, Check.of("repository", f"{self.target.repository}, private")]

    def _require_settings(self) -> None:
        """Raise ConfigError if a required setting is empty or nobody is logged in."""
        from huggingface_hub import get_token

        for name, example in (("repository", "OWNER/NAME"), ("image", "an image with the workbench installed")):
            if not getattr(self.target, name):
                raise ConfigError(f"{name} of the target {self.name} is empty: give {example}")
        if not get_token():
            raise ConfigError(f"nobody is logged in to the Hub: {MAY_WRITE}")

    def connect(self) -> None:
        self._require_settings()
        if self.record.job:
            self._listen()

    def close(self) -> None:
        if self._log is not None:
            self._log.over.set()

    # ---- sending

    def upload(self, files: Mapping[str, tuple[str, Path]], progress: Progress) -> None:
        self._repository.create()
        contents = {f"contents/{sha256}": file for sha256, file in files.values()}
        missing = self._repository.missing(contents)
        total, done = sum(contents[path].stat().st_size for path in missing), 0
        batch: dict[str, Path | bytes] = {}
        size = 0
        for path in missing:
            progress(done + size, total)
            batch[path] = contents[path]
            size += contents[path].stat().st_size
            if len(batch) >= FILES_AT_ONCE or size > BYTES_AT_ONCE:
                self._repository.put(batch, f"{self.run}: clips and state")
                batch, done, size = {}, done + size, 0
        sent = json.dumps({path: sha256 for path, (sha256, _) in files.items()}).encode()
        self._repository.put({**batch, f"{self._folder}/bundle.json": sent}, f"{self.run}: sent")
        self.record.job, self._out, self._commit = "", {}, ""

    def start(self) -> str:
        from huggingface_hub import get_token

        if self.record.job:
            return self.record.job
        target, seconds = self.target, int(self.target.hours * 3600)
        command = [target.python, "-P", "-m", MODULE, target.repository, self._folder, self.run, str(seconds)]
        with explained("the job"):
            job = client().run_job(
                image=target.image,
                command=command,
                flavor=target.flavor,
                timeout=seconds,
                secrets={"HF_TOKEN": get_token()},
                name=self.record.folder,
                **self._who,
            )
        self.record.job = job.id
        self._listen()
        return job.id

    def _listen(self) -> None:
        if self._log is None or self._log.job != self.record.job:
            self._log = _JobLog(self.record.job, self._who, self.workspace.runs / self.run)
            threading.Thread(target=self._log.follow, name="log", daemon=True).start()

    # ---- polling

    def poll(self, listing: str) -> RemoteState:
        if not self.record.job or self._log is None:
            return RemoteState(False, "new", {}, {}, {}, {}, "")
        log, alive = self._log, self._alive()
        newest = log.commit if alive else ""  # once the job has ended, the newest version is the right one
        if newest != self._commit or not alive:
            out: dict[str, Any] = {}
            with contextlib.suppress(FileNotFoundError):
                out = json.loads(self._repository.get(f"{self._folder}/out.json", newest))
            self._out, self._commit = out, newest
        files, end = dict(self._out.get("files", {})), self._out.get("end", {})
        growing = {name: log.size(name) for name in LIVE if log.size(name)}
        if not alive:  # the last commit is complete
            growing |= {name: files[name][0] for name in LIVE if name in files}
        beat = end.get("beat") or log.beat
        now = f"{self._commit} {self._stage}"
        return RemoteState(
            alive=alive,
            state=str(end.get("state") or log.beat.get("state") or "starting"),
            beat={name: value for name, value in beat.items() if name != "state"},
            result=end.get("result") or ({} if alive or end else self._never_ended()),
            growing=growing,
            files=None if now == listing else {name: facts for name, facts in files.items() if name not in LIVE},
            listing=now,
            death=end.get("death", {}),
            message=f"waiting for {self.target.flavor} ({self._stage.lower()})" if not log.beat else "",
        )

    def _alive(self) -> bool:
        interval = SOON_SECONDS if self._log is not None and self._log.ended else POLL_SECONDS
        if self._stage not in OVER and time.monotonic() - self._polled > interval:
            self._polled = time.monotonic()
            with explained("the job"):
                status = client().inspect_job(job_id=self.record.job, **self._who).status
            self._stage, self._message = str(getattr(status.stage, "value", status.stage)), status.message or ""
        return self._stage not in OVER

    def _never_ended(self) -> dict[str, Any]:
        if self.record.stop_requested:
            message = f"Stopped on {self.name}; start it again to continue."
            return ended(jobs.State.STOPPED, ExitCode.STOPPED, message)
        cause = self._message or (self._log.last if self._log else "") or self._stage.lower()
        message = f"the Hub ended the job before the run did: {cause[-400:]}"
        return ended(jobs.State.FAILED, ExitCode.BUG, message)

    def read(self, path: str, start: int, size: int) -> bytes:
        if self._stage in OVER and path in self._out.get("files", {}):
            return self._repository.get(f"{self._folder}/out/{path}")[start : start + size]
        assert self._log is not None
        return self._log.read(path, start, size)

    def fetch(self, path: str, target: Path, listing: str) -> None:
        self._repository.fetch(f"{self._folder}/out/{path}", target, listing.partition(" ")[0])

    # ---- commanding

    def send(self, command: str, payload: dict[str, Any]) -> None:
        if command == "stop" and (self._log is None or not self._log.beat):
            self.kill()  # there is no process yet to take the command
            return
        last = self._commands[-1][0] if self._commands else int(time.time())
        self._commands.append((last + 1, command, payload))
        data = json.dumps(self._commands).encode()
        self._repository.put({f"{self._folder}/control.json": data}, f"{self.run}: {command}")

    def kill(self) -> None:
        with explained("the job"):
            client().cancel_job(job_id=self.record.job, **self._who)
        self._polled = 0.0


class _JobLog:
    """The job's log, followed in a thread: the newest heartbeat and commit, and the growing files its lines carry.

    Every request returns the log from its beginning, so reading it again loses nothing.
    """

    def __init__(self, job: str, who: dict[str, Any], folder: Path) -> None:
        self.job, self.beat, self.commit, self.last = job, dict[str, Any](), "", ""
        self.over, self.ended = threading.Event(), False
        self._who = who
        self._lock = threading.Lock()
        # The log's lines continue what was sent or fetched before.
        kept = {name: folder / name for name in LIVE if name != jobs.LOG}
        self._files = {name: bytearray(path.read_bytes()) for name, path in kept.items() if path.exists()}

    def follow(self) -> None:
        """Read the log to its end, trying again as often as needed."""
        while not self.over.is_set():
            try:
                with explained("the job's log"):
                    for line in client().fetch_job_logs(job_id=self.job, follow=True, **self._who):
                        self._line(line)
                        if self.over.is_set():
                            return
                self.ended = True
                return
            except (Unreachable, ConfigError, FileNotFoundError):
                self.over.wait(AGAIN_SECONDS)

    def _line(self, line: str) -> None:
        if not line.startswith(MARK):
            self.last = line.strip() or self.last
            return
        values = json.loads(line.removeprefix(MARK))
        self.beat = values.get("beat", self.beat)
        self.commit = values.get("commit", self.commit)
        if (name := values.get("grow")) in LIVE:
            with self._lock:
                held = self._files.setdefault(name, bytearray())
                if values["at"] <= len(held):
                    held[values["at"] :] = values["text"].encode("utf-8", "surrogateescape")

    def size(self, name: str) -> int:
        with self._lock:
            return len(self._files.get(name, b""))

    def read(self, name: str, start: int, size: int) -> bytes:
        with self._lock:
            return bytes(self._files.get(name, b"")[start : start + size])
