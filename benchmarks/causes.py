"""Placeholder docstring."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from workbench import demo
from workbench.dataset_builder import Dataset
from workbench.runs.run import Run
from workbench.workspace import Workspace

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "assets"))

import tiny_world  # noqa: E402

PLANTED = 2


@dataclass(frozen=True)
class Fault:
    """A fault that is drawn over a clip: a box (left, top, right, bottom as shares) in frames (first, last), in a color."""

    box: tuple[float, float, float, float]
    frames: tuple[int, int]
    colour: tuple[float, float, float]  # -1 to 1

    def draw(self, clip: torch.Tensor) -> torch.Tensor:
        """Return a clip [3, F, H, W] with the fault."""
        clip = clip.clone()
        size = clip.shape[-1]
        left, top, right, bottom = (round(edge * size) for edge in self.box)
        first, last = self.frames
        clip[:, first : last + 1, top:bottom, left:right] = torch.tensor(self.colour).view(3, 1, 1, 1)
        return clip

    def differs(self, spec: tiny_world.Spec) -> bool:
        """Return whether the fault can be told from a clip's own colors."""
        own = "black" if self.colour[0] < 0 else "white"
        return own not in (spec.background, spec.colour)

    def shown(self, clip: torch.Tensor) -> float:
        """Return how much a clip shows it: 1 in exactly its color, 0 at the distance of a random color or more."""
        size = clip.shape[-1]
        left, top, right, bottom = (round(edge * size) for edge in self.box)
        inside = clip[:, self.frames[0] : self.frames[1] + 1, top:bottom, left:right]
        away = (inside - torch.tensor(self.colour).view(3, 1, 1, 1)).abs().mean()
        return max(0.0, 1 - float(away) / 0.67)


FAULTS = {
    "bar": Fault((0.0, 0.8, 1.0, 1.0), (0, 8), (-0.9, -0.9, -0.9)),
    "top": Fault((0.0, 0.0, 1.0, 0.2), (0, 8), (0.95, 0.95, 0.95)),
    "side": Fault((0.0, 0.0, 0.2, 1.0), (0, 8), (-0.9, -0.9, -0.9)),
    "flash": Fault((0.0, 0.0, 1.0, 1.0), (5, 8), (0.95, 0.95, 0.95)),
}
CASES = {"stripes": "side", "ring": "bar", "shrinks": "flash", "cross": "top", "dots": "bar", "fades": "side"}


def prepare(root: Path, concept: str, seed: int) -> tuple[Workspace, list[int]]:
    """Import a concept's 24 clips, two of them with a fault, and the known clips; return their numbers, too."""
    workspace = Workspace.open(root / f"{concept}-{seed}")
    specs = tiny_world.concept_specs(concept)[0]
    fault = FAULTS[CASES[concept]]
    if (kept := workspace.root / "planted.json").exists():
        return workspace, json.loads(kept.read_text())
    order = random.Random(f"planted {concept} {seed}").sample(range(len(specs)), len(specs))
    planted = sorted([number for number in order if fault.differs(specs[number])][:PLANTED])
    made = root / f"{concept}-{seed}-clips"
    tiny_world.write_demo_clips(made, concept)
    rng = random.Random(f"demo {concept}")
    files = sorted((made / concept).glob("*.mp4"))
    for number, spec in enumerate(specs):
        clip = tiny_world.draw(spec, rng, tiny_world.DEMO_SIZE)
        if number in planted:
            tiny_world.write_clip(fault.draw(clip), files[number])
    for name in (concept, demo.KNOWN):
        Dataset.ensure(workspace, name).import_files([made / name])
    kept.write_text(json.dumps(planted))
    return workspace, planted


def trained(workspace: Workspace, concept: str, seed: int, name: str) -> Run:
    settings = demo.teach(concept, demo.KNOWN).changed(
        held_out=0, preview_every=0, evaluate_every=0, seed=seed, device="cpu"
    )
    run = Run.create(workspace, settings, name)
    run.start()
    print(run.wait().state, flush=True)
    return run


if __name__ == "__main__":
    import time
    root = Path(sys.argv[1])
    for concept in sys.argv[2:]:
        began = time.time()
        workspace, planted = prepare(root, concept, 1)
        print(concept, planted, time.time() - began, flush=True)
        if not (workspace.root / "runs/base").exists():
            trained(workspace, concept, 1, "base")
        print(concept, time.time() - began, flush=True)
