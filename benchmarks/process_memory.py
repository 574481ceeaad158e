"""Measure what one process of a run holds: alone, with two full copies of the model, and with two under FSDP2.

It runs a run's own session on the CPU with the demo's clips and counts the bytes of weights, gradients and optimizer
state in one process after two steps, tensor by tensor, without Python or caches. Gradients are as large as the
trainable weights. ZeRO stage 2 divides gradients and optimizer state by the number of processes, stage 3 also the
weights: "cut" is FSDP2's factor against a run of one process. Activations are not counted, because no stage divides
them.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from common import arguments, report

from workbench import demo, jobs
from workbench.jobs.devices import pick_device
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.trainer.launcher import ProcessRank
from workbench.trainer.loop import train_step
from workbench.trainer.ranks import Ranks
from workbench.trainer.session import Session
from workbench.workspace import Workspace

PORT = "WORKBENCH_BENCHMARK_PORT"


def held(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor in this process: of its shard, if it is sharded."""
    local: Any = getattr(tensor, "to_local", lambda: tensor)()
    return int(local.numel() * local.element_size())


def child(rank: int, count: int, folder: Path) -> None:
    """Run one process: two steps, then the first process prints what it holds."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ[PORT], "RANK": str(rank)}
    torch.set_num_threads(1)
    run, device = Run(folder), pick_device("cpu")
    with Ranks.met(ProcessRank(rank, count, rank, count), device) as ranks:
        made = Session(jobs.Job(run.folder), run.settings, device, ranks)
        for _ in range(2):
            train_step(made)
        trainable = [parameter for _, parameter in made.trainable.named]
        state = [value for one in made.optimizer.state.values() for value in one.values() if torch.is_tensor(value)]
        found = {
            "weights": sum(map(held, made.transformer.parameters())),
            "gradients": sum(map(held, trainable)),
            "optimizer": sum(map(held, state)),
        }
        if rank == 0:
            (run.folder / "held.txt").write_text(" ".join(str(found[name]) for name in found))
        ranks.wait()
        made.close()


def measure(workspace: Workspace, settings: TrainSettings, count: int) -> dict[str, float]:
    """Return the MB that the first process of such a run holds."""
    run = Run.create(workspace, settings, f"{settings.method}-{settings.parallel}-{count}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ[PORT] = str(free.getsockname()[1])
    # Forked where the system can: only tensors are counted, and this process has imported what each would.
    how = "fork" if sys.platform.startswith("linux") else "spawn"
    torch.multiprocessing.start_processes(child, (count, run.folder), count, start_method=how)
    numbers = map(int, (run.folder / "held.txt").read_text().split())
    return {name: number / 1e6 for name, number in zip(("weights", "gradients", "optimizer"), numbers, strict=True)}


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], methods=["full"], cases=["1 ddp", "2 fsdp"])
    parser.add_argument("--methods", nargs="+", default=["full", "lora"])
    parser.add_argument("--cases", nargs="+", default=["1 ddp", "2 ddp", "2 fsdp"], help="processes and how they share")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder))
        plain = demo.prepare(workspace).changed(
            steps=2,
            preview_every=0,
            evaluate_every=0,
            device="cpu",
            batch_size=1,
            gradient_accumulation=2,
            targets="attention+feed-forward",
            regularization_target="clips",
        )
        for method in options.methods:
            whole = 0.0
            for count, parallel in ((int(case.split()[0]), case.split()[1]) for case in options.cases):
                found = measure(workspace, plain.changed(method=method, parallel=parallel), count)
                total = sum(found.values())
                whole = whole or total
                name = f"{method}, {count} process{'es' if count > 1 else ''}{f', {parallel}' if count > 1 else ''}"
                rows.append({"case": name, **found, "all MB": total, "cut": whole / total})
    report(rows, options.json)
    if any(row["cut"] < 1.9 for row in rows if row["case"] == "full, 2 processes, fsdp"):
        sys.exit(1)


if __name__ == "__main__":
    main()
