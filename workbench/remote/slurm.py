"""Runs on a Slurm cluster, through submitit. All nodes must see the remote folder under the same path (a shared disk).

Submitit calls `NodeRun` on a node. At a time limit or preemption the run saves, ends and is queued again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from workbench import jobs
from workbench.errors import ConfigError, ExitCode
from workbench.jobs import platform
from workbench.jobs.job import ended
from workbench.remote.base import FolderBackend, Progress, RemoteRecord, RemoteState, environment_checks
from workbench.remote.remote_folder import RemoteFolder, link_or_copy
from workbench.remote.targets import make_backend
from workbench.snapshots import Check
from workbench.trainer.encoding_job import MODULE, machine_of
from workbench.workspace import Workspace, disk, make_folder, named_paths, writing

OVER = ("COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY")
INTERRUPTED = ("PREEMPTED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "DEADLINE")
POLL_SECONDS = 30.0  # between requests to Slurm, which many users share
SOON_SECONDS = 3.0  # the same once the run has ended
TIMES = 1000  # how often a run may be queued again
LOG_LINES = 3


class LinkedFiles(LocalFileSystem):
    """The local disk, where copying makes a hard link."""

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        link_or_copy(Path(path1), Path(path2))


class SlurmBackend(FolderBackend):
    """One run as a Slurm job, or as a job of submitit's local executor."""

    kind = "slurm"
    imports = ("submitit",)
    links = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._state, self._polled = "UNKNOWN", 0.0
        self.files = LinkedFiles()

    @property
    def root(self) -> str:
        chosen = self.target.folder
        return str(named_paths.resolve(chosen, "folder") if chosen else self.workspace.root / ".remote")

    def connect(self) -> None:
        base = Path(self.root)
        with writing(base):
            base.mkdir(parents=True, exist_ok=True)
            if not self.target.folder and not (base / "cache").exists():
                disk.link_folder(self.workspace.cache, base / "cache")

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def upload(self, files: Mapping[str, tuple[str, Path]], progress: Progress) -> None:
        # Slurm assigns the devices, so each run gets locks of its own and does not wait for others.
        make_folder(self.remote.folder / "locks")
        super().upload(files, progress)

    def check(self) -> list[Check]:
        found = [Check.of("executor", self.target.executor)]
        if self.target.executor == "slurm":
            for name in ("sbatch", "srun", "sacct", "scontrol"):
                remedy = "" if shutil.which(name) else "use the workbench on a machine from which jobs are submitted"
                found.append(Check.of(name, shutil.which(name) or "missing", remedy))
        found.append(Check.of("folder", self.root))
        environment = self.remote.environment()
        checks = environment_checks(environment, environment, self.remote.free_bytes())
        return [*found, *(line for line in checks if line.title != "GPU")]

    def start(self) -> str:
        if self.record.job and self._alive():
            return self.record.job
        self._state, self._polled = "PENDING", time.monotonic()
        return self.submit(NodeRun(self.root, self.record.folder, self.run))

    def submit(self, work: Callable[[], str]) -> str:
        """Submit `work` to a node and return the job's id. Raises ConfigError."""
        with _refusals():
            return str(self._executor().submit(work).job_id)

    def _executor(self) -> Any:
        import submitit

        target, folder = self.target, Path(self.root) / "submitit"
        minutes = max(1, int(target.hours * 60))
        common = {"setup": list(target.setup), "gpus_per_node": target.gpus, "signal_delay_s": target.warning_seconds}
        if target.executor == "local":
            executor: Any = submitit.LocalExecutor(folder, max_num_timeout=TIMES)
            executor.update_parameters(timeout_min=minutes, tasks_per_node=1, **common)
            return executor
        pairs = [text.partition("=") for text in target.more]
        chosen = {"partition": target.partition, "account": target.account}
        executor = submitit.SlurmExecutor(folder, max_num_timeout=TIMES)
        executor.update_parameters(
            time=minutes,
            nodes=1,
            ntasks_per_node=1,
            cpus_per_task=target.cpus,
            mem=f"{target.memory_gb}GB",
            job_name=self.record.folder,
            stderr_to_stdout=True,
            additional_parameters={name.strip("- "): value.strip() for name, _, value in pairs},
            **common,
            **{name: value for name, value in chosen.items() if value},
        )
        return executor

    # ---- polling

    def poll(self, listing: str) -> RemoteState:
        found = self.remote.poll(listing)
        begun, alive = (self.remote.home / jobs.PROCESS).exists(), self._alive(bool(found["result"]))
        if not self.record.job:
            found["state"] = jobs.State.NEW.value
        elif alive:  # this machine cannot see its process on another one
            found["state"] = (jobs.State.RUNNING if begun and found["beat"] else jobs.State.STARTING).value
        elif not found["result"] and not begun and self._state not in INTERRUPTED:
            found["result"] = self._never_began()
        return RemoteState(
            alive=alive,
            message=f"waiting for a node of {self.name} ({self._state.lower()})" if alive and not begun else "",
            interrupted=self._state in INTERRUPTED,
            **found,
        )

    def _alive(self, ended: bool = False) -> bool:
        """Whether the job is queued or running. Slurm is asked only every POLL_SECONDS, or SOON_SECONDS at the end."""
        if not self.record.job:
            return False
        if self.target.executor == "local":  # its id is the pid of its supervising process
            return platform.start_time(int(self.record.job)) is not None
        if time.monotonic() - self._polled > (SOON_SECONDS if ended else POLL_SECONDS):
            self._polled = time.monotonic()
            job = self._job()
            self._state = str(job.watcher.get_state(job.job_id, mode="force")).split(" ")[0]
        return self._state not in (*OVER, *INTERRUPTED)

    def _job(self) -> Any:
        import submitit

        return submitit.SlurmJob(folder=Path(self.root) / "submitit", job_id=self.record.job, tasks=[0])

    def _never_began(self) -> dict[str, Any]:
        if self.record.stop_requested:
            message = f"Stopped while it waited on {self.name}; start it again to queue it again."
            return ended(jobs.State.STOPPED, ExitCode.STOPPED, message)
        logs = sorted((Path(self.root) / "submitit").glob(f"{self.record.job}_0_log.*"))
        lines = [line for log in logs for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        cause = " ".join(lines[-LOG_LINES:])[-500:] or self._state
        message = f"{self.name} ended the job before the run began: {cause}"
        return ended(jobs.State.FAILED, ExitCode.BAD_CONFIG, message)

    # ---- commanding

    def send(self, command: str, payload: dict[str, Any]) -> None:
        if command == "stop" and not (self.remote.home / jobs.PROCESS).exists():
            self._cancel()  # there is no process yet to take the command
        else:
            super().send(command, payload)

    def kill(self) -> None:
        self._cancel()
        super().kill()

    def _cancel(self) -> None:
        if self.target.executor == "local":
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(self.record.job), signal.SIGTERM)
        else:
            self._job().cancel(check=False)
            self._polled = 0.0


@contextlib.contextmanager
def _refusals() -> Any:
    """Turn an error of Slurm or submitit into a ConfigError."""
    import submitit

    try:
        yield
    except (RuntimeError, ValueError, submitit.core.utils.FailedJobError) as error:
        lines = str(error).strip().splitlines()
        raise ConfigError(f"the job cannot be submitted: {lines[-1][:300] if lines else error}") from error


def submit_encoding(workspace: Workspace, target: str, encoding: Path, nodes: int) -> list[str]:
    """Submit one encoding job per node and return their ids. Raises ConfigError.

    encoding: the folder of this machine's encoding job, whose settings the nodes use.
    """
    record = RemoteRecord(target=target, folder=f"encode-{encoding.parent.name[:8]}")
    backend = make_backend(workspace, "encoding", record)
    if not isinstance(backend, SlurmBackend):
        raise ConfigError(
            f"{target} is of the kind {backend.kind}: shared work needs a target of the kind slurm, whose nodes see "
            "this disk. On a machine reached by ssh, run workbench encode there"
        )
    backend.connect()
    return [backend.submit(NodeEncoding(encoding)) for _ in range(nodes)]


# ---- on a node


@dataclass(frozen=True)
class NodeRun:
    """One run in one remote folder."""

    root: str
    folder: str
    run: str

    def __call__(self) -> str:
        """Run it to its end and return its state. Raises ConfigError if this machine does not see the folder."""
        remote = RemoteFolder(self.root, self.folder, self.run)
        _check_seen(remote.home)
        remote.start()
        return jobs.wait(remote.home, poll=1.0).state.value

    def checkpoint(self) -> Any:
        """Save and end, then be queued again. Submitit calls this method by its name."""
        from submitit.helpers import DelayedSubmission

        home = RemoteFolder(self.root, self.folder, self.run).home
        jobs.stop(home)
        jobs.wait(home)
        return DelayedSubmission(self)


@dataclass(frozen=True)
class NodeEncoding:
    """This machine's part of an encoding; template: the folder of the job that began it."""

    template: Path

    def __call__(self) -> str:
        """Encode to the end and return the job's state. Raises ConfigError if this machine does not see the folder."""
        _check_seen(self.template)
        folder = machine_of(self.template.parent)
        if not (folder / jobs.CONFIG).exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / jobs.CONFIG).write_bytes((self.template / jobs.CONFIG).read_bytes())
        jobs.start(folder, MODULE)
        return jobs.wait(folder, poll=1.0).state.value


def _check_seen(folder: Path) -> None:
    if not (folder / jobs.CONFIG).exists():
        raise ConfigError(f"{socket.gethostname()} does not see {folder}: choose a folder on a disk that all nodes see")
