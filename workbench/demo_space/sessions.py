"""Visitors' sessions: create, hand out, watch and remove them.

    <root>/<id>/workspace/         the visitor's workspace
    <root>/<id>/tmp/  home/        uploads; the home folder of programs
    <root>/<id>/address.json       {port}: written by the page once it listens, on this machine only
    <root>/<id>/page.log

A session's process gets an environment without tokens, a folder for its files, and a secret that only the proxy knows
and every request must carry. It ends with this process. A visitor's jobs end with the session.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from workbench import jobs
from workbench.demo_space.limits import Limits, allowed
from workbench.errors import ConfigError, WorkbenchError
from workbench.jobs import platform, processes, quota
from workbench.workspace import disk, make_folder, read_json, read_object, size_of, writing

MODULE = "workbench.ui.server.session_page"
PROXY_SECRET = "WORKBENCH_PROXY_SECRET"  # processes.environment hides a variable of this name from the session's jobs
LOGIN = "WORKBENCH_LOGIN"  # where the owner signs in, shown in the page
REMOVE_SECONDS = 10.0
REMOVALS, REMOVALS_APART = 20, 0.1  # attempts at removing a session's files, and the seconds between them
ZERO_GPU = "SPACES_ZERO_GPU"
PREFIX = "workbench-visitors-"
SESSION = re.compile(r"[0-9a-f]{32}")


@dataclass
class DemoSession:
    """The session of one visitor."""

    folder: Path
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    process: subprocess.Popen[bytes] | None = None
    # born, seen: when it was handed out and last used, in monotonic seconds
    born: float = field(default_factory=time.monotonic)
    seen: float = field(default_factory=time.monotonic)
    address: str = ""  # the visitor's network address
    uploading: list[int] = field(default_factory=list)  # bytes of each upload in progress
    _port: int | None = None

    @property
    def port(self) -> int | None:
        """The port of its page; None while it starts."""
        if self._port is None and (self.folder / "address.json").exists():
            self._port = int(read_json(self.folder / "address.json")["port"])
        return self._port

    @property
    def broken(self) -> bool:
        return self.process is None or self.process.poll() is not None


class DemoSessions:
    """All sessions of this server. `close` ends them."""

    def __init__(self, root: Path, limits: Limits | None = None, login: bool = False) -> None:
        """Start with spare sessions. root: a folder used only for visitors; login: whether an owner can sign in."""
        self._login = login
        self.root, self.limits = root.resolve(), limits or Limits()
        self._open: dict[str, DemoSession] = {}
        self._spare: list[DemoSession] = []
        self._lock = threading.Lock()
        self._counting = threading.Lock()  # for uploads; separate, because counting reads the disk
        self._over = threading.Event()
        with writing(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            self.root.chmod(0o700)
        _clear(self.root)
        self._prepare()
        threading.Thread(target=self._keep_removing, daemon=True).start()

    def get(self, visitor: str) -> DemoSession | None:
        """Return a visitor's session, or None, and keep it open."""
        with self._lock:
            session = self._open.get(visitor)
            if session is not None and session.broken:
                del self._open[visitor]
                self._remove(session)
                session = None
        if session is not None:
            session.seen = time.monotonic()
        return session

    def open(self, visitor: str, address: str = "") -> DemoSession | None:
        """Return a visitor's session, or a new one. None if all are taken, or all for one address."""
        if (known := self.get(visitor)) is not None:
            return known
        with self._lock:
            same = sum(session.address == address for session in self._open.values())
            if self._over.is_set() or len(self._open) >= self.limits.sessions or same >= self.limits.per_address:
                return None
            self._spare = [session for session in self._spare if not session.broken]
            session = self._spare.pop(0) if self._spare else self._create()
            session.born = session.seen = time.monotonic()
            session.address = address
            self._open[visitor] = session
        threading.Thread(target=self._prepare, daemon=True).start()
        return session

    def reserve(self, session: DemoSession, size: int | None) -> int:
        """Reserve the bytes of an upload before it starts, so that parallel uploads stay within the limits.

        Returns the reserved bytes, for `release`: the maximum if the size is unknown. Raises Full.
        """
        limits, size = self.limits, self.limits.upload if size is None else size
        with self._counting:
            count = sum(len(files) for _, _, files in os.walk(session.folder / "tmp")) + len(session.uploading)
            if count >= limits.files:
                raise Full(f"Your workspace is full: this demo accepts {limits.files} files per visitor.")
            if size_of(session.folder) + sum(session.uploading) + size > limits.size:
                raise Full(f"Your workspace is full: this demo keeps {limits.size // 10**6} MB per visitor.")
            if len(session.uploading) >= limits.uploads:
                raise Full(f"You already have {limits.uploads} uploads in progress: wait until one is done.")
            session.uploading.append(size)
        return size

    def release(self, session: DemoSession, reserved: int) -> None:
        with self._counting:
            session.uploading.remove(reserved)

    def remove_expired(self, now: float | None = None) -> list[Path]:
        """Remove sessions that are idle, too old or too large, and end jobs that exceed their time."""
        now = time.monotonic() if now is None else now
        limits = self.limits
        with self._lock:
            current = dict(self._open)
        sizes = {visitor: size_of(session.folder) for visitor, session in current.items()}
        expired = [
            visitor
            for visitor, session in current.items()
            if sizes[visitor] > 2 * limits.size
            or session.broken
            or now - session.seen > limits.idle
            or now - session.born > limits.longest
        ]
        kept = sorted(set(current) - set(expired), key=lambda visitor: sizes[visitor])
        total = sum(sizes[visitor] for visitor in kept)
        while total > limits.total:  # remove the largest first
            expired.append(kept.pop())
            total -= sizes[expired[-1]]
        for visitor in expired:
            with self._lock:
                self._open.pop(visitor, None)
            self._remove(current[visitor])
        for visitor in kept:
            _end_old_jobs(current[visitor].folder, limits.job)
        return [current[visitor].folder for visitor in expired]

    def close(self) -> None:
        """End all sessions and remove their files."""
        self._over.set()
        with self._lock:
            for session in (*self._open.values(), *self._spare):
                self._remove(session)
            self._open, self._spare = {}, []
            _clear(self.root)
            (self.root / quota.LOCK).unlink(missing_ok=True)

    # ---- one session

    def _prepare(self) -> None:
        with self._lock:
            while len(self._spare) < self.limits.spare and not self._over.is_set():
                self._spare.append(self._create())

    def _create(self) -> DemoSession:
        folder = self.root / secrets.token_hex(16)
        for part in ("workspace", "tmp", "home"):
            with writing(folder):
                (folder / part).mkdir(parents=True)
        session = DemoSession(folder)
        _start(session, self._environment(session))
        return session

    def _environment(self, session: DemoSession) -> dict[str, str]:
        """Return the environment of a session's page: no tokens, no GPU, its own folders."""
        home, temporary = str(session.folder / "home"), str(session.folder / "tmp")
        own = {
            PROXY_SECRET: session.secret,
            "HOME": home,
            "TMPDIR": temporary,
            "GRADIO_TEMP_DIR": f"{temporary}/page",
            "HF_HOME": home,
            "GRADIO_ANALYTICS_ENABLED": "False",
            "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
            "OMP_NUM_THREADS": "1",
            "MALLOC_ARENA_MAX": "2",
        }
        if ZERO_GPU not in os.environ:  # ZeroGPU attaches a GPU only during calls
            own["CUDA_VISIBLE_DEVICES"] = ""
        if self._login:
            own[LOGIN] = "/login/huggingface"
        if not allowed():
            own["HF_HUB_OFFLINE"] = "1"
        return processes.environment(account=False) | own | self.limits.variables(session.folder)

    def _remove(self, session: DemoSession) -> None:
        if session.process is not None:  # first, so that it starts nothing more
            with contextlib.suppress(psutil.Error):  # so that it stays their parent until all are killed
                psutil.Process(session.process.pid).suspend()
            processes.end_children(session.process.pid)
            session.process.kill()
            session.process.wait()
            if session.process.stdin:
                session.process.stdin.close()
        _empty(session.folder)

    def _keep_removing(self) -> None:
        while not self._over.wait(REMOVE_SECONDS):
            with contextlib.suppress(OSError, WorkbenchError):
                self.remove_expired()


class Full(Exception):
    """An upload exceeds a limit. Its text is the answer."""


def _clear(root: Path) -> None:
    """Remove the sessions of a killed server, and empty folders that its last page made after that."""
    for folder in root.glob("*"):
        if SESSION.fullmatch(folder.name) and folder.is_dir():
            files = (path for path in folder.rglob("*") if not path.is_dir())
            if (folder / "page.log").exists() or next(files, None) is None:
                _empty(folder)


def _empty(session: Path) -> None:
    """Kill a visitor's jobs and remove the session."""
    for job in (found := _jobs(session)):
        with contextlib.suppress(ConfigError):
            processes.end(read_object(job / jobs.PROCESS))
    for job in found:
        jobs.wait(job, 2.0)
    for _ in range(REMOVALS):
        shutil.rmtree(session, ignore_errors=True)
        if not session.exists():
            break
        time.sleep(REMOVALS_APART)  # for a killed process to finish its last write


def owner_session(folder: Path, workspace: Path) -> DemoSession:
    """Start an unrestricted session over a persistent workspace, for the owner of the server."""
    make_folder(folder / "home")
    (folder / "address.json").unlink(missing_ok=True)
    session = DemoSession(folder)
    own = {"WORKBENCH_HOME": str(workspace), PROXY_SECRET: session.secret, "GRADIO_TEMP_DIR": str(folder / "page")}
    _start(session, {**os.environ, **own, "PYTHONPATH": processes.environment()["PYTHONPATH"]})
    return session


def _start(session: DemoSession, environment: dict[str, str]) -> None:
    with (session.folder / "page.log").open("ab") as log:
        # The page exits when its input ends, which happens when this process is gone.
        session.process = subprocess.Popen(
            processes.command(MODULE, session.folder),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=session.folder / "home",
            env=environment,
            **platform.detached(),
        )


def _jobs(folder: Path) -> list[Path]:
    return [path.parent for path in (folder / "workspace").rglob(jobs.PROCESS)]


def _end_old_jobs(folder: Path, seconds: float) -> None:
    """Ask jobs that exceed their time to save and stop, and kill those that do not."""
    for job in _jobs(folder):
        status = jobs.status(job)
        age = time.time() - (status.started_at or time.time())
        if status.state.alive and age > seconds + 60:
            jobs.kill(job)
        elif status.state.alive and age > seconds and status.state is not jobs.State.STOPPING:
            jobs.stop(job)


def default_root() -> Path:
    """Return a new folder for sessions, and remove those of killed servers."""
    import tempfile

    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        pid = folder.name.removeprefix(PREFIX).split("-")[0]
        if pid.isdigit() and platform.start_time(int(pid)) is None and disk.owns(folder.stat()):
            _clear(folder)
            shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
