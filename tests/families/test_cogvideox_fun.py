"""CogVideoX-Fun: known frames and masks (InP) and control videos, as VideoX-Fun and diffusers lay them out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.families.stock import stock_pipeline
from workbench.families import find_model
from workbench.families.cogvideox import FAMILY
from workbench.families.cogvideox.family import INPAINT_NOISE
from workbench.families.conditioning import NAMES, Conditioning, GivenKind, conditioning_of
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.model_inputs import Given, ModelInputs

CPU, STEPS, SIZE, FRAMES = torch.device("cpu"), 4, 16, 9


class Case:
    """A miniature, its parts, and a clip."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.folder, self.model = folder, FAMILY.toy(folder, variant)
        self.transformer = FAMILY.load_transformer(folder, CPU, torch.float32)
        self.vae = FAMILY.load_vae(folder, CPU, torch.float32)
        self.text = {"prompt_embeds": torch.randn(1, 16, 32, generator=torch.Generator().manual_seed(5))}
        self.pixels = np.random.default_rng(0).integers(0, 256, (FRAMES, SIZE, SIZE, 3), np.uint8)
        self.video = (torch.from_numpy(self.pixels).permute(3, 0, 1, 2).float() / 127.5 - 1)[None]
        self.shape = FAMILY.latents_shape(folder, FRAMES, SIZE, SIZE)

    def told(self, told: Conditioning) -> Given:
        encoder = FAMILY.load_image_encoder(self.folder, CPU, torch.float32)
        tensors = FAMILY.encode_conditioning(self.vae, encoder, told)
        return FAMILY.conditioning(tensors, self.shape, torch.Generator().manual_seed(3), torch.float32)

    def generated(self, given: Given | None) -> torch.Tensor:
        negative = {"prompt_embeds": self.text["prompt_embeds"] * 0.5}
        noise = torch.Generator().manual_seed(1)
        inputs = DenoiseInputs(self.folder, self.text, negative, self.shape, STEPS, Guidance(3.0), noise, given=given)
        return FAMILY.denoise(self.transformer, inputs)

    def channels(self, given: Given | None) -> torch.Tensor:
        """Return the channels that the transformer gets after the noisy latents in training."""
        seen: list[torch.Tensor] = []
        hook = self.transformer.register_forward_pre_hook(
            lambda module, args, kwargs: seen.append(kwargs["hidden_states"]), with_kwargs=True
        )
        latents = FAMILY.sample_latents(FAMILY.encode_video(self.vae, self.video), torch.zeros(1, *self.shape))
        inputs = ModelInputs(latents, self.text, torch.ones_like(latents), torch.tensor([500.0]), given)
        loss = FAMILY.loss(self.transformer, FAMILY.noise_schedule(self.folder, CPU), inputs)
        hook.remove()
        assert loss.isfinite().all()
        return seen[0][:, :, self.shape[1] :]


def resize_mask(mask: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
    """VideoX-Fun's (scripts/cogvideox_fun/train_lora.py), written down. Both are [B, C, F, H, W]."""
    frames, height, width = latents.shape[2:]
    sizes = [(1, height, width), (frames - 1, height, width)]
    parts = zip((mask[:, :, 0:1], mask[:, :, 1:]), sizes, strict=True)
    return torch.cat(
        [torch.nn.functional.interpolate(part, size, mode="trilinear", align_corners=False) for part, size in parts], 2
    )


@pytest.fixture(scope="module")
def inpainting(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("fun") / "inp", "fun-inp")


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("fun") / "control", "fun-control")


def test_a_controlled_video_equals_the_stock_pipeline(control: Case) -> None:
    stock = stock_pipeline(control.folder, control.transformer, control.vae)
    assert type(stock).__name__ == "CogVideoXFunControlPipeline"
    theirs = stock(
        prompt_embeds=control.text["prompt_embeds"],
        negative_prompt_embeds=control.text["prompt_embeds"] * 0.5,
        control_video=[Image.fromarray(frame) for frame in control.pixels],
        height=SIZE,
        width=SIZE,
        num_inference_steps=STEPS,
        guidance_scale=3.0,
        generator=torch.Generator().manual_seed(1),
        output_type="latent",
    ).frames
    ours = control.generated(control.told(Conditioning(FRAMES, control=control.video)))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["first", "last", "first+last", "prefix 5", "suffix 4", "keyframes 3"])
def test_known_frames_are_laid_out_as_the_authors_do(inpainting: Case, name: str) -> None:
    """1 where frames are known and the latents of the clip with the others black, all times the VAE's factor."""
    word, _, count = name.partition(" ")
    kind = GivenKind(word, int(count or 0))
    unknown = torch.ones(1, 1, FRAMES, SIZE, SIZE)
    unknown[:, :, list(kind.frames(FRAMES))] = 0
    black = inpainting.video * (1 - unknown) + torch.ones_like(inpainting.video) * -1 * unknown
    latents = inpainting.vae.encode(black)[0].mode()
    theirs = torch.cat([resize_mask(1 - unknown, latents), latents], dim=1) * inpainting.vae.config.scaling_factor
    ours = inpainting.channels(inpainting.told(conditioning_of(kind, inpainting.video)))
    torch.testing.assert_close(ours, theirs.transpose(1, 2))
    assert ours.shape[2] == inpainting.shape[1] + 1


@pytest.mark.parametrize("side", ["inside", "outside"])
def test_a_mask_is_laid_out_as_the_authors_do(inpainting: Case, side: str) -> None:
    mask = torch.zeros(1, 1, FRAMES, SIZE, SIZE)
    mask[:, :, 3:, :9] = 1
    unknown = 1 - mask if side == "inside" else mask
    black = inpainting.video * (1 - unknown) - unknown
    latents = inpainting.vae.encode(black)[0].mode()
    theirs = torch.cat([resize_mask(1 - unknown, latents), latents], dim=1) * inpainting.vae.config.scaling_factor
    ours = inpainting.channels(inpainting.told(conditioning_of(GivenKind("mask", side=side), inpainting.video, mask)))
    torch.testing.assert_close(ours, theirs.transpose(1, 2))


def test_known_pixels_have_the_authors_noise_where_the_config_says_so(inpainting: Case, tmp_path: Path) -> None:
    """Such as V1.1-5b-InP: with the strength of the authors' pipeline, the same at every reading."""
    folder = tmp_path / "noisy"
    shutil.copytree(inpainting.folder, folder)
    path = folder / "transformer" / "config.json"
    values = json.loads(path.read_text(encoding="utf-8")) | {"add_noise_in_inpaint_model": True}
    path.write_text(json.dumps(values), encoding="utf-8")
    encoder = FAMILY.load_image_encoder(folder, CPU, torch.float32)
    assert encoder is not None
    assert encoder.noise == INPAINT_NOISE
    first = conditioning_of(GivenKind("first"), inpainting.video)
    noisy, again = (FAMILY.encode_conditioning(inpainting.vae, encoder, first)["beside"] for _ in range(2))
    plain = inpainting.told(first).beside
    assert plain is not None
    assert torch.equal(noisy, again)
    assert not torch.equal(noisy, plain)


def test_a_transformer_tells_by_its_channels_what_it_can(inpainting: Case, control: Case, tmp_path: Path) -> None:
    def able(model: Any) -> list[str]:
        return [name for name in (*NAMES, "control", "reference", "nothing") if not FAMILY.refusal(model, name)]

    assert able(inpainting.model) == [*NAMES, "nothing"]
    assert able(control.model) == ["control", "nothing"]
    assert able(FAMILY.toy(tmp_path / "image", "image")) == ["first"]
    assert able(FAMILY.toy(tmp_path / "rotary", "rotary")) == []
    assert "choose a Fun-InP model" in FAMILY.refusal(control.model, "last")
    assert "choose a Fun-Control model" in FAMILY.refusal(inpainting.model, "control")
    assert "choose a Fun-InP model" in FAMILY.refusal(find_model(str(tmp_path / "image"))[1], "first+last")
