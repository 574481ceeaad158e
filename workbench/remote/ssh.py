"""A machine reached by ssh: files go by SFTP, questions to `there`, which one connection keeps running.

Keys, agent, jump hosts and known hosts are those of the user's ssh config. A host whose key is not known is refused,
and no setting changes that. Not covered: installing the workbench there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import threading
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import TimeoutError as Late
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from workbench import policy
from workbench.errors import CannotWrite, ConfigError, ExitCode
from workbench.remote import folder
from workbench.remote.base import Backend, Lost, RemoteState, TargetCheck, Tell, findings
from workbench.remote.server import READY, message
from workbench.workspace import writing

if TYPE_CHECKING:
    import asyncssh

T = TypeVar("T")
PATIENCE = 120.0  # seconds for an answer; hashing a large checkpoint there takes its time
CONNECT_SECONDS = 20.0
ALIVE_SECONDS = 10.0  # between two signs of life of a silent connection
BLOCK = 1 << 20
BATCH = 64  # files between two looks at what has arrived whole
MODULE = "workbench.remote.server"


class SshEngine(Backend):
    """One run on one machine."""

    kind = "ssh"
    extra = "ssh"
    imports = ("asyncssh",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: asyncssh.SSHClientConnection | None = None
        self._agent: asyncssh.SSHClientProcess[bytes] | None = None
        self._sftp: asyncssh.SFTPClient | None = None
        self._asking = threading.Lock()  # one question at a time
        self._folder = ""  # the run's, there

    # ---- the connection

    def open(self) -> None:
        if not self.place.host:
            raise ConfigError(
                f"host is empty: name the machine, as in workbench places add ssh {self.name} --host gpu1"
            )
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="ssh", daemon=True)
            self._thread.start()
        with self._explained():
            self._do(self._connect(), 3 * CONNECT_SECONDS)

    async def _connect(self) -> None:
        import asyncssh

        await self._disconnect()
        user, _, host = self.place.host.rpartition("@")
        files = [str(policy.resolve(self.place.ssh_config, "ssh_config"))] if self.place.ssh_config else ()
        options = asyncssh.SSHClientConnectionOptions(
            config=files, host=host, keepalive_interval=ALIVE_SECONDS, login_timeout=CONNECT_SECONDS,
            connect_timeout=CONNECT_SECONDS, **({"username": user} if user else {}),
        )  # fmt: skip
        if options.known_hosts is None:  # "UserKnownHostsFile none"
            raise ConfigError(f"the ssh config turns off the check of {host}'s key: take UserKnownHostsFile none out")
        self._connection = await asyncssh.connect(host, config=files, options=options)
        self._sftp = await self._connection.start_sftp_client()
        command = f"{_shell(self.place.python)} -P -m {MODULE}"
        self._agent = await self._connection.create_process(command, encoding=None)
        while (line := await self._agent.stdout.readline()) != READY:
            if not line:
                said = (await self._agent.stderr.read()).decode("utf-8", "replace").strip()
                raise ConfigError(
                    f"{self.place.host} cannot run the workbench with {self.place.python}: "
                    f"{said.splitlines()[-1][:200] if said else 'it says nothing'}. Install it there, or set python"
                )

    def close(self) -> None:
        if self._loop is None:
            return
        with contextlib.suppress(Lost):
            self._do(self._disconnect(), CONNECT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CONNECT_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()
        self._loop = None

    async def _disconnect(self) -> None:
        connection, self._connection, self._agent, self._sftp = self._connection, None, None, None
        if connection is not None:
            connection.abort()
            await connection.wait_closed()
            await asyncio.sleep(0.05)  # its transports say goodbye after it

    def _do(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Run it in the loop's thread. Raises Lost, and what it raises."""
        import asyncssh

        assert self._loop is not None, "open() comes first"
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except asyncssh.SFTPNoSuchFile as error:
            raise FileNotFoundError(str(error)) from error
        except asyncssh.SFTPError as error:
            if isinstance(error, asyncssh.SFTPNoConnection | asyncssh.SFTPConnectionLost):
                raise Lost(f"{self.place.host}: the connection was lost") from error
            raise CannotWrite(
                f"{self.place.host} refuses a file: {error.reason}: check folder and disk there"
            ) from error
        except (OSError, asyncssh.Error, asyncio.IncompleteReadError, Late, EOFError) as error:
            future.cancel()
            if isinstance(error, asyncssh.HostKeyNotVerifiable | asyncssh.PermissionDenied | asyncssh.ConfigParseError):
                raise
            if isinstance(error, FileNotFoundError):
                raise
            raise Lost(f"{self.place.host}: {str(error) or 'it does not answer'}") from error

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """What trying again does not fix, in a sentence each."""
        import asyncssh

        host = self.place.host
        try:
            yield
        except asyncssh.HostKeyNotVerifiable as error:
            raise ConfigError(
                f"the key of {host} is not known, or another than before: connect once with `ssh {host}` and compare it"
            ) from error
        except asyncssh.PermissionDenied as error:
            raise ConfigError(
                f"{host} lets nobody in with your keys: `ssh {host}` must work without a password"
            ) from error
        except (asyncssh.ConfigParseError, FileNotFoundError) as error:
            raise ConfigError(f"the ssh config cannot be read: {error}") from error

    # ---- questions

    def _call(self, name: str, **values: Any) -> Any:
        """Ask the other side. Raises Lost, ConfigError, CannotWrite."""
        with self._asking:
            answer = self._do(self._ask({"call": name, "with": values}), PATIENCE)
        if "error" in answer:
            kind = CannotWrite if answer.get("code") == ExitCode.CANNOT_WRITE else ConfigError
            raise kind(f"{self.place.host}: {answer['error']}")
        return answer["value"]

    async def _ask(self, question: Any) -> dict[str, Any]:
        if self._agent is None:
            raise EOFError
        self._agent.stdin.write(message(question))
        line = await self._agent.stdout.readline()
        if not line:
            raise EOFError
        found: dict[str, Any] = json.loads(await self._agent.stdout.readexactly(int(line)))
        return found

    def _where(self) -> dict[str, str]:
        return {"root": self.place.folder, "box": self.record.box, "run": self.run}

    def check(self) -> list[TargetCheck]:
        self.open()
        return [
            TargetCheck("host", self.place.host),
            *findings(self._call("about"), folder.about(), self._call("room", root=self.place.folder)),
        ]

    def hand_over(self, files: Mapping[str, tuple[str, Path]], tell: Tell) -> None:
        sent = {path: sha256 for path, (sha256, _) in files.items()}
        here = {sha256: file for sha256, file in files.values()}
        lacking = self._call("missing", root=self.place.folder, box=self.record.box, files=sent)
        total, done = sum(here[sha256].stat().st_size for sha256 in lacking), 0
        if total > (free := self._call("room", root=self.place.folder)):
            raise CannotWrite(f"{self.place.host} has {free / 1e9:,.1f} GB free, {total / 1e9:,.1f} GB are to be sent")
        for start in range(0, len(lacking), BATCH):
            batch = lacking[start : start + BATCH]
            for sha256 in batch:
                tell(done, total)
                target = self._call("part", root=self.place.folder, sha256=sha256)
                self._do(self._put(here[sha256], target))
                done += here[sha256].stat().st_size
            self._call("keep", root=self.place.folder, contents=batch)
        tell(total, total)
        self._call("lay_out", **self._where(), files=sent)

    async def _put(self, file: Path, target: str) -> None:
        assert self._sftp is not None
        await self._sftp.put(str(file), target)

    def start(self) -> str:
        self._call("start", **self._where())
        return ""

    def look(self, listing: str) -> RemoteState:
        seen = self._call("look", **self._where(), listing=listing)
        return RemoteState(alive=seen["state"] in ("starting", "running", "paused", "stopping"), **seen)

    def send(self, command: str, payload: dict[str, Any]) -> None:
        self._call("send", **self._where(), command=command, payload=payload)

    def end(self) -> None:
        self._call("end", **self._where())

    # ---- files

    def _path(self, path: str) -> str:
        if not self._folder:
            self._folder = self._call("folder", **self._where())
        return f"{self._folder}/{path}"

    def read(self, path: str, start: int, size: int) -> bytes:
        return self._do(self._read(self._path(path), start, size), PATIENCE)

    async def _read(self, path: str, start: int, size: int) -> bytes:
        assert self._sftp is not None
        async with self._sftp.open(path, "rb") as file:
            data: bytes = await file.read(size, start)
            return data

    def fetch(self, path: str, target: Path) -> None:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        self._do(self._get(self._path(path), target))

    async def _get(self, path: str, target: Path) -> None:
        assert self._sftp is not None
        await self._sftp.get(path, str(target))


def _shell(path: str) -> str:
    """A path for the shell there, which knows what ~ is."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)


ENGINE = SshEngine
