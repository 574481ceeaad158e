"""LTX-Video: the published definition of its loss, the stock pipelines' videos, and other trainers' files."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests.families.stock import variants, whole_pipeline
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.base import Family
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.ltx import DECODE_NOISE, DECODE_TIMESTEP, FAMILY, MODELS, TokensSchedule
from workbench.families.model_inputs import Given, ModelInputs
from workbench.families.noise_schedules import NoiseSettings

CPU, STEPS, FPS = torch.device("cpu"), 4, 24.0
CAPTIONS = ["a red circle", "a blue square moves left"]
PUBLISHED_SHAPE = (128, 16, 16, 22)  # 121 frames of 704x512


class Case:
    """A miniature, its parts, and two clips with captions and a picture."""

    def __init__(self, folder: Path, variant: str, family: Family = FAMILY) -> None:
        self.family, self.folder, self.variant = family, folder, variant
        self.model = family.toy(folder, variant)
        self.transformer = self.loaded()
        self.vae = family.load_vae(folder, CPU, torch.float32)
        self.encoder = family.load_text_encoder(folder, CPU, torch.float32)
        draw = torch.Generator().manual_seed(0)
        pixels = torch.randint(0, 256, (3, 64, 64), generator=draw, dtype=torch.uint8)
        self.picture = Image.fromarray(pixels.permute(1, 2, 0).numpy())
        self.image = (pixels.float() / 127.5 - 1)[None]
        self.video = torch.rand(2, 3, 17, 64, 64, generator=draw) * 2 - 1
        self.shape = family.latents_shape(folder, 17, 64, 64)
        moments = family.encode_video(self.vae, self.video)
        self.latents = family.sample_latents(moments, torch.randn(2, *self.shape, generator=draw))
        self.noise = torch.randn(2, *self.shape, generator=draw)
        self.text = family.encode_text(self.encoder, CAPTIONS)

    @property
    def of_image(self) -> bool:
        return self.model.task == "image-to-video"

    def loaded(self) -> Any:
        return self.family.load_transformer(self.folder, CPU, torch.float32)

    def given(self, noise: torch.Generator) -> Given | None:
        if not self.of_image:
            return None
        image = self.family.encode_image(self.vae, None, self.image, 17, "pipeline")
        return self.family.given_to_sample(self.folder, image, self.shape, noise, torch.float32)


@pytest.fixture(scope="module", params=variants(FAMILY))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    _, variant = request.param
    return Case(tmp_path_factory.mktemp("ltx") / variant, variant)


def test_a_video_equals_the_stock_pipelines(case: Case) -> None:
    """Captions, picture, noise in the pipeline's order, guidance, shifted steps and noisy decoding, all of it."""
    stock = whole_pipeline(FAMILY, case.model)
    assert type(stock).__name__ == "LTXConditionPipeline" or "-" not in case.variant
    timed = case.vae.config.timestep_conditioning
    theirs = stock(
        **({"image": case.picture} if case.of_image else {}),
        **({"decode_timestep": DECODE_TIMESTEP, "decode_noise_scale": DECODE_NOISE} if timed else {}),
        prompt="a red circle",
        negative_prompt="the video",
        num_frames=17,
        height=64,
        width=64,
        frame_rate=FPS,
        num_inference_steps=STEPS,
        guidance_scale=3.0,
        generator=torch.Generator().manual_seed(1),
        output_type="pt",
    ).frames
    noise = torch.Generator().manual_seed(1)
    inputs = DenoiseInputs(
        case.folder,
        given=case.given(noise),
        text=FAMILY.encode_text(case.encoder, ["a red circle"]),
        negative_text=FAMILY.encode_text(case.encoder, ["the video"]),
        latents_shape=case.shape,
        steps=STEPS,
        guidance=Guidance(3.0),
        noise=noise,
        fps=FPS,
    )
    latents = FAMILY.denoise(case.transformer, inputs)
    ours = FAMILY.decode(case.vae, latents, noise) / 2 + 0.5
    torch.testing.assert_close(ours, theirs.permute(0, 2, 1, 3, 4), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kept", [[True, True], [True, False]])
def test_the_loss_equals_its_definition(case: Case, kept: list[bool]) -> None:
    """mean of (prediction - (noise - clean))^2 per clip, without the frames that are shown."""
    share = torch.tensor([0.3, 0.9])
    s, (_, frames, height, width) = share.view(-1, 1, 1, 1, 1), case.shape
    noisy, counted = (1 - s) * case.latents + s * case.noise, torch.ones_like(case.latents)
    times = (1000 * share).view(-1, 1, 1, 1).repeat(1, frames, height, width)
    first, shown = case.latents[:, :, :1], torch.tensor(kept)
    given = Given(known=first, kept=shown) if case.of_image else FAMILY.own_first_frame(case.latents, shown)
    for index, one in enumerate(kept):
        if one:
            noisy[index, :, :1], times[index, 0], counted[index, :, 0] = first[index], 0, 0
    packed = noisy.permute(0, 2, 3, 4, 1).reshape(2, -1, case.shape[0])
    positions: dict[str, Any] = {"rope_interpolation_scale": (8 / FPS, 32, 32)}
    if "-" in case.variant:  # 0.9.5 and 13B: the first frame is one, the other latents are eight: 0, 1, 9, ...
        begins = [(max(8 * f - 7, 0) / FPS, 32 * y, 32 * x) for f, y, x in product(*map(range, case.shape[1:]))]
        positions = {"video_coords": torch.tensor(begins).T.repeat(2, 1, 1)}
    with torch.no_grad():
        predicted = case.transformer(
            packed,
            case.text["prompt_embeds"],
            times.flatten(1),
            case.text["mask"],
            frames,
            height,
            width,
            return_dict=False,
            **positions,
        )[0]
        inputs = ModelInputs(case.latents, case.text, case.noise, 1000 * share, given, FPS)
        ours = FAMILY.loss(case.transformer, FAMILY.noise_schedule(case.folder, CPU), inputs)
    predicted = predicted.reshape(2, frames, height, width, -1).permute(0, 4, 1, 2, 3)
    error = (predicted - (case.noise - case.latents)).square() * counted
    torch.testing.assert_close(ours, error.flatten(1).sum(1) / counted.flatten(1).sum(1), rtol=1e-6, atol=1e-6)


def test_the_frame_rate_counts(case: Case) -> None:
    schedule = FAMILY.noise_schedule(case.folder, CPU)
    losses = []
    for fps in (24.0, 16.0):
        inputs = ModelInputs(case.latents, case.text, case.noise, torch.tensor([300.0, 900.0]), None, fps)
        losses.append(FAMILY.loss(case.transformer, schedule, inputs))
    assert not torch.equal(*losses)


def test_a_folder_for_conditions_says_what_it_begins_with(tmp_path: Path) -> None:
    """LTXConditionPipeline takes text alone as well as a picture: made_for.json says which."""
    model = FAMILY.toy(tmp_path, "text-13b")
    assert (model.pipeline, model.task) == ("LTXConditionPipeline", "text-to-video")
    assert FAMILY.caption_tokens(tmp_path, ["a"])[0].limit == 256
    path = tmp_path / "made_for.json"
    path.write_text('{"task": "image-to-video"}', encoding="utf-8")
    assert find_model(str(tmp_path))[1].task == "image-to-video"
    path.write_text('{"task": "video-to-text"}', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"the task in made_for.json is 'video-to-text': text-to-video or"):
        find_model(str(tmp_path))


@pytest.mark.parametrize("variant", ["text", "text-0.9.5", "text-13b"])
def test_which_pipeline_a_folder_is_for_is_known_by_its_autoencoder(tmp_path: Path, variant: str) -> None:
    """0.9.5 names LTXPipeline on the Hub, and is read as LTXConditionPipeline reads it; its older captions are not."""
    model = FAMILY.toy(tmp_path, variant)
    assert model.pipeline == ("" if variant == "text" else "LTXConditionPipeline")
    assert FAMILY.caption_tokens(tmp_path, ["a"])[0].limit == (128 if variant == "text" else 256)
    assert FAMILY.text_form(tmp_path) == ("LTXConditionPipeline" if variant == "text-0.9.5" else "")
    assert {one.pipeline for one in MODELS if "0.9.5" in one.id} == {"LTXConditionPipeline"}


def test_noise_levels_rise_with_tokens_without_a_limit() -> None:
    """sigmoid(normal + mu), mu on the trainer's line through 0.95 at 1,024 tokens and 2.05 at 4,096; runs that began
    with the first defaults keep its ends there."""
    schedule, former, half = TokensSchedule(NoiseSettings()), TokensSchedule(NoiseSettings(defaults=1)), 0.5
    cases = {(8, 1, 32, 32): (0.95, 0.95), (8, 4, 32, 32): (2.05, 2.05), (8, 1, 4, 4): (0.589, 0.95)}
    cases |= {PUBLISHED_SHAPE: (2.6, 2.05)}
    for shape, means in cases.items():
        for one, mu in zip((schedule, former), means, strict=True):
            assert one.mean(shape) == pytest.approx(mu, abs=1e-3)
            expected = 1000 * torch.tensor([one.mean(shape)]).sigmoid()
            torch.testing.assert_close(one.timesteps(torch.tensor([half]), shape), expected)
    draw = torch.randn(200_000, generator=torch.Generator().manual_seed(0)).double()
    sampled = (draw + 0.95).sigmoid().quantile(torch.tensor([0.1, 0.9]).double())
    ours = schedule.timesteps(torch.tensor([0.1, 0.9]).double(), (8, 1, 32, 32)) / 1000
    torch.testing.assert_close(ours, sampled.float(), rtol=0, atol=3e-3)
