"""Visitors' rooms: made, handed out, watched and swept.

    <root>/<id>/policy.json        what its visitor may do (workbench.policy)
    <root>/<id>/workspace/         the visitor's workspace, like any other
    <root>/<id>/tmp/  home/        what is uploaded; what programs leave in a home
    <root>/<id>/address.json       {port}: written by the page when it listens, on this machine alone
    <root>/<id>/page.log

A room's process gets an environment without tokens, a folder for its files and a secret that every request must bring,
which only the door knows. It ends when this process ends. Jobs that a visitor started end with the room. Not covered:
telling visitors apart (door), the page (workbench.ui.server.session_page).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from workbench import jobs, policy
from workbench.demo_space.limits import Limits, allowed
from workbench.errors import ConfigError, WorkbenchError
from workbench.jobs import processes
from workbench.workspace import read_json, read_object, write_text, writing

MODULE = "workbench.ui.server.session_page"
DOOR_SECRET = "WORKBENCH_DOOR_SECRET"  # its name keeps it from the room's jobs (processes.environment)
LOGIN = "WORKBENCH_LOGIN"  # where the owner signs in, for the page to say so
SWEEP_SECONDS = 10.0
ZERO_GPU = "SPACES_ZERO_GPU"
PREFIX = "workbench-visitors-"
ROOM = re.compile(r"[0-9a-f]{32}")


@dataclass
class Room:
    """One visitor's.

    seen: when it was last used, monotonic; port: None while its page starts; address: where its visitor comes from
    coming: bytes of each upload that is on its way
    """

    folder: Path
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    process: subprocess.Popen[bytes] | None = None
    born: float = field(default_factory=time.monotonic)
    seen: float = field(default_factory=time.monotonic)
    address: str = ""
    coming: list[int] = field(default_factory=list)
    _port: int | None = None

    @property
    def port(self) -> int | None:
        if self._port is None and (self.folder / "address.json").exists():
            self._port = int(read_json(self.folder / "address.json")["port"])
        return self._port

    @property
    def broken(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def use(self) -> None:
        self.seen = time.monotonic()


class Rooms:
    """All rooms of this server. `close` ends them."""

    def __init__(self, root: Path, limits: Limits | None = None, login: bool = False) -> None:
        """root: a folder for visitors alone; login: whether an owner can sign in, for the page to say so"""
        self._login = login
        self.root, self.limits = root.resolve(), limits or Limits()
        self._given: dict[str, Room] = {}
        self._spare: list[Room] = []
        self._lock = threading.Lock()
        self._counting = threading.Lock()  # of what comes: it looks at the disk, and nobody who comes in waits for it
        self._over = threading.Event()
        with writing(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            self.root.chmod(0o700)
        _clear(self.root)
        self._prepare()
        threading.Thread(target=self._keep_sweeping, daemon=True).start()

    def of(self, visitor: str) -> Room | None:
        """The room of a visitor, None where there is none (any more). Using it keeps it."""
        with self._lock:
            room = self._given.get(visitor)
            if room is not None and room.broken:
                del self._given[visitor]
                self._remove(room)
                room = None
        if room is not None:
            room.use()
        return room

    def give(self, visitor: str, address: str = "") -> Room | None:
        """The room of a visitor, a new one if need be; None when all are taken, or all that one address may have."""
        if (known := self.of(visitor)) is not None:
            return known
        with self._lock:
            same = sum(room.address == address for room in self._given.values())
            if self._over.is_set() or len(self._given) >= self.limits.rooms or same >= self.limits.each:
                return None
            self._spare = [room for room in self._spare if not room.broken]
            room = self._spare.pop(0) if self._spare else self._made()
            room.born = room.seen = time.monotonic()
            room.address = address
            self._given[visitor] = room
        threading.Thread(target=self._prepare, daemon=True).start()
        return room

    def reserve(self, room: Room, size: int | None) -> int:
        """Count the bytes of an upload from its beginning: many at once bring no more than one. Raises Full.

        size: None where it is not known, as the largest. Returns what `release` takes when it is over.
        """
        limits, size = self.limits, self.limits.upload if size is None else size
        with self._counting:
            brought = sum(len(files) for _, _, files in os.walk(room.folder / "tmp")) + len(room.coming)
            if brought >= limits.files:
                raise Full(f"Your workspace is full: this demo takes {limits.files} files of one visitor.")
            if policy.size_of(room.folder) + sum(room.coming) + size > limits.size:
                raise Full(f"Your workspace is full: this demo keeps {limits.size // 10**6} MB of one visitor.")
            if len(room.coming) >= limits.uploads:
                raise Full(f"{limits.uploads} uploads of yours are on their way: wait until one is done.")
            room.coming.append(size)
        return size

    def release(self, room: Room, reserved: int) -> None:
        with self._counting:
            room.coming.remove(reserved)

    def sweep(self, now: float | None = None) -> list[Path]:
        """Remove the rooms that were left or used for too long, and the largest ones of too much; end old jobs."""
        now = time.monotonic() if now is None else now
        limits = self.limits
        with self._lock:
            given = dict(self._given)
        sizes = {visitor: policy.size_of(room.folder) for visitor, room in given.items()}
        going = [visitor for visitor, room in given.items() if sizes[visitor] > 2 * limits.size or room.broken
                 or now - room.seen > limits.idle or now - room.born > limits.longest]  # fmt: skip
        staying = sorted(set(given) - set(going), key=lambda visitor: sizes[visitor])
        total = sum(sizes[visitor] for visitor in staying)
        while total > limits.total:  # who has brought most makes room for the others
            going.append(staying.pop())
            total -= sizes[going[-1]]
        for visitor in going:
            with self._lock:
                self._given.pop(visitor, None)
            self._remove(given[visitor])
        for visitor in staying:
            _end_old_jobs(given[visitor].folder, limits.job)
        return [given[visitor].folder for visitor in going]

    def close(self) -> None:
        """End all rooms, and remove what their visitors have left."""
        self._over.set()
        with self._lock:
            for room in (*self._given.values(), *self._spare):
                self._remove(room)
            self._given, self._spare = {}, []
            (self.root / policy.LOCK).unlink(missing_ok=True)

    # ---- one room

    def _prepare(self) -> None:
        with self._lock:
            while len(self._spare) < self.limits.spare and not self._over.is_set():
                self._spare.append(self._made())

    def _made(self) -> Room:
        folder = self.root / secrets.token_hex(16)
        for part in ("workspace", "tmp", "home"):
            with writing(folder):
                (folder / part).mkdir(parents=True)
        write_text(folder / "policy.json", self.limits.policy(folder, self.root).as_json())
        room = Room(folder)
        _open(room, _environment(folder, room.secret, self._login))
        return room

    def _remove(self, room: Room) -> None:
        if room.process is not None:  # first, so that it starts nothing more
            room.process.kill()
            room.process.wait()
            if room.process.stdin:
                room.process.stdin.close()
        _empty(room.folder)

    def _keep_sweeping(self) -> None:
        while not self._over.wait(SWEEP_SECONDS):
            with contextlib.suppress(OSError, WorkbenchError):
                self.sweep()


class Full(Exception):
    """An upload that a visitor may not make now; its text is the answer."""


def _clear(root: Path) -> None:
    """Remove the rooms that a server left which was killed."""
    for rules in root.glob("*/policy.json"):
        if ROOM.fullmatch(rules.parent.name):
            _empty(rules.parent)


def _empty(room: Path) -> None:
    """End what a visitor started, at once since nothing of it stays, and remove the room."""
    for job in (found := _jobs(room)):
        with contextlib.suppress(ConfigError):
            processes.signal_group(read_object(job / jobs.PROCESS), signal.SIGKILL)
    for job in found:
        jobs.wait(job, 2.0)
    shutil.rmtree(room, ignore_errors=True)


def owners(folder: Path, workspace: Path) -> Room:
    """A room without rules, over a workspace that stays: for whom the whole server belongs to."""
    with writing(folder):
        (folder / "home").mkdir(parents=True, exist_ok=True)
    (folder / "address.json").unlink(missing_ok=True)
    room = Room(folder)
    own = {"WORKBENCH_HOME": str(workspace), DOOR_SECRET: room.secret, "GRADIO_TEMP_DIR": str(folder / "page")}
    _open(room, {**os.environ, **own, "PYTHONPATH": processes.environment()["PYTHONPATH"]})
    return room


def _open(room: Room, environment: dict[str, str]) -> None:
    """Start the page of a room."""
    with (room.folder / "page.log").open("ab") as log:
        # The page reads its input to the end, which comes when this process is gone: then it goes, too.
        room.process = subprocess.Popen(
            processes.command(MODULE, room.folder),
            stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, cwd=room.folder / "home", env=environment,
            start_new_session=True,
        )  # fmt: skip


def _environment(folder: Path, secret: str, login: bool) -> dict[str, str]:
    """Of a room's page: without tokens, without a GPU, with folders of its own."""
    kept = processes.environment(account=False)
    own = {
        policy.VARIABLE: str(folder / "policy.json"), DOOR_SECRET: secret, "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"), "GRADIO_TEMP_DIR": str(folder / "tmp" / "page"), "HF_HOME": str(folder / "home"),
        "GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "OMP_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
    }  # fmt: skip
    if ZERO_GPU not in os.environ:  # whose GPU comes and goes with each call
        own["CUDA_VISIBLE_DEVICES"] = ""
    if login:
        own[LOGIN] = "/login/huggingface"
    return kept | own | ({} if allowed() else {"HF_HUB_OFFLINE": "1"})


def _jobs(folder: Path) -> list[Path]:
    return [path.parent for path in (folder / "workspace").rglob(jobs.PROCESS)]


def _end_old_jobs(folder: Path, seconds: float) -> None:
    """Let what a visitor started save and end after its time; what does not is ended."""
    for job in _jobs(folder):
        status = jobs.status(job)
        age = time.time() - (status.started_at or time.time())
        if status.state.alive and age > seconds + 60:
            jobs.kill(job)
        elif status.state.alive and age > seconds and status.state is not jobs.State.STOPPING:
            jobs.stop(job)


def default_root() -> Path:
    """Where rooms are kept: a new folder. Those of servers that were killed are removed."""
    import tempfile

    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        pid = folder.name.removeprefix(PREFIX).split("-")[0]
        if pid.isdigit() and processes.start_time(int(pid)) is None and folder.stat().st_uid == os.getuid():
            _clear(folder)
            shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
