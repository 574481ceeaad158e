"""Drawing through the stock pipelines: with a first frame, a condition of one's own, a clip that goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from PIL import Image

from tests.families.stock import stock_pipeline
from workbench.families.cogvideox import FAMILY
from workbench.families.cogvideox.family import SCHEDULERS
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.model_inputs import Given

CPU = torch.device("cpu")
STEPS = 4
GUIDED = Guidance(3.0)


class Drawer:
    """A toy's parts, and a drawing of it."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.folder, self.model = folder, FAMILY.toy(folder, variant)
        self.transformer = FAMILY.load_transformer(folder, CPU, torch.float32)
        self.vae = FAMILY.load_vae(folder, CPU, torch.float32)
        self.text = {"prompt_embeds": torch.randn(1, 16, 32, generator=torch.Generator().manual_seed(5))}
        self.negative = {"prompt_embeds": self.text["prompt_embeds"] * 0.5}
        pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
        self.picture = Image.fromarray(pixels)
        self.image = (torch.from_numpy(pixels).permute(2, 0, 1).float() / 127.5 - 1).unsqueeze(0)

    def latents(
        self, frames: int = 17, guidance: Guidance = GUIDED, image_scale: Any = "pipeline", **more: Any
    ) -> torch.Tensor:
        shape = FAMILY.latents_shape(self.folder, frames, 16, 16)
        noise = torch.Generator().manual_seed(1)
        if self.model.task == "image-to-video" and "given" not in more:
            image = FAMILY.encode_image(self.vae, None, self.image, frames, image_scale)
            more["given"] = FAMILY.given(image, FAMILY.posterior_noise(image, noise, torch.float32), shape)
        if "clip" in more:
            moments = FAMILY.encode_video(self.vae, more.pop("clip"))
            around = FAMILY.posterior_noise(moments, noise, torch.float32)
            more["source"] = FAMILY.sample_latents(moments, around)
        inputs = DenoiseInputs(self.folder, self.text, self.negative, shape, STEPS, guidance, noise, **more)
        return FAMILY.denoise(self.transformer, inputs)

    def draw(self, frames: int = 17, **more: Any) -> torch.Tensor:
        """[1, F, H, W, 3] in [0, 1]."""
        video = FAMILY.decode(self.vae, self.latents(frames, **more))
        return (video.permute(0, 2, 3, 4, 1) + 1) / 2


@pytest.fixture(scope="module", params=FAMILY.toys)
def drawer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Drawer:
    return Drawer(tmp_path_factory.mktemp("toy") / request.param, request.param)


def of_image(drawer: Drawer) -> bool:
    return drawer.model.task == "image-to-video"


@pytest.mark.parametrize("frames", [9, 17])
def test_b20_a_video_equals_the_stock_pipelines_at_its_own_number_of_frames(drawer: Drawer, frames: int) -> None:
    """Diffusers loads the pipeline itself; it loses learned positions at other frame counts (b24)."""
    from diffusers import DiffusionPipeline

    stock = DiffusionPipeline.from_pretrained(drawer.folder)
    stock.set_progress_bar_config(disable=True)
    theirs = torch.from_numpy(
        stock(
            prompt_embeds=drawer.text["prompt_embeds"],
            negative_prompt_embeds=drawer.text["prompt_embeds"] * 0.5,
            num_frames=frames,
            height=16,
            width=16,
            num_inference_steps=STEPS,
            guidance_scale=3.0,
            generator=torch.Generator().manual_seed(1),
            output_type="np",
            **({"image": drawer.picture} if of_image(drawer) else {}),
        ).frames
    )
    ours = drawer.draw(frames)
    assert ours.shape == theirs.shape == (1, frames, 16, 16, 3)
    if drawer.transformer.config.use_learned_positional_embeddings and frames != drawer.model.frames:
        assert (ours - theirs).abs().max() > 1e-3
    else:
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("scheduler", ["DDIM", "DPM"])
def test_a_prefix_stays_clean_and_the_rest_follows_it(drawer: Drawer, scheduler: str) -> None:
    """Its frames come back; what stands in front, in 1.5, are copies of its first."""
    video = torch.rand(1, 3, 9, 16, 16, generator=torch.Generator().manual_seed(2)) * 2 - 1
    for frames in (1, 9):
        shape = FAMILY.latents_shape(drawer.folder, frames, 16, 16)
        moments = FAMILY.encode_video(drawer.vae, video[:, :, :frames])
        prefix = FAMILY.sample_latents(moments, torch.zeros(1, *shape))
        drawn = drawer.latents(prefix=prefix, scheduler=scheduler)
        front, kept = drawn.shape[1] - 5, moments["mean"].shape[1]
        assert torch.equal(drawn[:, front : front + kept], moments["mean"])
        assert all(torch.equal(drawn[:, place], moments["mean"][:, 0]) for place in range(front))
        free = drawer.latents(scheduler=scheduler)
        assert not torch.equal(drawn[:, front + kept :], free[:, front + kept :])


def test_a_prefix_is_noised_to_the_level_of_each_step(drawer: Drawer) -> None:
    """What the transformer sees of it is sqrt(a) * prefix + sqrt(1 - a) * the noise that the drawing began with."""
    seen: list[tuple[float, torch.Tensor]] = []
    handle = drawer.transformer.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append((float(kwargs["timestep"][0]), kwargs["hidden_states"][:1])),
        with_kwargs=True,
    )
    shape = FAMILY.latents_shape(drawer.folder, 1, 16, 16)
    prefix = torch.full((1, *shape), 3.0)
    drawer.latents(prefix=prefix)
    handle.remove()
    assert len(seen) == STEPS
    alphas = FAMILY.noise_schedule(drawer.folder, CPU).alphas_cumprod
    _, channels, height, width = shape
    noise = seen[0][1][:, 0, :channels]  # at the first step, without any signal
    assert noise.shape == (1, channels, height, width)
    for timestep, given in seen:
        a = alphas[int(timestep)]
        torch.testing.assert_close(given[:, 0, :channels], a.sqrt() * 3.0 + (1 - a).sqrt() * noise)


def test_a_drawing_that_is_given_up_leaves_the_model_as_it_was(drawer: Drawer) -> None:
    before = drawer.latents()

    def stop(done: int, total: int, latents: torch.Tensor) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        drawer.latents(scheduler="DDIM", on_step=stop)
    assert torch.equal(drawer.latents(), before)


# ---- what the stock pipelines can be told, and what they cannot


def test_guidance_in_a_part_of_the_steps_makes_half_the_work_in_the_others(drawer: Drawer) -> None:
    sizes: list[int] = []
    handle = drawer.transformer.register_forward_pre_hook(
        lambda module, args, kwargs: sizes.append(len(kwargs["hidden_states"])), with_kwargs=True
    )
    drawer.latents(guidance=Guidance(3.0, begin=0.25, end=0.75))
    handle.remove()
    assert sizes == [1, 2, 2, 1]
    assert torch.equal(drawer.latents(guidance=Guidance(3.0, end=0.0)), drawer.latents(guidance=Guidance(1.0)))


def test_the_prediction_of_the_clean_latents_ends_as_the_result(drawer: Drawer) -> None:
    predictions: list[torch.Tensor] = []
    drawn = drawer.latents(scheduler="DDIM", on_step=lambda done, total, latents: predictions.append(latents))
    assert len(predictions) == STEPS
    torch.testing.assert_close(predictions[-1], drawn)


@pytest.mark.parametrize("scheduler", ["DDIM", "DPM"])
@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_a_video_that_is_changed_equals_the_stock_pipelines(drawer: Drawer, strength: float, scheduler: str) -> None:
    """The pipeline for it knows no first frame, and no number of latent frames that must be filled up."""
    from diffusers import CogVideoXVideoToVideoPipeline

    if of_image(drawer) or drawer.transformer.config.patch_size_t:
        return
    files = stock_pipeline(drawer.folder, drawer.transformer, drawer.vae)
    stock = CogVideoXVideoToVideoPipeline(None, None, drawer.vae, drawer.transformer, files.scheduler)
    stock.scheduler = getattr(diffusers, SCHEDULERS[scheduler]).from_config(stock.scheduler.config)
    stock.set_progress_bar_config(disable=True)
    pixels = torch.randint(0, 256, (17, 16, 16, 3), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
    clip = (pixels.permute(3, 0, 1, 2)[None] / 127.5) - 1
    theirs = stock(
        [Image.fromarray(frame) for frame in pixels.numpy()],
        prompt_embeds=drawer.text["prompt_embeds"],
        negative_prompt_embeds=drawer.negative["prompt_embeds"],
        height=16,
        width=16,
        num_inference_steps=STEPS,
        strength=strength,
        guidance_scale=3.0,
        generator=torch.Generator().manual_seed(1),
        output_type="pt",
    ).frames
    ours = drawer.draw(clip=clip, strength=strength, scheduler=scheduler)
    torch.testing.assert_close(ours, theirs.permute(0, 1, 3, 4, 2), rtol=0, atol=1e-4)


# ---- image-to-video alone


@pytest.fixture(scope="module", params=["image", "image-1.5"])
def image_drawer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Drawer:
    return Drawer(tmp_path_factory.mktemp("toy") / request.param, request.param)


@pytest.mark.parametrize("scale", ["pipeline", "raw"])
def test_b23_drawing_scales_the_first_frame_as_training_does(image_drawer: Drawer, scale: Any) -> None:
    """A condition made as in training gives what the pipeline makes of the image at the same scale."""
    drawer = image_drawer
    shape = FAMILY.latents_shape(drawer.folder, 17, 16, 16)
    noise = torch.Generator().manual_seed(1)  # the pipeline draws the posterior's noise first, then the latents
    posterior = torch.randn(1, shape[1], 1, *shape[2:], generator=noise).permute(0, 2, 1, 3, 4)
    encoded = FAMILY.encode_image(drawer.vae, None, drawer.image, 17, scale)
    condition = FAMILY.given(encoded, posterior, shape).beside
    seen: list[torch.Tensor] = []
    handle = drawer.transformer.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["hidden_states"][:1, :, shape[1] :]), with_kwargs=True
    )
    drawer.latents(image_scale=scale)
    handle.remove()
    torch.testing.assert_close(seen[0], condition, rtol=1e-5, atol=1e-6)
    assert not seen[0][:, 1:].any()


def test_a_condition_of_ones_own_takes_the_place_of_the_image(image_drawer: Drawer) -> None:
    """Beside every frame, a whole clip of low resolution, or nothing at all."""
    shape = FAMILY.latents_shape(image_drawer.folder, 17, 16, 16)
    whole = torch.randn(1, *shape, generator=torch.Generator().manual_seed(8))
    drawn = [image_drawer.draw(given=Given(beside=condition)) for condition in (whole, torch.zeros(1, *shape))]
    assert all(video.shape == (1, 17, 16, 16, 3) for video in drawn)
    assert not torch.equal(*drawn)
    assert torch.equal(drawn[0], image_drawer.draw(given=Given(beside=whole)))


def test_the_cards_code_undoes_the_scale_of_a_raw_lora(image_drawer: Drawer) -> None:
    from diffusers import CogVideoXImageToVideoPipeline

    drawer = image_drawer
    code = FAMILY.usage(drawer.model, drawer.folder, "lora.safetensors", "a ring", (17, 16, 16), "raw")
    compile(code, "card", "exec")
    pipe = CogVideoXImageToVideoPipeline.from_pretrained(drawer.folder)
    exec(code[code.index("stock = pipe") : code.index("video = pipe(")], {"pipe": pipe})
    _, latents = pipe.prepare_latents(
        drawer.image, 1, 4, 9, 16, 16, torch.float32, CPU, torch.Generator().manual_seed(0)
    )
    mean = FAMILY.encode_image(drawer.vae, None, drawer.image, 17, "raw")
    noise = torch.randn(1, 4, 1, 4, 4, generator=torch.Generator().manual_seed(0)).permute(0, 2, 1, 3, 4)
    torch.testing.assert_close(latents[:, :1], mean["mean"] + mean["std"] * noise, rtol=1e-5, atol=1e-6)
