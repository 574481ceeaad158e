"""CogVideoX's training loss against the official training steps, written here from their published definition.

The references know nothing of the family: the schedule comes from its formula, the weighted x0 form from SAT's
VideoDiffusionLoss, the image condition from SAT's shared_step. Same inputs, same weights.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import CogVideoXDDIMScheduler, CogVideoXImageToVideoPipeline, CogVideoXPipeline
from diffusers.training_utils import compute_snr

from tests.families.stock import stock_pipeline
from workbench.families.cogvideox import FAMILY
from workbench.families.model_inputs import Given, ModelInputs
from workbench.families.noise_schedules import NoiseSettings, VelocitySchedule

CPU = torch.device("cpu")
TIMESTEPS = torch.tensor([1, 100, 600, 999])


@dataclass
class Case:
    """One toy with a batch of four clips' latents, and the stock pipeline that its facts are asked of."""

    folder: Path
    transformer: Any
    vae: Any
    pipeline: Any
    latents: torch.Tensor
    noise: torch.Tensor
    text: dict[str, torch.Tensor]
    image: torch.Tensor | None


@pytest.fixture(scope="module", params=FAMILY.toys)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("toy") / request.param
    model = FAMILY.toy(folder, request.param)
    generator = torch.Generator().manual_seed(0)
    shape = FAMILY.latents_shape(folder, model.frames, model.height, model.width)
    latents, noise = (torch.randn(4, *shape, generator=generator) for _ in range(2))
    images = torch.rand(4, 3, model.height, model.width, generator=generator) * 2 - 1
    transformer = FAMILY.load_transformer(folder, CPU, torch.float32)
    vae = FAMILY.load_vae(folder, CPU, torch.float32)
    return Case(
        folder,
        transformer,
        vae,
        stock_pipeline(folder, transformer, vae),
        latents,
        noise,
        {"prompt_embeds": torch.randn(4, 16, 32, generator=generator)},
        images if model.task == "image-to-video" else None,
    )


def published_schedule(shift: float) -> torch.Tensor:
    """alphas_cumprod [1000], float64: scaled linear, SNR shifted, rescaled to no signal at the end (2305.08891)."""
    betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000, dtype=torch.float64) ** 2
    alphas = (1 - betas).cumprod(0)
    alphas = alphas / (shift + (1 - shift) * alphas)
    roots = alphas.sqrt()
    return ((roots - roots[-1]) * roots[0] / (roots[0] - roots[-1])) ** 2


def official_step(case: Case, transformer: Any, alphas: torch.Tensor, condition: torch.Tensor | None) -> torch.Tensor:
    """mean of 1/(1-a) * (x0_hat - x0)^2 per sample; all but the transformer in float64."""
    a = alphas[TIMESTEPS].view(-1, 1, 1, 1, 1)
    x0, noise = case.latents.double(), case.noise.double()
    noisy = a.sqrt() * x0 + (1 - a).sqrt() * noise
    given = noisy if condition is None else torch.cat([noisy, condition.double()], dim=2)
    config, size = transformer.config, 4 * case.latents.shape[-1]
    rotary = None
    if config.use_rotary_positional_embeddings:
        rotary = case.pipeline._prepare_rotary_positional_embeddings(size, size, x0.shape[1], CPU)
    dtype = transformer.dtype
    output = transformer(
        hidden_states=given.to(dtype),
        encoder_hidden_states=case.text["prompt_embeds"].to(dtype),
        timestep=TIMESTEPS,
        image_rotary_emb=rotary,
        return_dict=False,
        ofs=torch.full((1,), 2.0, dtype=dtype) if config.ofs_embed_dim else None,
    )[0].double()
    x0_hat = a.sqrt() * noisy - (1 - a).sqrt() * output
    return (1 / (1 - a) * (x0_hat - x0) ** 2).flatten(1).mean(1)


def official_condition(case: Case, scale: float) -> torch.Tensor | None:
    """The first frame's latents at index 0, zeros after it; the posterior's mean, so that nothing is drawn."""
    if case.image is None:
        return None
    with torch.no_grad():
        mean = case.vae.encode(case.image.unsqueeze(2)).latent_dist.mode().permute(0, 2, 1, 3, 4)
    return torch.cat([mean * scale, torch.zeros_like(case.latents[:, 1:])], dim=1)


def our_condition(case: Case, scale: Any = "pipeline", every_frame: bool = False) -> Given | None:
    if case.image is None:
        return None
    encoded = FAMILY.encode_image(case.vae, None, case.image, 9, scale)
    shape = tuple(case.latents.shape[1:])
    return FAMILY.given(encoded, torch.zeros(4, 1, *shape[1:]), shape, every_frame=every_frame)


def our_inputs(case: Case, dtype: torch.dtype = torch.float32) -> ModelInputs:
    latents, noise = case.latents.to(dtype), case.noise.to(dtype)
    return ModelInputs(latents, case.text, noise, TIMESTEPS, our_condition(case))


def relative(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float(((ours - theirs).abs() / theirs).max())


def test_the_schedule_is_the_published_one(case: Case) -> None:
    shift = case.pipeline.scheduler.config.snr_shift_scale
    ours, theirs = FAMILY.noise_schedule(case.folder, CPU).alphas_cumprod, published_schedule(shift)
    torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=2e-6)
    assert len(ours) == 1000  # b34: int(t / 1000 * 1000) never draws five of them
    assert ours[-1] == 0


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
def test_the_loss_equals_the_official_training_step(case: Case, dtype: torch.dtype, most: float) -> None:
    """T2V, I2V and 1.5; b13: SAT's own 1.5-I2V step lacks `ofs`; b14: more than one clip in a batch."""
    transformer = case.transformer if dtype is torch.float32 else copy.deepcopy(case.transformer).to(dtype)
    alphas = FAMILY.noise_schedule(case.folder, CPU).alphas_cumprod.to(dtype)
    config = case.vae.config
    scale = 1 / config.scaling_factor if config.invert_scale_latents else config.scaling_factor
    with torch.no_grad():
        ours = FAMILY.loss(transformer, VelocitySchedule(alphas), our_inputs(case, dtype))
        theirs = official_step(case, transformer, alphas.double(), official_condition(case, scale))
    assert ours.dtype is dtype
    assert relative(ours.double(), theirs) <= most


def test_a_shift_moves_the_drawn_timesteps_to_more_noise_as_published(case: Case) -> None:
    """s -> shift * s / (1 + (shift - 1) * s), of arXiv 2403.03206; without one all are equally likely."""
    quantiles, shape = torch.tensor([0.0, 0.25, 0.5, 0.75, 0.9999]), (16, 3, 5, 5)
    plain = FAMILY.noise_schedule(case.folder, CPU).timesteps(quantiles, shape)
    assert plain.tolist() == [0, 250, 500, 750, 999]
    moved = FAMILY.noise_schedule(case.folder, CPU, NoiseSettings(shift=3.0)).timesteps(quantiles, shape)
    assert moved.tolist() == [0, 500, 750, 900, 999]


def test_min_snr_weights_are_the_published_ones(case: Case) -> None:
    """Against diffusers' compute_snr, in the form for predicted velocity."""
    scheduler = CogVideoXDDIMScheduler.from_config(case.pipeline.scheduler.config)
    timesteps = torch.tensor([0, 1, 250, 700, 999])
    snr = compute_snr(scheduler, timesteps)
    expected = snr.clamp(max=5.0) / (snr + 1)
    ours = FAMILY.noise_schedule(case.folder, CPU).min_snr_weights(timesteps, 5.0)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)
    assert ours[-1] == 0


# ---- what the image-to-video pipeline is given


@pytest.mark.parametrize("scale", ["pipeline", "raw"])
def test_b23_b31_the_first_frame_is_scaled_as_in_the_stock_pipeline(case: Case, scale: str) -> None:
    """Other trainers multiply where diffusers' 1.5 pipeline divides; b12: the image is in it, not noise alone."""
    if case.image is None:
        assert isinstance(case.pipeline, CogVideoXPipeline)
        return
    assert isinstance(case.pipeline, CogVideoXImageToVideoPipeline)
    shape, size = case.latents.shape[1:], 4 * case.latents.shape[-1]
    frames = shape[0] * 4  # of pixels, as the pipeline counts when it has added the front padding
    image = FAMILY.encode_image(case.vae, None, case.image[:1], 9, scale)
    # The pipeline draws the posterior's noise first.
    noise = torch.randn(1, shape[1], 1, *shape[2:], generator=torch.Generator().manual_seed(3)).permute(0, 2, 1, 3, 4)
    ours = FAMILY.given(image, noise, tuple(shape)).beside
    assert ours is not None
    _, theirs = case.pipeline.prepare_latents(
        case.image[:1], 1, shape[1], frames, size, size, torch.float32, CPU, torch.Generator().manual_seed(3)
    )
    factor = 1.0
    if scale == "raw":
        factor = case.vae.config.scaling_factor ** (1 if case.vae.config.invert_scale_latents else -1)
    torch.testing.assert_close(ours, theirs * factor, rtol=1e-6, atol=1e-6)
    every = FAMILY.given(image, noise, tuple(shape), every_frame=True).beside
    assert every is not None
    assert all(torch.equal(frame, every[:, 0]) for frame in every.unbind(1))
    assert torch.equal(every[:, 0], ours[:, 0])


def test_b36_ofs_is_told_to_the_models_that_have_it_alone(case: Case) -> None:
    told: list[Any] = []
    handle = case.transformer.register_forward_pre_hook(
        lambda module, args, kwargs: told.append(kwargs["ofs"]), with_kwargs=True
    )
    with torch.no_grad():
        FAMILY.loss(case.transformer, FAMILY.noise_schedule(case.folder, CPU), our_inputs(case))
    handle.remove()
    if case.transformer.config.ofs_embed_dim is None:
        assert told == [None]
    else:
        assert told[0].tolist() == [2.0]


def test_b41_the_first_frame_is_noised_as_published() -> None:
    assert FAMILY.image_noise == (-3.0, 0.5)
