"""Compare our training step with the plain loop of the diffusers examples: same model, clips, batch and LoRA.

Both run in turn in one process, so that changes in the machine's speed affect both. Ours is the step of a real run,
including metrics line, heartbeat and a look at the control folder. Each row is a case, with milliseconds per step and
the ratio, medians of the rounds. The reference is benchmarks/plain_loop.py.

Image-to-video is measured twice. The example samples the noise of a first frame once, before training; ours samples it
at each step, like CogVideoX's training, and therefore encodes the frame again. One row compares with the original
example, the other with an example that also resamples: the same computation on both sides.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import plain_loop
import torch
from common import arguments, report
from diffusers import AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXTransformer3DModel
from plain_loop import Variant

from workbench import demo, jobs
from workbench.dataset_builder import Dataset
from workbench.families import find_model
from workbench.jobs.devices import pick_device
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.trainer.loop import follow_commands, train_step
from workbench.trainer.session import Session
from workbench.workspace import Workspace

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "assets"))

import tiny_world  # noqa: E402

MANY = 1_000_000
WARM_UP = 10
SQUARE, WIDE = (40, 40), (32, 64)  # height, width; decord cannot scale to every width
Step = Callable[[], None]


@dataclass(frozen=True)
class Case:
    """One row: our additional settings, the reference's variant, and whether there are wide clips, too."""

    title: str
    settings: dict[str, Any] = field(default_factory=dict)
    reference: Variant = Variant()
    wide: bool = False


IMAGES: dict[str, Any] = {"model": "tiny-cogvideox-i2v"}
CASES = {
    "plain": Case("text-to-video"),
    "accumulation": Case(
        "text-to-video, 2 batches of 4 accumulated",
        {"batch_size": 4, "gradient_accumulation": 2},
        Variant(batch=4, accumulation=2),
    ),
    "buckets": Case(
        "text-to-video, two buckets",
        {"buckets": tuple(f"9x{height}x{width}" for height, width in (SQUARE, WIDE))},
        wide=True,
    ),
    "images": Case("image-to-video, first frame noised anew by both", IMAGES, Variant(images="each step")),
    "images-once": Case("image-to-video, anew by ours, once by the example", IMAGES, Variant(images="once")),
}


def write_clips(folder: Path, wide: bool) -> list[tuple[list[Path], tuple[int, int]]]:
    """Write the demo's clips of the concept, and as many in another shape: files and training size by shape."""
    square = sorted((demo.DEMO_CLIPS / demo.concept()).glob("*.mp4"))
    groups = [(square, SQUARE)]
    if wide:
        folder.mkdir()
        rng = random.Random(0)
        for number, spec in enumerate(tiny_world.concept_specs()[1][: len(square)]):
            file = folder / f"{number}.mp4"
            tiny_world.write_clip(tiny_world.draw(spec, rng, 320)[:, :, 80:240], file)
            file.with_suffix(".txt").write_text(spec.caption())
        groups.append((sorted(folder.glob("*.mp4")), WIDE))
    return groups


def our_step(session: Session) -> Step:
    """Take one step like a run."""

    def step() -> None:
        train_step(session)
        follow_commands(session)

    return step


def reference_step(case: Case, model: Path, groups: list[tuple[list[Path], tuple[int, int]]]) -> Step:
    """Return the plain loop's step on a separate transformer. It reads and encodes the clips itself."""
    vae = AutoencoderKLCogVideoX.from_pretrained(model / "vae").requires_grad_(False)
    transformer = CogVideoXTransformer3DModel.from_pretrained(model / "transformer", dtype=torch.float32)
    scheduler = CogVideoXDDIMScheduler.from_pretrained(model / "scheduler")
    buckets = [plain_loop.encode(model, vae, files, *size) for files, size in groups]
    return plain_loop.make_step(transformer, scheduler, vae, buckets, case.reference)


def milliseconds(step: Step, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - began) / count * 1000


def measure(case: Case, rounds: int, steps: int, warm_up: int) -> dict[str, Any]:
    """Measure both steps in turn and return one row."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder) / "workspace")
        groups = write_clips(Path(folder) / "wide", case.wide)
        dataset = Dataset.ensure(workspace, "overhead")
        dataset.import_files([file for files, _ in groups for file in files])
        settings = TrainSettings(
            dataset=dataset.name,
            held_out=0,
            rank=plain_loop.RANK,
            alpha=float(plain_loop.RANK),
            batch_size=plain_loop.BATCH,
            learning_rate=plain_loop.LEARNING_RATE,
            caption_dropout=0.0,
            device="cpu",
            preview_every=0,
            evaluate_every=0,
            steps=MANY,
        ).changed(**case.settings)
        run = Run.create(workspace, settings, "overhead")
        with jobs.Job(run.folder) as job:
            session = Session(job, settings, pick_device("cpu"))
            _, model = find_model(settings.model)
            ours, reference = our_step(session), reference_step(case, Path(model.source), groups)
            for step in (ours, reference):
                milliseconds(step, warm_up)
            pairs = [(milliseconds(ours, steps), milliseconds(reference, steps)) for _ in range(rounds)]
    mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    return {"case": f"ms a step, {case.title}", "ours": mine, "reference": theirs, "ratio": ratio}


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], cases=["plain"], rounds=1, steps=1, warm_up=1)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40, help="steps per round")
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help="steps before the first round")
    options = parser.parse_args()
    rows = [measure(CASES[name], options.rounds, options.steps, options.warm_up) for name in options.cases]
    batch = f"rank {plain_loop.RANK}, {plain_loop.BATCH} clips a step, fp32"
    report(rows, options.json, settings=f"{batch}, {options.rounds} rounds of {options.steps}")


if __name__ == "__main__":
    main()
