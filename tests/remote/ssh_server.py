"""An ssh server as a process of its own: real keys, real SFTP, commands as real processes of this machine.

`python -m tests.remote.ssh_server FOLDER` writes FOLDER/ssh_config, by which it is reached as "far", last. SIGUSR1 cuts
every connection. FOLDER/connections has a byte for each that was made.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh


class SshServer:
    """The server as a test sees it. config: the ssh config with which it is reached as "far"."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.config, self._folder, self._process = folder / "ssh_config", folder, process

    @property
    def connections(self) -> int:
        return (self._folder / "connections").stat().st_size

    def cut(self) -> None:
        """Cut every connection, as a network does that goes away."""
        self._process.send_signal(signal.SIGUSR1)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[SshServer]:
    process = subprocess.Popen([sys.executable, "-m", "tests.remote.ssh_server", str(folder)])
    try:
        while not (folder / "ssh_config").exists():
            assert process.poll() is None
            time.sleep(0.02)
        yield SshServer(folder, process)
    finally:
        process.kill()
        process.wait()


async def serve(folder: Path) -> None:
    """Serve until killed."""
    opened: list[asyncssh.SSHServerConnection] = []

    class Server(asyncssh.SSHServer):
        def connection_made(self, connection: asyncssh.SSHServerConnection) -> None:
            opened.append(connection)
            with (folder / "connections").open("ab") as file:
                file.write(b".")

    def cut() -> None:
        for connection in opened:
            connection.abort()
        opened.clear()

    host_key, user_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    user_key.write_private_key(str(folder / "id"))
    (folder / "id").chmod(0o600)
    (folder / "authorized").write_bytes(user_key.export_public_key())
    (folder / "connections").touch()
    listener = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=Server,
        server_host_keys=[host_key],
        process_factory=run,
        encoding=None,
        authorized_client_keys=str(folder / "authorized"),
        sftp_factory=True,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, cut)
    known = f"[127.0.0.1]:{listener.get_port()} {host_key.export_public_key().decode()}"
    (folder / "known_hosts").write_text(known)
    config = (
        f"Host far\n  HostName 127.0.0.1\n  Port {listener.get_port()}\n  User somebody\n"
        f"  IdentityFile {folder / 'id'}\n  IdentityAgent none\n  UserKnownHostsFile {folder / 'known_hosts'}\n"
    )
    (folder / "half").write_text(config)
    (folder / "half").rename(folder / "ssh_config")
    await asyncio.Event().wait()


async def run(asked: Any) -> None:
    process = await asyncio.create_subprocess_shell(asked.command, stdin=-1, stdout=-1, stderr=-1)
    await asked.redirect(stdin=process.stdin, stdout=process.stdout, stderr=process.stderr)
    asked.exit(await process.wait())


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
