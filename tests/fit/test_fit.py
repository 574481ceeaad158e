"""Estimates of memory and time against published figures, and the settings that make a run fit a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.facts import ModelFacts
from workbench.families.model import Model
from workbench.fit import levels, measurement, memory, timing
from workbench.fit.constants import CONTEXT_GB
from workbench.fit.estimate import Fit, estimate, estimate_from_facts, sized_model
from workbench.fit.gpus import GpuModel, gpu_of
from workbench.fit.measurement import Measurement
from workbench.jobs.devices import Device, pick_device
from workbench.runs.checks import check_device
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora
from workbench.workspace import Workspace

PLENTY = GpuModel("a large GPU", "cuda", 200.0, 394.0)
# cogvideox-factory's table (docs/fit_accuracy.md): model, rank, checkpointing, batch size, GB.
PUBLISHED = [
    ("cogvideox-5b", 16, "full", 1, 19.7), ("cogvideox-5b", 64, "full", 1, 20.8),
    ("cogvideox-5b", 256, "full", 1, 22.1), ("cogvideox-5b", 16, "full", 4, 46.5),
    ("cogvideox-5b", 64, "full", 4, 47.8), ("cogvideox-5b", 256, "full", 4, 47.3),
    ("cogvideox-2b", 16, "full", 4, 21.8), ("cogvideox-2b", 64, "full", 4, 22.3),
    ("cogvideox-2b", 256, "full", 4, 22.0), ("cogvideox-2b", 16, "none", 1, 43.8),
    ("cogvideox-2b", 64, "none", 1, 44.3), ("cogvideox-2b", 256, "none", 1, 45.8),
]  # fmt: skip

# Measured, GB (docs/fit_accuracy.md).
ON_PROCESSOR = {
    "bfloat16": {memory.CLIPS: 2.72, memory.TRAINING: 2.67, memory.DECODING: 4.60, memory.SAVING: 3.33},
    "float32": {memory.DENOISING: 2.92},
}


def published(name: str) -> tuple[Model, ModelFacts]:
    """These models are not on the test machine."""
    family, model = find_model(name)
    return model, family.facts_of(model, None)


def estimated(name: str, gpu: GpuModel = PLENTY, **values: Any) -> Fit:
    model, known = published(name)
    return estimate_from_facts(TrainSettings().changed(model=name, **values), model, known, gpu)


def training(fit: Fit) -> float:
    return next(phase.gb for phase in fit.phases if phase.name == memory.TRAINING)


@pytest.mark.parametrize(("name", "rank", "level", "batch", "gb"), PUBLISHED)
def test_it_agrees_with_published_memory(name: str, rank: int, level: str, batch: int, gb: float) -> None:
    fit = estimated(name, rank=rank, gradient_checkpointing=level, batch_size=batch, attention="stock")
    assert training(fit) - CONTEXT_GB == pytest.approx(gb, rel=0.1)


@pytest.mark.parametrize("stored", ["bfloat16", "float32"])
def test_a_model_of_real_width_on_a_processor_needs_what_was_measured(stored: str) -> None:
    """CogVideoX 2B with 6 of its blocks and random weights, 9 frames of 192x128 (benchmarks/fit_check.py)."""
    model, known = published("cogvideox-2b")
    fewer = replace(known, blocks=6, values=known.values - 24 * known.block_values, stored=stored)
    shape = {"frames": 9, "height": 128, "width": 192, "rank": 16}
    settings = TrainSettings().changed(model=model.id, **shape)
    found = estimate_from_facts(settings, model, fewer, GpuModel("a processor", "cpu", 64.0, 0.06))
    needs = {phase.name: phase.gb for phase in found.phases}
    for phase, measured in ON_PROCESSOR[stored].items():
        assert needs[phase] == pytest.approx(measured, rel=0.15), phase


def test_cross_attention_costs_what_it_looks_at() -> None:
    """Captions are not part of self-attention: count a Wan step by hand; pictures have their own tokens."""
    model, known = published("wan2.1-t2v-14b")
    settings = TrainSettings().changed(model=model.id, rank=1)
    size = memory.sizes(settings, model, known, PLENTY)
    linear, attention, _ = timing.forward_operations(size)
    tokens, width, ffn = 21 * 30 * 52, 5120, 13824
    assert size.tokens == tokens
    assert linear == 40 * 2 * width * (tokens * (6 * width + 2 * ffn) + 512 * 2 * width)
    assert attention == 40 * 4 * width * tokens * (tokens + 512)
    model, known = published("wan2.1-i2v-14b-480p")
    size = memory.sizes(settings, model, known, PLENTY)
    assert timing.forward_operations(size)[1] == 40 * 4 * width * tokens * (tokens + 512 + 257)


def test_each_family_s_encoders_are_phases_of_their_own() -> None:
    phases = {
        name: {phase.name: phase.parts for phase in estimated(name).phases}
        for name in ("wan2.1-i2v-14b-480p", "wan2.1-t2v-14b", "wan2.1-t2v-1.3b", "ltx-video-2b-0.9.5")
    }
    umt5, t5 = (phases[name][memory.CAPTIONS]["text encoder"] for name in ("wan2.1-t2v-1.3b", "ltx-video-2b-0.9.5"))
    assert (umt5, t5) == pytest.approx((10.6, 8.9), abs=0.1)
    clip = phases["wan2.1-i2v-14b-480p"][memory.CLIPS]["image encoder"]
    assert clip == pytest.approx(2.35, abs=0.01), "in fp32, as the VAE is"
    assert not phases["wan2.1-t2v-14b"][memory.CLIPS].get("image encoder")
    # Wan's autoencoder takes a clip in chunks, LTX's in one piece.
    shape = {"height": 480, "width": 832}
    for name, grows in (("wan2.1-t2v-1.3b", False), ("ltx-video-2b-0.9.5", True)):
        long, short = (estimated(name, frames=frames, **shape).phases[1].parts["activations"] for frames in (81, 41))
        assert (long > 1.5 * short) == grows


def test_a_known_model_is_estimated_without_the_hub(monkeypatch: pytest.MonkeyPatch, workspace: Workspace) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the Hub was asked")

    monkeypatch.setattr("workbench.families.model_files.fetch_configs", refuse)
    settings = TrainSettings().changed(model="wan2.1-t2v-1.3b")
    assert levels.fit_to_gpu(workspace, settings, "24 GB").settings is not None
    assert sized_model("Wan-AI/Wan2.1-T2V-1.3B-Diffusers")[1].id == "wan2.1-t2v-1.3b"


def test_it_agrees_with_the_published_small_run_whose_peak_is_the_text_encoder() -> None:
    fit = estimated("cogvideox-2b", rank=16, gradient_checkpointing="full", attention="stock", preview_every=0)
    assert fit.peak.name == memory.CAPTIONS  # 12.9 GB there, where the transformer stands beside it
    assert fit.peak.gb + fit.phases[2].parts["weights"] == pytest.approx(12.9, rel=0.05)


def test_seconds_are_those_of_the_cost_model() -> None:
    wanted = {"cogvideox-2b": 1.7, "cogvideox-5b": 3.4, "cogvideox1.5-5b": 16.0}  # H100-class, everything recomputed
    for name, seconds in wanted.items():
        fit = estimated(name, rank=64, gradient_checkpointing="full")
        assert fit.times.step == pytest.approx(seconds, rel=0.1)
    slower = estimated("cogvideox-5b", gradient_checkpointing="offloaded", blocks_to_swap=42)
    assert slower.times.step > estimated("cogvideox-5b", gradient_checkpointing="full").times.step


def test_output_preservation_adds_a_step_and_a_prediction_of_the_base_model() -> None:
    plain, preserved = (estimated("cogvideox-5b", preservation_weight=weight).times.step for weight in (0.0, 1.0))
    assert 2.1 < preserved / plain < 2.5


def test_each_level_of_the_ladder_needs_less() -> None:
    ladder = [{"gradient_checkpointing": level} for level in levels.RECOMPUTING]
    ladder += [{**ladder[-1], "base_model_precision": each} for each in ("fp8", "nf4")]
    ladder.append({**ladder[-1], "blocks_to_swap": 42})
    needs = [training(estimated("cogvideox-5b", **values)) for values in ladder]
    assert needs == sorted(needs, reverse=True)
    assert needs[-1] < needs[0] / 10
    wider = training(estimated("cogvideox-5b", targets="attention+feed-forward"))
    assert wider > needs[0]
    assert training(estimated("cogvideox-5b", optimizer="adamw-8bit")) < needs[0]
    assert training(estimated("cogvideox-5b", method="full")) > needs[0]


@pytest.mark.parametrize("size", ["8 GB", "24 GB", "80 GB"])
@pytest.mark.parametrize("name", ["cogvideox-2b", "cogvideox-5b"])
def test_every_preset_fits_its_card_and_no_faster_one_was_passed_over(name: str, size: str) -> None:
    model, known = published(name)
    gpu, wanted = gpu_of(size), TrainSettings().changed(model=name, rank=64)
    found = levels.fitting(wanted, model, known, gpu)
    assert found.settings is not None, found.why
    fit = estimate_from_facts(found.settings, model, known, gpu)
    assert fit.fits
    assert not fit.tight
    kept = found.settings.base_model_precision
    for one, worth in levels.candidates(wanted, known, gpu):
        other = estimate_from_facts(one, model, known, gpu)
        if other.fits and not other.tight:
            assert other.times.step * worth >= fit.times.step * levels.WORTH[kept] * 0.999


def test_where_nothing_fits_it_says_what_would() -> None:
    model, known = published("cogvideox1.5-5b")
    settings = TrainSettings().changed(model="cogvideox1.5-5b")
    found = levels.fitting(settings, model, known, gpu_of("8 GB"))
    assert found.settings is None
    assert found.why == "No level fits 8 GB with 81 frames: 33 would fit."
    hopeless = levels.fitting(settings.changed(method="full"), model, known, gpu_of("8 GB"))
    assert hopeless.why == "No memory level fits 8 GB, at any size: a LoRA needs far less."


def test_what_no_gpu_of_its_size_can_encode_in_one_piece_is_not_counted_in_one_piece() -> None:
    small = estimated("cogvideox-5b", gpu_of("8 GB"))
    captions, clips = small.phases[:2]
    assert "text encoder" not in captions.parts
    assert clips.gb < 8.0
    assert estimated("cogvideox-5b").phases[1].gb > 8.0


def test_a_card_is_a_choice_or_a_number() -> None:
    assert gpu_of("20").memory_gb == gpu_of("20 GB").memory_gb == 20.0
    assert gpu_of("24 GB").rate == 130.0
    with pytest.raises(ConfigError, match="give its memory in GB"):
        gpu_of("large")
    for wrong in ("0.5", "-3", "20000 GB", "nan", "inf"):
        with pytest.raises(ConfigError, match="must have 1 to 10,000 GB of memory: give a number such as 24"):
            gpu_of(wrong)


def test_settings_far_beyond_a_gpu_are_told_without_figures_that_mean_nothing() -> None:
    far = estimated("cogvideox-5b", gpu_of("24 GB"), batch_size=256)
    assert far.far
    assert far.sentence == "Needs far more memory than the 24 GB there are; estimated."
    assert far.advice == "It does not fit: lower batch_size, frames, height or width first."
    assert memory.gb_text(45885.1) == "45 TB"
    near = estimated("cogvideox-5b", gpu_of("8 GB"))
    assert not near.far
    assert near.sentence.startswith("Needs about ")


def test_the_line_says_memory_time_and_how_it_is_known(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    settings = TrainSettings(model=toy_model.source, dataset="squares", steps=40)
    fit = estimate(workspace, settings)
    assert fit.gpu.kind == "cpu"
    assert fit.sentence.startswith("Needs about 0.")
    assert fit.sentence.endswith("estimated.")
    assert [phase.name for phase in fit.phases] == list(memory.PHASES)
    assert dict(fit.beside)["disk"]
    kept = Measurement({memory.TRAINING: 3.25}, 3.25, 2.0, 1000, "", 0.0)
    measurement.keep(workspace, settings, pick_device("auto"), kept)
    again = estimate(workspace, settings.changed(seed=7, steps=10))
    assert again.sentence.startswith(f"Needs about 3.2 of {again.gpu.memory_gb:.0f} GB, 2 s a step, ")
    assert again.sentence.endswith(" in all; measured.")
    assert again.times.parts["training"] == 20.0
    assert estimate(workspace, settings.changed(batch_size=2)).measured is None
    measurement.keep(workspace, settings, pick_device("auto"), Measurement({}, 1.0, 0.0, 0, memory.TRAINING, 0.0))
    out = estimate(workspace, settings)
    assert not out.fits
    assert "while training" in out.sentence


# ---- GPUs that are not NVIDIA's


def test_what_is_offered_for_apple_gpu_is_what_it_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    apple = Device("mps", "Apple M2 Max", 48.0, uuid="mps")
    monkeypatch.setattr("workbench.fit.gpus.pick_device", lambda choice: apple)
    gpu = gpu_of("this machine")
    assert (gpu.kind, gpu.memory_gb, gpu.rate) == ("mps", 48.0, 8.0)
    model, known = published("cogvideox-2b")
    offered = [one for one, _ in levels.candidates(TrainSettings(model="cogvideox-2b"), known, gpu)]
    for settings in offered:
        check_device(settings, apple)
    assert {one.base_model_precision for one in offered} == {"as stored", "int8", "nf4"}
    found = estimate_from_facts(offered[0], model, known, gpu)
    assert found.phases[0].parts["Metal"] > 0
    assert found.times.step > 0


def test_memory_is_not_measured_where_torch_tells_no_peak(
    workspace: Workspace, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "pick_device", lambda choice: Device("mps", "Apple M2", 10.0, uuid="mps"))
    with pytest.raises(ConfigError, match="device is mps, where torch does not report peak memory"):
        measurement.start(workspace, TrainSettings(dataset=dataset.name))


@pytest.mark.parametrize("name", ["tiny-cogvideox", "tiny-phenaki"])
@pytest.mark.parametrize("targets", ["attention", "attention+feed-forward", "all-linear", r".*\.0\..*to_[qv]"])
def test_what_a_lora_trains_is_counted(name: str, targets: str) -> None:
    """Of all-linear a little more: the patches' convolution, which peft would leave out, is counted as a layer."""
    family, model = find_model(name)
    settings = TrainSettings().changed(targets=targets, rank=8)
    transformer = family.load_transformer(Path(model.source), torch.device("cpu"), torch.float32)
    values = sum(parameter.numel() for _, parameter in lora.attach(family, transformer, settings, seed=0))
    found = memory.sizes(settings, model, family.facts(model), PLENTY).trained
    assert found == pytest.approx(values, rel=0.01 if targets == "all-linear" else 0.0)
