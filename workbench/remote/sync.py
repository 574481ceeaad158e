"""Keeps a run's folder here as the run's folder there is: heartbeat, log, metrics, previews, checkpoints, the end.

Small and growing files come at every look; all others are fetched beside that, so that a large checkpoint holds up no
heartbeat. A checkpoint appears here when it is whole. Commands that are left in the folder here are passed on. When the
connection is lost it is sought again for as long as it takes. Not covered: how a place is reached (base).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.errors import CannotWrite, ConfigError
from workbench.remote import folder as box
from workbench.remote.base import Backend, Lost, RemoteState
from workbench.remote.bundle import bundle
from workbench.remote.job import Leave, RemoteJob
from workbench.remote.record import SCRATCH, RemoteRecord
from workbench.runs import checkpoints, recovery, retention
from workbench.runs.run import Run
from workbench.workspace import Workspace, confined, read_json, write_bytes, write_json, writing

LOOK_SECONDS = 1.0
AGAIN_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)  # between tries to reach a place again
BLOCK = 4 << 20  # bytes read at once
TAIL = 256  # bytes by which a file that grows is known again
SEEN = "seen.json"  # in the scratch folder: path -> [bytes, time of change] of what was fetched
COMMANDS: tuple[jobs.Command, ...] = ("save", "preview", "pause", "resume", "stop")


class Mirror:
    """One run that is elsewhere, from its sending to its end."""

    def __init__(self, folder: Path, job: RemoteJob, engine: Backend, record: RemoteRecord) -> None:
        self._folder, self._job, self._engine, self._record = folder, job, engine, record
        self._run, self._workspace = Run(folder), Workspace(folder.parent.parent)
        self._listing = ""
        self._there: dict[str, Sequence[int]] = {}
        self._seen: dict[str, Sequence[int]] = self._read_seen()
        self._fetcher = ThreadPoolExecutor(1, "fetch")
        self._fetching: Future[None] | None = None
        self._pending: list[tuple[jobs.Command, dict[str, Any]]] = []
        self._last_beat: dict[str, Any] = {}
        self._sent_from: list[int] = []  # the step it began with there, if any

    def go(self) -> dict[str, Any]:
        """Send the run, or find it where it is, and stay with it to its end; returns its result.

        Raises Leave when the run goes on without this process, or died there.
        """
        self._say(f"looking for {self._record.place}")
        self._engine.open()
        if not self._record.open or self._lasting(lambda: self._engine.look("")).state == jobs.State.NEW:
            self._send_run()
        while True:
            view = self._lasting(lambda: self._engine.look(self._listing))
            self._take(view)
            self._pass_on()
            if not view.alive:
                result = self._finish()
                if result is not None:
                    return result
            time.sleep(LOOK_SECONDS)

    # ---- there

    def _send_run(self) -> None:
        run, record = self._run, self._record
        if said := recovery.beginning(run.folder, recovery.asked_from_start()).note:
            self._log(said)
        self._sent_from = run.checkpoints[-1:]
        files = bundle(self._workspace, run, lambda count: self._say("gathering the run's files", count))
        if not record.box:
            record.box = f"{run.name}-{os.urandom(3).hex()}"
        record.stop_asked, record.sent_at = False, time.time()

        def tell(sent: int, total: int) -> None:
            self._say(f"sending to {record.place}", sent // 1_000_000, -(-total // 1_000_000), message="in MB")

        self._lasting(lambda: self._engine.hand_over(files, tell))
        # What an earlier start there wrote is in the log here already.
        record.log_bytes = self._lasting(lambda: self._engine.look("")).growing.get(jobs.LOG, 0)
        record.open = True  # before it starts: from now on it may be at work there
        record.save(self._folder)
        record.job = self._lasting(self._engine.start)
        record.save(self._folder)
        self._log(f"sent to {record.place}, {len(files)} files")

    def _pass_on(self) -> None:
        """Commands that were left here. A stop is remembered: a place that stops a run by itself is told from it."""
        self._leave_if_told()
        for command in COMMANDS:
            if (payload := self._job.take(command)) is not None:
                self._pending.append((command, payload))
                if command == "stop":
                    self._record.stop_asked = True
                    self._record.save(self._folder)
        while self._pending:
            command, payload = self._pending[0]
            self._lasting(lambda command=command, payload=payload: self._engine.send(command, payload))
            self._pending.pop(0)

    def _leave_if_told(self) -> None:
        """SIGTERM: this process goes, the run stays; unless it was asked to stop before, then it is ended by force."""
        if self._job.signalled:
            if self._record.stop_asked:
                with contextlib.suppress(Lost):
                    self._engine.end()
            raise Leave(f"the run goes on at {self._record.place}: start it again to see it")

    def _lasting(self, ask: Any) -> Any:
        """What `ask` gives, the connection sought again as often as it is lost."""
        tries = 0
        while True:
            try:
                return ask()
            except Lost as error:
                if self._last_beat:
                    trying = f"{error}; the run there goes on, trying again"
                    self._job.beat(**{**self._last_beat, "message": trying, "patient": True})
                else:
                    self._say(f"{self._record.place} does not answer", message=str(error))
                end = time.monotonic() + AGAIN_SECONDS[min(tries, len(AGAIN_SECONDS) - 1)]
                tries += 1
                while time.monotonic() < end:
                    self._leave_if_told()
                    time.sleep(0.1)
                with contextlib.suppress(Lost):
                    self._engine.open()

    # ---- here

    def _take(self, view: RemoteState) -> None:
        """What a look shows, into the folder here."""
        beat = {name: value for name, value in view.beat.items() if name not in ("time", "still")}
        if view.state in (jobs.State.NEW, jobs.State.STARTING) or not beat:
            beat = {"phase": view.message or f"waiting at {self._record.place}", "step": 0, "total": 0, "patient": True}
        if beat != self._last_beat:
            self._last_beat = beat
            self._job.beat(**beat)
        if view.files is not None:
            self._there, self._listing = dict(view.files), view.listing
        for path, size in view.growing.items():
            self._grow(path, size)
        if self._fetching is None or self._fetching.done():
            if self._fetching is not None:
                with contextlib.suppress(Lost):  # the next look finds out
                    self._fetching.result()
            self._fetching = self._fetcher.submit(self._fetch_new, dict(self._there))
        self._record.synced_at = time.time()

    def _grow(self, path: str, size: int, sure: bool = False) -> None:
        """Bring a file that grows to its length there; one that was cut back is read anew. sure: also look at its end.

        The log here has lines of its own, so how much of the other it holds is remembered.
        """
        target = self._target(path)
        if path == jobs.LOG:
            if size < self._record.log_bytes:
                self._record.log_bytes = 0
            if data := self._read(path, self._record.log_bytes, size):
                self._append(target, data)
                self._record.log_bytes += len(data)
                self._record.save(self._folder)
            return
        held = target.stat().st_size if target.exists() else 0
        if size == held and not sure:
            return
        overlap = min(TAIL, held)
        if size >= held and overlap:
            data = self._read(path, held - overlap, size)
            with target.open("rb") as file:
                file.seek(held - overlap)
                same = file.read(overlap) == data[:overlap]
            if same:
                if data[overlap:]:
                    self._append(target, data[overlap:])
                return
        write_bytes(target, self._read(path, 0, size))

    def _read(self, path: str, start: int, end: int) -> bytes:
        parts = []
        while start < end:
            data = self._lasting(lambda start=start: self._engine.read(path, start, min(BLOCK, end - start)))
            if not data:
                break
            parts.append(data)
            start += len(data)
        return b"".join(parts)

    def _append(self, target: Path, data: bytes) -> None:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("ab") as file:
                file.write(data)

    def _fetch_new(self, there: Mapping[str, Sequence[int]]) -> None:
        """All other files that are new or changed: checkpoints as wholes, what says "done" of others last.

        Raises Lost, CannotWrite.
        """
        wanted = [path for path, facts in there.items() if list(self._seen.get(path, ())) != list(facts)]
        rest = []
        for path in wanted:
            parts = Path(path).parts
            if parts[0] == checkpoints.FOLDER and len(parts) > 2:
                if parts[-1] == checkpoints.MANIFEST:
                    self._fetch_checkpoint(parts[1], there)
            else:
                rest.append(path)
        for path in sorted(rest, key=lambda path: (path.endswith(".json"), there[path][1])):
            with contextlib.suppress(FileNotFoundError):
                self._fetch_file(path)
                self._seen[path] = list(there[path])
        if wanted:
            write_json(self._folder / SCRATCH / SEEN, self._seen)

    def _fetch_file(self, path: str) -> None:
        target = self._target(path)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            self._engine.fetch(path, temporary)
            with writing(target):
                os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)

    def _fetch_checkpoint(self, name: str, there: Mapping[str, Sequence[int]]) -> None:
        """A checkpoint, whole or not at all; one that retires meanwhile is left."""
        prefix = f"{checkpoints.FOLDER}/{name}/"
        files = [path for path in there if path.startswith(prefix)]
        final = self._target(prefix.rstrip("/"))
        if not checkpoints.verified(final):
            temporary = final.with_name(f".tmp-{name.removeprefix('step-')}-{os.getpid()}")
            try:
                for path in files:
                    self._engine.fetch(path, temporary / Path(path).name)
                if not checkpoints.verified(temporary):
                    return
                with writing(final):
                    shutil.rmtree(final, ignore_errors=True)
                    os.rename(temporary, final)
            except FileNotFoundError:
                return
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
            settings = self._run.settings
            retention.retire(
                self._folder, settings.keep_checkpoints, settings.keep_every, int(name.removeprefix("step-"))
            )
        self._seen |= {path: list(there[path]) for path in files}

    def _target(self, path: str) -> Path:
        """Where a file of the other side goes. Raises ConfigError for one that is none of its business."""
        if not box.mirrored(path):
            raise ConfigError(f"{self._record.place} offers the file {path[:120]!r}, which a run does not have")
        return confined(self._folder, path)

    def _finish(self) -> dict[str, Any] | None:
        """Bring everything back; the run's result, None when it was only interrupted and is sent again.

        Raises Leave when it died there.
        """
        self._job.beat(
            **{**self._last_beat, "message": f"fetching the rest from {self._record.place}", "patient": True}
        )
        if self._fetching is not None:
            with contextlib.suppress(Lost):
                self._fetching.result()
        view = self._lasting(lambda: self._engine.look(""))
        for path, size in view.growing.items():
            self._grow(path, size, sure=True)
        self._there = dict(view.files or {})
        self._lasting(lambda: self._fetch_new(self._there))
        further = self._run.checkpoints[-1:] != self._sent_from
        if view.interrupted and further and not self._record.stop_asked:
            self._log(f"{self._record.place} stopped the run; it is sent again")
            self._send_run()
            return None
        self._record.open = False
        self._record.save(self._folder)
        if not view.result:
            self._job.died(view.death)
            raise Leave(f"the run died at {self._record.place}")
        return dict(view.result)

    # ---- words

    def _say(self, phase: str, step: int = 0, total: int = 0, message: str = "") -> None:
        self._leave_if_told()
        if self._job.take("stop") is not None:
            raise jobs.Stop("Stopped before it was sent; start it again to go on.")
        self._job.beat(phase, step, total, message=message, patient=True)

    def _log(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def _read_seen(self) -> dict[str, Sequence[int]]:
        path = self._folder / SCRATCH / SEEN
        with contextlib.suppress(ConfigError):
            return dict(read_json(path)) if path.exists() else {}
        return {}

    def close(self) -> None:
        """Let go of the place. What is being fetched comes again another time."""
        self._fetcher.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(Lost, CannotWrite):
            self._engine.close()
