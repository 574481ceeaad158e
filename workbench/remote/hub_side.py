"""`python -m workbench.remote.hub_side REPOSITORY FOLDER RUN SECONDS`: what a job of the Hub does, in its container.

It fetches the bundle, starts the run in a box, and tells of it in two ways. Lines of the job's own log that begin with
MARK carry heartbeat, log and metrics at once; other files go into the repository as commits, a checkpoint or a preview
at a time. Commands come through the repository, too. Before the time limit it lets the run save and end.

    FOLDER/bundle.json      path in the box -> SHA-256; the files are in contents/
    FOLDER/control.json     [[number, command, payload], ...]
    FOLDER/out/             the run's files;  FOLDER/out.json      what look says of them, and how the run ended

Not covered: the other end (hub_jobs).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from workbench import jobs
from workbench.errors import ExitCode
from workbench.remote import folder as box
from workbench.remote.base import Lost
from workbench.remote.hub_folder import HubFolder
from workbench.runs.metrics import METRICS
from workbench.runs.sessions import SESSIONS

MARK = "@workbench "
LIVE = (jobs.LOG, METRICS, SESSIONS)
LOOK_SECONDS, AGAIN_SECONDS = 1.0, 10.0
COMMAND_SECONDS = float(os.environ.get("WORKBENCH_COMMAND_SECONDS", "5"))
PUSH_SECONDS = float(os.environ.get("WORKBENCH_PUSH_SECONDS", "30"))
WARNING_SECONDS = 300.0  # before the time limit
LAST_SECONDS = 600.0  # that the Hub may be silent
T = TypeVar("T")
CHUNK = 32_000  # characters of a file in one line


class Side:
    """The run's box, and the repository beside it."""

    def __init__(self, repository: HubFolder, folder: str, run: str, seconds: float) -> None:
        self._repository, self._folder = repository, folder
        self._root = tempfile.mkdtemp(prefix="workbench-")
        self._where = {"root": self._root, "box": "box", "run": run}
        self._home = Path(box.folder(**self._where))
        self._end = time.monotonic() + seconds - min(WARNING_SECONDS, seconds / 4)
        self._told: dict[str, int] = {}
        self._pushed: dict[str, Any] = {}
        self._pushes = self._done = 0
        self._said: dict[str, Any] = {}

    def go(self) -> int:
        """The whole job; returns its exit code."""
        files: dict[str, str] = json.loads(lasting(lambda: self._repository.get(f"{self._folder}/bundle.json")))
        wanted = sorted(set(files.values()))
        for number, sha256 in enumerate(wanted):
            self._tell({"phase": "fetching the run's files", "step": number, "total": len(wanted)})
            part = Path(box.part(self._root, sha256))
            lasting(partial(self._repository.fetch, f"contents/{sha256}", part))
        box.keep(self._root, wanted)
        box.lay_out(**self._where, files=files)
        self._told = {name: (self._home / name).stat().st_size for name in LIVE if (self._home / name).exists()}
        box.start(**self._where)
        next_push = next_command = time.monotonic() + min(PUSH_SECONDS, COMMAND_SECONDS)
        while True:
            seen, now = box.look(**self._where), time.monotonic()
            self._live(seen)
            if jobs.State(seen["state"]).alive is False:
                break
            if now > next_push:
                with contextlib.suppress(Lost, FileNotFoundError):  # a checkpoint that retired meanwhile
                    self._push(seen)
                next_push = time.monotonic() + PUSH_SECONDS
            if now > next_command:
                self._obey()
                next_command = time.monotonic() + COMMAND_SECONDS
            if now > self._end:
                jobs.stop(self._home)
            time.sleep(LOOK_SECONDS)
        self._finish()
        return int(seen["result"].get("exit_code", ExitCode.BUG))

    def _live(self, seen: dict[str, Any]) -> None:
        """Heartbeat and what files that grow have got since the last time, as lines of this job's log."""
        beat = {name: value for name, value in seen["beat"].items() if name not in ("time", "still")}
        self._tell({**beat, "state": seen["state"]})
        for name in LIVE:
            size, at = seen["growing"].get(name, 0), self._told.get(name, 0)
            at = 0 if size < at else at  # it was cut back
            with contextlib.suppress(FileNotFoundError), (self._home / name).open("rb") as file:
                file.seek(at)
                while at < size and (data := file.read(min(CHUNK, size - at))):
                    say({"grow": name, "at": at, "text": data.decode("utf-8", "surrogateescape")})
                    at += len(data)
            self._told[name] = at

    def _tell(self, beat: dict[str, Any]) -> None:
        if beat != self._said:
            self._said = beat
            say({"beat": beat})

    def _push(self, seen: dict[str, Any], whole: bool = False) -> None:
        """Commit files that are new or changed, and take out those that went. Raises Lost."""
        files = dict(seen["files"])
        if whole:
            files |= {name: [size, 0] for name, size in seen["growing"].items()}
        changed = {name: facts for name, facts in files.items() if self._pushed.get(name) != facts}
        gone = [name for name in self._pushed if name not in files]
        if not changed and not gone and not whole:
            return
        end = {name: seen[name] for name in ("state", "result", "death", "beat")} if whole else {}
        adds: dict[str, Path | bytes] = {
            f"{self._folder}/out/{name}": self._home / name for name in changed if (self._home / name).exists()
        }
        adds[f"{self._folder}/out.json"] = json.dumps({"files": files, "end": end}).encode()
        words = f"{self._where['run']}: {len(changed)} files"
        self._repository.put(adds, words, [f"{self._folder}/out/{name}" for name in gone])
        self._pushed, self._pushes = files, self._pushes + 1
        say({"pushes": self._pushes})

    def _obey(self) -> None:
        """Pass on commands that came since the last time."""
        with contextlib.suppress(FileNotFoundError, Lost):
            for number, command, payload in json.loads(self._repository.get(f"{self._folder}/control.json")):
                if number > self._done:
                    self._done = number
                    box.send(**self._where, command=command, payload=payload)

    def _finish(self) -> None:
        seen = box.look(**self._where)
        self._live(seen)
        lasting(lambda: self._push(seen, whole=True))


def lasting(ask: Callable[[], T]) -> T:
    """What `ask` gives, asked again while the Hub does not answer. Raises Lost after LAST_SECONDS."""
    end = time.monotonic() + LAST_SECONDS
    while True:
        try:
            return ask()
        except Lost:
            if time.monotonic() > end:
                raise
            time.sleep(AGAIN_SECONDS)


def say(value: dict[str, Any]) -> None:
    """A line of the job's log for the other end."""
    sys.stdout.write(f"{MARK}{json.dumps(value)}\n")
    sys.stdout.flush()


def main() -> int:
    repository, folder, run, seconds = sys.argv[1:]
    return Side(HubFolder(repository), folder, run, float(seconds)).go()


if __name__ == "__main__":
    sys.exit(main())
