"""Shared work on the nodes of a cluster: each node joins in as any machine does that sees the workspace.

Not covered: who does what (workbench.jobs.shards).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench import jobs
from workbench.errors import ConfigError
from workbench.remote.backends import make
from workbench.remote.record import RemoteRecord
from workbench.remote.slurm import SlurmEngine
from workbench.trainer.inputs.encoding_job import MODULE, Encoding, machine_of
from workbench.workspace import Workspace


@dataclass(frozen=True)
class Share:
    """What a node does, called by submitit: this machine's part of the work in a folder."""

    folder: str

    def __call__(self) -> str:
        """To the end; raises ConfigError when this machine does not see the folder."""
        template = Path(self.folder)
        if not (template / jobs.CONFIG).exists():
            raise ConfigError(f"this node does not see {template}: the workspace must be on a disk that all nodes see")
        own = machine_of(template.parent)
        if not (own / jobs.CONFIG).exists():
            own.mkdir(parents=True, exist_ok=True)
            (own / jobs.CONFIG).write_bytes((template / jobs.CONFIG).read_bytes())
        jobs.start(own, MODULE)
        return jobs.wait(own, poll=1.0).state.value


def send_encoding(workspace: Workspace, place: str, encoding: Encoding, nodes: int) -> list[str]:
    """Submit a job a node; returns their numbers. Raises ConfigError."""
    engine = make(workspace, "encoding", RemoteRecord(place=place, box=f"encode-{encoding.folder.parent.name[:8]}"))
    if not isinstance(engine, SlurmEngine):
        raise ConfigError(
            f"{place} is of the kind {engine.kind}: shared work needs nodes that see this disk, a place of the kind "
            f"slurm. On a machine reached by ssh, run workbench encode there"
        )
    engine.open()
    return [engine.submit(Share(str(encoding.folder))) for _ in range(nodes)]
