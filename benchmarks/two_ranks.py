"""Compare two processes that share a run with one: is the curve the same, how fast is it, and what do kills cost?

The demo's run (the built-in model) with four batches per step, on the CPU. First one process, then two with the same
settings: the largest relative difference of the loss over all steps, the largest difference of a weight, and the
seconds per step. Then, with --kills, a run of two processes is hit with SIGKILL (its keeper, its first or its second
process) at moments drawn from a seed, and restarted each time. It counts leftover processes, checkpoints that no longer
verify and lost steps, and checks that the final weights equal, byte for byte, those of the two processes without kills.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil
from common import arguments, report
from safetensors.torch import load_file

from workbench import demo, jobs
from workbench.jobs import State
from workbench.runs import checkpoints
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

WHILE_LOADING = 0.25  # share of the kills that come before the first step
PATIENCE = 900.0
GONE_SECONDS = 5.0  # after a kill, until the last process must be gone


def members(run: Run) -> dict[str, psutil.Process]:
    """Return the living processes of a run by role: keeper, rank 0, rank 1."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(run.folder) in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                rank = process.environ().get("RANK")
                found[f"rank {rank}" if rank else "keeper"] = process
    return found


def losses(run: Run) -> list[float]:
    return [line["loss"] for line in run.metrics if "loss" in line]


def done(run: Run) -> int:
    return max((line["step"] for line in run.metrics if "loss" in line), default=0)


def finish(run: Run) -> str:
    """Let the run end and return the hash of its LoRA."""
    run.start(from_start=True)
    if run.wait(PATIENCE).state is not State.FINISHED or run.lora is None:
        sys.exit(f"the run did not finish:\n{jobs.log_tail(run.folder)}")
    return hashlib.sha256(run.lora.read_bytes()).hexdigest()


def whole(run: Run) -> int:
    found = checkpoints.newest(run.folder)
    return found[0] if found else 0


def kill_once(run: Run, chance: random.Random, most: int) -> tuple[str, int, int, int]:
    """Start the run and kill a process. Returns (which, leftover processes, lost checkpoints, lost steps)."""
    run.start(from_start=True)
    part = chance.choice(["keeper", "rank 0", "rank 1"])
    if chance.random() < WHILE_LOADING:
        time.sleep(chance.uniform(0.5, 6.0))
    else:
        goal = whole(run) + chance.randint(1, most)  # resuming truncates the metrics to that checkpoint
        while run.status.state.alive and not (run.status.step >= goal and done(run) >= goal):
            time.sleep(0.005)
        time.sleep(chance.uniform(0.0, 0.1))
    before = {step for step in run.checkpoints if checkpoints.verified(checkpoints.folder_of(run.folder, step))}
    if not run.status.state.alive:
        sys.exit(f"the run ended by itself:\n{jobs.log_tail(run.folder)}")
    victim = members(run).get(part) or members(run)["keeper"]
    with contextlib.suppress(psutil.NoSuchProcess):
        victim.kill()
    run.wait(PATIENCE)
    time.sleep(GONE_SECONDS)
    left = len(members(run))
    damaged = sum(not checkpoints.verified(checkpoints.folder_of(run.folder, step)) for step in run.checkpoints)
    lost = damaged + (max(before, default=0) > whole(run))
    return part, left, lost, done(run) - whole(run)


def compare(workspace: Workspace, settings: TrainSettings) -> tuple[dict[str, object], str]:
    """Run one process and two to the end. Returns the row, and the hash of the LoRA of the two."""
    runs, hashes = [], []
    for count in (1, 2):
        run = Run.create(workspace, settings.changed(gpus=count), f"by-{count}")
        hashes.append(finish(run))
        runs.append(run)
    one, two = map(losses, runs)
    weights = [load_file(run.lora) for run in runs if run.lora]
    paces = [statistics.median(line["seconds"] for line in run.metrics if "seconds" in line) for run in runs]
    row = {
        "case": "one process, two processes",
        "steps": settings.steps,
        "largest relative difference of a loss": max(abs(a - b) / abs(a) for a, b in zip(one, two, strict=True)),
        "largest difference of a weight": max(
            float((weights[0][name] - tensor).abs().max()) for name, tensor in weights[1].items()
        ),
        "seconds a step, one": paces[0],
        "seconds a step, two": paces[1],
        "times as fast": paces[0] / paces[1],
    }
    return row, hashes[1]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], steps=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance, every = random.Random(options.seed), options.save_every
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder))
        settings = demo.prepare(workspace).changed(
            steps=max(options.steps, options.kills * 2 * every + every),
            save_every=every,
            preview_every=0,
            evaluate_every=4 * every,
            device="cpu",
            batch_size=1,
            gradient_accumulation=4,
            lora_dropout=0.1,
            ema_decay=0.99,
            lr_schedule="cosine",
        )
        row, want = compare(workspace, settings)
        rows, bad = [row], row["largest relative difference of a loss"] > 1e-5  # type: ignore[operator]
        report(rows, None if options.kills else options.json)
        if options.kills:
            shutil.rmtree(workspace.runs / "by-2")
            # The same name, because a LoRA names its run.
            run = Run.create(workspace, settings.changed(gpus=2), "by-2")
            began = time.monotonic()
            hits = [kill_once(run, chance, 2 * every) for _ in range(options.kills)]
            same = finish(run) == want
            left, lost = (sum(hit[place] for hit in hits) for place in (1, 2))
            killed = {
                "case": "kills",
                **{part: sum(hit[0] == part for hit in hits) for part in ("keeper", "rank 0", "rank 1")},
                "processes left over": left,
                "checkpoints lost": lost,
                "most steps lost": max(hit[3] for hit in hits),
                "mean": statistics.mean(hit[3] for hit in hits),
                "same bytes": same,
                "seconds": time.monotonic() - began,
            }
            report([killed], options.json, comparison=row)
            bad = bad or left or lost or not same or killed["most steps lost"] > every
    if bad:
        sys.exit(1)


if __name__ == "__main__":
    main()
