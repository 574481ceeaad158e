"""`workbench demo`, which is `make demo`: the whole loop once on the built-in model, without a download.

May be repeated: the datasets are kept, each training is a run of its own.
"""

from __future__ import annotations

import sys
import time

import click

from workbench import demo as material
from workbench.cli.comparison import VideoPair, contact_sheet, side_by_side
from workbench.cli.follow import follow
from workbench.cli.options import with_workspace
from workbench.cli.printing import say, say_over
from workbench.cli.samples import generate_all
from workbench.dataset_builder.dataset import Dataset
from workbench.display.quantities import duration
from workbench.errors import ExitCode
from workbench.paths import CODE, SHIPPED
from workbench.runs.run import Run
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

STAGES = (
    "the demo's clips become datasets",
    "training a LoRA on the built-in model",
    "the same prompts, without and with the LoRA",
    "before and after, side by side",
)
ROWS = 4  # prompts compared: as many as a screen shows
WEBUI = "make webui" if SHIPPED == CODE else "workbench webui"
VIDEO, SHEET = "before_after.mp4", "before_after.png"


@click.command()
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Train so many steps: fewer end sooner, learn less.")
@with_workspace
def demo(workspace: Workspace, steps: int | None) -> int:
    """The whole loop on the built-in model: clips, training, samples before and after. Needs no download."""
    began = time.monotonic()
    _stage(0)
    settings = material.prepare(workspace, _count)
    if steps is not None:
        settings = settings.model_copy(update={"steps": steps})
    for name in filter(None, (settings.dataset, settings.regularization_dataset)):
        say(f"{name}: {Dataset.open(workspace, name).summary.sentence}")

    _stage(1)
    run = Run.create(workspace, settings, "demo")
    say(f"{run.folder}  ({settings.steps} steps; Ctrl-C leaves it running)")
    run.start()
    if (code := follow(run)) or run.status.state.alive:
        return code

    _stage(2)
    pairs = []
    prompts = material.prompts()[:ROWS]
    for number, prompt in enumerate(prompts):
        videos = []
        for loras in ((), (run.name,)):
            wanted = SampleSettings(model=settings.model, prompt=prompt, loras=loras, seed=number)
            (done,) = generate_all(workspace, [wanted])
            if done.video is None:
                say(f"Error: {done.message}", err=True)
                return int(done.exit_code or ExitCode.BUG)
            videos.append(done.video)
        say(f"{number + 1}/{len(prompts)}  {prompt}")
        pairs.append(VideoPair(prompt, *videos))

    _stage(3)
    side_by_side(pairs, run.folder / VIDEO)
    contact_sheet(pairs, run.folder / SHEET)
    _tell(workspace, run, time.monotonic() - began)
    return 0


def _stage(number: int) -> None:
    say()
    say(f"{number + 1}/{len(STAGES)}  {STAGES[number]}", bold=True)


def _count(dataset: str, done: int, total: int) -> None:
    """A line that counts up, where someone watches."""
    if sys.stdout.isatty():
        say_over(f"{dataset}: {done}/{total} clips")
        if done == total:
            say()


def _tell(workspace: Workspace, run: Run, seconds: float) -> None:
    before, after = run.result.get("held_out_loss_before"), run.result.get("held_out_loss_after")
    if before is not None and after is not None:
        say(f"held-out loss  {before:.4f} before, {after:.4f} after (clips that were not trained on)")
    say(f"video          {run.folder / VIDEO}")
    say(f"contact sheet  {run.folder / SHEET}")
    say(f"LoRA           {run.lora}")
    say(f"everything     {workspace.root}")
    say()
    say(f"done in {duration(seconds)}. See it in a browser: {WEBUI}")
