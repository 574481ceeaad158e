"""CogVideoX against its references: the published objective, the stock pipeline's positions, its tokenizer files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from diffusers import CogVideoXDDIMScheduler

from workbench.errors import ConfigError, ModelUnavailable
from workbench.families import find_model
from workbench.families.cogvideox import FAMILY, MODELS, TINY, load_tokenizer, rotary_embeddings

CPU = torch.device("cpu")
SCHEDULE = {
    "beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012, "prediction_type": "v_prediction",
    "rescale_betas_zero_snr": True, "timestep_spacing": "trailing",
}  # fmt: skip


@pytest.fixture(scope="module", params=FAMILY.toys)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy") / request.param
    FAMILY.toy(folder, request.param)
    return folder


@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_the_loss_equals_the_official_weighted_form(folder: Path, shift: float) -> None:
    """1/(1-a) * (x0_hat - x0)^2 with the scheduler's own add_noise and get_velocity, in float64 against float32."""
    scheduler = CogVideoXDDIMScheduler(**SCHEDULE, snr_shift_scale=shift)
    scheduler.alphas_cumprod = scheduler.alphas_cumprod.double()
    transformer = FAMILY.load_transformer(folder, CPU, torch.float32)
    model = FAMILY.describe_folder(folder)
    assert model is not None
    shape = FAMILY.latents_shape(folder, model.frames, model.height, model.width)
    generator = torch.Generator().manual_seed(0)
    latents, noise = (torch.randn(4, *shape, generator=generator) for _ in range(2))
    text = {"prompt_embeds": torch.randn(4, 16, 32, generator=generator)}
    timesteps = torch.tensor([1, 100, 600, 999])
    with torch.no_grad():
        ours = FAMILY.loss(transformer, scheduler.alphas_cumprod.float(), latents, text, noise, timesteps)
        noisy = scheduler.add_noise(latents.double(), noise.double(), timesteps)
        rotary = rotary_embeddings(transformer.config, shape[0], shape[2], shape[3], CPU)
        output = transformer(
            hidden_states=noisy.float(), encoder_hidden_states=text["prompt_embeds"], timestep=timesteps,
            image_rotary_emb=rotary, return_dict=False,
        )[0].double()  # fmt: skip
        x0 = scheduler.get_velocity(output, noisy, timesteps)
        weights = 1 / (1 - scheduler.alphas_cumprod[timesteps]).view(-1, 1, 1, 1, 1)
        official = (weights * (x0 - latents.double()) ** 2).flatten(1).mean(1)
    torch.testing.assert_close(ours.double(), official, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("height", "width"), [(16, 16), (16, 32), (32, 16), (48, 32)])
def test_rotary_positions_equal_the_pipelines_in_every_size(folder: Path, height: int, width: int) -> None:
    transformer = FAMILY.load_transformer(folder, CPU, torch.float32)
    config = transformer.config
    if config.patch_size_t is not None:  # positions end at the configured size
        height, width = min(height, 16), min(width, 16)
    vae = FAMILY.load_vae(folder, CPU, torch.float32)
    pipeline = FAMILY.load_pipeline(folder, transformer=transformer, vae=vae, dtype=torch.float32)
    for frames in (9, 17, 33):
        shape = FAMILY.latents_shape(folder, frames, height, width)
        ours = rotary_embeddings(config, shape[0], shape[2], shape[3], CPU)
        if not config.use_rotary_positional_embeddings:
            assert ours is None
            continue
        theirs = pipeline._prepare_rotary_positional_embeddings(height, width, shape[0], CPU)
        assert ours is not None
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_latent_frames_of_1_5_are_paired_by_copies_at_the_front() -> None:
    moments = {"mean": torch.arange(5.0).view(1, 5, 1, 1, 1), "std": torch.zeros(1, 5, 1, 1, 1)}
    latents = FAMILY.draw_latents(moments, torch.zeros(1, 6, 1, 1, 1))
    assert latents.flatten().tolist() == [0, 0, 1, 2, 3, 4]
    assert FAMILY.draw_latents(moments, torch.zeros(1, 5, 1, 1, 1)).flatten().tolist() == [0, 1, 2, 3, 4]


def test_a_clip_survives_the_moments_and_the_scaling_factor() -> None:
    """Decoding the moments' mean equals the VAE's own reconstruction."""
    folder = Path(TINY.source)
    vae = FAMILY.load_vae(folder, CPU, torch.float32)
    video = torch.rand(1, 3, 9, 40, 40, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        expected = vae.decode(vae.encode(video).latent_dist.mode()).sample.clamp(-1, 1)
    torch.testing.assert_close(FAMILY.decode(vae, FAMILY.encode_video(vae, video)["mean"]), expected, rtol=0, atol=1e-4)


def test_training_refuses_frames_that_do_not_decode_back() -> None:
    _, model = find_model("cogvideox-5b")
    with pytest.raises(ConfigError, match=r"frames is 50, CogVideoX 5B needs 8k\+1, from 9 to 49: use 41 or 49"):
        model.check_shape(50, 480, 720)
    with pytest.raises(ConfigError, match="height is 490, CogVideoX 5B needs a multiple of 16: use 496"):
        model.check_shape(49, 490, 720)
    _, newer = find_model("cogvideox1.5-5b")
    with pytest.raises(ConfigError, match="size is 768x1360"):
        newer.check_shape(81, 1360, 768)
    newer.check_shape(81, 768, 1360)


def test_every_published_model_is_pinned_to_a_commit() -> None:
    hub = [model for model in MODELS if not model.local]
    assert {model.id for model in hub} == {"cogvideox-2b", "cogvideox-5b", "cogvideox1.5-5b"}
    assert all(model.revision and len(model.revision) == 40 for model in hub)


def test_a_missing_model_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelUnavailable, match="THUDM/CogVideoX-2b cannot be downloaded .*: check the network"):
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
        sentence_iterator=iter(sentences), model_prefix=str(folder / "tokenizer" / "spiece"), vocab_size=60,
        hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
    )  # fmt: skip
    (folder / "tokenizer" / "spiece.vocab").unlink()
    return folder


def test_a_tokenizer_of_spiece_model_alone_is_read_rightly(spiece: Path) -> None:
    import sentencepiece

    reference = sentencepiece.SentencePieceProcessor(model_file=str(spiece / "tokenizer" / "spiece.model"))
    tokenizer = load_tokenizer(spiece)
    for text in ("a panda plays the guitar", "waves on the beach"):
        assert tokenizer(text).input_ids == [*reference.encode(text), tokenizer.eos_token_id]


def test_a_tokenizer_without_its_file_is_refused_not_replaced(spiece: Path, tmp_path: Path) -> None:
    shutil.copytree(spiece, tmp_path / "model")
    (tmp_path / "model" / "tokenizer" / "spiece.model").unlink()
    with pytest.raises(ModelUnavailable, match="neither tokenizer.json nor spiece.model"):
        load_tokenizer(tmp_path / "model")
