"""A recipe fits the GPU that it is made for, and a trial measures what it needs."""

from __future__ import annotations

import pytest

from tests.shell import Shell
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.model import Model
from workbench.fit import levels, measurement, memory
from workbench.fit.estimate import estimate, estimate_from_facts
from workbench.fit.gpus import gpu_of
from workbench.fit.levels import SOURCE, suggest
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

MODELS = ("cogvideox-2b", "cogvideox-5b", "cogvideox1.5-5b", "wan2.1-t2v-1.3b", "wan2.2-ti2v-5b-image")
TOO_LARGE = {("wan2.2-ti2v-5b-image", "8 GB")}  # its VAE, which computes in fp32, does not fit
LARGE = ("wan2.1-t2v-14b", "wan2.1-i2v-14b-720p", "ltx-video-2b-0.9.5")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("gpu", ["8 GB", "24 GB", "80 GB"])
def test_a_recipe_fits_the_gpu_and_every_value_has_a_reason(workspace: Workspace, model: str, gpu: str) -> None:
    found = suggest(workspace, "style", TrainSettings(model=model), gpu, 30)
    if (model, gpu) in TOO_LARGE:
        assert found.warning
        return
    settings = TrainSettings(model=model).changed(**found.settings)
    family, known = find_model(model)
    fit = estimate_from_facts(settings, known, family.facts(known), gpu_of(gpu))
    assert fit.fits
    assert not fit.tight
    assert {one.setting for one in found.reasons if one.setting} == found.settings.keys()
    assert found.gpu == fit.gpu.name
    assert not found.warning
    decided = [one for one in found.reasons if one.sources == (SOURCE,)]
    assert decided[0].title == found.gpu, "how much it needs of it is said in one line"
    assert f"{fit.peak.gb:.1f} of {fit.gpu.memory_gb:.0f} GB" in decided[0].reason
    assert {one.setting for one in decided[1:]} <= {*levels.NAMES, "frames", "height", "width"}


@pytest.mark.parametrize("model", LARGE)
@pytest.mark.parametrize("gpu", ["16 GB", "24 GB", "80 GB"])
def test_large_models_are_given_what_fits_too(model: str, gpu: str) -> None:
    family, known = find_model(model)
    wanted = TrainSettings(model=model)
    found = levels.fitting_smaller(wanted, known, family.facts(known), gpu_of(gpu))
    assert found.settings is not None, found.why
    assert estimate_from_facts(found.settings, known, family.facts(known), gpu_of(gpu)).fits
    smaller = {"frames", "height", "width"} & found.changed.keys()
    too_large = {("wan2.1-t2v-14b", "16 GB"), ("wan2.1-i2v-14b-720p", "16 GB"), ("wan2.1-i2v-14b-720p", "24 GB")}
    assert bool(smaller) == bool(found.given_up) == ((model, gpu) in too_large)


def test_a_smaller_gpu_takes_fewer_frames_where_no_level_fits(workspace: Workspace) -> None:
    large, small = (
        suggest(workspace, "style", TrainSettings(model="cogvideox1.5-5b"), gpu, 30) for gpu in ("24 GB", "8 GB")
    )
    assert "frames" not in large.settings
    assert small.settings["frames"] < 81
    (why,) = (one.reason for one in small.reasons if one.setting == "frames")
    assert why.startswith("No level fits 8 GB with 81 frames")


def test_fewer_clips_at_a_time_stay_as_many_a_step() -> None:
    family, model = find_model("cogvideox-5b")
    wanted = TrainSettings(model=model.id, batch_size=16)
    found = levels.fitting_smaller(wanted, model, family.facts(model), gpu_of("12 GB"))
    assert (found.settings.batch_size, found.settings.gradient_accumulation) == (1, 16)
    assert found.given_up == "No level fits 12 GB with 16 clips at a time: lower batch_size."


def test_without_a_gpu_memory_is_left_alone_and_one_that_takes_nothing_is_a_warning(workspace: Workspace) -> None:
    settings = TrainSettings(model="cogvideox-5b")
    plain = suggest(workspace, "style", settings, None, 30)
    assert not {*levels.NAMES} & plain.settings.keys()
    assert plain.gpu == ""
    hopeless = suggest(workspace, "style", settings, "2", 30)
    assert hopeless.settings == plain.settings
    assert hopeless.warning == "2 GB: No memory level fits 2 GB, at any size: a smaller model may."
    with pytest.raises(ConfigError, match="give its memory in GB"):
        suggest(workspace, "style", settings, "a large one", 30)


# ---- a trial that measures


FILES = {"config.json", "process.json", "heartbeat.json", "control", "job.log", "result.json", ".start.lock"}


def test_a_trial_leaves_its_figures_and_nothing_else(
    workspace: Workspace, dataset: Dataset, toy_model: Model, shell: Shell
) -> None:
    flags = ("--model", toy_model.source, "--dataset", "squares", "--batch-size", "2")
    said = shell("fit", *flags, "--measure")
    assert said.code == 0, said.err
    assert " in all; measured." in said.out
    settings = TrainSettings(model=toy_model.source, dataset="squares", batch_size=2)
    fit = estimate(workspace, settings)
    assert set(fit.measured.phases) == set(memory.PHASES)
    assert all(0.1 < gb < 4.0 for gb in fit.measured.phases.values())
    assert fit.measured.step_seconds > 0
    assert fit.measured.checkpoint_bytes > 1000
    assert all(path.name.startswith(".queue") for path in workspace.runs.iterdir())
    status = measurement.newest(workspace)
    assert status.state is jobs.State.FINISHED
    assert {path.name for path in status.folder.iterdir()} <= FILES
    assert [path.name for path in (workspace.root / measurement.FOLDER).iterdir()] == [status.name]


def test_the_shell_says_what_would_fit(workspace: Workspace, shell: Shell) -> None:
    said = shell("fit", "--model", "cogvideox-5b", "--rank", "64", "--gpu-memory", "24")
    assert said.code == 91
    assert "It does not fit: training needs the most memory." in said.out
    said = shell("fit", "--model", "cogvideox-5b", "--rank", "64", "--gpu-memory", "24", "--fit-to-gpu")
    assert said.code == 0
    assert "--gradient-checkpointing full" in said.out
    assert shell("fit", "--gpu-memory", "24", "--measure").code == 64
    refused = shell("train", "--target", "nowhere", "--fit-to-gpu")
    assert refused.code == 64
