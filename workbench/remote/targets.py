"""The targets of a workspace (`targets/NAME.json`), their backends, and the choice of a run's target.

A target's file holds settings and no secrets: keys and tokens stay where they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from workbench.errors import ConfigError, Unknown
from workbench.remote.base import Backend, RemoteRecord
from workbench.runs.run import REMOTE, Run
from workbench.settings import Settings, field
from workbench.snapshots import Check
from workbench.workspace import Workspace, checked_slug, read_json, slugify

MACHINE, JOB, FILES = "Machine", "Job", "Files"
FOLDER = "targets"
LOCAL = "local"  # this machine


# ---- one settings class for each kind of target ---------------------------------------------------------------------


class SshTarget(Settings):
    """A machine that you reach with `ssh HOST` and that has the workbench installed."""

    kind: Literal["ssh"] = field("ssh", title="Kind", section=MACHINE)
    """A machine reached by ssh."""

    host: str = field("", title="Host", section=MACHINE)
    """The HOST of `ssh HOST`: a name in your ssh config, or USER@MACHINE. Its host key must be known already."""

    python: str = field("python3", title="Remote Python", section=MACHINE)
    """The machine's Python that has the workbench installed, such as ~/workbench/.venv/bin/python."""

    folder: str = field("~/video-lora-workbench", title="Remote folder", section=FILES)
    """Where the machine keeps runs, clips and encoded tensors. Created if it does not exist."""

    when_idle: str = field("", title="When idle", section=MACHINE)
    """A command that the machine runs once no run is left on it, such as sudo poweroff, so that a rented machine shuts
    itself down. Empty: it stays on."""

    idle_minutes: float = field(
        15.0, title="Idle for", section=MACHINE, unit="minutes", low=0.0, high=1440, advanced=True
    )
    """How long the machine must have had no active runs and no queries about them before that, to leave time to fetch
    the results."""

    ssh_config: str = field("", title="ssh config", section=MACHINE, advanced=True, path=True)
    """An ssh config file to use instead of ~/.ssh/config, for port, user, key, jump host and known hosts."""


class SlurmTarget(Settings):
    """A Slurm cluster whose nodes see this machine's disk."""

    kind: Literal["slurm"] = field("slurm", title="Kind", section=JOB)
    """A Slurm cluster."""

    partition: str = field("", title="Partition", section=JOB)
    """Slurm partition. Empty: the cluster's default."""

    account: str = field("", title="Account", section=JOB)
    """Slurm account to charge. Empty: the cluster's default."""

    gpus: int = field(1, title="GPUs", section=JOB, low=0, high=64)
    """GPUs per run."""

    cpus: int = field(8, title="Cores", section=JOB, low=1, high=512)
    """CPU cores per run."""

    memory_gb: int = field(64, title="Memory", section=JOB, unit="GB", low=1, high=8192)
    """Memory per run."""

    hours: float = field(24.0, title="Time limit", section=JOB, unit="hours", low=0.05, high=1000)
    """Time limit of one Slurm job. Before it is reached, the run saves and is queued again, as often as needed."""

    warning_seconds: int = field(
        300, title="Time to save", section=JOB, unit="seconds", low=1, high=3600, advanced=True
    )
    """How long before the time limit the run begins to save."""

    more: tuple[str, ...] = field((), title="More options", section=JOB, lines=3, advanced=True)
    """Other sbatch options, one per line, such as constraint=a100."""

    setup: tuple[str, ...] = field((), title="Setup", section=JOB, lines=3, advanced=True)
    """Shell commands to run on the node before the run starts, one per line, such as module load cuda."""

    folder: str = field("", title="Folder", section=FILES, path=True)
    """Folder for the runs, which the nodes must see under the same path. Empty: a folder in the workspace."""

    executor: Literal["slurm", "local"] = field("slurm", title="Executor", section=JOB, advanced=True)
    """Submitit's executor. local starts the job as a process on this machine, to try it without Slurm."""


class HubJobsTarget(Settings):
    """Jobs on the Hugging Face Hub, which are billed by the minute."""

    kind: Literal["hf-jobs"] = field("hf-jobs", title="Kind", section=JOB)
    """Jobs on the Hugging Face Hub."""

    flavor: str = field("a10g-large", title="Hardware", section=JOB)
    """The Hub's name for the hardware, such as a10g-large, a100-large or h200. `hf jobs hardware` lists them."""

    repository: str = field("", title="Repository", section=FILES)
    """A private dataset repository, OWNER/NAME, that carries clips to the job and results back. Created if it does not
    exist."""

    hours: float = field(6.0, title="Time limit", section=JOB, unit="hours", low=0.05, high=168)
    """Time after which the Hub ends the job. The run saves shortly before."""

    image: str = field("", title="Image", section=JOB)
    """A container image that has the workbench installed, or a Space (hf.co/spaces/OWNER/NAME)."""

    python: str = field("python3", title="Remote Python", section=JOB, advanced=True)
    """The image's Python that has the workbench installed."""

    namespace: str = field("", title="Namespace", section=JOB, advanced=True)
    """The user or organization to bill. Empty: you."""


KINDS: dict[str, type[Settings]] = {"ssh": SshTarget, "slurm": SlurmTarget, "hf-jobs": HubJobsTarget}


# ---- the targets of a workspace -------------------------------------------------------------------------------------


def names(workspace: Workspace) -> list[str]:
    """List the names of the targets, sorted."""
    return sorted(path.stem for path in (workspace.root / FOLDER).glob("*.json"))


def load(workspace: Workspace, name: str) -> Settings:
    """Load a target's settings. Raises ConfigError."""
    path = _existing(workspace, name)
    values = read_json(path)
    kind = values.get("kind") if isinstance(values, dict) else None
    if kind not in KINDS:
        raise ConfigError(f"{path} has the kind {kind!r}: use one of {', '.join(KINDS)}")
    return KINDS[kind].load(path)


def save(workspace: Workspace, name: str, target: Settings) -> None:
    """Save a target, replacing any of the same name. Raises ConfigError, CannotWrite."""
    if name == LOCAL or slugify(name) != name:
        raise ConfigError(f"a target cannot be named {name!r}: use lowercase letters, digits and '-', and not {LOCAL}")
    target.save(_path(workspace, name))


def remove(workspace: Workspace, name: str) -> None:
    """Remove a target, even a damaged one. Runs on it continue. Raises Unknown."""
    _existing(workspace, name).unlink()


def _existing(workspace: Workspace, name: str) -> Path:
    path = _path(workspace, name)
    if not path.exists():
        known = ", ".join(names(workspace)) or "none yet: workbench targets add"
        raise Unknown(f"there is no target {name!r}: choose one of {known}")
    return path


def _path(workspace: Workspace, name: str) -> Path:
    return workspace.root / FOLDER / f"{checked_slug(name)}.json"


def backend_class(target: Settings) -> type[Backend]:
    """Return the backend for a target's kind. Raises ConfigError if a package for it is missing."""
    found: type[Backend]
    if isinstance(target, SshTarget):
        from workbench.remote.ssh import SshBackend as found
    elif isinstance(target, SlurmTarget):
        from workbench.remote.slurm import SlurmBackend as found
    else:
        from workbench.remote.hub_jobs import HubJobsBackend as found
    found.require()
    return found


def make_backend(workspace: Workspace, run: str, record: RemoteRecord) -> Backend:
    """Make the backend of a run from its record. Raises ConfigError."""
    target = load(workspace, record.target)
    return backend_class(target)(target, record.target, workspace, run, record)


def check_target(workspace: Workspace, name: str) -> list[Check]:
    """Check a target without starting anything on it. Raises ConfigError, base.Unreachable."""
    backend = make_backend(workspace, "", RemoteRecord(target=name))
    try:
        return backend.check()
    finally:
        backend.close()


def resolve_target(workspace: Workspace, name: str) -> str:
    """Return the target's name, "" for this machine. Raises ConfigError if it is unknown or a package is missing."""
    if name == LOCAL:
        return ""
    backend_class(load(workspace, name))
    return name


def choose_target(workspace: Workspace, run: Run, name: str) -> None:
    """Choose the target, or this machine (LOCAL), for the next start of the run.

    Raises ConfigError if there is no such target, a package for it is missing, or the run may still run elsewhere.
    """
    record, target = RemoteRecord.load(run.folder), resolve_target(workspace, name)
    if record.target == target:
        return
    if run.status.state.alive:
        raise ConfigError(f"{run.name} is running: stop it first: workbench runs stop {run.name}")
    if record.open:
        raise ConfigError(
            f"{run.name} was sent to {record.target} and its result has not come back: start it again to reconnect, "
            f"then stop it. If {record.target} is gone for good, remove {run.folder / REMOTE}"
        )
    RemoteRecord(target=target, folder=record.folder).save(run.folder)
