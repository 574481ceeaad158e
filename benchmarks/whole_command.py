"""Compare `workbench train` with the plain loop as a whole command, from the shell to an exported LoRA, in turn.

Ours starts a detached run, follows it, writes checkpoint, LoRA and card, and verifies the file in the stock pipeline;
the reference (benchmarks/plain_loop.py) only trains and saves. Neither measures or previews during training. The
encoded clips are removed before each run, so both encode every time.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import plain_loop
from common import arguments, report

from workbench import demo, jobs
from workbench.families import find_model
from workbench.workspace import Workspace

HERE = Path(__file__).resolve().parent


def seconds(command: Sequence[str | Path]) -> float:
    """Return the time of a command. Ends the benchmark with the command's output if it fails."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=HERE.parent)
    if done.returncode:
        sys.exit(f"{command} ended with {done.returncode}:\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
    return time.perf_counter() - began


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], rounds=1, steps=[3])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, nargs="+", default=[20, 120])
    options = parser.parse_args()
    rows, warm_up = [], 0 if options.smallest else 1
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder))
        settings = demo.prepare(workspace).changed(
            regularization_dataset=None,
            targets="attention",
            rank=plain_loop.RANK,
            alpha=float(plain_loop.RANK),
            batch_size=plain_loop.BATCH,
            learning_rate=plain_loop.LEARNING_RATE,
            device="cpu",
            held_out=0,
            preview_every=0,
            evaluate_every=0,
            save_every=1_000_000,
        )
        clips = demo.DEMO_CLIPS / demo.concept()
        for steps in options.steps:
            settings.changed(steps=steps).save(Path(folder) / "train.json")
            ours = ["-m", "workbench", "--workspace", folder, "train", "--config", f"{folder}/train.json"]
            _, model = find_model(settings.model)
            reference = [HERE / "plain_loop.py", model.source, clips, str(steps), f"{folder}/reference"]
            pairs = []
            for _ in range(options.rounds + warm_up):
                shutil.rmtree(workspace.cache)
                workspace.cache.mkdir()
                pairs.append((seconds(ours), seconds(reference)))
                assert all(run.state == jobs.State.FINISHED for run in jobs.jobs_in(workspace.runs))
            mine, theirs = (statistics.median(column) for column in zip(*pairs[warm_up:], strict=True))
            ratio = statistics.median(a / b for a, b in pairs[warm_up:])
            rows.append({"case": f"seconds for {steps} steps", "ours": mine, "reference": theirs, "ratio": ratio})
    report(rows, options.json)


if __name__ == "__main__":
    main()
