"""What a run is estimated to need, against what others have published, and the settings that make it fit a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.base import Model
from workbench.families.cogvideox.facts import facts
from workbench.families.facts import ModelFacts
from workbench.fit import levels, measurement, memory, rows
from workbench.fit.estimate import Fit, estimate, estimate_from_facts
from workbench.fit.gpus import GpuModel, gpu_of
from workbench.fit.measurement import Measurement
from workbench.jobs.devices import pick_device
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

PLENTY = GpuModel("a large GPU", "cuda", 200.0, 394.0)
# cogvideox-factory's table (docs/memory.md): model, rank, checkpointing, batch size, GB.
PUBLISHED = [
    ("cogvideox-5b", 16, "full", 1, 19.7),
    ("cogvideox-5b", 64, "full", 1, 20.8),
    ("cogvideox-5b", 256, "full", 1, 22.1),
    ("cogvideox-5b", 16, "full", 4, 46.5),
    ("cogvideox-5b", 64, "full", 4, 47.8),
    ("cogvideox-5b", 256, "full", 4, 47.3),
    ("cogvideox-2b", 16, "full", 4, 21.8),
    ("cogvideox-2b", 64, "full", 4, 22.3),
    ("cogvideox-2b", 256, "full", 4, 22.0),
    ("cogvideox-2b", 16, "none", 1, 43.8),
    ("cogvideox-2b", 64, "none", 1, 44.3),
    ("cogvideox-2b", 256, "none", 1, 45.8),
]


def published(name: str) -> tuple[Model, ModelFacts]:
    """As if it were not on the disk, whether it is or not."""
    family, model = find_model(name)
    return model, facts(model, None, family.lora_targets)


def estimated(name: str, gpu: GpuModel = PLENTY, **values: Any) -> Fit:
    model, known = published(name)
    return estimate_from_facts(TrainSettings().changed(model=name, **values), model, known, gpu)


def training(fit: Fit) -> float:
    return next(phase.gb for phase in fit.phases if phase.name == memory.TRAINING)


@pytest.mark.parametrize(("name", "rank", "level", "batch", "gb"), PUBLISHED)
def test_it_agrees_with_published_memory(name: str, rank: int, level: str, batch: int, gb: float) -> None:
    fit = estimated(name, rank=rank, gradient_checkpointing=level, batch_size=batch, attention="stock")
    assert training(fit) - memory.CONTEXT_GB == pytest.approx(gb, rel=0.15)


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


def test_the_line_says_memory_time_and_how_it_is_known(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    settings = TrainSettings(model=toy_model.source, dataset="squares", steps=40)
    fit = estimate(workspace, settings)
    assert fit.gpu.kind == "cpu"
    assert fit.sentence.startswith("Needs about 0.")
    assert fit.sentence.endswith("estimated.")
    assert [row.name for row in rows.rows(fit)] == list(memory.PHASES)
    assert dict(rows.other_needs(fit))["disk"]
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


def test_a_shape_the_model_cannot_take_is_refused(workspace: Workspace, toy_model: Model) -> None:
    with pytest.raises(ConfigError, match="frames is 10"):
        estimate(workspace, TrainSettings(model=toy_model.source, frames=10))
