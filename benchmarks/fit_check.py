"""The fit check against measurement: `python benchmarks/fit_check.py [--json FILE] [--quick]`.

Every case is estimated, then measured by the trial that "Measure it" starts: a process of its own that takes three real
steps, draws a preview and saves. ours: GB estimated for the phase that needs most, reference: GB measured in the same
phase; the goal is a ratio between 0.85 and 1.15. On a processor the built-in model and a random one of medium size are
taken, on a GPU the published sizes with random weights, a small text encoder standing in for T5.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import arguments, report  # noqa: E402
from tests.drawing import COLOURS, draw  # noqa: E402
from workbench import jobs  # noqa: E402
from workbench.clips import media  # noqa: E402
from workbench.dataset_builder import Dataset  # noqa: E402
from workbench.families import find_model  # noqa: E402
from workbench.families.cogvideox.facts import TRANSFORMERS, VAE  # noqa: E402
from workbench.fit import measurement  # noqa: E402
from workbench.fit.estimate import estimate  # noqa: E402
from workbench.jobs.devices import pick_device  # noqa: E402
from workbench.runs.settings import TrainSettings  # noqa: E402
from workbench.workspace import Workspace  # noqa: E402

PATIENCE = 900.0
MEDIUM = {
    "attention_head_dim": 64,
    "num_attention_heads": 8,
    "num_layers": 10,
    "in_channels": 16,
    "out_channels": 16,
    "text_embed_dim": 64,
    "time_embed_dim": 64,
    "patch_size": 2,
    "max_text_seq_length": 16,
    "sample_frames": 9,
    "sample_height": 16,
    "sample_width": 16,
    "use_rotary_positional_embeddings": True,
}
SMALL_VAE = {"block_out_channels": [8, 16, 32, 32], "sample_height": 128, "sample_width": 128}
# What is changed of the usual settings.
ON_CPU: dict[str, tuple[str, dict[str, Any]]] = {
    "built-in, batch 1": ("tiny", {}),
    "built-in, batch 48": ("tiny", {"batch_size": 48}),
    "medium, batch 4": ("medium", {"batch_size": 4}),
    "medium, batch 4, feed-forward too": ("medium", {"batch_size": 4, "targets": "attention+feed-forward"}),
    "medium, batch 8, keep attention": ("medium", {"batch_size": 8, "gradient_checkpointing": "keep attention"}),
    "medium, batch 8, full": ("medium", {"batch_size": 8, "gradient_checkpointing": "full"}),
    "medium, all weights": ("medium", {"method": "full", "gradient_checkpointing": "full"}),
    "medium, DoRA": ("medium", {"batch_size": 4, "dora": True}),
}
LEVELS = (
    {"gradient_checkpointing": "keep attention"},
    {"gradient_checkpointing": "full"},
    {"gradient_checkpointing": "offloaded"},
    {"gradient_checkpointing": "full", "base_model_precision": "fp8"},
    {"gradient_checkpointing": "offloaded", "base_model_precision": "nf4"},
    {"gradient_checkpointing": "offloaded", "blocks_to_swap": 20},
)
ON_GPU = ("cogvideox-2b", "cogvideox-5b", "cogvideox1.5-5b")


def main() -> None:
    parser = arguments(__doc__.split("\n")[0], quick=True)
    parser.add_argument("--quick", action="store_true", help="one case a model")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder) / "workspace")
        rows = []
        for name, settings in cases(Path(folder), workspace, options.quick)[: 1 if options.smallest else None]:
            rows.append(compared(workspace, name, settings))
            print(rows[-1], flush=True)
    report(rows, options.json, goal="ratio between 0.85 and 1.15")


def compared(workspace: Workspace, name: str, settings: TrainSettings) -> dict[str, Any]:
    """One case, estimated and then measured."""
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
    phase = measured.peak
    ours = next(one.gb for one in estimated.phases if one.name == phase.name)
    return row(f"{name}: {phase.name}", ours, phase.gb, estimated.times.step, known.step_seconds)


def row(case: str, ours: float, reference: float, step: float, measured_step: float) -> dict[str, Any]:
    ratio = ours / reference
    seconds = {"step, estimated": step, "step, measured": measured_step}
    return {"case": case, "ours": ours, "reference": reference, "ratio": ratio, **seconds}


# ---- what is measured


def cases(folder: Path, workspace: Workspace, quick: bool) -> list[tuple[str, TrainSettings]]:
    common = {"dataset": "squares", "held_out": 1, "preview_steps": 2, "rank": 16}
    if pick_device("auto").kind == "cpu":
        make_clips(workspace, 24, 9, (128, 128))
        models = {"tiny": "tiny-cogvideox", "medium": str(write_model(folder / "medium", MEDIUM, SMALL_VAE, "fp32"))}
        chosen = list(ON_CPU.items())[1:4:2] if quick else list(ON_CPU.items())
        return [
            (name, TrainSettings().changed(**common, model=models[kind], **changed)) for name, (kind, changed) in chosen
        ]
    found = []
    for model in ON_GPU[:1] if quick else ON_GPU:
        _, known = find_model(model)
        if not list(workspace.datasets.glob("squares/clips/*.mp4")):
            make_clips(workspace, 3, 81, (1360, 768), 16)
        path = write_model(folder / model, TRANSFORMERS[model], VAE, "bf16")
        shape = {"frames": known.frames, "height": known.height, "width": known.width}
        for level in LEVELS[:1] if quick else LEVELS:
            settings = TrainSettings().changed(**{**common, "rank": 64}, model=str(path), **shape, **level)
            found.append((f"{model}, {', '.join(map(str, level.values()))}", settings))
    return found


def make_clips(workspace: Workspace, count: int, frames: int, size: tuple[int, int], fps: float = 8) -> None:
    given = workspace.root / "given"
    given.mkdir()
    colours = list(COLOURS)
    for number in range(count):
        path = given / f"{number}.mp4"
        media.encode(draw(frames, size, colours[number % len(colours)]), path, fps)
        path.with_suffix(".txt").write_text(f"a square moves right, {number}")
    Dataset.create(workspace, "Squares").import_files([given])


def write_model(folder: Path, transformer: dict[str, Any], vae: dict[str, Any], precision: str) -> Path:
    """A random model of these sizes in diffusers' layout; its text encoder is small but as wide as is asked for."""
    import torch
    from diffusers import AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXPipeline, CogVideoXTransformer3DModel
    from transformers import T5Config, T5EncoderModel

    family, tiny = find_model("tiny-cogvideox")
    tokenizer = family.load_text_encoder(Path(tiny.source), torch.device("cpu"), torch.float32).tokenizer
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    width = transformer["text_embed_dim"]
    text = T5Config(vocab_size=len(tokenizer), d_model=width, d_kv=16, d_ff=64, num_layers=1, num_heads=2)
    blocks = len(vae["block_out_channels"])
    torch.set_default_dtype(dtype)
    parts = {
        "tokenizer": tokenizer,
        "text_encoder": T5EncoderModel(text),
        "vae": AutoencoderKLCogVideoX(
            down_block_types=("CogVideoXDownBlock3D",) * blocks,
            up_block_types=("CogVideoXUpBlock3D",) * blocks,
            norm_num_groups=4,
            layers_per_block=3 if blocks == 4 and precision == "bf16" else 1,
            **vae,
        ),
        "transformer": CogVideoXTransformer3DModel(**transformer),
        "scheduler": CogVideoXDDIMScheduler(
            beta_schedule="scaled_linear",
            beta_start=0.00085,
            beta_end=0.012,
            prediction_type="v_prediction",
            rescale_betas_zero_snr=True,
            snr_shift_scale=1.0,
            timestep_spacing="trailing",
        ),
    }
    torch.set_default_dtype(torch.float32)
    CogVideoXPipeline(**parts).to(dtype).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
