"""Wan: the published definition of its loss, the stock pipelines' videos, and other trainers' files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests.families.lora_changes import pairs_on
from tests.families.stock import told_nothing, whole_pipeline
from workbench.families.denoising import DenoiseInputs, Guidance, StepOptions
from workbench.families.model_inputs import Given, ModelInputs
from workbench.families.noise_schedules import Density, NoiseSettings
from workbench.families.wan import FAMILY
from workbench.families.wan_models import NEGATIVE_PROMPT

CPU, STEPS = torch.device("cpu"), 4


class Case:
    """A miniature, its parts, and a clip with a picture."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.folder, self.variant = folder, variant
        self.model = FAMILY.toy(folder, variant)
        self.transformer = FAMILY.load_transformer(folder, CPU, torch.float32)
        self.experts = {
            one.lowest: FAMILY.load_transformer(folder, CPU, torch.float32, one.part) for one in self.model.experts
        }
        self.vae = FAMILY.load_vae(folder, CPU, torch.float32)
        self.encoder = FAMILY.load_text_encoder(folder, CPU, torch.float32)
        self.image_encoder = FAMILY.load_image_encoder(folder, CPU, torch.float32)
        draw = torch.Generator().manual_seed(0)
        size = self.model.height
        pixels = torch.randint(0, 256, (3, size, size), generator=draw, dtype=torch.uint8)
        self.picture = Image.fromarray(pixels.permute(1, 2, 0).numpy())
        self.image = (pixels.float() / 127.5 - 1)[None]
        self.video = torch.rand(2, 3, 9, size, size, generator=draw) * 2 - 1
        self.shape = FAMILY.latents_shape(folder, 9, size, size)
        self.latents = FAMILY.encode_video(self.vae, self.video)["mean"]
        self.noise = torch.randn(2, *self.shape, generator=draw)
        self.text = FAMILY.encode_text(self.encoder, ["a red circle", "a blue square moves left"])

    @property
    def of_image(self) -> bool:
        return self.model.task == "image-to-video"

    def given(self, kept: list[bool] | None = None) -> Given | None:
        if not self.of_image:
            return told_nothing(FAMILY, self.model, len(kept or [True]))
        encoded = FAMILY.encode_image(self.vae, self.image_encoder, self.image, 9, "pipeline")
        count = len(kept or [True])
        many = {name: one.expand(count, *one.shape[1:]) for name, one in encoded.items()}
        return FAMILY.given(many, torch.zeros(()), self.shape, None if kept is None else torch.tensor(kept))

    def at_timestep(self, timestep: float) -> Any:
        return next(one for lowest, one in self.experts.items() if timestep >= 1000 * lowest)

    def generated(self, **more: Any) -> torch.Tensor:
        inputs = DenoiseInputs(
            self.folder,
            **{
                "text": FAMILY.encode_text(self.encoder, ["a red  circle &amp; a square"]),
                "negative_text": FAMILY.encode_text(self.encoder, ["the video"]),
                "latents_shape": self.shape,
                "steps": STEPS,
                "guidance": Guidance(3.0, second=2.0, below=1000 * self.model.boundary),
                "at_timestep": self.at_timestep,
                "noise": torch.Generator().manual_seed(1),
                "given": self.given(),
                **more,
            },
        )
        return FAMILY.denoise(self.transformer, inputs)


@pytest.fixture(scope="module", params=FAMILY.toys)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("wan") / request.param, request.param)


def test_a_video_equals_the_stock_pipelines(case: Case) -> None:
    """Prompt cleaning, padding, picture, noise, guidance, scheduler and decoding, all of it."""
    stock = whole_pipeline(FAMILY, case.model)
    shift = None if case.of_image else 8.0  # the toys' schedulers have 3 and 5
    if shift is not None:
        stock.scheduler = type(stock.scheduler).from_config(stock.scheduler.config, flow_shift=shift)
    size = case.model.height
    theirs = stock(
        **({"image": case.picture} if case.of_image else {}),
        prompt="a red  circle &amp; a square",
        negative_prompt="the video",
        num_frames=9,
        height=size,
        width=size,
        num_inference_steps=STEPS,
        guidance_scale=3.0,
        **({"guidance_scale_2": 2.0} if case.model.boundary else {}),
        generator=torch.Generator().manual_seed(1),
        output_type="pt",
    ).frames
    ours = FAMILY.decode(case.vae, case.generated(sequential_guidance=True, flow_shift=shift)) / 2 + 0.5
    # A fortieth of a gray level: processors add in different orders, and CLIP's blocks amplify it (5e-5 seen).
    torch.testing.assert_close(ours, theirs.permute(0, 2, 1, 3, 4), rtol=0, atol=1e-4)


def test_a_larger_shift_gives_the_expert_for_high_noise_more_steps(case: Case) -> None:
    """Of 40 steps: 13 with the shift of diffusers' files, 26 with the authors'."""
    ways = [FAMILY.sampler_steps(StepOptions(case.folder, 40, case.shape, CPU, shift=shift)) for shift in (3.0, 12.0)]
    assert [int((one.timesteps >= 875).sum()) for one in ways] == [13, 26]


def authors_pixels(image: torch.Tensor, processor: Any) -> torch.Tensor:
    """A picture [1, 3, H, W] in [-1, 1] as CLIPModel.visual of Wan2.1 prepares it, for 16 pixels."""
    squeezed = torch.nn.functional.interpolate(image, size=(16, 16), mode="bicubic", align_corners=False)
    mean, std = (torch.tensor(one).view(3, 1, 1) for one in (processor.image_mean, processor.image_std))
    return (squeezed * 0.5 + 0.5 - mean) / std


def test_clip_sees_all_of_a_picture_squeezed_into_a_square(tmp_path: Path) -> None:
    """The sides of a wide picture count; a processor that crops the center never sees them."""
    case = Case(tmp_path / "toy", "image-2.1")
    processor, model = case.image_encoder
    wide = torch.rand(1, 3, 32, 96, generator=torch.Generator().manual_seed(0)) * 2 - 1
    other = wide.clone()
    other[..., :16] = -other[..., :16]
    tokens = []
    for picture in (wide, other):
        tokens.append(FAMILY.encode_image(case.vae, case.image_encoder, picture, 9, "pipeline")["image"])
        with torch.no_grad():
            seen = model(authors_pixels(picture, processor), output_hidden_states=True).hidden_states[-2]
        torch.testing.assert_close(tokens[-1], seen, rtol=0, atol=1e-6)
    assert not torch.equal(*tokens)


def test_the_negative_prompt_has_the_authors_commas() -> None:
    """shared_config.py: 色调艳丽，过曝，静态 ... with full-width commas, which are other tokens than those of ASCII."""
    assert NEGATIVE_PROMPT.startswith("色调艳丽，过曝，静态，")
    assert NEGATIVE_PROMPT.count("，") == 27
    assert "," not in NEGATIVE_PROMPT


def published_loss(case: Case, noise_share: torch.Tensor, kept: list[bool]) -> torch.Tensor:
    """mean of (prediction - (noise - clean))^2 per clip, written from the definition, in the stock model's terms."""
    s = noise_share.view(-1, 1, 1, 1, 1)
    noisy = (1 - s) * case.latents + s * case.noise
    times, more = 1000 * noise_share, {}
    counted = torch.ones_like(noisy)
    if case.variant in ("image-2.1", "a14b-image"):
        with torch.no_grad():
            blank = torch.cat([case.image[:, :, None], torch.zeros(1, 3, 8, *case.image.shape[2:])], dim=2)
            empty = case.vae.encode(blank).latent_dist.mode()
        scale = (case.vae.config.latents_mean, case.vae.config.latents_std)
        center, spread = (torch.tensor(one).view(1, -1, 1, 1, 1) for one in scale)
        mask = torch.zeros(1, 4, *case.shape[1:])
        mask[:, :, 0] = 1
        shown = torch.tensor(kept).float().view(-1, 1, 1, 1, 1)
        noisy = torch.cat([noisy, shown * torch.cat([mask, (empty - center) / spread], dim=1)], dim=1)
    if case.variant == "image-2.1":
        shown = torch.tensor(kept).float().view(-1, 1, 1)
        processor, model = case.image_encoder
        with torch.no_grad():
            seen = model(authors_pixels(case.image, processor), output_hidden_states=True)
        more["encoder_hidden_states_image"] = seen.hidden_states[-2] * shown
    if case.variant == "5b-image":
        first = FAMILY.encode_video(case.vae, case.image[:, :, None])["mean"]
        grid = times.view(-1, 1, 1, 1).repeat(1, case.shape[1], case.shape[2] // 2, case.shape[3] // 2)
        for index, one in enumerate(kept):
            if one:
                noisy[index, :, :1], grid[index, 0], counted[index, :, 0] = first, 0, 0
        times = grid.flatten(1)
    if case.variant == "vace":
        given = case.given(kept)
        assert given is not None
        more["control_hidden_states"] = given.tokens["vace context"]  # test_wan_vace.py checks it
    with torch.no_grad():
        predicted = case.transformer(noisy, times, case.text["prompt_embeds"], return_dict=False, **more)[0]
    error = (predicted - (case.noise - case.latents)).square() * counted
    return error.flatten(1).sum(1) / counted.flatten(1).sum(1)


@pytest.mark.parametrize("kept", [[True, True], [True, False]])
def test_the_loss_equals_its_definition(case: Case, kept: list[bool]) -> None:
    schedule = FAMILY.noise_schedule(case.folder, CPU)
    share = torch.tensor([0.3, 0.9])
    inputs = ModelInputs(case.latents, case.text, case.noise, 1000 * share, case.given(kept), 16.0)
    with torch.no_grad():
        ours = FAMILY.loss(case.transformer, schedule, inputs)
    torch.testing.assert_close(ours, published_loss(case, share, kept), rtol=1e-6, atol=1e-6)


def test_noise_levels_are_logit_normal_and_shifted() -> None:
    """By sampling: sigmoid of a normal number, then s -> 3 s / (1 + 2 s); 5 for runs that began so."""
    draw = torch.randn(200_000, generator=torch.Generator().manual_seed(0)).double().sigmoid()
    quantiles = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95]).double()
    settings = {3: NoiseSettings(), 5: NoiseSettings(defaults=1)}
    for shift, chosen in settings.items():
        schedule = FAMILY.noise_schedule(Path(), CPU, chosen)
        shifted = shift * draw / (1 + (shift - 1) * draw)
        ours = schedule.timesteps(quantiles, (16, 3, 4, 4)) / 1000
        torch.testing.assert_close(ours, shifted.quantile(quantiles).float(), rtol=0, atol=2e-3)
        few = {3: 0.026, 5: 0.007}[shift]  # share of the draws below 0.3
        assert 1 - schedule.share_above(0.3, (16, 3, 4, 4)) == pytest.approx(few, abs=1e-3)
    assert schedule.timesteps(torch.tensor([0.0, 1.0]), (16, 3, 4, 4)).tolist() == [0, 1000]


def test_noise_levels_follow_the_settings() -> None:
    """Uniform and unshifted, quantiles are the noise levels themselves; a shift alone moves them as written."""
    quantiles = torch.tensor([0.1, 0.5, 0.9])
    plain = FAMILY.noise_schedule(Path(), CPU, NoiseSettings("uniform", 1.0))
    torch.testing.assert_close(plain.timesteps(quantiles, (16, 3, 4, 4)), 1000 * quantiles)
    moved = FAMILY.noise_schedule(Path(), CPU, NoiseSettings("uniform", 3.0)).timesteps(quantiles, (16, 3, 4, 4))
    torch.testing.assert_close(moved, 3000 * quantiles / (1 + 2 * quantiles))


@pytest.mark.parametrize("density", ["logit-normal", "uniform"])
def test_an_expert_learns_from_its_own_slice_as_often_as_all_levels_have_it(density: Density) -> None:
    """The quantiles of a slice are those of all draws that fall into it."""
    quantiles, shape = (torch.arange(100_000).double() + 0.5) / 100_000, (16, 3, 4, 4)
    every = FAMILY.noise_schedule(Path(), CPU, NoiseSettings(density, 5.0)).timesteps(quantiles, shape)
    for between in ((0.875, 1.0), (0.0, 0.875)):
        own = FAMILY.noise_schedule(Path(), CPU, NoiseSettings(density, 5.0, between=between))
        inside = every[(every >= 1000 * between[0]) & (every < 1000 * between[1])].double()
        few = torch.tensor([0.1, 0.5, 0.9]).double()
        torch.testing.assert_close(own.timesteps(few, shape).double(), inside.quantile(few), rtol=0, atol=0.1)
        edges = own.timesteps(torch.tensor([0.0, 1.0]), shape) / 1000
        torch.testing.assert_close(edges, torch.tensor(between), rtol=0, atol=1e-6)
    shares = {"uniform": 0.42, "logit-normal": 0.37}  # reference figures of draws above 0.875
    assert (every >= 875).double().mean().item() == pytest.approx(shares[density], abs=0.01)


def test_captions_are_cleaned_and_end_in_zeros(case: Case) -> None:
    one, same = (FAMILY.encode_text(case.encoder, [text])["prompt_embeds"] for text in ("a &amp;amp; b ", "a &  b"))
    assert torch.equal(one, same)
    assert one.shape[1] == 512
    assert not one[0, 8:].any()


# ---- other trainers' files


def test_names_of_other_trainers_are_known() -> None:
    for spelling in (
        "diffusion_model.blocks.3.cross_attn.o",
        "blocks.3.cross_attn.o",
        "lora_unet_blocks_3_cross_attn_o",
        "lora_unet__blocks_3_cross_attn_o",
        "transformer.blocks.3.attn2.to_out.0",
        "base_model.model.blocks.3.attn2.to_out.0",
    ):
        from workbench.families.wan import NAMES

        assert NAMES.layer_of(spelling) == "blocks.3.attn2.to_out.0", spelling
    pair = {f"blocks.0.self_attn.q.lora_{one}.default.weight": torch.ones(2, 2) for one in "AB"}  # DiffSynth
    assert FAMILY.lora_weights(pair, {}).layers == ["blocks.0.attn1.to_q"]


def test_which_expert_a_lora_is_for_goes_along(tmp_path: Path) -> None:
    from workbench.families.lora_files import experts_of

    case = Case(tmp_path / "toy", "a14b")
    pairs = {f"transformer.{name}": one for name, one in pairs_on(case.transformer, "blocks").items()}
    read = FAMILY.lora_weights(pairs, {"expert": "low noise"})
    for format in FAMILY.lora_formats:
        assert FAMILY.lora_weights(*FAMILY.export_lora(read, format.id)).expert == "low noise"
    assert experts_of([], {}, "Wan2.2_HIGH_style.safetensors") == ("high noise",)
    assert experts_of([], {}, "slow-highway.safetensors") == ()
