"""Our training step against the plain loop of the diffusers example: same model, clips, batch and LoRA.

Both run in one process in turn, so that a drift of the machine's speed touches both alike. Ours is the step of a real
run: metrics line, heartbeat and a look at the control folder included. Prints milliseconds a step and the ratio, median
of the rounds. The reference is benchmarks/plain_loop.py.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import plain_loop
import torch
from common import arguments, report
from diffusers import CogVideoXDDIMScheduler

from workbench import demo, jobs
from workbench.devices import pick_device
from workbench.trainer.loop import train_step
from workbench.trainer.runs import Run
from workbench.trainer.session import Session
from workbench.workspace import Workspace

MANY = 1_000_000
WARM_UP = 10


def our_step(session: Session) -> Callable[[], None]:
    """One step as a run makes it."""

    def step() -> None:
        train_step(session)
        session.obey()

    return step


def reference_step(session: Session) -> Callable[[], None]:
    """The plain loop's step on a transformer of its own, from the same encoded clips."""
    examples = []
    for item in session.data.train:
        moments, text = session.moments([item]), session.embeddings([item.caption])
        examples.append((moments["mean"], moments["std"], text["prompt_embeds"]))
    transformer = session.family.load_transformer(session.folder, session.device, torch.float32)
    scheduler = CogVideoXDDIMScheduler.from_pretrained(session.folder / "scheduler")
    return plain_loop.make_step(transformer, scheduler, examples)


def milliseconds(step: Callable[[], None], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - began) / count * 1000


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40, help="steps a round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder))
        settings = demo.prepare(workspace).changed(
            regularization_dataset=None, targets="attention", rank=plain_loop.RANK, alpha=float(plain_loop.RANK),
            batch_size=plain_loop.BATCH, learning_rate=plain_loop.LEARNING_RATE, device="cpu", steps=MANY,
        )  # fmt: skip
        run = Run.create(workspace, settings, "overhead")
        with jobs.Job(run.folder) as job:
            session = Session(run.folder, job, settings, pick_device("cpu"))
            ours, reference = our_step(session), reference_step(session)
            for step in (ours, reference):
                milliseconds(step, WARM_UP)
            pairs = [
                (milliseconds(ours, options.steps), milliseconds(reference, options.steps))
                for _ in range(options.rounds)
            ]
    mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    case = f"ms a step, rank 8, batch 8, fp32, {options.rounds} rounds of {options.steps}"
    report([{"case": case, "ours": mine, "reference": theirs, "ratio": ratio}], options.json)


if __name__ == "__main__":
    main()
