"""CogVideoX: its models, tensors, objective and sampling against the authors' code and the stock pipelines."""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from diffusers import CogVideoXDDIMScheduler, CogVideoXImageToVideoPipeline, CogVideoXPipeline
from diffusers.training_utils import compute_snr
from PIL import Image

from tests.families.stock import stock_pipeline
from workbench.errors import ConfigError, ModelUnavailable
from workbench.families import find_model
from workbench.families.cogvideox import FAMILY
from workbench.families.cogvideox.family import SCHEDULERS, pad_front, padded_frames, rotary_embeddings, without_padding
from workbench.families.cogvideox.models import PUBLISHED
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.model_inputs import Given, ModelInputs
from workbench.families.noise_schedules import NoiseSettings, VelocitySchedule


def test_training_refuses_frames_that_do_not_decode_back() -> None:
    _, model = find_model("cogvideox-5b")
    with pytest.raises(ConfigError, match=r"frames is 50, CogVideoX 5B needs 1 or 8k\+1, from 9 to 49: use 41 or 49"):
        model.check_shape(50, 480, 720)
    with pytest.raises(ConfigError, match="height is 490, CogVideoX 5B needs a multiple of 16: use 496"):
        model.check_shape(49, 490, 720)


def test_b29_upright_clips_are_refused_where_positions_end() -> None:
    """The stock pipeline fails inside its rotary positions: "expected size 85 but got size 48"."""
    for name in ("cogvideox1.5-5b", "cogvideox1.5-5b-i2v"):
        _, newer = find_model(name)
        with pytest.raises(ConfigError, match="size is 768x1360"):
            newer.check_shape(81, 1360, 768)
        newer.check_shape(81, 768, 1360)


def test_b24_learned_positions_fit_one_size_and_no_more_frames() -> None:
    _, model = find_model("cogvideox-5b-i2v")
    model.check_shape(25, 480, 720)
    with pytest.raises(ConfigError, match="supports only 720x480: use 720x480"):
        model.check_shape(49, 480, 704)
    with pytest.raises(ConfigError, match="frames is 57"):
        model.check_shape(57, 480, 720)


def test_every_published_model_is_pinned_to_a_commit() -> None:
    assert {model.id for model in PUBLISHED} == {
        "cogvideox-2b", "cogvideox-5b", "cogvideox-5b-i2v", "cogvideox1.5-5b", "cogvideox1.5-5b-i2v",
    }  # fmt: skip
    assert all(model.revision and len(model.revision) == 40 for model in PUBLISHED)
    assert len({model.revision for model in PUBLISHED}) == len(PUBLISHED)


def test_a_missing_model_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    # huggingface_hub 1.32 lists the files first, 2 looks for a local copy: the message says which failed.
    remedy = "THUDM/CogVideoX-2b cannot be (downloaded .*: check the network|reached: .*, try again later)"
    with pytest.raises(ModelUnavailable, match=remedy):
        FAMILY.fetch(find_model("cogvideox-2b")[1], report=lambda text: None)


# ---- the tokenizer as the published repositories hold it: spiece.model alone


@pytest.fixture(scope="module")
def spiece(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose tokenizer is a real sentencepiece model and nothing else."""
    import sentencepiece

    folder = tmp_path_factory.mktemp("spiece")
    (folder / "tokenizer").mkdir()
    sentences = ["a panda plays the guitar in a forest", "a video of waves on the beach at sunset"] * 50
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_prefix=str(folder / "tokenizer" / "spiece"),
        vocab_size=60,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    (folder / "tokenizer" / "spiece.vocab").unlink()
    return folder


def test_a_tokenizer_of_spiece_model_alone_is_read_rightly(spiece: Path) -> None:
    import sentencepiece

    reference = sentencepiece.SentencePieceProcessor(model_file=str(spiece / "tokenizer" / "spiece.model"))
    tokenizer = FAMILY.load_tokenizer(spiece)
    for text in ("a panda plays the guitar", "waves on the beach"):
        assert tokenizer(text).input_ids == [*reference.encode(text), tokenizer.eos_token_id]


def test_a_tokenizer_without_its_file_is_refused_not_replaced(spiece: Path, tmp_path: Path) -> None:
    shutil.copytree(spiece, tmp_path / "model")
    (tmp_path / "model" / "tokenizer" / "spiece.model").unlink()
    with pytest.raises(ModelUnavailable, match="neither tokenizer.json nor spiece.model"):
        FAMILY.load_tokenizer(tmp_path / "model")


# ---- tensors


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
        with pytest.raises(ConfigError, match="learned positions for at most 5 of 4x4"):
            FAMILY.predict(transformer, schedule, inputs)


def test_b24_the_cards_code_keeps_them_and_says_so(learned: Path) -> None:
    """Run the card's lines on a pipeline that diffusers loaded: it then adds the same positions as training."""
    from diffusers import CogVideoXImageToVideoPipeline

    model = FAMILY.describe_folder(learned)
    own = FAMILY.usage(model, learned, "lora.safetensors", "a ring", (model.frames, 16, 16))
    assert "pos_embedding" not in own
    assert 'load_image("first_frame.png")' in own
    curves = {"off": (False, False), "stock": (True, False), "cosine": (False, True)}  # of guidance in previews
    for curve, said in curves.items():
        made = replace(model, dynamic_guidance=curve)
        text = FAMILY.usage(made, learned, "lora.safetensors", "a ring", (model.frames, 16, 16))
        assert ("use_dynamic_cfg=True" in text, "--dynamic-guidance cosine" in text) == said
    code = FAMILY.usage(model, learned, "lora.safetensors", "a ring", (9, 16, 16))
    assert "With 9 frames instead of 17, diffusers would replace this model's learned positions" in code
    compile(code, "card", "exec")
    pipe = CogVideoXImageToVideoPipeline.from_pretrained(learned)
    text, latents = torch.zeros(1, 16, 32), torch.zeros(1, 3, 8, 4, 4)
    ours = FAMILY.load_transformer(learned, CPU, torch.float32).patch_embed(text, latents)
    assert not torch.equal(pipe.transformer.patch_embed(text, latents), ours)  # stock diffusers
    start, end = code.index("embed = pipe"), code.index("video = pipe(")
    exec(code[start:end], {"pipe": pipe})
    assert torch.equal(pipe.transformer.patch_embed(text, latents), ours)


# ---- the objective


TIMESTEPS = torch.tensor([1, 100, 600, 999])


@dataclass
class Case:
    """A toy with a batch of four clips' latents, and the stock pipeline to compare with."""

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
    """The first frame's latents at index 0, zeros after it; the posterior's mean, so that nothing is sampled."""
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
    """Other trainers multiply where diffusers' 1.5 pipeline divides; b12: the image is part of it."""
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
    _, theirs = case.pipeline.prepare_latents(
        case.image[:1], 1, shape[1], frames, size, size, torch.float32, CPU, torch.Generator().manual_seed(3)
    )
    factor = 1.0
    if scale == "raw":
        factor = case.vae.config.scaling_factor ** (1 if case.vae.config.invert_scale_latents else -1)
    torch.testing.assert_close(ours, theirs * factor, rtol=1e-5, atol=1e-5)  # convolutions of oneDNN round differently
    every = FAMILY.given(image, noise, tuple(shape), every_frame=True).beside
    assert all(torch.equal(frame, every[:, 0]) for frame in every.unbind(1))
    assert torch.equal(every[:, 0], ours[:, 0])


def test_b41_the_first_frame_is_noised_as_published() -> None:
    assert FAMILY.image_noise == (-3.0, 0.5)


# ---- sampling


STEPS = 4
GUIDED = Guidance(3.0)


class Drawer:
    """A toy's parts, and videos sampled with them."""

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
    """The prefix comes back unchanged; in 1.5 copies of its first frame precede it."""
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
    """The transformer sees sqrt(a) * prefix + sqrt(1 - a) * the initial noise."""
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


# ---- what the stock pipelines can be told, and what they cannot


@pytest.mark.parametrize("scheduler", ["DDIM", "DPM"])
@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_a_video_that_is_changed_equals_the_stock_pipelines(drawer: Drawer, strength: float, scheduler: str) -> None:
    """That pipeline supports neither first frames nor padded latent frames."""
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
    torch.testing.assert_close(latents[:, :1], mean["mean"] + mean["std"] * noise, rtol=1e-5, atol=1e-5)
