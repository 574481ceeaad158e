"""Compare the fit check with measurements: `python benchmarks/fit_check.py [--json FILE] [--quick]`.

Every case is estimated, then measured by the trial behind "Measure it": a separate process that takes three real steps,
generates a preview and saves. ours: estimated GB of the phase that needs most; reference: GB measured in it. The goal
is a ratio between 0.85 and 1.15. On a CPU the models are the built-in one and a random one of medium size; on a GPU the
published sizes with random weights, with a small text encoder in place of T5.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import arguments, published, report  # noqa: E402
from benchmarks.random_models import MEDIUM, SMALL_VAE, make_clips, write_model  # noqa: E402
from workbench import jobs  # noqa: E402
from workbench.families import find_model  # noqa: E402
from workbench.fit import measurement  # noqa: E402
from workbench.fit.estimate import estimate  # noqa: E402
from workbench.jobs.devices import pick_device  # noqa: E402
from workbench.runs.settings import TrainSettings  # noqa: E402
from workbench.workspace import Workspace  # noqa: E402

PATIENCE = 900.0


@dataclass(frozen=True)
class Case:
    """A model and changed settings; for a published model also the number of blocks (0: all) and the stored format.

    by_name: needs too much time or memory to run unless it is named
    """

    model: str
    changed: dict[str, Any] = field(default_factory=dict)
    blocks: int = 0
    stored: torch.dtype = torch.bfloat16
    by_name: bool = False


ON_CPU = {
    "built-in, batch 1": Case("tiny"),
    "built-in, batch 48": Case("tiny", {"batch_size": 48}),
    "medium, batch 4": Case("medium", {"batch_size": 4}),
    "medium, batch 4, feed-forward too": Case("medium", {"batch_size": 4, "targets": "attention+feed-forward"}),
    "medium, batch 8, keep attention": Case("medium", {"batch_size": 8, "gradient_checkpointing": "keep attention"}),
    "medium, batch 8, full": Case("medium", {"batch_size": 8, "gradient_checkpointing": "full"}),
    "medium, all weights": Case("medium", {"method": "full", "gradient_checkpointing": "full"}),
    "medium, DoRA": Case("medium", {"batch_size": 4, "dora": True}),
}
# Of real width on a processor: minutes and up to 12 GB.
SMALL_CLIP = {"frames": 9, "height": 128, "width": 192, "evaluate_every": 0, "rank": 16}
ON_CPU |= {
    "cogvideox-2b, 6 blocks, stored in bf16": Case("cogvideox-2b", SMALL_CLIP, 6, by_name=True),
    "cogvideox-2b, 6 blocks, stored in fp32": Case("cogvideox-2b", SMALL_CLIP, 6, torch.float32, by_name=True),
    "cogvideox-2b, stored in bf16": Case("cogvideox-2b", SMALL_CLIP, by_name=True),
}
LEVELS: tuple[dict[str, Any], ...] = (
    {"gradient_checkpointing": "keep attention"},
    {"gradient_checkpointing": "full"},
    {"gradient_checkpointing": "offloaded"},
    {"gradient_checkpointing": "full", "base_model_precision": "fp8"},
    {"gradient_checkpointing": "offloaded", "base_model_precision": "nf4"},
    {"gradient_checkpointing": "offloaded", "blocks_to_swap": 20},
)
ON_GPU = {
    f"{model}, {', '.join(map(str, level.values()))}": Case(model, level)
    for model in ("cogvideox-2b", "cogvideox-5b", "cogvideox1.5-5b")
    for level in LEVELS
}


def main() -> None:
    on_gpu = pick_device("auto").kind == "cuda"
    known = ON_GPU if on_gpu else ON_CPU
    usual = [name for name, case in known.items() if not case.by_name]
    parser = arguments((__doc__ or "").splitlines()[0], cases=[next(iter(known))])
    parser.add_argument("--cases", nargs="+", choices=known, metavar="CASE", default=usual)
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="keep models and clips here for the next call")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = options.work or Path(temporary)
        rows = []
        for name in options.cases:
            rows.append(compared(folder, name, known[name]))
            print(json.dumps(rows[-1]), flush=True)
    report(rows, options.json, goal="ratio between 0.85 and 1.15")


def settings_of(case: Case, folder: Path, workspace: Workspace) -> TrainSettings:
    """Return the settings of a case. Makes its model and clips if needed."""
    common = {"dataset": "squares", "held_out": 1, "preview_steps": 2, **case.changed}
    if case.model == "tiny":
        make_clips(workspace, 24, 9, (128, 128))
        return TrainSettings().changed(**common, rank=16, model="tiny-cogvideox")
    if case.model == "medium":
        make_clips(workspace, 24, 9, (128, 128))
        path = write_model(folder / "medium", MEDIUM, SMALL_VAE, torch.float32)
        return TrainSettings().changed(**common, rank=16, model=str(path))
    model = find_model(case.model)[1]
    make_clips(workspace, 3, 81, (1360, 768), 16)
    blocks = {"num_layers": case.blocks} if case.blocks else {}
    parts = published(case.model, "transformer") | blocks, published(case.model, "vae")
    name = f"{case.model}-{case.blocks}-{str(case.stored).removeprefix('torch.')}"
    path = write_model(folder / name, *parts, case.stored)
    shape = {"frames": model.frames, "height": model.height, "width": model.width, "rank": 64}
    return TrainSettings().changed(**shape | common, model=str(path))


def compared(folder: Path, name: str, case: Case) -> dict[str, Any]:
    """Estimate and measure one case."""
    workspace = Workspace.open(folder / "workspace")
    settings = settings_of(case, folder, workspace)
    estimated = estimate(workspace, settings)
    job = measurement.start(workspace, settings)
    ended = jobs.wait(job, PATIENCE)
    if ended.state is not jobs.State.FINISHED:
        sys.exit(f"{name}: {ended.state}, {ended.message}\n{jobs.log_tail(job)}")
    measured = estimate(workspace, settings)
    known = measured.measured
    assert known is not None
    if known.ran_out:
        ours = {phase.name: phase.gb for phase in estimated.phases}[known.ran_out]
        return row(f"{name}: {known.ran_out}, ran out", ours, measured.gpu.memory_gb, estimated.times.step, 0.0)
    for phase in measured.phases:
        estimate_of = next(one.gb for one in estimated.phases if one.name == phase.name)
        print(f"{name}: {phase.name}, {estimate_of:.2f} GB estimated, {phase.gb:.2f} measured", flush=True)
    phase = measured.peak
    ours = next(one.gb for one in estimated.phases if one.name == phase.name)
    return row(f"{name}: {phase.name}", ours, phase.gb, estimated.times.step, known.step_seconds)


def row(case: str, ours: float, reference: float, step: float, measured_step: float) -> dict[str, Any]:
    ratio = ours / reference
    seconds = {"step, estimated": step, "step, measured": measured_step}
    return {"case": case, "ours": ours, "reference": reference, "ratio": ratio, **seconds}


if __name__ == "__main__":
    main()
