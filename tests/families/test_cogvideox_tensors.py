"""Positions, padding and shapes of CogVideoX against the stock pipelines, over a grid of sizes and frame counts."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.families.stock import stock_pipeline
from workbench.errors import ConfigError
from workbench.families.cogvideox import FAMILY
from workbench.families.cogvideox.family import pad_front, padded_frames, rotary_embeddings, without_padding
from workbench.families.model_inputs import Given, ModelInputs

CPU = torch.device("cpu")
SIZES = [(16, 16), (16, 32), (32, 16), (48, 32), (24, 40)]
FRAMES = (1, 9, 17, 33, 49)


@pytest.fixture(scope="module", params=FAMILY.toys)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy") / request.param
    FAMILY.toy(folder, request.param)
    return folder


@pytest.fixture(scope="module")
def pipeline(folder: Path) -> Any:
    transformer = FAMILY.load_transformer(folder, CPU, torch.float32)
    return stock_pipeline(folder, transformer, FAMILY.load_vae(folder, CPU, torch.float32))


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_b11_rotary_positions_equal_the_pipelines_in_every_size(
    folder: Path, pipeline: Any, height: int, width: int
) -> None:
    """1.0 models stretch their grid to the size; a trainer that slices it matches the pipeline at one size alone."""
    config = pipeline.transformer.config
    if config.patch_size_t is not None:
        # The toy's positions end at 16 x 16; the published ones' at 768 x 1360.
        pipeline.transformer.register_to_config(sample_height=12, sample_width=12)
        config = pipeline.transformer.config
    for frames in FRAMES:
        shape = FAMILY.latents_shape(folder, frames, height, width)
        ours = rotary_embeddings(config, shape[0], shape[2], shape[3], CPU)
        if not config.use_rotary_positional_embeddings:
            assert ours is None
            continue
        theirs = pipeline._prepare_rotary_positional_embeddings(height, width, shape[0], CPU)
        assert ours is not None
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("frames", FRAMES)
def test_latents_have_the_shape_that_the_pipeline_draws(folder: Path, pipeline: Any, frames: int) -> None:
    """b32, b39: 1.5 gets latent frames in pairs, and none more where they are paired already."""
    config, seen = pipeline.transformer.config, []
    stock = pipeline.prepare_latents

    def spy(*args: Any, **kwargs: Any) -> Any:
        seen.append(stock(*args, **kwargs))
        raise InterruptedError

    pipeline.prepare_latents = spy
    image = {"image": torch.zeros(1, 3, 16, 16)} if config.in_channels > config.out_channels else {}
    try:
        with pytest.raises(InterruptedError):
            pipeline(
                prompt_embeds=torch.zeros(1, 16, 32),
                num_frames=frames,
                height=16,
                width=16,
                guidance_scale=1.0,
                **image,
            )
    finally:
        del pipeline.prepare_latents
    latents, condition = seen[0] if image else (seen[0], None)
    assert tuple(latents.shape[1:]) == FAMILY.latents_shape(folder, frames, 16, 16)
    assert condition is None or condition.shape == latents.shape


@pytest.mark.parametrize("group", [None, 1, 2, 3, 4])
def test_b12_b32_b39_any_group_is_filled_by_copies_at_the_front(group: int | None) -> None:
    """Others pad at the end, by two where nothing is missing, by F % p, or not at all."""
    for frames in range(1, 12):
        latents = torch.arange(float(frames)).view(1, frames, 1, 1, 1)
        padded = pad_front(latents, padded_frames(frames, group))
        missing = padded.shape[1] - frames
        assert padded.shape[1] % (group or 1) == 0
        assert missing < (group or 1)
        assert padded.flatten().tolist() == [0.0] * missing + list(range(frames))
        if group == 2 and frames % 2:
            assert torch.equal(without_padding(padded), latents)


def test_b31_latents_are_what_the_vae_was_trained_to_give_back(folder: Path) -> None:
    """Scaled in 1.5, too: decoding the moments' mean equals the VAE's own reconstruction."""
    vae = FAMILY.load_vae(folder, CPU, torch.float32)
    video = torch.rand(1, 3, 9, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        mean = vae.encode(video).latent_dist.mode()
        expected = vae.decode(mean).sample.clamp(-1, 1)
    moments = FAMILY.encode_video(vae, video)
    torch.testing.assert_close(moments["mean"], mean.permute(0, 2, 1, 3, 4) * vae.config.scaling_factor)
    latents = FAMILY.sample_latents(moments, torch.zeros(1, *FAMILY.latents_shape(folder, 9, 16, 16)))
    torch.testing.assert_close(FAMILY.decode(vae, latents), expected, rtol=0, atol=1e-4)


# ---- b24: diffusers replaces learned positions by computed ones at another number of frames


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learned")
    FAMILY.toy(folder, "image")
    return folder


@pytest.mark.parametrize("frames", [1, 9, 17])
def test_b24_learned_positions_stay_at_fewer_frames(learned: Path, frames: int) -> None:
    """The output depends on them, as it does at the model's own length, and only on the first of them, as in SAT."""
    transformer = FAMILY.load_transformer(learned, CPU, torch.float32)
    shape = FAMILY.latents_shape(learned, frames, 16, 16)
    generator = torch.Generator().manual_seed(0)
    latents, condition, noise = (torch.randn(1, *shape, generator=generator) for _ in range(3))
    text = {"prompt_embeds": torch.randn(1, 16, 32, generator=generator)}
    schedule = FAMILY.noise_schedule(learned, CPU)

    def output() -> torch.Tensor:
        with torch.no_grad():
            inputs = ModelInputs(latents, text, noise, torch.tensor([500]), Given(beside=condition))
            return FAMILY.predict(transformer, schedule, inputs)

    before, positions = output(), transformer.patch_embed.pos_embedding
    used = 16 + shape[0] * 4  # text, then 2 x 2 patches a latent frame
    positions[:, used:] += 1
    assert torch.equal(output(), before)
    positions[:, used - 1] += 1
    assert not torch.equal(output(), before)
    # By hand: what goes into the first block is the patches plus the learned positions at their places.
    embed, given = transformer.patch_embed, torch.cat([latents, condition], dim=2)
    plain = copy.deepcopy(embed)
    plain.pos_embedding.zero_()
    with torch.no_grad():
        added = embed(text["prompt_embeds"], given) - plain(text["prompt_embeds"], given)
    torch.testing.assert_close(added, positions[:, :used], rtol=1e-4, atol=1e-5)


def test_b24_what_no_position_was_learned_for_is_refused(learned: Path) -> None:
    transformer = FAMILY.load_transformer(learned, CPU, torch.float32)
    schedule = FAMILY.noise_schedule(learned, CPU)
    for shape in ((7, 4, 4, 4), (5, 4, 4, 6)):
        tensor = torch.zeros(1, *shape)
        text = {"prompt_embeds": torch.zeros(1, 16, 32)}
        inputs = ModelInputs(tensor, text, tensor, torch.tensor([5]), Given(beside=tensor))
        with pytest.raises(ConfigError, match="learned positions of at most 5 of 4x4"):
            FAMILY.predict(transformer, schedule, inputs)


def test_b24_the_cards_code_keeps_them_and_says_so(learned: Path) -> None:
    """The lines are run on a pipeline that diffusers loaded: it then adds what training added."""
    from diffusers import CogVideoXImageToVideoPipeline

    model = FAMILY.describe_folder(learned)
    assert model is not None
    own = FAMILY.usage(model, learned, "lora.safetensors", "a ring", (model.frames, 16, 16))
    assert "pos_embedding" not in own
    assert 'load_image("first_frame.png")' in own
    curves = {"off": (False, False), "stock": (True, False), "cosine": (False, True)}  # of guidance in previews
    for curve, said in curves.items():
        made = replace(model, dynamic_guidance=curve)
        text = FAMILY.usage(made, learned, "lora.safetensors", "a ring", (model.frames, 16, 16))
        assert ("use_dynamic_cfg=True" in text, "--dynamic-guidance cosine" in text) == said
    code = FAMILY.usage(model, learned, "lora.safetensors", "a ring", (9, 16, 16))
    assert "With 9 frames instead of 17, diffusers would replace the positions" in code
    compile(code, "card", "exec")
    pipe = CogVideoXImageToVideoPipeline.from_pretrained(learned)
    text, latents = torch.zeros(1, 16, 32), torch.zeros(1, 3, 8, 4, 4)
    ours = FAMILY.load_transformer(learned, CPU, torch.float32).patch_embed(text, latents)
    assert not torch.equal(pipe.transformer.patch_embed(text, latents), ours)  # stock diffusers
    start, end = code.index("embed = pipe"), code.index("video = pipe(")
    exec(code[start:end], {"pipe": pipe})
    assert torch.equal(pipe.transformer.patch_embed(text, latents), ours)
