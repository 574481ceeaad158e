"""Kill a run with SIGKILL at random moments and restart it each time: what is lost, and is the result the same?

One run of the built-in model on the demo's clips saves every few steps. It is killed while it loads, trains and saves,
at moments drawn from a seed, and resumes each time from its newest intact checkpoint. Prints the most steps that a kill
cost, and whether the final LoRA equals, byte for byte, that of the same run without kills. A start takes seconds, so 60
kills take about ten minutes. If a run ends before its kill, the run is restarted and the kill drawn again.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from common import arguments, report

from workbench import demo, jobs
from workbench.jobs import State
from workbench.runs import checkpoints
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

WHILE_LOADING = 0.15  # share of the kills that come before the first step
PATIENCE = 600.0


def steps_done(run: Run) -> int:
    return max((line["step"] for line in run.metrics if "loss" in line), default=0)


def whole(run: Run) -> int:
    """Return the step of the newest checkpoint that verifies, or 0."""
    found = checkpoints.newest(run.folder)
    return found[0] if found else 0


def trained_to(run: Run, step: int) -> bool:
    """Return whether this start, not an earlier one, has reached the step."""
    status = run.status
    return status.phase != "starting" and status.step >= step and steps_done(run) >= step


def finish(run: Run) -> str:
    """Let the run end and return the hash of its LoRA."""
    run.start(from_start=True)
    if run.wait(PATIENCE).state is not State.FINISHED or run.lora is None:
        sys.exit(f"the run did not finish:\n{jobs.log_tail(run.folder)}")
    return hashlib.sha256(run.lora.read_bytes()).hexdigest()


def kill_once(run: Run, chance: random.Random, most: int) -> tuple[str, int] | None:
    """Start the run and kill it at a random moment.

    Returns the phase and the lost steps, or None if the run ended first.
    """
    run.start(from_start=True)
    began, before = time.monotonic(), whole(run)
    if chance.random() < WHILE_LOADING:
        rest = chance.uniform(0.0, 4.0)
        while run.status.state.alive and not trained_to(run, before + 1) and time.monotonic() < began + rest:
            time.sleep(0.005)
    else:
        goal = before + chance.randint(1, most)  # resuming truncates the metrics to that checkpoint
        while run.status.state.alive and not trained_to(run, goal):
            time.sleep(0.005)
        time.sleep(chance.uniform(0.0, 0.1))
    status = run.status
    if status.state.alive and status.pid is not None:
        os.kill(status.pid, signal.SIGKILL)
    elif status.state is not State.FINISHED:
        sys.exit(f"the run ended by itself:\n{jobs.log_tail(run.folder)}")
    if jobs.wait(run.folder, PATIENCE).state is State.FINISHED:
        return None
    return status.phase or "starting", steps_done(run) - whole(run)


def settings_for(workspace: Workspace, kills: int, every: int) -> TrainSettings:
    """Return the demo's settings, long enough for all kills, with everything that could change bits."""
    return demo.prepare(workspace).changed(
        steps=kills * 2 * every + every,
        save_every=every,
        preview_every=0,
        evaluate_every=4 * every,
        device="cpu",
        batch_size=2,
        gradient_accumulation=2,
        lora_dropout=0.1,
        ema_decay=0.99,
        lr_schedule="cosine",
    )


def main() -> None:
    # Otherwise each run would choose its own number of threads, and results would differ in bits.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = arguments(__doc__.splitlines()[0], kills=1, save_every=3)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder))
        settings = settings_for(workspace, options.kills, options.save_every)
        alone = Run.create(workspace, settings, "run")
        want = finish(alone)
        shutil.rmtree(alone.folder)

        run = Run.create(workspace, settings, "run")  # the same name, because a LoRA names its run
        began, phases, lost = time.monotonic(), dict[str, int](), list[int]()
        while len(lost) < options.kills:
            killed = kill_once(run, chance, 2 * options.save_every)
            if killed is None:
                shutil.rmtree(run.folder)
                run = Run.create(workspace, settings, "run")
                continue
            phase, cost = killed
            phases[phase] = phases.get(phase, 0) + 1
            lost.append(cost)
        same = finish(run) == want
        row = {
            "kills": options.kills,
            "steps": settings.steps,
            "save every": options.save_every,
            "most steps lost": max(lost),
            "mean": statistics.mean(lost),
            "same bytes": same,
            "seconds": time.monotonic() - began,
        }
        report([row], options.json, phases=phases)
        print("killed while: " + ", ".join(f"{phase} {count}" for phase, count in sorted(phases.items())))
    if not same or max(lost) > options.save_every:
        sys.exit(1)


if __name__ == "__main__":
    main()
