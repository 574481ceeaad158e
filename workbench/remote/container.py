"""`python -m workbench.remote.container REPOSITORY FOLDER RUN SECONDS`: the program of a Hub job's container.

It downloads the bundle and starts the run in a remote folder. It reports in two ways: lines of the job's own log that
begin with MARK carry heartbeat, log and metrics immediately; all other files are committed to the repository as they
appear. Commands come through the repository, too. Before the time limit the run saves and ends.

    FOLDER/bundle.json      path in the remote folder -> SHA-256; the files are in contents/
    FOLDER/control.json     [[number, command, payload], ...]
    FOLDER/out/             the run's files
    FOLDER/out.json         what poll reports about them, and how the run ended
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from workbench import hub, jobs
from workbench.errors import ConfigError, ExitCode
from workbench.remote.base import Unreachable
from workbench.remote.remote_folder import RemoteFolder, link_or_copy
from workbench.runs.metrics import METRICS, SESSIONS
from workbench.workspace import disk, make_folder, writing

MARK = "@workbench "
LIVE = (jobs.LOG, METRICS, SESSIONS)
POLL_SECONDS, AGAIN_SECONDS = 1.0, 10.0
COMMAND_SECONDS = float(os.environ.get("WORKBENCH_COMMAND_SECONDS", "5"))
PUSH_SECONDS = float(os.environ.get("WORKBENCH_PUSH_SECONDS", "30"))
WARNING_SECONDS = 300.0  # how long before the time limit the run is asked to save and end
LAST_SECONDS = 600.0  # how long the Hub may not answer
T = TypeVar("T")
CHUNK = 32_000  # bytes of a file in one line
KIND = "dataset"
BATCH = 500  # paths per request
Content = Path | bytes


# ---- the repository -------------------------------------------------------------------------------------------------


class HubFolder:
    """A private dataset repository used as a folder that two machines share. Each `put` is a commit.

    huggingface_hub finds the token by itself: a login, or HF_TOKEN in a job.
    """

    def __init__(self, repo_id: str) -> None:
        self.repo_id = repo_id

    def create(self) -> None:
        """Create the repository, private, if it does not exist. Raises ConfigError if it is public, Unreachable."""
        api = hub.client()
        with explained(self.repo_id):
            api.create_repo(self.repo_id, repo_type=KIND, private=True, exist_ok=True)
            if not api.dataset_info(self.repo_id).private:
                raise ConfigError(f"{self.repo_id} is public, so clips and weights would be, too: name another one")

    def missing(self, paths: Iterable[str]) -> list[str]:
        """Return the paths that the repository does not have. Raises ConfigError, Unreachable."""
        wanted, present, api = list(paths), set[str](), hub.client()
        with explained(self.repo_id):
            for start in range(0, len(wanted), BATCH):
                found = api.get_paths_info(self.repo_id, wanted[start : start + BATCH], repo_type=KIND)
                present |= {one.path for one in found}
        return [path for path in wanted if path not in present]

    def put(self, files: Mapping[str, Content], message: str, gone: Iterable[str] = ()) -> str:
        """Add or replace some files and remove others in one commit; return its id. Raises ConfigError, Unreachable."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        changes: list[CommitOperationAdd | CommitOperationDelete] = [CommitOperationDelete(path) for path in gone]
        changes += [CommitOperationAdd(path, content) for path, content in files.items()]
        with explained(self.repo_id):
            return str(hub.client().create_commit(self.repo_id, changes, commit_message=message, repo_type=KIND).oid)

    def get(self, path: str, commit: str = "") -> bytes:
        """Return the content of a small file. Raises FileNotFoundError, ConfigError, Unreachable."""
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "file"
            self.fetch(path, target, commit)
            return target.read_bytes()

    def fetch(self, path: str, target: Path, commit: str = "") -> None:
        """Download a file as of a commit, or the newest version.

        Raises FileNotFoundError, ConfigError, Unreachable, CannotWrite.
        """
        make_folder(target.parent)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".hub-") as folder:
            with explained(self.repo_id):
                found = hub.client().hf_hub_download(
                    self.repo_id, path, repo_type=KIND, local_dir=folder, revision=commit or None
                )
            with writing(target):
                disk.replace(found, target)


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Translate the errors of workbench.hub for callers that try again.

    Raises Unreachable if trying again may help, ConfigError if not, and FileNotFoundError.
    """
    try:
        with hub.explained(what):
            yield
    except hub.HubRefuses as error:
        raise ConfigError(str(error)) from error
    except hub.HubLost as error:
        raise Unreachable(str(error)) from error


# ---- the job --------------------------------------------------------------------------------------------------------


class JobContainer:
    """A run in its remote folder, reported to the log and the repository."""

    def __init__(self, repository: HubFolder, folder: str, run: str, seconds: float) -> None:
        self._repository, self._folder = repository, folder
        self._run, self._local = run, RemoteFolder(tempfile.mkdtemp(prefix="workbench-"), "run", run)
        self._home = self._local.home
        self._end = time.monotonic() + seconds - min(WARNING_SECONDS, seconds / 4)
        self._reported: dict[str, int] = {}
        self._pushed: dict[str, Any] = {}
        self._done = 0
        self._last_beat: dict[str, Any] = {}

    def run_to_end(self) -> int:
        """Do the whole job and return its exit code."""
        files: dict[str, str] = json.loads(retry(lambda: self._repository.get(f"{self._folder}/bundle.json")))
        wanted = sorted(set(files.values()))
        for number, sha256 in enumerate(wanted):
            self._report({"phase": "fetching the run's files", "step": number, "total": len(wanted)})
            retry(partial(self._repository.fetch, f"contents/{sha256}", self._local.part(sha256)))
        self._local.store(wanted)
        self._local.assemble(files)
        self._reported = {name: (self._home / name).stat().st_size for name in LIVE if (self._home / name).exists()}
        self._local.start()
        next_push = next_command = time.monotonic() + min(PUSH_SECONDS, COMMAND_SECONDS)
        while True:
            found, now = self._local.poll(), time.monotonic()
            self._report_growth(found)
            if jobs.State(found["state"]).alive is False:
                break
            if now > next_push:
                with contextlib.suppress(Unreachable):
                    self._push(found)
                next_push = time.monotonic() + PUSH_SECONDS
            if now > next_command:
                self._pass_commands()
                next_command = time.monotonic() + COMMAND_SECONDS
            if now > self._end:
                jobs.stop(self._home)
            time.sleep(POLL_SECONDS)
        last = self._local.poll()
        self._report_growth(last)
        retry(lambda: self._push(last, whole=True))
        return int(found["result"].get("exit_code", ExitCode.BUG))

    def _report_growth(self, found: dict[str, Any]) -> None:
        """Write the heartbeat and what growing files have gained since the last call to this job's log."""
        beat = {name: value for name, value in found["beat"].items() if name not in ("time", "still")}
        self._report({**beat, "state": found["state"]})
        for name in LIVE:
            size, at = found["growing"].get(name, 0), self._reported.get(name, 0)
            at = 0 if size < at else at  # the file was truncated
            with contextlib.suppress(FileNotFoundError), (self._home / name).open("rb") as file:
                file.seek(at)
                while at < size and (data := file.read(min(CHUNK, size - at))):
                    write_line({"grow": name, "at": at, "text": data.decode("utf-8", "surrogateescape")})
                    at += len(data)
            self._reported[name] = at

    def _report(self, beat: dict[str, Any]) -> None:
        if beat != self._last_beat:
            self._last_beat = beat
            write_line({"beat": beat})

    def _push(self, found: dict[str, Any], whole: bool = False) -> None:
        """Commit new and changed files and delete removed ones. Raises Unreachable.

        whole: this is the last push; include growing files and how the run ended.
        """
        files = dict(found["files"])
        if whole:
            files |= {name: [size, 0] for name, size in found["growing"].items()}
        changed = [name for name, facts in files.items() if self._pushed.get(name) != facts]
        with tempfile.TemporaryDirectory(dir=self._local.folder, prefix=".push-") as held:
            for name in changed:
                try:  # link each file first: the run may remove a checkpoint or preview during the upload
                    link_or_copy(self._home / name, Path(held) / name)
                except FileNotFoundError:
                    del files[name]
            out = {f"{self._folder}/out/{name}": Path(held) / name for name in changed if name in files}
            gone = [f"{self._folder}/out/{name}" for name in self._pushed if name not in files]
            if not out and not gone and not whole:
                return
            end = {name: found[name] for name in ("state", "result", "death", "beat")} if whole else {}
            listing = {f"{self._folder}/out.json": json.dumps({"files": files, "end": end}).encode()}
            commit = self._repository.put({**out, **listing}, f"{self._run}: {len(out)} files", gone)
        self._pushed = files
        write_line({"commit": commit})

    def _pass_commands(self) -> None:
        with contextlib.suppress(FileNotFoundError, Unreachable):
            for number, command, payload in json.loads(self._repository.get(f"{self._folder}/control.json")):
                if number > self._done:
                    self._done = number
                    self._local.send(command, payload)


def retry(request: Callable[[], T]) -> T:
    """Call `request` until the Hub answers, and return its result. Raises Unreachable after LAST_SECONDS."""
    end = time.monotonic() + LAST_SECONDS
    while True:
        try:
            return request()
        except Unreachable:
            if time.monotonic() > end:
                raise
            time.sleep(AGAIN_SECONDS)


def write_line(value: dict[str, Any]) -> None:
    sys.stdout.write(f"{MARK}{json.dumps(value)}\n")
    sys.stdout.flush()


def main() -> int:
    repository, folder, run, seconds = sys.argv[1:]
    return JobContainer(HubFolder(repository), folder, run, float(seconds)).run_to_end()


if __name__ == "__main__":
    sys.exit(main())
