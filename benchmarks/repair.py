"""Does a repair keep what a LoRA teaches and halve what else it changes? LoRAs of concepts, before and after.

    python benchmarks/repair.py --work DIR                          three concepts, two kinds of runs, three seeds
    python benchmarks/repair.py --concepts ring --kinds plain       one of them

Each concept is taught to the built-in model in a short run with a regularization dataset ("demo") or without
("plain"); runs that --work has are not trained again. Prompts to leave alone are the dataset's captions, or the same 64
captions given by hand. The repaired LoRA is sampled whether it is saved or not: `shown` is the share of prompts of the
concept whose samples show it, `right` the share of known prompts whose samples are right, none of them trained on.
"ours" is the repaired LoRA, "reference" the LoRA as it is; for "drift against one strength" and "at strength" it is
a single strength, the one whose drift is nearest to the repaired LoRA's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import concepts
import torch
from best_point import KINDS, MODEL
from common import arguments, report

from workbench.families import find_model
from workbench.loras import library
from workbench.loras.making import add_to_library
from workbench.loras.repair import Measured, provenance_of, repaired
from workbench.loras.settings import RepairSettings
from workbench.workspace import Workspace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "assets"))

import tiny_models
import tiny_world

Row = dict[str, Any]


def judged(lora: Path, concept: str, options: argparse.Namespace, scale: float = 1.0) -> tuple[float, float]:
    """Return the share of the concept's prompts that show it, and of known prompts that are right."""
    own = tiny_world.concept_specs(concept)[1][: options.prompts]
    known = tiny_world.held_out()[: options.prompts]
    pipeline = concepts.stock(find_model(MODEL)[1])
    assert pipeline is not None
    with concepts.lora_on(pipeline, lora):
        pipeline.set_adapters(["lora"], [scale])
        captions = [spec.caption() for spec in (*own, *known)]
        clips = tiny_models.sample(pipeline, captions, options.sampling_steps, seed=1, batch=len(captions))
    shown = concepts.share(lambda clip, _: concepts.shows(clip, concept), clips[: len(own)], own)
    return shown, concepts.share(concepts.is_right, clips[len(own) :], known)


def measured(workspace: Workspace, concept: str, kind: str, seed: int, options: argparse.Namespace) -> list[Row]:
    """Train a LoRA, or take the one that is there, repair it and judge both."""
    settings = concepts.settings_for(workspace, concept, MODEL).changed(**KINDS[kind], device="cpu", seed=seed)
    quiet = {"preview_every": 0, "evaluate_every": 0, "save_every": options.steps}
    run = concepts.trained(
        workspace, settings.changed(**quiet, steps=options.steps, batch_size=2), f"{concept}-{kind}-{seed}"
    )
    others = tuple(spec.caption() for spec in tiny_world.known_demo_specs()) if kind == "plain" else ()
    asked = RepairSettings(lora=f"runs/{run.name}", others=others, device="cpu", steps=options.repair_steps)
    began = time.monotonic()
    one, lora, found = repaired(workspace, asked, print, lambda *_: None)
    seconds = time.monotonic() - began
    made = add_to_library(workspace, one.family, lora, provenance_of(one, asked, found))
    assert run.lora is not None
    after = judged(library.find(workspace, made.name).path, concept, options)
    singles = [Measured(**single) for single in found["singles"]]
    near = min(singles[1:], key=lambda single: abs(single.drift - found["after"]["drift"]))
    before, at_strength = (judged(run.lora, concept, options, scale) for scale in (1.0, near.scale))
    values = {
        "saved": (found["helps"], ""),
        "effect": (found["after"]["effect"], 1.0),
        "drift": (found["after"]["drift"], singles[0].drift),
        "drift against one strength": (found["after"]["drift"], found["beside"]),
        "shown": (after[0], before[0]),
        "right": (after[1], before[1]),
        f"shown, at strength {near.scale}": (after[0], at_strength[0]),
        f"right, at strength {near.scale}": (after[1], at_strength[1]),
        "seconds": (round(seconds), ""),
    }
    name = f"{concept}, {kind}, seed {seed}"
    return [{"case": f"{name}: {what}", "ours": ours, "reference": other} for what, (ours, other) in values.items()]


def main() -> None:
    parser = arguments(
        __doc__.splitlines()[0], concepts=["stripes"], kinds=["plain"], seeds=[42], steps=2, prompts=1, repair_steps=1
    )
    parser.add_argument("--concepts", nargs="+", choices=tiny_world.CONCEPTS, default=["ring", "stripes", "pink"])
    parser.add_argument("--kinds", nargs="+", choices=("plain", "demo"), default=["plain", "demo"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[42, 43, 44])
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--repair-steps", type=int, default=RepairSettings().steps)
    parser.add_argument("--prompts", type=int, default=24, help="of the concept, and as many known ones")
    parser.add_argument("--sampling-steps", type=int, default=6)
    parser.add_argument("--work", type=Path, help="keep the runs here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seeds:
            for kind in options.kinds:
                for concept in options.concepts:
                    workspace = Workspace.open((options.work or Path(folder)) / concept)
                    rows += measured(workspace, concept, kind, seed, options)
                    report(rows, options.json)


if __name__ == "__main__":
    main()
