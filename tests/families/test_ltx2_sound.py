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
from tests.families.stock import variants, whole_pipeline
from tests.families.test_ltx2 import CPU, FPS, STEPS, Case, stock_sample
from tests.sounds import tone
from workbench.clips.sound import has_sound
from workbench.errors import ConfigError
from workbench.families.denoising import StepOptions
from workbench.families.ltx2 import FAMILY, OLDER, perturbed_block
from workbench.families.model_inputs import ALONE, PICTURE_FOR_SOUND, SOUND_FOR_PICTURE, Given, ModelInputs, SoundInputs
from workbench.families.sound import spectrogram
from workbench.fit import memory
from workbench.publishing import card
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora
from workbench.trainer.evaluation import EvaluationInput, held_out_by_band
from workbench.trainer.trainable import Trainable


@pytest.fixture(scope="module", params=variants(FAMILY))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    _, variant = request.param
    return Case(tmp_path_factory.mktemp("ltx2") / variant, variant)


def heard(learned: str = "picture+sound") -> SoundInputs:
    draw = torch.Generator().manual_seed(5)
    latents, noise = (torch.randn(2, 17, 4, generator=draw) for _ in range(2))
    if learned == PICTURE_FOR_SOUND:
        return SoundInputs.given(latents)
    return SoundInputs(latents, noise, torch.tensor([450.0, 80.0]), learned)


def modality_loss(predicted: torch.Tensor, target: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """flexible.py, _compute_modality_loss: [B, tokens, channels] and the tokens that count, [B, tokens]."""
    mask = counted.unsqueeze(-1).float()
    return (predicted - target).pow(2).mul(mask).mean(dim=(-2, -1)) / mask.mean(dim=(-2, -1)).clamp(min=1e-8)


@pytest.mark.parametrize("kept", [[True, True], [True, False]])
def test_the_loss_of_both_streams_equals_its_definition(case: Case, kept: list[bool]) -> None:
    """flexible.py, _process_modality and compute_loss: each stream has its own noise and its own level, and attention
    between them is modulated by the other's level."""
    sound, share = heard(), torch.tensor([0.3, 0.9])
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
    sound = heard(ALONE)
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


@pytest.mark.parametrize("learned", [SOUND_FOR_PICTURE, PICTURE_FOR_SOUND])
def test_a_given_stream_is_clean_at_time_0_and_without_loss(case: Case, learned: str) -> None:
    """flexible.py, _process_modality with is_generated false: clean latents, timesteps and sigma 0, no loss."""
    sound, share = heard(learned), torch.tensor([0.3, 0.9])
    clean, noise = (one.flatten(2).transpose(1, 2) for one in (case.latents, case.noise))
    (_, frames, height, width), zeros = case.shape, torch.zeros(2)
    of_picture = learned == PICTURE_FOR_SOUND
    levels = (share, zeros) if of_picture else (zeros, sound.timesteps / 1000)
    own, audio = (level.view(-1, 1, 1) for level in levels)
    sounds_noise = torch.full_like(sound.latents, 9.0) if of_picture else sound.noise
    with torch.no_grad():
        picture, of_sound = case.transformer(
            hidden_states=(1 - own) * clean + own * noise,
            audio_hidden_states=(1 - audio) * sound.latents + audio * sounds_noise,
            encoder_hidden_states=case.text["prompt_embeds"],
            audio_encoder_hidden_states=case.text["audio_embeds"],
            timestep=1000 * levels[0].view(-1, 1).repeat(1, clean.shape[1]),
            audio_timestep=1000 * levels[1].view(-1, 1).repeat(1, 17),
            sigma=1000 * levels[0],
            audio_sigma=1000 * levels[1],
            num_frames=frames,
            height=height,
            width=width,
            fps=FPS,
            audio_num_frames=17,
            use_cross_timestep=True,
            return_dict=False,
        )
        inputs = ModelInputs(case.latents, case.text, case.noise, 1000 * levels[0], None, FPS, sound)
        ours, second = FAMILY.losses(case.transformer, FAMILY.noise_schedule(case.folder, CPU), inputs)
    assert second is None
    found, target = (picture, noise - clean) if of_picture else (of_sound, sound.noise - sound.latents)
    wanted = modality_loss(found, target, torch.ones(target.shape[:2], dtype=torch.bool))
    torch.testing.assert_close(ours, wanted, rtol=1e-6, atol=1e-6)


def test_measurements_give_the_stream_as_training_does(case: Case) -> None:
    text = {name: one[:1] for name, one in case.text.items()}
    moments = {"mean": case.latents[:1], "std": torch.zeros_like(case.latents[:1])}
    schedule, draw = FAMILY.noise_schedule(case.folder, CPU), torch.Generator()
    for learned in (SOUND_FOR_PICTURE, PICTURE_FOR_SOUND):
        probe = EvaluationInput("a", case.shape, text, moments, fps=FPS, sound=heard().latents[:1], learned=learned)
        inputs = probe.sampled(FAMILY, schedule, 0.5, draw, CPU, draw)
        assert inputs.sound is not None
        assert (inputs.timesteps.item() == 0) == (learned == SOUND_FOR_PICTURE)
        assert (inputs.sound.timesteps.item() == 0) == (learned == PICTURE_FOR_SOUND)
        found = held_out_by_band(FAMILY, case.transformer, schedule, [probe], 0, CPU)
        assert found.sound is None
        assert all(0.1 < one < 10 for one in found.bands)
        again = replace(probe, sound=probe.sound + 1) if probe.sound is not None else probe
        assert held_out_by_band(FAMILY, case.transformer, schedule, [again], 0, CPU).bands != found.bands
    # What is measured of the picture alone has the given sound, too, but no sound that is learned.
    assert probe.sampled(FAMILY, schedule, 0.5, draw, CPU).sound is not None
    assert replace(probe, learned="picture+sound").sampled(FAMILY, schedule, 0.5, draw, CPU).sound is None


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
    probe = EvaluationInput("a", case.shape, text, moments, fps=FPS, sound=heard().latents[:1])
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


def authors_sample(case: Case, scale: float, picture: torch.Tensor | None, sound: torch.Tensor | None) -> torch.Tensor:
    """validation_runner.py, _run_denoising, with one stream frozen: tokens [1, n, channels] of the other.

    The frozen one has sigma and timesteps 0 and a neutral guider, so its caption and self-attention stay in every pass.
    """
    inputs = case.inputs(scale)
    steps: Any = FAMILY.sampler_steps(StepOptions(case.folder, STEPS, case.shape, CPU))
    sigmas, block = steps._scheduler.sigmas, perturbed_block(case.transformer.config)
    draw = torch.Generator().manual_seed(1)
    noise = torch.randn(1, *case.shape, generator=draw).flatten(2).transpose(1, 2)
    count = round(17 / FPS * 25)
    of_sound = torch.randn(1, 2, count, 2, generator=draw).transpose(1, 2).flatten(2)
    frozen, x = (picture, of_sound) if picture is not None else (sound, noise)
    at, own = (1, "audio_embeds") if picture is not None else (0, "prompt_embeds")
    assert frozen is not None
    assert inputs.negative_text is not None
    _, frames, height, width = case.shape
    blocks = case.transformer.transformer_blocks
    kept = blocks[block].attn1 if picture is not None else blocks[block].audio_attn1
    whole = kept.forward

    def predicted(sigma: torch.Tensor, text: dict[str, torch.Tensor], **more: Any) -> torch.Tensor:
        streams, levels = [frozen, frozen], [torch.zeros(1), torch.zeros(1)]
        streams[at], levels[at] = x, 1000 * sigma.expand(1)
        found = case.transformer(
            hidden_states=streams[0],
            audio_hidden_states=streams[1],
            encoder_hidden_states=text["prompt_embeds"],
            audio_encoder_hidden_states=text["audio_embeds"],
            timestep=levels[0].view(1, 1).expand(1, streams[0].shape[1]),
            audio_timestep=levels[1].view(1, 1).expand(1, streams[1].shape[1]),
            sigma=levels[0],
            audio_sigma=levels[1],
            num_frames=frames,
            height=height,
            width=width,
            fps=FPS,
            audio_num_frames=streams[1].shape[1],
            use_cross_timestep=True,
            return_dict=False,
            **more,
        )[at]
        return x - sigma * found  # X0Model

    text, negative = dict(inputs.text), {**inputs.text, own: inputs.negative_text[own]}
    with torch.no_grad():
        for sigma, after in zip(sigmas, sigmas[1:], strict=False):
            clean = cond = predicted(sigma, text)
            if scale > 1:
                cfg = 7.0 if at else scale
                clean = cond + (cfg - 1) * (cond - predicted(sigma, negative))
                if block:
                    kept.forward = lambda *args, **given: whole(
                        *args, **{**given, "perturbation_mask": None, "all_perturbed": False}
                    )
                    clean = clean + cond - predicted(sigma, text, spatio_temporal_guidance_blocks=[block])
                    kept.forward = whole
                clean = clean + 2.0 * (cond - predicted(sigma, text, isolate_modalities=True))
                factor = cond.std() / clean.std()
                clean = clean * (0.7 * factor + 0.3)
            x = x + (x - clean) / sigma * (after - sigma)
    return x


@pytest.mark.parametrize("scale", [3.0, 1.0])
def test_a_picture_for_a_given_sound_equals_the_authors(case: Case, scale: float) -> None:
    sound = torch.randn(1, 60, 4, generator=torch.Generator().manual_seed(7))  # longer than the video: it is cut
    inputs = replace(case.inputs(scale), given=None, sound=sound, noise=torch.Generator().manual_seed(1))
    ours, heard = FAMILY.denoise_with_sound(case.transformer, inputs)
    count = round(17 / FPS * 25)
    theirs = authors_sample(case, scale, None, sound[:, :count])
    torch.testing.assert_close(ours.flatten(2).transpose(1, 2), theirs, rtol=0, atol=1e-5)
    assert heard is not None
    assert torch.equal(heard, sound[:, :count])
    other = FAMILY.denoise(case.transformer, replace(inputs, sound=-sound, noise=torch.Generator().manual_seed(1)))
    assert not torch.allclose(other, ours, atol=1e-3)


@pytest.mark.parametrize("scale", [3.0, 1.0])
def test_a_sound_for_a_given_picture_equals_the_authors(case: Case, scale: float) -> None:
    picture = case.latents[:1]
    inputs = replace(case.inputs(scale), given=None, picture=picture, noise=torch.Generator().manual_seed(1))
    shown, ours = FAMILY.denoise_with_sound(case.transformer, inputs)
    assert torch.equal(shown, picture)
    theirs = authors_sample(case, scale, picture.flatten(2).transpose(1, 2), None)
    assert ours is not None
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


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


def test_the_code_of_a_card_names_the_option_for_a_given_stream(case: Case) -> None:
    for learned, option in ((SOUND_FOR_PICTURE, "--given-video"), (PICTURE_FOR_SOUND, "--given-sound")):
        told = TrainSettings(sound=learned).conditioning_kinds
        code = FAMILY.usage(case.model, case.folder, "lora.safetensors", "a red circle", (17, 64, 64), kinds=told)
        assert f"`workbench sample` takes them with {option}." in code
        compile(code, "card", "exec")


# ---- layers


def trained_layers(case: Case, sound: str, targets: str) -> list[str]:
    settings = TrainSettings(targets=targets, rank=2, sound=sound)
    names = [name for name, _ in lora.attach(FAMILY, case.loaded(), settings, 0)]
    return sorted({name.partition(".lora_")[0] for name in names})


def test_the_attention_that_gets_a_lora_is_that_of_what_is_learned(case: Case) -> None:
    """As the authors' configurations: all six attentions for both streams, two for one of them alone."""
    attentions = {
        sound: {name.split(".")[2] for name in trained_layers(case, sound, "attention")}
        for sound in FAMILY.unreached_layers
    }
    between = {"audio_to_video_attn", "video_to_audio_attn"}
    assert attentions["picture"] == {"attn1", "attn2"}
    assert attentions["sound"] == {"audio_attn1", "audio_attn2"}
    assert attentions["picture+sound"] == {*attentions["picture"], *attentions["sound"], *between}
    assert attentions[SOUND_FOR_PICTURE] == {*attentions["sound"], "video_to_audio_attn"}  # v2a_lora.yaml
    assert attentions[PICTURE_FOR_SOUND] == attentions["picture+sound"]  # a2v_lora.yaml
    with pytest.raises(ConfigError, match="names no layer of this model that is trained with sound picture: use"):
        lora.attach(FAMILY, case.loaded(), TrainSettings(targets=r".*audio_attn1\.to_q"), 0)


@pytest.mark.parametrize("sound", FAMILY.unreached_layers)
def test_exactly_the_layers_that_the_loss_depends_on_are_trained(case: Case, sound: str) -> None:
    transformer = case.loaded()
    Trainable(FAMILY, transformer, TrainSettings(method="full", sound=sound), 0)
    times = torch.zeros(2) if sound == SOUND_FOR_PICTURE else torch.tensor([300.0, 900.0])
    inputs = ModelInputs(case.latents, case.text, case.noise, times)
    if sound != "picture":
        inputs = replace(inputs, sound=heard(sound))
    each, of_sound = FAMILY.losses(transformer, FAMILY.noise_schedule(case.folder, CPU), inputs)
    (each if of_sound is None else each + of_sound).sum().backward()
    for name, parameter in transformer.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None), name
    if sound == SOUND_FOR_PICTURE:  # the picture's own layers are left alone, as the authors do
        assert not any(
            parameter.requires_grad for name, parameter in transformer.named_parameters() if ".attn1" in name
        )
    facts = FAMILY.facts(case.model)
    reached = [name for name, _ in facts.named() if not re.fullmatch(facts.unreached[sound], name)]
    assert trained_layers(case, sound, "all-linear") == sorted(reached)


@pytest.mark.release
@pytest.mark.parametrize("sound", [one for one in FAMILY.unreached_layers if one != "picture"])
def test_the_fit_follows_a_simulated_step_with_sound(sound: str) -> None:
    """Of two and of three blocks of the real size, from which the others follow, on tensors without numbers."""
    level = simulation.LEVELS[2]
    case = simulation.Case("", OLDER.id, memory.TRAINING, replace(level, changed={**level.changed, "sound": sound}))
    row = simulation.row(case, simulation.simulate(case))
    # Of a picture for a sound, the simulation keeps 8% more until the backward pass has reached the first block.
    assert row["ratio"] == pytest.approx(1, abs=0.08 if sound == PICTURE_FOR_SOUND else 0.05)
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
