"""The script that trains the tiny Phenaki: after a kill it resumes and writes a model that the workbench loads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from workbench.families import find_model
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.paths import ASSETS

sys.path.insert(0, str(ASSETS))

import tiny_clips
import tiny_training

pytestmark = pytest.mark.release


def sampled(folder: Path, frames: int, height: int, width: int) -> torch.Tensor:
    """Sample a video, [1, 3, F, H, W], from a model that the script wrote."""
    family, cpu = find_model(str(folder))[0], torch.device("cpu")
    encoder = family.load_text_encoder(folder, cpu, torch.float32)
    inputs = DenoiseInputs(
        folder,
        text=family.encode_text(encoder, ["a red circle moves left on a blue background"]),
        negative_text=family.encode_text(encoder, [""]),
        latents_shape=family.latents_shape(folder, frames, height, width),
        steps=2,
        guidance=Guidance(3.0),
        noise=torch.Generator().manual_seed(0),
    )
    latents = family.denoise(family.load_transformer(folder, cpu, torch.float32), inputs)
    return family.decode(family.load_vae(folder, cpu, torch.float32), latents)


def test_the_script_goes_on_where_it_was_and_writes_a_model(tmp_path: Path, compute: Callable[..., object]) -> None:
    out = tmp_path / "model"
    command = ["train_tiny_phenaki.py", "--out", str(out), "--work", str(tmp_path)]
    command += ["--tokenizer-steps", "2", "--transformer-steps", "2", "--critic-part", "0.5", "--renditions", "1"]
    command += ["--tokenizer-batch", "2", "--transformer-batch", "2", "--check-clips", "0"]
    compute(*command, "--stop-after", "1")
    assert not out.exists()
    compute(*command)
    family, model = find_model(str(out))
    assert (family.name, model.frames, model.height, model.width) == ("phenaki", 9, 40, 40)
    assert sampled(out, 9, 40, 40).shape == (1, 3, 9, 40, 40)


def test_a_run_may_be_ended_early_its_rate_falls_from_there() -> None:
    long, short = ([tiny_training.stable_factor(step, total, 100) for step in range(total)] for total in (3000, 1000))
    assert long[:700] == short[:700]
    assert long[100:2100] == [1.0] * 2000
    assert short[850] == pytest.approx(0.5)
    assert short[-1] == 0.03


def test_the_built_in_model_is_small_and_generates_held_out_prompts() -> None:
    family, model = find_model("tiny-phenaki")
    folder, cpu = family.fetch(model), torch.device("cpu")
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 12e6
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in files)
    assert (folder / "README.md").read_text().startswith("---")
    assert model.guidance_scale == tiny_clips.GUIDANCE
    parts = (family.load_vae, family.load_transformer, family.load_text_encoder)
    found = tiny_clips.prompt_accuracy(*(load(folder, cpu, torch.float32) for load in parts), 8)
    assert (found["background"], found["motion"]) == (1, 1)
    assert found["all"] >= 3 / 8  # 61% of 64
