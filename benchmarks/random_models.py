"""Make models of any size with random weights, and clips for them: speed and memory do not depend on values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.families import find_model
from workbench.jobs.devices import pick_device
from workbench.workspace import Workspace

SEED = 0
# Small enough for a CPU.
MEDIUM: dict[str, Any] = {
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
SMALL_VAE: dict[str, Any] = {"block_out_channels": [8, 16, 32, 32], "sample_height": 128, "sample_width": 128}
SMALL_TEXT = {"d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}  # in place of T5, with the requested width


def random_transformer(config: dict[str, Any], device: torch.device, dtype: torch.dtype) -> Any:
    """Make a transformer of these sizes, with weights of the usual magnitude."""
    from diffusers import CogVideoXTransformer3DModel

    with torch.device("meta"):
        made: Any = CogVideoXTransformer3DModel(**config).to(dtype)
    made.to_empty(device=device)
    source = torch.Generator(device).manual_seed(SEED)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.02, generator=source)
            else:
                parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
        if hasattr(made.patch_embed, "pos_embedding"):
            own = CogVideoXTransformer3DModel(**{**config, "num_layers": 1}).patch_embed.pos_embedding
            made.patch_embed.pos_embedding.copy_(own)
    return made.eval().requires_grad_(False)


def write_model(folder: Path, transformer: dict[str, Any], vae: dict[str, Any], dtype: torch.dtype) -> Path:
    """Write a random CogVideoX of these sizes in diffusers' layout, unless it exists.

    It is made on the GPU if there is one, because drawing billions of numbers takes minutes on a CPU.
    """
    if (folder / "model_index.json").exists():  # written last
        return folder
    from diffusers import AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXPipeline
    from transformers import T5Config, T5EncoderModel

    family, tiny = find_model("tiny-cogvideox")
    device = torch.device(pick_device("auto").torch_name)
    tokenizer = family.load_text_encoder(Path(tiny.source), torch.device("cpu"), torch.float32).tokenizer
    text = T5Config(vocab_size=len(tokenizer), d_model=transformer["text_embed_dim"], **SMALL_TEXT)
    blocks = len(vae["block_out_channels"])
    kinds = {"down_block_types": ("CogVideoXDownBlock3D",) * blocks, "up_block_types": ("CogVideoXUpBlock3D",) * blocks}
    parts = {
        "tokenizer": tokenizer,
        "text_encoder": T5EncoderModel(text).to(dtype),
        "vae": AutoencoderKLCogVideoX(**{**kinds, "norm_num_groups": 4, "layers_per_block": 1, **vae}).to(dtype),
        "transformer": random_transformer(transformer, device, dtype),
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
    CogVideoXPipeline(**parts).save_pretrained(folder)
    return folder


def make_clips(workspace: Workspace, count: int, frames: int, size: tuple[int, int], fps: float = 8) -> None:
    """Make the dataset `squares` with so many clips of (width, height), unless it exists."""
    from tests.drawing import COLORS, draw

    if (workspace.datasets / "squares").exists():
        return
    given = workspace.root / "given"
    given.mkdir(exist_ok=True)
    colors = list(COLORS)
    for number in range(count):
        path = given / f"{number}.mp4"
        media.encode(draw(frames, size, colors[number % len(colors)]), path, fps)
        path.with_suffix(".txt").write_text(f"a square moves right, {number}")
    Dataset.create(workspace, "Squares").import_files([given])
