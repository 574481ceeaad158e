"""The script that trains the tiny Wan: after a kill it resumes and writes three models that the workbench loads."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from diffusers import WanPipeline

from workbench.families import find_model
from workbench.families import wan_models as wan
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.paths import ASSETS

sys.path.insert(0, str(ASSETS))

import tiny_accuracy
import tiny_check
import tiny_world
import train_tiny_wan

pytestmark = pytest.mark.release

FEW = ["--vae-steps", "2", "--decoder-steps", "1", "--vae-clips", "4", "--vae-batch", "1", "--transformer-steps", "2"]
FEW += ["--renditions", "1", "--small-renditions", "1", "--combinations", "2", "--transformer-batch", "2"]
FEW += ["--check-clips", "0", "--threads", "1"]


def sampled(folder: Path) -> torch.Tensor:
    """Sample a video, [1, 3, F, H, W], from a model that the script wrote, given only a caption."""
    family, cpu = find_model(str(folder))[0], torch.device("cpu")
    encoder = family.load_text_encoder(folder, cpu, torch.float32)
    inputs = DenoiseInputs(
        folder,
        text=family.encode_text(encoder, ["a red circle moves left on a blue background"]),
        negative_text=family.encode_text(encoder, [""]),
        latents_shape=family.latents_shape(folder, 9, 64, 64),
        steps=2,
        guidance=Guidance(3.0),
        noise=torch.Generator().manual_seed(0),
    )
    latents = family.denoise(family.load_transformer(folder, cpu, torch.float32), inputs)
    return family.decode(family.load_vae(folder, cpu, torch.float32), latents)


def test_the_script_goes_on_where_it_was_and_writes_three_models(
    tmp_path: Path, compute: Callable[..., object]
) -> None:
    whole, parts = (tmp_path / name / "tiny-wan" for name in ("whole", "parts"))
    command = ["train_tiny_wan.py", *FEW]
    compute(*command, "--out", str(whole), "--work", str(whole.parent))
    compute(*command, "--out", str(parts), "--work", str(parts.parent), "--stop-after", "1")
    compute(*command, "--out", str(parts), "--work", str(parts.parent), "--stop-after", "3")
    assert not parts.exists()
    compute(*command, "--out", str(parts), "--work", str(parts.parent))
    weights = sorted(file.relative_to(whole.parent) for file in whole.parent.rglob("*.safetensors"))
    assert len(weights) == 5
    for file in weights:
        assert (whole.parent / file).read_bytes() == (parts.parent / file).read_bytes(), file
    assert isinstance(WanPipeline.from_pretrained(whole), WanPipeline)
    seen = {}
    for suffix, (task, channels) in {
        "": ("text-to-video", 16),
        "-i2v": ("image-to-video", 36),
        "-control": ("image-to-video", 52),
    }.items():
        folder = whole.with_name(f"tiny-wan{suffix}")
        family, model = found = find_model(str(folder))
        assert (family.name, model.task, found.facts.in_channels) == ("wan", task, channels)
        assert (family.refusal(model, "control") == "") == (suffix == "-control")
        if suffix != "-i2v":  # it always takes a first frame
            seen[suffix] = sampled(folder)
    assert seen[""].shape == (1, 3, 9, 64, 64)
    assert torch.allclose(seen[""], seen["-control"], atol=2e-2)  # missing conditions are zeros


def test_the_vae_is_the_same_after_its_latents_were_moved_to_wans() -> None:
    torch.manual_seed(0)
    vae = train_tiny_wan.build_vae().eval()
    clips = tiny_world.vae_clip(random.Random(0), 32)[None]
    with torch.no_grad():
        moved = train_tiny_wan.as_wan(vae, vae.encode(clips).latent_dist.mode())
        latents = moved.encode(clips).latent_dist.mode()
        before, after = (one.decode(one.encode(clips).latent_dist.mode()).sample for one in (vae, moved))
    assert torch.allclose(before, after, atol=1e-3)
    mean, deviation = torch.tensor(vae.config.latents_mean), torch.tensor(vae.config.latents_std)
    assert torch.allclose(latents.mean((0, 2, 3, 4)), mean, atol=1e-3)
    assert torch.allclose(latents.std((0, 2, 3, 4)), deviation, atol=1e-3)


@pytest.mark.skipif(not wan.BUILT_IN, reason="its weights are not in this checkout")
def test_the_built_in_models_share_their_weights_and_generate_held_out_prompts() -> None:
    assert [model.id for model in wan.BUILT_IN] == ["tiny-wan", "tiny-wan-i2v", "tiny-wan-control"]
    files = [file for model in wan.BUILT_IN for file in Path(model.source).rglob("*") if file.is_file()]
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in files)
    assert sum(file.stat().st_size for file in files) < 12e6
    assert [find_model(model.id).facts.in_channels for model in wan.BUILT_IN] == [16, 36, 52]
    pipeline = WanPipeline.from_pretrained(wan.TINY.source)
    specs = tiny_accuracy.held_out(8)
    frames = pipeline(
        prompt=[spec.caption() for spec in specs],
        negative_prompt=[""] * len(specs),
        height=64,
        width=64,
        num_frames=9,
        num_inference_steps=wan.TINY.steps,
        guidance_scale=wan.TINY.guidance_scale,
        max_sequence_length=train_tiny_wan.TEXT_LENGTH,
        generator=[torch.Generator().manual_seed(number) for number in range(len(specs))],
        output_type="pt",
    ).frames
    clips = frames.permute(0, 2, 1, 3, 4).float() * 2 - 1
    assert tiny_check.accuracy(clips, specs)["all"] >= 5 / 8
