"""What a GPU decides of a recipe: memory levels that fit, and smaller clips where none does, each with its reason."""

from __future__ import annotations

import pytest

from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.fit import levels
from workbench.fit.estimate import estimate_from_facts
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
    assert found.settings is not None
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
