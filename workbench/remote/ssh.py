"""Runs on a machine reached by ssh: sshfs (fsspec over asyncssh) copies files, `server` answers calls.

Both use one connection. Keys, agent, jump hosts and known hosts come from the user's ssh config. A host whose key is
not known is always refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from workbench.errors import CannotWrite, ConfigError, ExitCode
from workbench.remote.base import FolderBackend, RemoteState, Unreachable, environment_checks
from workbench.remote.remote_folder import RemoteFolder
from workbench.remote.server import READY, message
from workbench.snapshots import Check
from workbench.workspace import named_paths

if TYPE_CHECKING:
    import asyncssh

ANSWER_SECONDS = 120.0  # the target may have to hash a large checkpoint
CONNECT_SECONDS = 20.0
KEEPALIVE_SECONDS = 10.0
MODULE = "workbench.remote.server"


class SshBackend(FolderBackend):
    """One run on one machine."""

    kind = "ssh"
    imports = ("asyncssh", "sshfs")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.files = None
        self._server: asyncssh.SSHClientProcess[bytes] | None = None
        self._calling = threading.Lock()  # one call at a time

    # ---- the connection

    def connect(self) -> None:
        import asyncssh
        from fsspec.asyn import sync
        from sshfs import SSHFileSystem

        if not self.target.host:
            raise ConfigError(
                f"host is empty: name the machine, as in workbench targets add ssh {self.name} --host gpu1"
            )
        self.close()
        user, _, host = self.target.host.rpartition("@")
        config = [str(named_paths.resolve(self.target.ssh_config, "ssh_config"))] if self.target.ssh_config else ()
        given = {"config": config, **({"username": user} if user else {})}
        with self.errors(), _refusals(host):
            if asyncssh.SSHClientConnectionOptions(host=host, **given).known_hosts is None:
                raise ConfigError(f"the ssh config turns off the check of {host}'s key: remove UserKnownHostsFile none")
            self.files = SSHFileSystem(
                host,
                known_hosts=(),  # use the user's; by default sshfs accepts any key
                keepalive_interval=KEEPALIVE_SECONDS,
                login_timeout=CONNECT_SECONDS,
                connect_timeout=CONNECT_SECONDS,
                timeout=3 * CONNECT_SECONDS,
                skip_instance_cache=True,
                **given,
            )
            sync(self.files.loop, self._start_server, timeout=3 * CONNECT_SECONDS)

    async def _start_server(self) -> None:
        home, path = ("~/", self.target.python[2:]) if self.target.python.startswith("~/") else ("", self.target.python)
        command = f"{home}{shlex.quote(path)} -P -m {MODULE}"  # the remote shell has to expand ~
        self._server = await self.files.client.create_process(command, encoding=None)
        while (line := await self._server.stdout.readline()) != READY:
            if not line:
                output = (await self._server.stderr.read()).decode("utf-8", "replace").strip()
                raise ConfigError(
                    f"{self.target.host} cannot run the workbench with {self.target.python}: "
                    f"{output.splitlines()[-1][:200] if output else 'no message'}. Install it there, or set python"
                )

    def close(self) -> None:
        from fsspec.asyn import sync

        async def disconnect() -> None:
            self.files.client.abort()
            await self.files.client.wait_closed()
            await asyncio.sleep(0.05)  # its transports close a little later

        self._server = None
        if self.files is not None:
            with contextlib.suppress(TimeoutError):
                sync(self.files.loop, disconnect, timeout=CONNECT_SECONDS)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        import asyncssh

        try:
            yield
        except (FileNotFoundError, asyncssh.HostKeyNotVerifiable, asyncssh.ConfigParseError):
            raise
        except (asyncssh.SFTPNoConnection, asyncssh.SFTPConnectionLost) as error:
            raise Unreachable(f"{self.target.host}: the connection was lost") from error
        except asyncssh.SFTPError as error:
            raise CannotWrite(f"{self.name} refuses a file: {error.reason}: check folder and disk there") from error
        # ValueError: sshfs could not open a channel.
        except (OSError, asyncssh.Error, asyncio.IncompleteReadError, EOFError, ValueError) as error:
            raise Unreachable(f"{self.target.host}: {str(error) or 'it does not answer'}") from error

    # ---- calls

    def call(self, name: str, **values: Any) -> Any:
        from fsspec.asyn import sync

        with self._calling, self.errors():
            if self._server is None:
                raise EOFError
            question = {"call": name, "of": [self.root, self.record.folder, self.run], "with": values}
            answer = sync(self.files.loop, self._answer, question, timeout=ANSWER_SECONDS)
        if "error" in answer:
            kind = CannotWrite if answer.get("code") == ExitCode.CANNOT_WRITE else ConfigError
            raise kind(f"{self.target.host}: {answer['error']}")
        return answer["value"]

    async def _answer(self, question: Any) -> dict[str, Any]:
        assert self._server is not None
        self._server.stdin.write(message(question))
        line = await self._server.stdout.readline()
        if not line:
            raise EOFError
        found: dict[str, Any] = json.loads(await self._server.stdout.readexactly(int(line)))
        return found

    def check(self) -> list[Check]:
        self.connect()
        remote, local = self.call("environment"), RemoteFolder.environment()
        checks = environment_checks(remote, local, self.call("free_bytes"))
        return [Check.of("host", self.target.host), *checks]

    def start(self) -> str:
        self.call("start")
        if command := self.target.when_idle.strip():
            self.call("stop_when_idle", command=command, minutes=self.target.idle_minutes)
        return ""

    def poll(self, listing: str) -> RemoteState:
        found = self.call("poll", listing=listing)
        return RemoteState(alive=found["state"] in ("starting", "running", "paused", "stopping"), **found)


@contextlib.contextmanager
def _refusals(host: str) -> Iterator[None]:
    """Raise ConfigError for errors that connecting again would not fix."""
    import asyncssh

    try:
        yield
    except asyncssh.HostKeyNotVerifiable as error:
        raise ConfigError(
            f"the key of {host} is not known, or has changed: connect once with `ssh {host}` and verify the key"
        ) from error
    except (asyncssh.PermissionDenied, PermissionError) as error:
        raise ConfigError(f"{host} accepts none of your keys: `ssh {host}` must work without a password") from error
    except (asyncssh.ConfigParseError, FileNotFoundError) as error:
        raise ConfigError(f"the ssh config cannot be read: {error}") from error
