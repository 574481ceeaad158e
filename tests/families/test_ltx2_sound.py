"""LTX-2 with sound: the published definition of the loss of both streams, the spectrogram, encoding, the stock
pipeline's sound, and which layers a LoRA may change."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import memory_simulation as simulation
from tests.families.stock import whole_pipeline
from tests.families.test_ltx2 import CPU, FPS, Case, stock_sample
from tests.sounds import tone
from workbench.clips.sound import has_sound
from workbench.families.ltx2 import FAMILY, OLDER
from workbench.families.model_inputs import Given, ModelInputs, SoundInputs
from workbench.families.sound import spectrogram
from workbench.fit import memory
from workbench.publishing import card
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora
from workbench.trainer.evaluation import EvaluationInput, held_out_by_band
from workbench.trainer.trainable import Trainable


@pytest.fixture(scope="module", params=FAMILY.toys)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("ltx2") / request.param, request.param)


def heard(case: Case, alone: bool = False) -> SoundInputs:
    draw = torch.Generator().manual_seed(5)
    latents, noise = (torch.randn(2, 17, 4, generator=draw) for _ in range(2))
    return SoundInputs(latents, noise, torch.tensor([450.0, 80.0]), alone)


def modality_loss(predicted: torch.Tensor, target: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """flexible.py, _compute_modality_loss: [B, tokens, channels] and the tokens that count, [B, tokens]."""
    mask = counted.unsqueeze(-1).float()
    return (predicted - target).pow(2).mul(mask).mean(dim=(-2, -1)) / mask.mean(dim=(-2, -1)).clamp(min=1e-8)


@pytest.mark.parametrize("kept", [[True, True], [True, False]])
def test_the_loss_of_both_streams_equals_its_definition(case: Case, kept: list[bool]) -> None:
    """flexible.py, _process_modality and compute_loss: each stream has its own noise and its own level, and attention
    between them is modulated by the other's level."""
    sound, share = heard(case), torch.tensor([0.3, 0.9])
    (_, frames, height, width), level = case.shape, sound.timesteps / 1000
    clean, noise = (one.flatten(2).transpose(1, 2) for one in (case.latents, case.noise))
    noisy = (1 - share.view(-1, 1, 1)) * clean + share.view(-1, 1, 1) * noise
    times, counted = share.view(-1, 1).repeat(1, clean.shape[1]), torch.ones(2, clean.shape[1], dtype=torch.bool)
    shown = torch.tensor(kept)
    given = Given(known=case.latents[:, :, :1], kept=shown) if case.of_image else None
    given = given or FAMILY.own_first_frame(case.latents, shown)
    for index, one in enumerate(kept):
        if one:
            first = slice(0, height * width)
            noisy[index, first], times[index, first], counted[index, first] = clean[index, first], 0, False
    with torch.no_grad():
        picture, of_sound = case.transformer(
            hidden_states=noisy,
            audio_hidden_states=(1 - level.view(-1, 1, 1)) * sound.latents + level.view(-1, 1, 1) * sound.noise,
            encoder_hidden_states=case.text["prompt_embeds"],
            audio_encoder_hidden_states=case.text["audio_embeds"],
            timestep=1000 * times,
            audio_timestep=(1000 * level).view(-1, 1).repeat(1, 17),
            sigma=1000 * share,
            audio_sigma=1000 * level,
            num_frames=frames,
            height=height,
            width=width,
            fps=FPS,
            audio_num_frames=17,
            use_cross_timestep=True,
            return_dict=False,
        )
        inputs = ModelInputs(case.latents, case.text, case.noise, 1000 * share, given, FPS, sound)
        ours = FAMILY.losses(case.transformer, FAMILY.noise_schedule(case.folder, CPU), inputs)
    everything = torch.ones(2, 17, dtype=torch.bool)
    assert ours[1] is not None
    torch.testing.assert_close(ours[0], modality_loss(picture, noise - clean, counted), rtol=1e-6, atol=1e-6)
    target = sound.noise - sound.latents
    torch.testing.assert_close(ours[1], modality_loss(of_sound, target, everything), rtol=1e-6, atol=1e-6)


def test_a_sound_alone_is_learned_without_the_picture(case: Case) -> None:
    """Its loss equals that of the sound's stream with attention between the streams off, whatever the picture is."""
    sound = heard(case, alone=True)
    level = sound.timesteps / 1000
    with torch.no_grad():
        predicted = case.transformer(
            hidden_states=torch.randn(2, 12, 8),
            audio_hidden_states=(1 - level.view(-1, 1, 1)) * sound.latents + level.view(-1, 1, 1) * sound.noise,
            encoder_hidden_states=case.text["prompt_embeds"],
            audio_encoder_hidden_states=case.text["audio_embeds"],
            timestep=torch.tensor([900.0, 10.0]),
            audio_timestep=sound.timesteps,
            sigma=torch.tensor([900.0, 10.0]),
            audio_sigma=sound.timesteps,
            num_frames=3,
            height=2,
            width=2,
            fps=FPS,
            audio_num_frames=17,
            isolate_modalities=True,
            return_dict=False,
        )[1]
        inputs = ModelInputs(case.latents, case.text, case.noise, torch.tensor([300.0, 900.0]), None, FPS, sound)
        ours, of_sound = FAMILY.losses(case.transformer, FAMILY.noise_schedule(case.folder, CPU), inputs)
    assert of_sound is None
    error = (predicted - (sound.noise - sound.latents)).square().mean(dim=(1, 2))
    torch.testing.assert_close(ours, error, rtol=1e-6, atol=1e-6)


def test_without_a_sound_the_loss_is_the_picture_s(case: Case) -> None:
    inputs = ModelInputs(case.latents, case.text, case.noise, torch.tensor([300.0, 900.0]))
    schedule = FAMILY.noise_schedule(case.folder, CPU)
    with torch.no_grad():
        each, of_sound = FAMILY.losses(case.transformer, schedule, inputs)
        assert torch.equal(each, FAMILY.loss(case.transformer, schedule, inputs))
    assert of_sound is None


def test_a_mask_that_marks_everything_leaves_both_held_out_losses(case: Case) -> None:
    text = {name: one[:1] for name, one in case.text.items()}
    moments = {"mean": case.latents[:1], "std": torch.zeros_like(case.latents[:1])}
    probe = EvaluationInput("a", case.shape, text, moments, fps=FPS, sound=heard(case).latents[:1])
    marked = replace(probe, mask=torch.ones(1, 1, *case.shape[1:]))
    schedule = FAMILY.noise_schedule(case.folder, CPU)
    plain, masked = (held_out_by_band(FAMILY, case.transformer, schedule, [one], 0, CPU) for one in (probe, marked))
    assert plain.sound is not None
    assert masked.sound == pytest.approx(plain.sound)
    assert masked.bands == pytest.approx(plain.bands)
    assert masked.outside is None


# ---- spectrogram, encoding, decoding


def mel_by_definition(samples: torch.Tensor, rate: int, bins: int, hop: int) -> torch.Tensor:
    """AudioProcessor of ltx-core, from the definitions of the transform and of Slaney's scale."""
    padded = torch.nn.functional.pad(samples[None], (512, 512), mode="reflect")[0].double()
    window = (0.5 - 0.5 * torch.cos(2 * math.pi * torch.arange(1024) / 1024)).double()
    pieces = padded.unfold(1, 1024, hop) * window
    magnitudes = torch.fft.rfft(pieces).abs()

    def mel(hertz: float) -> float:
        return 3 * hertz / 200 if hertz < 1000 else 15 + 27 * math.log(hertz / 1000) / math.log(6.4)

    def hertz(mels: float) -> float:
        return 200 * mels / 3 if mels < 15 else 1000 * 6.4 ** ((mels - 15) / 27)

    edges = [hertz(mel(rate / 2) * index / (bins + 1)) for index in range(bins + 2)]
    filters = torch.zeros(513, bins, dtype=torch.float64)
    for band, (low, middle, high) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        for line in range(513):
            at = line * rate / 1024
            rise, fall = (at - low) / (middle - low), (high - at) / (high - middle)
            filters[line, band] = max(0.0, min(rise, fall)) * 2 / (high - low)
    return (magnitudes @ filters).clamp(min=1e-5).log().float()


@pytest.mark.parametrize(("bins", "hop"), [(64, 160), (8, 160)])
def test_the_spectrogram_equals_its_definition(bins: int, hop: int) -> None:
    samples = torch.randn(2, 4000, generator=torch.Generator().manual_seed(0)) * 0.1
    samples[0] = torch.from_numpy(tone(440, 0.25))[0]
    found = spectrogram(samples, 16000, bins, hop)
    assert found.shape == (2, 1 + 4000 // hop, bins)
    torch.testing.assert_close(found, mel_by_definition(samples, 16000, bins, hop), rtol=1e-3, atol=1e-3)


def test_a_sound_has_25_tokens_a_second_normalized(case: Case) -> None:
    encoder = FAMILY.load_sound_encoder(case.folder, CPU)
    samples = torch.randn(2, FAMILY.sound_rate(case.folder), generator=torch.Generator().manual_seed(0)) * 0.1
    (found,) = FAMILY.encode_sound(encoder, samples).values()
    assert found.shape == (1, 26, 4)  # 101 spectra, four a token
    mean = encoder.encode(spectrogram(samples, 16000, 8, 160)[None]).latent_dist.mode()
    for token in range(26):  # a token: the frequencies of one channel after the other
        torch.testing.assert_close(found[0, token] * 0.8 + 0.2, mean[0, :, token].flatten(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [3.0, 1.0])
def test_the_sound_of_a_sample_equals_the_stock_pipeline_s(case: Case, scale: float) -> None:
    pipeline: Any = whole_pipeline(FAMILY, case.model)
    theirs = stock_sample(case, pipeline, scale).audio
    _, latents = FAMILY.denoise_with_sound(case.transformer, case.inputs(scale))
    assert latents is not None
    decoder = FAMILY.load_sound_decoder(case.folder, CPU, torch.float32)
    ours = FAMILY.decode_sound(decoder, latents)
    assert ours.rate == pipeline.vocoder.config.output_sampling_rate
    torch.testing.assert_close(torch.from_numpy(ours.samples), theirs[0].float(), rtol=0, atol=1e-5)


def test_a_clip_that_is_changed_has_no_sound(case: Case) -> None:
    inputs = replace(case.inputs(1.0), source=case.latents[:1], strength=0.5)
    assert FAMILY.denoise_with_sound(case.transformer, inputs)[1] is None


def test_the_code_of_a_card_writes_a_video_with_its_sound(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = replace(case.model, steps=2)
    written = FAMILY.usage(model, case.folder, "lora.safetensors", "a red circle", (17, 64, 64))
    case.picture.save(tmp_path / "first_frame.png")
    monkeypatch.chdir(tmp_path)
    for code in (written, card.code(card.read(written), model, "base", "someone/lora")):
        names: dict[str, Any] = {"pipe": whole_pipeline(FAMILY, model)}
        imports = [line for line in code.splitlines() if line.startswith(("import", "from diffusers.utils"))]
        exec("\n".join([*imports, code[code.index("video = pipe(") :]]), names)
        assert has_sound(tmp_path / "video.mp4")
        (tmp_path / "video.mp4").unlink()


# ---- layers


def trained_layers(case: Case, sound: str, targets: str) -> list[str]:
    settings = TrainSettings(targets=targets, rank=2, sound=sound)
    names = [name for name, _ in lora.attach(FAMILY, case.loaded(), settings, 0)]
    return sorted({name.partition(".lora_")[0] for name in names})


def test_the_attention_that_gets_a_lora_is_that_of_what_is_learned(case: Case) -> None:
    """As the authors' configurations: all six attentions for both streams, two for one of them alone."""
    attentions = {
        sound: {name.split(".")[2] for name in trained_layers(case, sound, "attention")}
        for sound in ("picture", "picture+sound", "sound")
    }
    between = {"audio_to_video_attn", "video_to_audio_attn"}
    assert attentions["picture"] == {"attn1", "attn2"}
    assert attentions["sound"] == {"audio_attn1", "audio_attn2"}
    assert attentions["picture+sound"] == {*attentions["picture"], *attentions["sound"], *between}


@pytest.mark.parametrize("sound", ["picture", "picture+sound", "sound"])
def test_exactly_the_layers_that_the_loss_depends_on_are_trained(case: Case, sound: str) -> None:
    transformer = case.loaded()
    Trainable(FAMILY, transformer, TrainSettings(method="full", sound=sound), 0)
    inputs = ModelInputs(case.latents, case.text, case.noise, torch.tensor([300.0, 900.0]))
    if sound != "picture":
        inputs = replace(inputs, sound=heard(case, alone=sound == "sound"))
    each, of_sound = FAMILY.losses(transformer, FAMILY.noise_schedule(case.folder, CPU), inputs)
    (each if of_sound is None else each + of_sound).sum().backward()
    for name, parameter in transformer.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None), name
    facts = FAMILY.facts(case.model)
    reached = [name for name, _ in facts.named() if not re.fullmatch(facts.unreached[sound], name)]
    assert trained_layers(case, sound, "all-linear") == sorted(reached)


@pytest.mark.release
@pytest.mark.parametrize("sound", ["picture+sound", "sound"])
def test_the_fit_follows_a_simulated_step_with_sound(sound: str) -> None:
    """Of two and of three blocks of the real size, from which the others follow, on tensors without numbers."""
    level = simulation.LEVELS[2]
    case = simulation.Case("", OLDER.id, memory.TRAINING, replace(level, changed={**level.changed, "sound": sound}))
    row = simulation.row(case, simulation.simulate(case))
    assert row["ratio"] == pytest.approx(1, abs=0.05)
    if sound != "sound":  # a sound alone takes less than a hundredth of the operations: other things take the time
        assert row["operations ratio"] == pytest.approx(1, abs=0.05)


def test_a_run_with_sound_is_estimated_to_need_more_and_one_of_the_sound_alone_less() -> None:
    gpu = simulation.LARGE
    found = {}
    for sound in ("picture", "picture+sound", "sound"):
        settings = TrainSettings().changed(model=OLDER.id, sound=sound, gradient_checkpointing="none", preview_every=0)
        size = memory.sizes(settings, OLDER, FAMILY.facts(OLDER), gpu)
        found[sound] = next(one.gb for one in memory.phases(size) if one.name == memory.TRAINING)
    assert found["sound"] < found["picture"] < found["picture+sound"]
