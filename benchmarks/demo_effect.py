"""What the demo's LoRA does: to prompts of its concept, and to prompts of what the model knew before.

    python benchmarks/demo_effect.py                  trains the demo in a temporary workspace, then measures
    python benchmarks/demo_effect.py lora.safetensors measures that file

32 prompts of the concept that no demo clip has, and the 64 known prompts that the embedded model never saw; every
sample through the stock pipeline, judged by assets/tiny_check.py. "ours" is with the LoRA, "reference" the base model.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from common import arguments, report

from workbench import demo
from workbench.families import default_model, find_model
from workbench.jobs import State, log_tail
from workbench.trainer.runs import Run
from workbench.workspace import Workspace

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "assets"))

import tiny_check  # noqa: E402
import tiny_models  # noqa: E402
import tiny_world  # noqa: E402


def train_demo(folder: Path) -> tuple[Path, dict[str, float]]:
    """Run the demo's training; the LoRA, and how long it took by phase."""
    workspace = Workspace.open(folder)
    run = Run.create(workspace, demo.prepare(workspace), "demo")
    run.start()
    status = run.wait()
    assert status.state == State.FINISHED, log_tail(run.folder)
    assert run.lora is not None
    assert status.started_at is not None
    assert status.ended_at is not None
    steps = [line for line in run.metrics if "loss" in line]
    losses = run.result
    return run.lora, {
        "whole run, seconds": status.ended_at - status.started_at,
        "first to last step, seconds": steps[-1]["time"] - steps[0]["time"] + steps[0]["seconds"],
        "steps alone, seconds": sum(line["seconds"] for line in steps),
        "held-out loss before": losses["held_out_loss_before"],
        "held-out loss after": losses["held_out_loss_after"],
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("lora", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sheet", type=Path, help="also write a contact sheet of the concept's samples (PNG)")
    options = parser.parse_args()
    _, model = find_model(default_model())
    pipeline = tiny_models.load(Path(model.source))
    concept, known = tiny_world.concept_specs(demo.concept())[1], tiny_world.held_out()
    captions = [spec.caption() for spec in (*concept, *known)]

    def draw() -> torch.Tensor:
        return tiny_models.sample(pipeline, captions, model.steps, model.guidance_scale, options.seed)

    base = draw()
    with tempfile.TemporaryDirectory() as folder:
        lora, trained = (options.lora, {}) if options.lora else train_demo(Path(folder))
        pipeline.load_lora_weights(lora.parent, weight_name=lora.name, adapter_name="lora")
        assert pipeline.get_list_adapters().get("transformer") == ["lora"]
    with_lora = draw()
    taught, other = slice(0, len(concept)), slice(len(concept), None)
    rows: list[dict[str, object]] = [
        {
            "case": f"{demo.concept()} found, of {len(specs)} {name} prompts",
            "ours": found(with_lora[part], specs),
            "reference": found(base[part], specs),
        }
        for name, specs, part in (("the concept's", concept, taught), ("known", known, other))
    ]
    before, after = (tiny_check.accuracy(clips[other], known) for clips in (base, with_lora))
    case = f"fully right, of {len(known)} known prompts"
    rows.append({"case": case, "ours": after["all"], "reference": before["all"]})
    rows += [{"case": key, "ours": value, "reference": ""} for key, value in trained.items()]
    report(rows, options.json)
    if options.sheet:
        contact_sheet(base[: len(concept)], with_lora[: len(concept)], options.sheet)


def found(clips: torch.Tensor, specs: list[tiny_world.Spec]) -> float:
    """Share of the clips that show the concept, whatever was asked for."""
    if demo.concept() == "stripes":
        return sum(tiny_check.stripes(clip) > tiny_check.STRIPED for clip in clips) / len(specs)
    return sum(tiny_check.inspect(clip).shape == demo.concept() for clip in clips) / len(specs)


def contact_sheet(base: torch.Tensor, with_lora: torch.Tensor, path: Path) -> None:
    """First, middle and last frame of each sample, base on the left, LoRA on the right, enlarged four times."""
    from PIL import Image

    rows = []
    for left, right in zip(base, with_lora, strict=True):
        frames = [clip[:, index] for clip in (left, right) for index in (0, 4, 8)]
        rows.append(torch.cat(frames, dim=2))
    half = len(rows) // 2
    sheet = torch.cat([torch.cat(rows[:half], dim=1), torch.cat(rows[half : 2 * half], dim=1)], dim=2)
    pixels = ((sheet.clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 0).numpy()
    image = Image.fromarray(pixels)
    image.resize((image.width * 3, image.height * 3), Image.Resampling.NEAREST).save(path)


if __name__ == "__main__":
    main()
