"""Measure how still pictures among the clips affect motion, and what the picture settings change.

    python benchmarks/pictures.py                              24 files, 0, 50, 80 and 100% of them pictures
    python benchmarks/pictures.py --pictures 0.8 --share 0.2   one mixture, with a value of picture_share

The built-in model learns stripes from the demo's clips with the demo's settings, with and without a regularization
dataset. A picture is the middle frame of a clip, with its caption. 16 prompts of stripes and 16 known prompts, none
trained on, are generated with the stock pipeline and the LoRA; the first row is the base model.

sampled: share of batches with pictures;  striped: share of samples with stripes;  motion: the grid's measure (mean
change in levels of 255 within an eighth of a second);  travel: distance that shapes move, as a share of the side;
direction, right: share that moves as the prompt says, and that is fully right, according to assets/tiny_check.py, which
cannot tell which way a shape moves in front of stripes.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import concepts
import tiny_check
import tiny_models
import tiny_world
import torch
from common import arguments, report
from PIL import Image

from workbench import demo
from workbench.clips.media import encode
from workbench.compare.measurements import of_video
from workbench.dataset_builder import Dataset
from workbench.families import default_model, find_model
from workbench.families.model import Model
from workbench.runs.data import Batches, load_data
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

PICTURE = "-picture.png"
Row = dict[str, Any]


def import_files(workspace: Workspace) -> None:
    """Import the demo's clips, and for each clip of the concept its middle frame with its caption as a picture."""
    with tempfile.TemporaryDirectory() as folder:
        tiny_world.write_demo_clips(Path(folder))
        clips = sorted((Path(folder) / tiny_world.CONCEPT).glob("*.mp4"))
        for index, (clip, spec) in enumerate(zip(clips, tiny_world.concept_specs()[0], strict=True)):
            picture = clip.with_name(f"{index}{PICTURE}")
            frames = pixels(tiny_world.draw(spec, random.Random(index), tiny_world.DEMO_SIZE))
            Image.fromarray(frames[tiny_world.FRAMES // 2]).save(picture)
            shutil.copyfile(clip.with_suffix(".txt"), picture.with_suffix(".txt"))
        for name in (tiny_world.CONCEPT, demo.KNOWN):
            Dataset.ensure(workspace, name).import_files([Path(folder) / name])


def mix(dataset: Dataset, share: float) -> None:
    """Keep either the clip or its picture of each pair, with this share of pictures."""
    for removed in dataset.removed:
        dataset.restore(removed.file_name)
    videos = [clip.file_name for clip in dataset.clips if not clip.is_image]
    pictures = [clip.file_name for clip in dataset.clips if clip.is_image]
    count = round(share * len(videos))
    order = random.Random(3).sample(range(len(videos)), len(videos))
    out = [*(videos[index] for index in order[:count]), *(pictures[index] for index in order[count:])]
    dataset.remove(*out)


def pixels(clip: torch.Tensor) -> Any:
    """Return uint8 [F, H, W, 3] of a clip [3, F, H, W] in [-1, 1]."""
    return ((clip.clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 3, 0).numpy()


def settings_for(workspace: Workspace, share: float) -> TrainSettings:
    """Return the demo's settings, with a bucket of one frame if there are pictures."""
    side, shapes = tiny_world.SIZE, (tiny_world.FRAMES, 1)
    buckets = tuple(f"{frames}x{side}x{side}" for frames in shapes) if share else ()
    settings = demo.teach(tiny_world.CONCEPT, demo.KNOWN)
    return settings.changed(device="cpu", preview_every=0, evaluate_every=225, save_every=450, buckets=buckets)


def motion(clips: Sequence[torch.Tensor]) -> float:
    """Return the grid's motion measure, averaged over clips [3, F, H, W] in [-1, 1]."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        found = []
        for clip in clips:
            encode(pixels(clip), path, tiny_world.FPS)
            found.append(of_video(path)["motion"])
    return statistics.mean(found)


def travel(clips: Sequence[torch.Tensor]) -> float:
    """Return the distance of shapes from first to last frame as a share of the side, averaged over clips."""
    found = []
    for clip in clips:
        matte = tiny_check.foreground(clip)[2]
        mass = matte.sum((1, 2)).clamp(min=1e-6)
        places = torch.arange(clip.shape[-1]) / clip.shape[-1]
        x, y = (matte.sum(1) * places).sum(1) / mass, (matte.sum(2) * places).sum(1) / mass
        found.append(float(torch.hypot(x[-1] - x[0], y[-1] - y[0])))
    return statistics.mean(found)


def judged(prompts: Sequence[concepts.Prompts], samples: Sequence[torch.Tensor]) -> Row:
    """Return the columns of a row, from samples of the concept's prompts and of known prompts."""
    (_, known), (striped, plain) = prompts, samples
    found = tiny_check.accuracy(plain, known.specs)
    return {
        "striped": statistics.mean(concepts.shows(clip, tiny_world.CONCEPT) for clip in striped),
        "motion, striped": motion(striped),
        "motion, known": motion(plain),
        "travel, known": travel(plain),
        "direction, known": found["motion"],
        "right, known": found["all"],
    }


def measure(
    workspace: Workspace, model: Model, share: float, changes: dict[str, Any], options: argparse.Namespace
) -> Row:
    """Train once and judge the samples."""
    pipeline = tiny_models.load(Path(model.source))
    prompts = concepts.prompts_of(tiny_world.CONCEPT, options.seed, options.prompts)
    mix(Dataset.open(workspace, tiny_world.CONCEPT), share)
    settings = settings_for(workspace, share).changed(steps=options.steps, **changes)
    sampled = Batches(load_data(workspace, settings), settings).pictures
    lora, trained = concepts.train(workspace, settings, "pictures")
    with concepts.lora_on(pipeline, lora):
        samples = [part.generate(pipeline, model) for part in prompts]
    seconds = next(row["ours"] for row in trained if row["case"] == "whole run, seconds")
    if options.sheets:
        options.sheets.mkdir(parents=True, exist_ok=True)
        name = "-".join([f"{share:.0%}", *(f"{key}={value}" for key, value in changes.items())])
        concepts.contact_sheet(samples[1], samples[0], options.sheets / f"{name}.png")
    return {"sampled": sampled, **judged(prompts, samples), "seconds": seconds}


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], pictures=[0.5], share=[0.2], steps=2, prompts=1, known=[0.7])
    parser.add_argument("--pictures", nargs="+", type=float, default=[0.0, 0.5, 0.8, 1.0], help="shares of the files")
    parser.add_argument("--share", nargs="+", type=float, default=[None], help="values of picture_share")
    parser.add_argument("--known", nargs="+", type=float, default=[0.7, 0.0], help="regularization shares")
    parser.add_argument("--steps", type=int, default=450)
    parser.add_argument("--prompts", type=int, default=16, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workspace", type=Path, help="folder that keeps datasets and runs")
    parser.add_argument("--sheets", type=Path, help="also write contact sheets into this folder")
    options = parser.parse_args()
    _, model = find_model(default_model())
    pipeline = tiny_models.load(Path(model.source))
    prompts = concepts.prompts_of(tiny_world.CONCEPT, options.seed, options.prompts)
    base = judged(prompts, [part.generate(pipeline, model) for part in prompts])
    rows = [{"files": "base model", "known": "", "share": "", "sampled": "", **base, "seconds": ""}]
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(options.workspace or Path(folder))
        if not workspace.dataset(tiny_world.CONCEPT).exists():
            import_files(workspace)
        for known, pictures, share in itertools.product(options.known, options.pictures, options.share):
            changes = {"regularization_share": known, "picture_share": share if 0 < pictures < 1 else None}
            changes |= {} if known else {"regularization_dataset": None}
            row = measure(workspace, model, pictures, changes, options)
            rows.append({"files": f"{pictures:.0%} pictures", "known": known, "share": share or "", **row})
    report(rows, options.json)


if __name__ == "__main__":
    main()
