"""Send everything that a run needs to a target, and keep its local folder in sync with the remote one until it ends.

A bundle holds the run's settings, its clips, its newest checkpoint, and encoded tensors, by their paths in the remote
folder, which is a workspace of its own. Local files that settings name (start_from, preview_images) go to `inputs/`,
and the sent config.json refers to them there.

Append-only files are read at every poll. All others are fetched by a thread, so a large checkpoint delays no heartbeat;
a checkpoint appears locally once it is complete. Commands in the local folder are passed on. A lost connection is made
again, however long that takes. The local job ends the way the remote one did, with the same message.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.clips.records import INFO, METADATA, clip_file, file_sha256, read_clips
from workbench.errors import CannotWrite, ConfigError, ExitCode
from workbench.jobs.log import log
from workbench.remote.base import SCRATCH, Backend, RemoteRecord, RemoteState, Unreachable
from workbench.remote.remote_folder import BELOW, synced
from workbench.runs import checkpoints
from workbench.runs.checkpoints import PARENT
from workbench.runs.checks import initial_lora
from workbench.runs.data import datasets_of
from workbench.runs.frozen_loras import frozen_loras
from workbench.runs.metrics import METRICS, SESSIONS
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.trainer.encoder import portable_keys
from workbench.workspace import Workspace, confined, disk, named_paths, read_object, write_bytes, write_json, writing

POLL_SECONDS = 1.0
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)  # between attempts to connect again
BLOCK = 4 << 20  # bytes per read
TAIL = 256  # bytes at the end of a growing file that are compared before more is appended
SEEN = "seen.json"  # in the scratch folder: path -> [bytes, modification time] of what was fetched
COMMANDS: tuple[jobs.Command, ...] = ("save", "preview", "pause", "resume", "stop")
# Sent from the run's folder, besides its settings and newest checkpoint.
STATE = ("dataset.lock.json", PARENT, SESSIONS, METRICS, "stars.json", "tracker.json")
Files = dict[str, tuple[str, Path]]


# ---- what is sent ---------------------------------------------------------------------------------------------------


def bundle(workspace: Workspace, run: Run, progress: Callable[[int], None] = lambda count: None) -> Files:
    """Collect the files to send, as path in the remote folder -> (SHA-256, local file).

    Calls `progress` with the number of files read so far. Raises ConfigError if the settings name something that does
    not exist, and what `progress` raises.
    """
    found: Files = {}
    for path, file in _files(workspace, run):
        found[path] = (file_sha256(file), file)
        progress(len(found))
    return found


def _files(workspace: Workspace, run: Run) -> Iterator[tuple[str, Path]]:
    settings, home = run.settings, f"runs/{run.name}"
    for dataset in dict.fromkeys(name for _, name in datasets_of(settings)):
        folder, path = workspace.dataset(dataset), f"datasets/{dataset}"
        yield from ((f"{path}/{name}", folder / name) for name in (INFO, METADATA) if (folder / name).is_file())
        for clip in read_clips(folder):
            for name in filter(None, (clip.file_name, clip.first_frame, *clip.companions.values())):
                if (file := clip_file(folder, name)).is_file():
                    yield f"{path}/{name}", file
    config = settings.model_dump(mode="json")
    yield from _named(workspace, settings, config)
    sent = run.folder / SCRATCH / jobs.CONFIG
    write_json(sent, config)
    yield f"{home}/{jobs.CONFIG}", sent
    for name in STATE:
        if (file := run.folder / name).is_file():
            yield f"{home}/{name}", file
    if (newest := checkpoints.newest(run.folder)) is not None:
        for file in sorted(newest[1].iterdir()):
            yield f"{home}/{checkpoints.FOLDER}/{newest[1].name}/{file.name}", file
    for key in portable_keys(workspace, settings):
        yield f"cache/{key}.safetensors", workspace.cache / f"{key}.safetensors"


def _named(workspace: Workspace, settings: TrainSettings, config: dict[str, object]) -> Iterator[tuple[str, Path]]:
    """Yield the files that settings name, and replace their paths in `config` with those in the remote folder."""
    if (lora := initial_lora(workspace, settings)) is not None:
        if lora.is_relative_to(workspace.runs):
            yield f"runs/{settings.start_from}/{lora.name}", lora
        else:
            path = _input(lora)
            config["start_from"] = BELOW + path
            yield path, lora
    for frozen in frozen_loras(workspace, settings):
        path = _input(frozen.path)
        config[frozen.setting] = f"{BELOW}{path}={frozen.scale:g}"
        yield path, frozen.path
    pictures = [named_paths.resolve(name, "preview_images") for name in settings.preview_images]
    config["preview_images"] = [BELOW + _input(picture) for picture in pictures]
    yield from ((_input(picture), picture) for picture in pictures)


def _input(file: Path) -> str:
    """Return a file's path in the bundle, which depends only on its local path."""
    return f"inputs/{hashlib.sha256(str(file).encode()).hexdigest()[:12]}/{file.name}"


# ---- what is brought back -------------------------------------------------------------------------------------------


class Detached(Exception):
    """Raised to end this process without a result: the run continues elsewhere, or died there."""


class RemoteJob(jobs.Job):
    """The local job. It ends with `remote_result`, the run's result on the target, which `main` sets."""

    remote_result: Mapping[str, Any]

    @property
    def signalled(self) -> bool:
        """Whether this process was asked to end by a signal, which is not the stop command."""
        return self._stop_signal.is_set()

    def take(self, command: jobs.Command) -> dict[str, Any] | None:
        """Take a command, but do not count a signal as one."""
        if command == "stop" and self.signalled and not (self.folder / jobs.CONTROL / command).exists():
            return None
        return super().take(command)

    def _end(self, status: jobs.State, message: str) -> None:
        if status is not jobs.State.FINISHED:
            super()._end(status, message)
            return
        self.exit_code = ExitCode(self.remote_result.get("exit_code", ExitCode.BUG))
        self._write_result(dict(self.remote_result))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, Detached):
            self._over.set()
            self.exit_code = ExitCode.STOPPED
            self._reserved.unlink(missing_ok=True)
            return True
        return super().__exit__(kind, error, trace)


class RunSync:
    """Sends a run to a target and follows it to its end."""

    def __init__(self, folder: Path, job: RemoteJob, backend: Backend, record: RemoteRecord) -> None:
        self._folder, self._job, self._backend, self._record = folder, job, backend, record
        self._run, self._workspace = Run(folder), Workspace.of(folder)
        self._listing = ""
        self._files: dict[str, Sequence[int]] = {}
        self._seen: dict[str, Sequence[int]] = read_object(folder / SCRATCH / SEEN)
        self._fetcher = ThreadPoolExecutor(1, "fetch")
        self._fetching: Future[None] | None = None
        self._pending: list[tuple[jobs.Command, dict[str, Any]]] = []
        self._last_beat: dict[str, Any] = {}
        self._sent_from: list[int] = []  # the step of the checkpoint that was sent, if any

    def run_to_end(self) -> dict[str, Any]:
        """Send the run, unless it is on the target already, follow it to its end and return its result.

        Raises Detached if the run continues without this process, or died on the target.
        """
        self._report(f"connecting to {self._record.target}")
        self._backend.connect()
        if not self._record.open or self._retry(lambda: self._backend.poll("")).state == jobs.State.NEW:
            self._send_run()
        while True:
            state = self._retry(lambda: self._backend.poll(self._listing))
            self._take(state)
            self._pass_on()
            if not state.alive:
                result = self._finish()
                if result is not None:
                    return result
            time.sleep(POLL_SECONDS)

    # ---- on the target

    def _send_run(self) -> None:
        run, record = self._run, self._record
        if note := checkpoints.beginning(run.folder, checkpoints.from_start_requested()).note:
            log(note)
        self._sent_from = run.checkpoints[-1:]
        files = bundle(self._workspace, run, lambda count: self._report("gathering the run's files", count))
        if not record.folder:
            record.folder = f"{run.name}-{os.urandom(3).hex()}"
        record.stop_requested, record.sent_at = False, time.time()

        def progress(sent: int, total: int) -> None:
            self._report(f"sending to {record.target}", sent // 1_000_000, -(-total // 1_000_000), message="in MB")

        self._retry(lambda: self._backend.upload(files, progress))
        # The local log already has what an earlier start wrote.
        record.log_bytes = self._retry(lambda: self._backend.poll("")).growing.get(jobs.LOG, 0)
        record.open = True  # set before it starts: from now on it may be running on the target
        record.save(self._folder)
        record.job = self._retry(self._backend.start)
        record.save(self._folder)
        log(f"sent to {record.target}, {len(files)} files")

    def _pass_on(self) -> None:
        """Pass on local commands. A stop is recorded, to distinguish it from a run that the target itself stops."""
        self._leave_if_signalled()
        for command in COMMANDS:
            if (payload := self._job.take(command)) is not None:
                self._pending.append((command, payload))
                if command == "stop":
                    self._record.stop_requested = True
                    self._record.save(self._folder)
        while self._pending:
            command, payload = self._pending[0]
            self._retry(lambda command=command, payload=payload: self._backend.send(command, payload))
            self._pending.pop(0)

    def _leave_if_signalled(self) -> None:
        """On SIGTERM end this process but not the run; if the run was asked to stop before, kill it."""
        if self._job.signalled:
            if self._record.stop_requested:
                with contextlib.suppress(Unreachable):
                    self._backend.kill()
            raise Detached(f"the run continues on {self._record.target}: start it again to follow it")

    def _retry(self, request: Any) -> Any:
        """Call `request`, connecting again as often as the connection is lost, and return its result."""
        attempts = 0
        while True:
            try:
                return request()
            except Unreachable as error:
                if self._last_beat:
                    message = f"{error}; the run continues there, trying to reconnect"
                    self._job.beat(**{**self._last_beat, "message": message, "patient": True})
                else:
                    self._report(f"{self._record.target} does not answer", message=str(error))
                end = time.monotonic() + RETRY_SECONDS[min(attempts, len(RETRY_SECONDS) - 1)]
                attempts += 1
                while time.monotonic() < end:
                    self._leave_if_signalled()
                    time.sleep(0.1)
                with contextlib.suppress(Unreachable):
                    self._backend.connect()

    # ---- in the local folder

    def _take(self, state: RemoteState) -> None:
        beat = {name: value for name, value in state.beat.items() if name not in ("time", "still")}
        if state.state in (jobs.State.NEW, jobs.State.STARTING) or not beat:
            beat = {"phase": state.message or f"waiting for {self._record.target}", "patient": True}
        if beat != self._last_beat:
            self._last_beat = beat
            self._job.beat(**beat)
        if state.files is not None:
            self._files, self._listing = dict(state.files), state.listing
        for path, size in state.growing.items():
            self._grow(path, size)
        if self._fetching is None or self._fetching.done():
            if self._fetching is not None:
                with contextlib.suppress(Unreachable):  # the next poll will notice
                    self._fetching.result()
            self._fetching = self._fetcher.submit(self._fetch_new, dict(self._files), self._listing)
        self._record.synced_at = time.time()

    def _grow(self, path: str, size: int, verify: bool = False) -> None:
        """Append what a growing file has gained; reread it if it was truncated. verify: compare its end in any case.

        The local log has lines of its own, so the record says how much of the remote log it contains.
        """
        target = self._target(path)
        if path == jobs.LOG:
            if size < self._record.log_bytes:
                self._record.log_bytes = 0
            if data := self._read(path, self._record.log_bytes, size):
                with writing(target), target.open("ab") as file:
                    file.write(data)
                self._record.log_bytes += len(data)
                self._record.save(self._folder)
            return
        held = target.stat().st_size if target.exists() else 0
        if size == held and not verify:
            return
        overlap = min(TAIL, held)
        if size >= held and overlap:
            data = self._read(path, held - overlap, size)
            with writing(target), target.open("ab+") as file:
                file.seek(held - overlap)
                if file.read(overlap) == data[:overlap]:
                    file.write(data[overlap:])
                    return
        write_bytes(target, self._read(path, 0, size))

    def _read(self, path: str, start: int, end: int) -> bytes:
        parts = []
        while start < end:
            data = self._retry(lambda start=start: self._backend.read(path, start, min(BLOCK, end - start)))
            if not data:
                break
            parts.append(data)
            start += len(data)
        return b"".join(parts)

    def _fetch_new(self, files: Mapping[str, Sequence[int]], listing: str) -> None:
        """Fetch the other files that are new or changed: checkpoints as a whole, JSON last because it marks completion.

        Raises Unreachable, CannotWrite.
        """
        wanted = [path for path, facts in files.items() if list(self._seen.get(path, ())) != list(facts)]
        rest = []
        for path in wanted:
            parts = Path(path).parts
            if parts[0] == checkpoints.FOLDER and len(parts) > 2:
                if parts[-1] == checkpoints.MANIFEST:
                    self._fetch_checkpoint(parts[1], files, listing)
            else:
                rest.append(path)
        for path in sorted(rest, key=lambda path: (path.endswith(".json"), files[path][1])):
            with contextlib.suppress(FileNotFoundError):
                self._fetch_file(path, listing)
                self._seen[path] = list(files[path])
        if wanted:
            write_json(self._folder / SCRATCH / SEEN, self._seen)

    def _fetch_file(self, path: str, listing: str) -> None:
        target = self._target(path)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            self._backend.fetch(path, temporary, listing)
            with writing(target):
                disk.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)

    def _fetch_checkpoint(self, name: str, files: Mapping[str, Sequence[int]], listing: str) -> None:
        """Fetch a checkpoint completely or not at all. One that is removed in the meantime is skipped."""
        prefix = f"{checkpoints.FOLDER}/{name}/"
        paths = [path for path in files if path.startswith(prefix)]
        final = self._target(prefix.rstrip("/"))
        if not checkpoints.verified(final):
            temporary = final.with_name(f".tmp-{name.removeprefix('step-')}-{os.getpid()}")
            try:
                for path in paths:
                    self._backend.fetch(path, temporary / Path(path).name, listing)
                if not checkpoints.verified(temporary):
                    return
                with writing(final):
                    shutil.rmtree(final, ignore_errors=True)
                    disk.replace(temporary, final)
            except FileNotFoundError:
                return
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
            keep, every = self._run.settings.keep_checkpoints, self._run.settings.keep_every
            checkpoints.retire(self._folder, keep, every, int(name.removeprefix("step-")))
        self._seen |= {path: list(files[path]) for path in paths}

    def _target(self, path: str) -> Path:
        """Return the local path of a remote file. Raises ConfigError if runs have no such file."""
        if not synced(path):
            raise ConfigError(f"{self._record.target} offers the file {path[:120]!r}, which no run has")
        return confined(self._folder, path)

    def _finish(self) -> dict[str, Any] | None:
        """Fetch the rest and return the run's result; None if it was only interrupted and is sent again.

        Raises Detached if it died.
        """
        message = f"fetching the rest from {self._record.target}"
        self._job.beat(**{**self._last_beat, "message": message, "patient": True})
        if self._fetching is not None:
            with contextlib.suppress(Unreachable):
                self._fetching.result()
        state = self._retry(lambda: self._backend.poll(""))
        for path, size in state.growing.items():
            self._grow(path, size, verify=True)
        self._files = dict(state.files or {})
        self._retry(lambda: self._fetch_new(self._files, state.listing))
        progressed = self._run.checkpoints[-1:] != self._sent_from
        if state.interrupted and progressed and not self._record.stop_requested:
            log(f"{self._record.target} stopped the run; sending it again")
            self._send_run()
            return None
        self._record.open = False
        self._record.save(self._folder)
        if not state.result:
            process = self._folder / jobs.PROCESS  # with what it died of, so that the local message is the same
            with contextlib.suppress(CannotWrite):
                write_json(process, {**read_object(process), **state.death})
            raise Detached(f"the run died on {self._record.target}")
        return dict(state.result)

    # ---- messages

    def _report(self, phase: str, step: int = 0, total: int = 0, message: str = "") -> None:
        self._leave_if_signalled()
        self._job.check_stop("Stopped before it was sent; start it again to continue.")
        self._job.beat(phase, step, total, message=message, patient=True)

    def close(self) -> None:
        """Close the connection. Files that are being fetched will be fetched again next time."""
        self._fetcher.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(Unreachable, CannotWrite):
            self._backend.close()
