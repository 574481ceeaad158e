"""`workbench demo` (also `make demo`): the whole loop on the built-in model, without a download.

It ends with the same prompts without and with the LoRA, side by side, as a video and a picture. Running it again reuses
the datasets and trains a new run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench import demo as material
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

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]

STAGES = (
    "importing the demo's clips",
    "training a LoRA on the built-in model",
    "sampling the same prompts without and with the LoRA",
    "putting before and after side by side",
)
ROWS = 4  # prompts that fit on a screen
WEBUI = "make webui" if SHIPPED == CODE else "workbench webui"
VIDEO, SHEET = "before_after.mp4", "before_after.png"


@click.command()
@click.option(
    "--steps", type=click.IntRange(1), metavar="N", help="Train this many steps. Fewer are faster and learn less."
)
@with_workspace
def demo(workspace: Workspace, steps: int | None) -> int:
    """Run the whole loop on the built-in model: clips, training, samples before and after. Needs no download."""
    began = time.monotonic()
    _stage(0)
    settings = material.prepare(workspace, _show_count)
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
        pairs.append(videos)

    _stage(3)
    write_before_and_after(prompts, pairs, run.folder / VIDEO, run.folder / SHEET)
    before, after = run.result.get("held_out_loss_before"), run.result.get("held_out_loss_after")
    if before is not None and after is not None:
        say(f"held-out loss  {before:.4f} before, {after:.4f} after (clips that were not trained on)")
    say(f"video          {run.folder / VIDEO}")
    say(f"contact sheet  {run.folder / SHEET}")
    say(f"LoRA           {run.lora}")
    say(f"workspace      {workspace.root}")
    say()
    say(f"done in {duration(time.monotonic() - began)}. See it in a browser: {WEBUI}")
    return 0


def _stage(number: int) -> None:
    say()
    say(f"{number + 1}/{len(STAGES)}  {STAGES[number]}", bold=True)


def _show_count(dataset: str, done: int, total: int) -> None:
    """Count the imported clips on a line of the terminal."""
    if sys.stdout.isatty():
        say_over(f"{dataset}: {done}/{total} clips")
        if done == total:
            say()


# ---- before and after

TILE = 200  # height of each video in pixels
GAP, LABEL, HEAD = 8, 22, 26
PAPER, INK, SOFT = (255, 255, 255), (20, 20, 20), (110, 110, 110)
TITLES = ("without the LoRA", "with the LoRA")
LOOPS = 4  # the clips are only a second long
SHEET_FRAMES = 3


def write_before_and_after(prompts: Sequence[str], pairs: Sequence[Sequence[Path]], video: Path, sheet: Path) -> None:
    """Write a video and a picture with a row per prompt: without the LoRA on the left, with it on the right.

    The picture has the first, middle and last frame of each video. Raises CannotWrite.
    """
    import io

    import numpy as np
    from PIL import Image

    from workbench.clips import media
    from workbench.workspace import write_bytes

    rows = [[_tiles(path) for path in pair] for pair in pairs]
    length = min(len(tiles) for row in rows for tiles in row)
    frames = [_page([[tiles[number] for tiles in row] for row in rows], prompts, TITLES) for number in range(length)]
    media.encode(np.stack(frames * LOOPS), video, media.probe(pairs[0][0]).fps)
    chosen = [index / (SHEET_FRAMES - 1) for index in range(SHEET_FRAMES)]
    pictures = [[tiles[round(share * (len(tiles) - 1))] for tiles in row for share in chosen] for row in rows]
    titles = [TITLES[0], *[""] * (SHEET_FRAMES - 1), TITLES[1]]
    buffer = io.BytesIO()
    Image.fromarray(_page(pictures, prompts, titles)).save(buffer, "PNG")
    write_bytes(sheet, buffer.getvalue())


def _tiles(path: Path) -> list[Pixels]:
    """Return a video's frames, scaled to the tile's height. Small pictures keep sharp pixels."""
    import numpy as np
    from PIL import Image

    from workbench.clips import media

    tiles = []
    for _, picture in media.decode(path):
        height, width = picture.shape[:2]
        size = (round(width * TILE / height), TILE)
        how = Image.Resampling.NEAREST if height < TILE else Image.Resampling.BICUBIC
        tiles.append(np.asarray(Image.fromarray(picture).resize(size, how)))
    return tiles


def _page(rows: Sequence[Sequence[Pixels]], prompts: Sequence[str], titles: Sequence[str]) -> Pixels:
    """Return a picture of the rows, with a title above each column and a prompt above each row."""
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    width = rows[0][0].shape[1]
    columns = len(rows[0])
    page = Image.new("RGB", (columns * (width + GAP) + GAP, HEAD + len(rows) * (LABEL + TILE + GAP)), PAPER)
    canvas: Any = ImageDraw.Draw(page)
    large, small = ImageFont.load_default(15), ImageFont.load_default(13)
    for column, title in enumerate(titles):
        canvas.text((GAP + column * (width + GAP), 6), title, INK, font=large)
    for number, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        top = HEAD + number * (LABEL + TILE + GAP)
        canvas.text((GAP, top + 3), prompt, SOFT, font=small)
        for column, picture in enumerate(row):
            page.paste(Image.fromarray(picture), (GAP + column * (width + GAP), top + LABEL))
    return np.asarray(page)
