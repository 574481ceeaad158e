"""The targets of a workspace (`targets/NAME.json`), their backends, and which of them a run is sent to.

A target's file holds plain settings without secrets: keys and tokens stay where they are. A run stays on its target
until it is sent on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from workbench.errors import ConfigError, Unknown
from workbench.remote.base import Backend, RemoteRecord, TargetCheck
from workbench.runs.run import REMOTE, Run
from workbench.settings import Settings, field
from workbench.workspace import Workspace, checked_slug, read_json, slugify

MACHINE, JOB, FILES = "Machine", "Job", "Files"
FOLDER = "targets"
LOCAL = "local"  # this machine


# ---- what a target is, one class a kind -----------------------------------------------------------------------------


class SshTarget(Settings):
    """A machine that `ssh HOST` reaches, with the workbench installed."""

    kind: Literal["ssh"] = field("ssh", title="Kind", section=MACHINE)
    """A machine reached by ssh."""

    host: str = field("", title="Host", section=MACHINE)
    """As in `ssh HOST`: a name of your ssh config, or USER@MACHINE. Its host key must be known already."""

    python: str = field("python3", title="Remote Python", section=MACHINE)
    """The Python in which the workbench is installed on it, such as ~/workbench/.venv/bin/python."""

    folder: str = field("~/video-lora-workbench", title="Remote folder", section=FILES)
    """Where runs, clips and encoded tensors are kept on it. It is made when it is missing."""

    ssh_config: str = field("", title="ssh config", section=MACHINE, advanced=True, path=True)
    """A file in the format of ~/.ssh/config, used instead of it: port, user, key, jump host, known hosts."""


class SlurmTarget(Settings):
    """A Slurm cluster whose nodes see this machine's disk."""

    kind: Literal["slurm"] = field("slurm", title="Kind", section=JOB)
    """A cluster under Slurm."""

    partition: str = field("", title="Partition", section=JOB)
    """Slurm's partition. Empty: the cluster's default."""

    account: str = field("", title="Account", section=JOB)
    """Whom Slurm charges. Empty: the cluster's default."""

    gpus: int = field(1, title="GPUs", section=JOB, low=0, high=64)
    """GPUs on the node that a run gets."""

    cpus: int = field(8, title="Cores", section=JOB, low=1, high=512)
    """Processor cores that a run gets."""

    memory_gb: int = field(64, title="Memory", section=JOB, unit="GB", low=1, high=8192)
    """Memory of the node."""

    hours: float = field(24.0, title="Time limit", section=JOB, unit="hours", low=0.05, high=1000)
    """Before it is over, the run saves and is queued again, as often as it takes."""

    warning_seconds: int = field(
        300, title="Time to save", section=JOB, unit="seconds", low=1, high=3600, advanced=True
    )
    """How long before the time limit the run begins to save."""

    more: tuple[str, ...] = field((), title="More options", section=JOB, lines=3, advanced=True)
    """Other options of sbatch, one a line, such as constraint=a100."""

    setup: tuple[str, ...] = field((), title="Setup", section=JOB, lines=3, advanced=True)
    """Shell commands before the run starts on the node, one a line, such as module load cuda."""

    folder: str = field("", title="Folder", section=FILES, path=True)
    """Where runs are executed: a folder that the nodes see under the same path. Empty: in the workspace."""

    executor: Literal["slurm", "local"] = field("slurm", title="Executor", section=JOB, advanced=True)
    """Submitit's executor. local starts the job as a process of this machine, to try it without Slurm."""


class HubJobsTarget(Settings):
    """Jobs of the Hugging Face Hub; they cost money by the minute."""

    kind: Literal["hf-jobs"] = field("hf-jobs", title="Kind", section=JOB)
    """Jobs of the Hugging Face Hub."""

    flavor: str = field("a10g-large", title="Hardware", section=JOB)
    """The Hub's name of the machine, as `hf jobs hardware` lists them, such as a10g-large, a100-large, h200."""

    repository: str = field("", title="Repository", section=FILES)
    """A private dataset repository, OWNER/NAME, through which clips are sent and results come back. It is made when it
    is missing."""

    hours: float = field(6.0, title="Time limit", section=JOB, unit="hours", low=0.05, high=168)
    """The Hub ends the job after this time, whatever it does."""

    image: str = field("", title="Image", section=JOB)
    """A container image in which the workbench is installed, or a Space (hf.co/spaces/OWNER/NAME)."""

    python: str = field("python3", title="Remote Python", section=JOB, advanced=True)
    """The image's Python with the workbench."""

    namespace: str = field("", title="Namespace", section=JOB, advanced=True)
    """The user or organization that pays. Empty: you."""


KINDS: dict[str, type[Settings]] = {"ssh": SshTarget, "slurm": SlurmTarget, "hf-jobs": HubJobsTarget}


# ---- the targets of a workspace -------------------------------------------------------------------------------------


def names(workspace: Workspace) -> list[str]:
    """The names of the targets, sorted."""
    return sorted(path.stem for path in (workspace.root / FOLDER).glob("*.json"))


def load(workspace: Workspace, name: str) -> Settings:
    """Return a target's settings, of the class of its kind. Raises ConfigError."""
    path = _existing(workspace, name)
    values = read_json(path)
    kind = values.get("kind") if isinstance(values, dict) else None
    if kind not in KINDS:
        raise ConfigError(f"{path} has the kind {kind!r}: use one of {', '.join(KINDS)}")
    return KINDS[kind].load(path)


def save(workspace: Workspace, name: str, target: Settings) -> None:
    """Save a target under a name; one of that name is replaced. Raises ConfigError, CannotWrite."""
    if name == LOCAL or slugify(name) != name:
        raise ConfigError(f"the name {name!r} cannot be a target's: use small letters, digits and '-', and not {LOCAL}")
    target.save(_path(workspace, name))


def remove(workspace: Workspace, name: str) -> None:
    """Remove a target, also a damaged one; runs that are there go on. Raises Unknown."""
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
    """The backend of a target's kind. Raises ConfigError when a package for it is missing."""
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
    """The backend of a run, by its record. Raises ConfigError."""
    target = load(workspace, record.target)
    return backend_class(target)(target, record.target, workspace, run, record)


def check_target(workspace: Workspace, name: str) -> list[TargetCheck]:
    """A dry run on a target. Raises ConfigError, base.Unreachable."""
    backend = make_backend(workspace, "", RemoteRecord(target=name))
    try:
        return backend.check()
    finally:
        backend.close()


def resolve_target(workspace: Workspace, name: str) -> str:
    """The target's name, "" for this machine. Raises ConfigError for an unknown one, or when a package is missing."""
    if name == LOCAL:
        return ""
    backend_class(load(workspace, name))
    return name


def choose_target(workspace: Workspace, run: Run, name: str) -> None:
    """Let the next start of the run happen on a target, or on this machine (LOCAL).

    Raises ConfigError when there is no such target, when a package for it is missing, or when the run may still be
    running elsewhere.
    """
    record, target = RemoteRecord.load(run.folder), resolve_target(workspace, name)
    if record.target == target:
        return
    if run.status.state.alive:
        raise ConfigError(f"{run.name} is running: stop it first: workbench runs stop {run.name}")
    if record.open:
        raise ConfigError(
            f"{run.name} was sent to {record.target} and its end was not brought back: start it again, which looks "
            f"there, then stop it. If {record.target} is gone for good, remove {run.folder / REMOTE}"
        )
    RemoteRecord(target=target, folder=record.folder).save(run.folder)
