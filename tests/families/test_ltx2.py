"""LTX-2: the published definition of its loss without a sound, the stock pipelines' videos with one, its noise levels,
and which layers a LoRA may change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from benchmarks import memory_simulation as simulation
from tests.families import test_ltx
from tests.families.lora_changes import changes, same
from tests.families.stock import variants, whole_pipeline
from tests.families.test_ltx import CAPTIONS
from workbench.errors import ConfigError
from workbench.families.denoising import DenoiseInputs, Guidance, StepOptions
from workbench.families.lora_files import LoraWeights, weights
from workbench.families.lora_names import match_report
from workbench.families.ltx2 import DISTILLED, FAMILY, NEWER, StretchedSchedule, perturbed_block
from workbench.families.model_inputs import CallInputs, Given, ModelInputs
from workbench.families.noise_schedules import NoiseSettings
from workbench.fit import memory

CPU, STEPS, FPS = torch.device("cpu"), 4, 25.0


class Case(test_ltx.Case):
    def __init__(self, folder: Path, variant: str) -> None:
        super().__init__(folder, variant, FAMILY)

    def inputs(self, scale: float, **more: Any) -> DenoiseInputs:
        noise = torch.Generator().manual_seed(1)
        return DenoiseInputs(
            self.folder,
            given=self.given(noise),
            text=FAMILY.encode_text(self.encoder, CAPTIONS[:1]),
            negative_text=FAMILY.encode_text(self.encoder, ["the video"]),
            latents_shape=self.shape,
            steps=STEPS,
            guidance=Guidance(scale),
            noise=noise,
            fps=FPS,
            **more,
        )


@pytest.fixture(scope="module", params=variants(FAMILY))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    _, variant = request.param
    return Case(tmp_path_factory.mktemp("ltx2") / variant, variant)


def stock_sample(case: Case, pipeline: Any, scale: float) -> Any:
    """The stock pipeline's picture and sound; at scale 1 with every guidance off.

    With guidance, only the block for the perturbed prediction is not the pipeline's default: a miniature has no 28th.
    """
    off = {f"{of}{name}": 0.0 for of in ("", "audio_") for name in ("stg_scale", "guidance_rescale")}
    off |= {"modality_scale": 1.0, "audio_modality_scale": 1.0, "audio_guidance_scale": 1.0}
    block = perturbed_block(case.transformer.config)
    return pipeline(
        **({"image": case.picture, "image_crf": 0} if case.of_image else {}),
        **({"spatio_temporal_guidance_blocks": [block]} if scale > 1 else off),
        prompt=CAPTIONS[0],
        negative_prompt="the video",
        num_frames=17,
        height=64,
        width=64,
        frame_rate=FPS,
        num_inference_steps=STEPS,
        guidance_scale=scale,
        generator=torch.Generator().manual_seed(1),
        output_type="pt",
    )


@pytest.mark.parametrize("scale", [3.0, 1.0])
def test_a_video_equals_the_stock_pipelines(case: Case, scale: float) -> None:
    """Captions, picture, the sound that it attends to, noise in the pipeline's order, every guidance, and decoding."""
    assert (perturbed_block(case.transformer.config) == 1) == ("-" in case.variant)
    theirs = stock_sample(case, whole_pipeline(FAMILY, case.model), scale).frames
    ours = FAMILY.decode(case.vae, FAMILY.denoise(case.transformer, case.inputs(scale))) / 2 + 0.5
    torch.testing.assert_close(ours, theirs.permute(0, 2, 1, 3, 4), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kept", [[True, True], [True, False]])
def test_the_loss_equals_its_definition(case: Case, kept: list[bool]) -> None:
    """mean of (prediction - (noise - clean))^2 per clip without the frames that are shown, from the picture's stream
    alone: whatever sound the other stream is given, for no token of it is attended to."""
    share = torch.tensor([0.3, 0.9])
    s, (channels, frames, height, width) = share.view(-1, 1, 1, 1, 1), case.shape
    noisy, counted = (1 - s) * case.latents + s * case.noise, torch.ones_like(case.latents)
    times = (1000 * share).view(-1, 1, 1, 1).repeat(1, frames, height, width)
    first, shown = case.latents[:, :, :1], torch.tensor(kept)
    given = Given(known=first, kept=shown) if case.of_image else FAMILY.own_first_frame(case.latents, shown)
    for index, one in enumerate(kept):
        if one:
            noisy[index, :, :1], times[index, 0], counted[index, :, 0] = first[index], 0, 0
    with torch.no_grad():
        predicted = case.transformer(
            hidden_states=noisy.permute(0, 2, 3, 4, 1).reshape(2, -1, channels),
            audio_hidden_states=torch.randn(2, 7, 4),
            encoder_hidden_states=case.text["prompt_embeds"],
            audio_encoder_hidden_states=case.text["audio_embeds"],
            timestep=times.flatten(1),
            audio_timestep=torch.tensor([500.0, 20.0]),
            sigma=1000 * share,
            num_frames=frames,
            height=height,
            width=width,
            fps=FPS,
            audio_num_frames=7,
            isolate_modalities=True,
            return_dict=False,
        )[0]
        inputs = ModelInputs(case.latents, case.text, case.noise, 1000 * share, given, FPS)
        ours = FAMILY.loss(case.transformer, FAMILY.noise_schedule(case.folder, CPU), inputs)
    predicted = predicted.reshape(2, frames, height, width, -1).permute(0, 4, 1, 2, 3)
    error = (predicted - (case.noise - case.latents)).square() * counted
    torch.testing.assert_close(ours, error.flatten(1).sum(1) / counted.flatten(1).sum(1), rtol=1e-6, atol=1e-6)


def test_the_latents_are_the_posterior_s_mean(case: Case) -> None:
    mean = (case.vae.encode(case.video).latent_dist.mode() - 0.1) / 0.9
    torch.testing.assert_close(case.latents, mean, rtol=1e-5, atol=1e-5)


def test_the_picture_attends_to_a_sound_in_samples_alone(case: Case) -> None:
    """Another sound changes a joint prediction; a clip that is changed has none, and neither has a training step."""
    noisy = case.noise[:1]
    call = CallInputs(noisy, {name: one[:1] for name, one in case.text.items()}, torch.tensor([500.0]), None, FPS)
    with torch.no_grad():
        joint = [FAMILY.both(case.transformer, call, torch.randn(1, 17, 4))[0] for _ in range(2)]
        apart = [FAMILY.both(case.transformer, call, torch.randn(1, 17, 4), isolated=True)[0] for _ in range(2)]
        alone = FAMILY.call(case.transformer, call)
    assert not torch.allclose(*joint, rtol=1e-3)
    for one in apart:
        torch.testing.assert_close(one, alone, rtol=1e-5, atol=1e-6)
    sounds: list[int] = []
    case.transformer.register_forward_pre_hook(
        lambda module, arguments, named: sounds.append(named["audio_num_frames"]), with_kwargs=True
    )
    FAMILY.denoise(case.transformer, case.inputs(1.0))
    assert set(sounds) == {17}  # 25 a second of 17 frames at 25 fps
    sounds.clear()
    FAMILY.denoise(case.transformer, replace(case.inputs(3.0), source=case.latents[:1], strength=0.5))
    assert set(sounds) == {1}


def test_a_skipped_step_and_an_unguided_one_keep_the_sound_going(case: Case) -> None:
    exact = FAMILY.denoise(case.transformer, replace(case.inputs(3.0), steps=9))
    for more in ({"skip_steps": True}, {"guidance": Guidance(3.0, end=0.5)}, {"guidance": Guidance(3.0, rescale=0.2)}):
        found = FAMILY.denoise(case.transformer, replace(case.inputs(3.0), steps=9, **more))
        assert found.isfinite().all()
        assert not torch.equal(found, exact)


# ---- noise levels and steps


def drawn_by_the_authors(tokens: int, count: int) -> torch.Tensor:
    """ShiftedLogitNormalTimestepSampler, restated."""
    draw = torch.Generator().manual_seed(0)
    normal, uniform, chance = (
        torch.randn(count, generator=draw, dtype=torch.float64),
        torch.rand(count, generator=draw, dtype=torch.float64),
        torch.rand(count, generator=draw, dtype=torch.float64),
    )
    mu = 0.95 + (2.05 - 0.95) / (4096 - 1024) * (tokens - 1024)
    low, high = torch.tensor([mu - 2.5758, mu + 3.0902], dtype=torch.float64).sigmoid()
    stretched = ((normal + mu).sigmoid() - low) / (high - low)
    reflected = torch.where(stretched >= 1e-3, stretched, 2e-3 - stretched).clamp(0, 1)
    return torch.where(chance > 0.1, reflected, 0.999 * uniform + 1e-3)


@pytest.mark.parametrize("shape", [(8, 1, 4, 4), (128, 1, 32, 32), (128, 16, 16, 24)])
def test_noise_levels_are_those_of_the_authors_trainer(shape: tuple[int, ...]) -> None:
    schedule = StretchedSchedule(NoiseSettings())
    tokens = shape[1] * shape[2] * shape[3]
    quantiles = torch.tensor([0.001, 0.02, 0.05, 0.1, 0.3, 0.5, 0.8, 0.99], dtype=torch.float64)
    found = schedule.timesteps(quantiles, shape).double() / 1000
    theirs = drawn_by_the_authors(tokens, 1_000_000).quantile(quantiles)
    torch.testing.assert_close(found, theirs, rtol=0, atol=3e-3)
    assert found.diff().min() > 0
    ends = schedule.timesteps(torch.tensor([0.0, 1.0]), shape)
    torch.testing.assert_close(ends, torch.tensor([1.0, 1000.0]))
    for level, share in zip(found.tolist(), quantiles.tolist(), strict=True):
        assert schedule.share_above(level, shape) == pytest.approx(1 - share, abs=1e-5)
    assert (schedule.share_above(0, shape), schedule.share_above(1, shape)) == (1, 0)


def test_a_chosen_density_or_shift_counts() -> None:
    quantiles, shape = torch.tensor([0.2, 0.5]), (128, 1, 32, 32)
    uniform = StretchedSchedule(NoiseSettings("uniform")).timesteps(quantiles, shape)
    torch.testing.assert_close(uniform, 1000 * quantiles)
    plain = StretchedSchedule(NoiseSettings("logit-normal")).timesteps(quantiles, shape)
    torch.testing.assert_close(plain[1], 1000 * torch.tensor(0.95).sigmoid())
    more = StretchedSchedule(NoiseSettings(shift=3.0))
    level = float(more.timesteps(quantiles, shape)[1]) / 1000
    assert level > StretchedSchedule(NoiseSettings()).timesteps(quantiles, shape)[1] / 1000
    assert more.share_above(level, shape) == pytest.approx(0.5, abs=1e-5)


def test_a_distilled_model_has_its_own_noise_levels(tmp_path: Path) -> None:
    FAMILY.toy(tmp_path, "text-2.3")
    path = tmp_path / "scheduler" / "scheduler_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"use_dynamic_shifting": False, "shift_terminal": None}))
    model = FAMILY.describe_folder(tmp_path)
    assert model is not None
    assert (model.steps, model.guidance_scale) == (8, 1.0)
    for steps, levels in ((8, torch.tensor(DISTILLED)), (4, torch.tensor([1.0, 0.75, 0.5, 0.25]))):
        found = FAMILY.sampler_steps(StepOptions(tmp_path, steps, (8, 3, 2, 2), CPU))
        torch.testing.assert_close(found.timesteps, 1000 * levels)
    code = FAMILY.usage(model, tmp_path, "x.safetensors", "a", (17, 64, 64))
    assert f"sigmas={list(DISTILLED)}" in code
    assert "modality_scale=1.0" in code


def test_one_step_is_refused_where_the_scheduler_ends_above_zero(case: Case) -> None:
    with pytest.raises(ConfigError, match="steps is 1, LTX-2 needs at least two noise levels: use 2 or more"):
        FAMILY.sampler_steps(StepOptions(case.folder, 1, case.shape, CPU))


# ---- layers and LoRA files


def lora_of(case: Case, outside: bool = False) -> LoraWeights:
    """On all linear layers of the blocks, those of the sound included, alpha unlike the rank."""
    random, found = torch.Generator().manual_seed(3), dict[str, torch.Tensor]()
    for name, linear in FAMILY.facts(case.model).named():
        if "blocks" in name or outside:
            found[f"{name}.lora_A.weight"] = torch.randn(2, linear.inputs, generator=random)
            found[f"{name}.lora_B.weight"] = torch.randn(linear.outputs, 2, generator=random) * 0.1
    return weights(found, dict.fromkeys({name.rpartition(".lora_")[0] for name in found}, 8.0), "a test")


@pytest.mark.parametrize("outside", [False, True])
def test_every_format_goes_out_and_back_and_diffusers_reads_it_alike(case: Case, outside: bool, tmp_path: Path) -> None:
    """Also on layers outside of the blocks, whose names are others in the authors' files."""
    one, read_by_diffusers = lora_of(case, outside), 0
    sizes = {name: (linear.outputs, linear.inputs) for name, linear in FAMILY.facts(case.model).named()}
    for file_format in FAMILY.lora_formats:
        tensors, metadata = FAMILY.export_lora(one, file_format.id)
        read = FAMILY.lora_weights(tensors, metadata)
        same(changes(read), changes(one))
        report = match_report(read, sizes)
        assert (report["matched"], report["left_out"]) == (len(one.layers), [])
        if "diffusers" not in file_format.readers:
            continue
        path = tmp_path / f"{file_format.id}.safetensors"
        save_file(tensors, path, metadata)
        transformer = case.loaded()
        before = {name: value.clone() for name, value in transformer.state_dict().items()}
        pipeline = FAMILY.load_pipeline(case.folder, transformer)
        pipeline.load_lora_weights(path.parent, weight_name=path.name, adapter_name="test")
        pipeline.fuse_lora(components=["transformer"])
        pipeline.unload_lora_weights()
        after = transformer.state_dict()
        added = {name: after[name] - before[name] for name in before if not torch.equal(after[name], before[name])}
        same({name.removesuffix(".weight"): value for name, value in added.items()}, changes(one))
        read_by_diffusers += 1
    assert read_by_diffusers == 3


def test_the_authors_names_of_what_the_picture_needs_are_theirs(case: Case) -> None:
    tensors, _ = FAMILY.export_lora(lora_of(case, outside=True), "comfyui")
    names = {name.partition(".lora_")[0].removeprefix("diffusion_model.") for name in tensors}
    assert {"patchify_proj", "adaln_single.linear", "transformer_blocks.1.attn2.to_out.0", "proj_out"} <= names
    assert ("prompt_adaln_single.linear" in names) == ("-" in case.variant)
    assert ("caption_projection.linear_1" in names) != ("-" in case.variant)


def test_a_file_of_the_authors_trainer_is_read() -> None:
    down, up = torch.randn(4, 8), torch.randn(8, 4)
    name = "diffusion_model.transformer_blocks.0.audio_to_video_attn.to_q"
    found = FAMILY.lora_weights({f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up}, {})
    same(changes(found), {"transformer_blocks.0.audio_to_video_attn.to_q": up @ down})


# ---- facts


def test_which_settings_of_conditioning_it_has(case: Case) -> None:
    own = FAMILY.own_settings(case.model)
    assert ("first_frame_share" in own) != case.of_image
    assert {"given", "reference", "reference_downscale"} <= set(own)
    assert "control" not in own


@pytest.mark.long
@pytest.mark.parametrize("phase", [memory.TRAINING, memory.DENOISING, memory.DECODING])
def test_the_fit_follows_simulations_of_its_real_size(phase: str) -> None:
    """Of two and of three of its blocks, from which the others follow, on tensors without numbers."""
    case = simulation.Case("", NEWER.id, phase, simulation.LEVELS[2])
    row = simulation.row(case, simulation.simulate(case))
    assert row["ratio"] == pytest.approx(1, abs=0.03)
    assert row["operations ratio"] == pytest.approx(1, abs=0.03)
