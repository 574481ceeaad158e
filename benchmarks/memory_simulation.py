"""Compare the fit check with simulated runs of full-size models: `python benchmarks/memory_simulation.py --json FILE`.

A training step at every memory level, a denoising step of a preview, and the encoding and decoding of a clip run on
fake tensors (fake_runs). ours: GB of tensors that the fit check estimates, without its allowance for other memory;
reference: the peak of live tensors, also by cause. The same holds for operations, in 1e12, which determine the
estimated time. The goal is a ratio between 0.9 and 1.1 in every row.

All blocks of a model are equal, so two block counts determine all others by linear extrapolation. `--whole` simulates
all blocks. Rows in FILE are not simulated again; remove it after changing the computation.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import arguments, report, write  # noqa: E402
from benchmarks.fake_runs import CAUSES, Simulated, Trained, clip  # noqa: E402
from workbench.families import find_model  # noqa: E402
from workbench.fit import memory, timing  # noqa: E402
from workbench.fit.gpus import GpuModel  # noqa: E402
from workbench.runs.settings import TrainSettings  # noqa: E402

MODELS = (
    "cogvideox-2b",
    "cogvideox-5b",
    "cogvideox-5b-i2v",
    "cogvideox1.5-5b",
    "wan2.1-t2v-1.3b",
    "wan2.1-t2v-14b",
    "wan2.2-ti2v-5b",
    "ltx-video-2b-0.9.5",
    "ltx-video-13b-0.9.7",
    "mochi-1-preview",
    "cogvideox1.5-5b-i2v",
    "wan2.1-i2v-14b-480p",
    "wan2.2-ti2v-5b-image",
    "ltx-video-2b-0.9.5-image",
    "ltx-video-13b-0.9.7-image",
)
# The same transformers as others with a first frame: levels that change weights alone are simulated of those.
TEXT_MODELS = MODELS[:-5]
# With a side branch: how much memory weights take is like that of the others.
BRANCHED = ("wan2.1-vace-1.3b", "wan2.1-vace-14b")
# These, and others whose weights take memory as those above do.
AS_STORED = (*BRANCHED, "kandinsky5-lite-t2v-5s")
# The other models have the same video encoder and clip.
VIDEO_ENCODERS = (
    "cogvideox-2b",
    "cogvideox1.5-5b",
    "wan2.1-t2v-1.3b",
    "wan2.2-ti2v-5b",
    "ltx-video-2b-0.9.5",
    "ltx-video-13b-0.9.7",
    "mochi-1-preview",
    "kandinsky5-lite-t2v-5s",
)
GOAL = "ratio between 0.9 and 1.1"
# Blocks of which the rest follows. Where something comes and goes, up to four blocks have some of it on the device.
FEW, FEW_THAT_MOVE = (2, 3), (6, 8)
# Of VACE, whose side branch has a block for each second or fifth one.
FEW_OF_VACE = {"wan2.1-vace-1.3b": (4, 6), "wan2.1-vace-14b": (10, 15)}
LARGE = GpuModel("a GPU with room for everything", "cuda", 4000.0, 394.0)
SMALL = GpuModel("a GPU without room for a clip in one piece", "cuda", 1.0, 394.0)
PROCESSOR = GpuModel("a processor", "cpu", 4000.0, 0.06)


@dataclass(frozen=True)
class Level:
    """Changes to the usual settings, and the share of swapped blocks."""

    name: str
    changed: dict[str, Any] = field(default_factory=dict)
    swapped: float = 0.0

    @property
    def moves(self) -> bool:
        return self.swapped > 0 or self.changed["gradient_checkpointing"] == "offloaded"

    def settings(self, model: str, blocks: int) -> TrainSettings:
        swap = round(self.swapped * blocks)
        # Beside text no first frame is simulated.
        usual = {"model": model, "rank": 64, "blocks_to_swap": swap, "first_frame_share": 0.0}
        return TrainSettings().changed(**usual, **self.changed)


def checkpointing(level: str, **changed: Any) -> dict[str, Any]:
    return {"gradient_checkpointing": level, **changed}


LEVELS = (
    *(Level(name, checkpointing(name)) for name in ("none", "keep attention", "full", "offloaded")),
    *(Level(f"full, {name}", checkpointing("full", base_model_precision=name)) for name in ("fp8", "int8", "nf4")),
    Level("full, half of the blocks swapped", checkpointing("full"), 0.5),
    Level("offloaded, nf4, all blocks swapped", checkpointing("offloaded", base_model_precision="nf4"), 1.0),
)
UNROUNDED = 4  # of the levels: those that leave weights as they are
OTHER_SETTINGS = (
    Level("full, 8-bit AdamW", checkpointing("full", optimizer="adamw-8bit")),
    Level("full, feed-forward too", checkpointing("full", targets="attention+feed-forward")),
    Level("full, two clips", checkpointing("full", batch_size=2)),
    Level("full, all weights", checkpointing("full", method="full")),
)
# As cogvideox-factory trained whose peaks are published (docs/fit_accuracy.md).
AS_PUBLISHED = (
    ("cogvideox-2b", Level("none, diffusers' attention", checkpointing("none", attention="stock"))),
    (
        "cogvideox-2b",
        Level("full, diffusers' attention, four clips", checkpointing("full", attention="stock", batch_size=4)),
    ),
    ("cogvideox-5b", Level("full, diffusers' attention", checkpointing("full", attention="stock"))),
    (
        "cogvideox-5b",
        Level("full, diffusers' attention, four clips", checkpointing("full", attention="stock", batch_size=4)),
    ),
)
CLIP_PHASES = (
    (memory.CLIPS, LARGE, "in one piece"),
    (memory.CLIPS, SMALL, "in tiles"),
    (memory.DECODING, LARGE, "in tiles"),
)
ON_PROCESSOR = {"precision": "fp32", "frames": 9, "height": 128, "width": 192}


@dataclass(frozen=True)
class Case:
    """A row: a phase of a model with some settings."""

    name: str
    model: str
    phase: str
    level: Level
    gpu: GpuModel = LARGE

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.gpu is PROCESSOR else torch.bfloat16


def training(level: Level, models: Sequence[str]) -> Iterator[Case]:
    for model in models:
        yield Case(f"{model}: {memory.TRAINING}, {level.name}", model, memory.TRAINING, level)


def previews() -> Iterator[Case]:
    """Return denoising steps with unchanged weights and at the memory levels of previews."""
    for model in MODELS:
        yield Case(f"{model}: {memory.DENOISING}", model, memory.DENOISING, LEVELS[2])
    for level in LEVELS[UNROUNDED:]:
        name = level.name.removeprefix("full, ").removeprefix("offloaded, ")
        for model in TEXT_MODELS:
            yield Case(f"{model}: {memory.DENOISING}, {name}", model, memory.DENOISING, level)


def cases() -> Iterator[Case]:
    for number, level in enumerate(LEVELS):
        yield from training(level, MODELS if number < UNROUNDED else TEXT_MODELS)
    yield from previews()
    for level in LEVELS[:UNROUNDED]:
        yield from training(level, AS_STORED)
    for model in AS_STORED:
        yield Case(f"{model}: {memory.DENOISING}", model, memory.DENOISING, LEVELS[2])
    for phase, gpu, how in CLIP_PHASES:
        for model in VIDEO_ENCODERS:
            yield Case(f"{model}: {phase}, {how}", model, phase, LEVELS[2], gpu)
    for level in OTHER_SETTINGS:
        yield from training(level, TEXT_MODELS)
    for model, level in AS_PUBLISHED:
        yield from training(level, (model,))
    for level in LEVELS[:3]:
        small = Level(level.name, level.changed | ON_PROCESSOR)
        name = f"cogvideox-2b on a processor, 9 frames of 192x128: {memory.TRAINING}, {level.name}"
        yield Case(name, "cogvideox-2b", memory.TRAINING, small, PROCESSOR)


# ---- both sides


def simulate(case: Case, whole: bool = False) -> Simulated:
    """Simulate the reference of a row."""
    family, model = find_model(case.model)
    blocks = family.facts(model).blocks
    if case.phase in (memory.CLIPS, memory.DECODING):
        decode = case.phase == memory.DECODING
        return clip(family, model, case.level.settings(case.model, 0), decode, decode or case.gpu is SMALL, case.dtype)
    few = FEW_OF_VACE.get(case.model) or (FEW_THAT_MOVE if case.level.moves else FEW)
    counts = (blocks,) if whole else few
    found = []
    for count in counts:
        trained = Trained(family, model, case.level.settings(case.model, count), count, case.dtype)
        found.append(trained.step() if case.phase == memory.TRAINING else trained.denoising())
    return found[0] if whole else extended(*found, (blocks - few[0]) / (few[1] - few[0]))


def extended(fewer: Simulated, more: Simulated, times: float) -> Simulated:
    """Extrapolate linearly to more blocks."""

    def line(one: float, other: float) -> float:
        return one + times * (other - one)

    causes = {cause: line(fewer.causes[cause], more.causes[cause]) for cause in CAUSES}
    return Simulated(line(fewer.gb, more.gb), causes, line(fewer.operations, more.operations))


def estimate(case: Case) -> tuple[float, float]:
    """Return GB of tensors and operations in 1e12 that the fit check estimates for a row."""
    family, model = find_model(case.model)
    facts = family.facts(model)
    settings = case.level.settings(case.model, facts.blocks)
    size = memory.sizes(settings, model, facts, case.gpu)
    parts = next(one.parts for one in memory.phases(size) if one.name == case.phase)
    own = {"VAE", "activations", "the clip", "the video"} if case.phase in (memory.CLIPS, memory.DECODING) else parts
    gb = sum(gb for name, gb in parts.items() if name in own and name not in memory.NO_TENSORS)
    counted = {
        memory.TRAINING: timing.step_operations(size),
        memory.DENOISING: 2 * sum(timing.forward_operations(size)),
        memory.CLIPS: timing.encoding_operations(size),
        memory.DECODING: timing.decoding_operations(size),
    }
    return gb, counted[case.phase] / 1e12


def row(case: Case, simulated: Simulated) -> dict[str, Any]:
    gb, operations = estimate(case)
    causes = {name: round(one, 4) for name, one in simulated.causes.items()}
    return {
        "case": case.name,
        "ours": gb,
        "reference": simulated.gb,
        "ratio": gb / simulated.gb,
        "operations": operations,
        "operations simulated": simulated.operations,
        "operations ratio": operations / simulated.operations,
        **causes,
    }


# ---- the table


def known(path: Path | None) -> dict[str, Simulated]:
    """Return the file's rows of earlier calls, by case."""
    if path is None or not path.exists():
        return {}
    rows = json.loads(path.read_text())["rows"]
    return {
        one["case"]: Simulated(one["reference"], {c: one[c] for c in CAUSES}, one["operations simulated"])
        for one in rows
    }


def rows_of(every: list[Case], found: dict[str, Simulated]) -> list[dict[str, Any]]:
    return [row(case, found[case.name]) for case in every if case.name in found]


def main() -> None:
    smallest = {"models": ["ltx-video-2b-0.9.5"], "only": memory.TRAINING + ", full"}
    parser = arguments((__doc__ or "").splitlines()[0], **smallest)
    parser.add_argument("--models", nargs="+", choices=(*MODELS, *AS_STORED), metavar="NAME", default=list(MODELS))
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose name contains this")
    parser.add_argument("--whole", action="store_true", help="simulate all blocks")
    options = parser.parse_args()
    found, every = known(options.json), list(cases())
    for case in every:
        if case.name in found or case.model not in options.models or options.only not in case.name:
            continue
        found[case.name] = simulate(case, options.whole)
        print(case.name, f"{found[case.name].gb:.2f} GB", flush=True)
        if options.json:
            write(rows_of(every, found), options.json, goal=GOAL)
    rows = rows_of(every, found)
    report(rows, options.json, goal=GOAL)


if __name__ == "__main__":
    main()
