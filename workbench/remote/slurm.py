"""A Slurm cluster, through submitit. The nodes must see the box under the same path: it lies on a shared disk.

Before its time is up, or when it has to make room, a run saves and is queued again (attempt). Not covered: clusters
that are reached from outside: run the workbench on the login node, or use ssh.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.errors import ConfigError, ExitCode
from workbench.jobs import processes
from workbench.remote import folder as box
from workbench.remote.attempt import Attempt
from workbench.remote.base import RemoteState, TargetCheck, ended, findings
from workbench.remote.shared_disk import NearbyEngine

OVER = ("COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY")
INTERRUPTED = ("PREEMPTED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "DEADLINE")
ASK_SECONDS = 30.0  # between two questions to Slurm, which many users ask
SOON_SECONDS = 3.0  # once the run has ended
TIMES = 1000  # a run may be queued again
LOG_LINES = 3


class SlurmEngine(NearbyEngine):
    """One run as a job of Slurm, or of submitit's local executor."""

    kind = "slurm"
    extra = "slurm"
    imports = ("submitit",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._state, self._asked = "UNKNOWN", 0.0

    def check(self) -> list[TargetCheck]:
        found = [TargetCheck("executor", self.place.executor)]
        if self.place.executor == "slurm":
            for name in ("sbatch", "srun", "sacct", "scontrol"):
                remedy = "" if shutil.which(name) else "use the workbench on a machine from which jobs are submitted"
                found.append(TargetCheck(name, shutil.which(name) or "missing", remedy))
        found.append(TargetCheck("folder", self.root))
        about = box.about()
        return [*found, *(line for line in findings(about, about, box.room(self.root)) if line.title != "GPU")]

    def start(self) -> str:
        if self.record.job and self._alive():
            return self.record.job
        self._state, self._asked = "PENDING", time.monotonic()
        return self.submit(Attempt(self.root, self.record.box, self.run))

    def submit(self, work: Callable[[], str]) -> str:
        """Let a node call this; the job's number. Raises ConfigError."""
        with _refusals():
            return str(self._executor().submit(work).job_id)

    def _executor(self) -> Any:
        import submitit

        place, folder = self.place, Path(self.root) / "submitit"
        minutes = max(1, int(place.hours * 60))
        common = {"setup": list(place.setup), "gpus_per_node": place.gpus, "signal_delay_s": place.warning_seconds}
        if place.executor == "local":
            executor: Any = submitit.LocalExecutor(folder, max_num_timeout=TIMES)
            executor.update_parameters(timeout_min=minutes, tasks_per_node=1, **common)
            return executor
        pairs = [text.partition("=") for text in place.more]
        chosen = {"partition": place.partition, "account": place.account}
        executor = submitit.SlurmExecutor(folder, max_num_timeout=TIMES)
        executor.update_parameters(
            time=minutes, nodes=1, ntasks_per_node=1, cpus_per_task=place.cpus, mem=f"{place.memory_gb}GB",
            job_name=self.record.box, stderr_to_stdout=True,
            additional_parameters={name.strip("- "): value.strip() for name, _, value in pairs}, **common,
            **{name: value for name, value in chosen.items() if value},
        )  # fmt: skip
        return executor

    # ---- looking

    def look(self, listing: str) -> RemoteState:
        seen = box.look(**self.where(), listing=listing)
        begun, alive = bool((self.folder() / jobs.PROCESS).exists()), self._alive(bool(seen["result"]))
        if not self.record.job:
            seen["state"] = jobs.State.NEW.value
        elif alive:  # its process is on another machine, which this one cannot see
            seen["state"] = (jobs.State.RUNNING if begun and seen["beat"] else jobs.State.STARTING).value
        elif not seen["result"] and not begun and self._state not in INTERRUPTED:
            seen["result"] = self._never_began()
        return RemoteState(
            alive=alive,
            message=f"waiting for a node of {self.name} ({self._state.lower()})" if alive and not begun else "",
            interrupted=self._state in INTERRUPTED,
            **seen,
        )

    def _alive(self, ended: bool = False) -> bool:
        """Whether the job is queued or at work; Slurm is asked now and then, sooner once the run has ended."""
        if not self.record.job:
            return False
        if self.place.executor == "local":  # its number is that of the process that looks after it
            return processes.start_time(int(self.record.job)) is not None
        if time.monotonic() - self._asked > (SOON_SECONDS if ended else ASK_SECONDS):
            self._asked = time.monotonic()
            job = self._job()
            self._state = str(job.watcher.get_state(job.job_id, mode="force")).split(" ")[0]
        return self._state not in (*OVER, *INTERRUPTED)

    def _job(self) -> Any:
        import submitit

        return submitit.SlurmJob(folder=Path(self.root) / "submitit", job_id=self.record.job, tasks=[0])

    def _never_began(self) -> dict[str, Any]:
        """The result of a job that ended before the run in it began."""
        if self.record.stop_asked:
            words = f"Stopped while it waited at {self.name}; start it again to queue it again."
            return ended(jobs.State.STOPPED, ExitCode.STOPPED, words)
        logs = sorted((Path(self.root) / "submitit").glob(f"{self.record.job}_0_log.*"))
        said = [line for log in logs for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        words = f"{self.name} ended the job before the run began: {' '.join(said[-LOG_LINES:])[-500:] or self._state}"
        return ended(jobs.State.FAILED, ExitCode.BAD_CONFIG, words)

    # ---- commanding

    def send(self, command: str, payload: dict[str, Any]) -> None:
        if command == "stop" and not (self.folder() / jobs.PROCESS).exists():
            self._cancel()  # nobody is there to take the command
        else:
            super().send(command, payload)

    def end(self) -> None:
        self._cancel()
        box.end(**self.where())

    def _cancel(self) -> None:
        if self.place.executor == "local":
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(self.record.job), signal.SIGTERM)
        else:
            self._job().cancel(check=False)
            self._asked = 0.0


@contextlib.contextmanager
def _refusals() -> Any:
    """What Slurm or submitit will not have, in a sentence. Raises ConfigError."""
    import submitit

    try:
        yield
    except (RuntimeError, ValueError, submitit.core.utils.FailedJobError) as error:
        said = str(error).strip().splitlines()
        raise ConfigError(f"the job cannot be submitted: {said[-1][:300] if said else error}") from error


ENGINE = SlurmEngine
