"""What a target is: where runs can be sent, one class a kind. No secrets: keys and tokens stay where they are."""

from __future__ import annotations

from typing import Literal

from workbench.settings import Settings, field

MACHINE, JOB, FILES = "Machine", "Job", "Files"


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
    """The user or organisation that pays. Empty: you."""


KINDS: dict[str, type[Settings]] = {"ssh": SshTarget, "slurm": SlurmTarget, "hf-jobs": HubJobsTarget}
