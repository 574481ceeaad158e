"""Settings that only some models have: offered where the family names them, refused elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from workbench.errors import ConfigError
from workbench.families import find_model, models
from workbench.families.settings import absent, check_own
from workbench.runs.settings import TrainSettings
from workbench.sampler.inputs import inputs_of
from workbench.sampler.settings import SampleSettings
from workbench.settings import specs
from workbench.workspace import Workspace

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tiny-phenaki", {"timestep_shift": 3.0}),
    ("tiny-cogvideox", {"timestep_density": "uniform"}),
    ("ltx-video-2b-0.9.5", {"preview_flow_shift": 3.0}),
    ("wan2.1-i2v-14b-480p", {"condition": "low resolution"}),
    ("ltx-video-2b-0.9.5-image", {"image_latent_scale": "raw"}),
)


@pytest.mark.parametrize(("model", "values"), CASES)
def test_a_setting_that_a_model_lacks_is_refused_by_name_with_a_remedy(model: str, values: dict[str, Any]) -> None:
    (name,) = values
    settings = TrainSettings(dataset="x", model=model, **values)
    with pytest.raises(ConfigError, match=f"{name} is .*, a setting that .* does not have: ") as error:
        check_own(settings, settings.resolved)
    assert set(error.value.problems) == {name}
    assert name in absent(TrainSettings, settings.resolved)


def test_every_model_takes_the_defaults_and_names_none_but_own_settings() -> None:
    own = {spec.name for cls in (TrainSettings, SampleSettings) for spec in specs(cls) if spec.own}
    for model in models():
        family, _ = find_model(model.id)
        assert set(family.own_settings(model)) <= own
        for settings in (TrainSettings(dataset="x", model=model.id), SampleSettings(model=model.id)):
            check_own(settings, settings.resolved)


def test_an_empty_one_says_what_it_stands_for_and_why() -> None:
    family, model = find_model("wan2.1-t2v-1.3b")
    assert str(family.own_settings(model)["timestep_shift"]) == "3 (as musubi-tuner and SimpleTuner train Wan)"
    assert str(family.own_settings(model)["flow_shift"]) == "8 (as the authors generate)"
    of_a_folder = family.own_settings(replace(model, flow_shift=None))
    assert str(of_a_folder["preview_flow_shift"]) == "the scheduler's own"


def test_a_flow_shift_that_is_not_set_is_the_models_own(tmp_path: Path) -> None:
    picture = tmp_path / "first.png"
    Image.new("RGB", (832, 480)).save(picture)

    def found(**values: Any) -> float | None:
        return inputs_of(Workspace.open(tmp_path), SampleSettings(prompt="x", **values)).flow_shift

    assert found(model="wan2.2-t2v-a14b") == 12
    assert found(model="wan2.2-t2v-a14b", flow_shift=3.0) == 3
    assert found(model="tiny-cogvideox") is None
    # Wan 2.1 from an image: by size, whichever of the two models it is.
    for name in ("wan2.1-i2v-14b-480p", "wan2.1-i2v-14b-720p"):
        at_size = {"model": name, "image": str(picture)}
        assert found(**at_size, height=480, width=832) == found(**at_size, height=832, width=480) == 3
        assert found(**at_size, height=720, width=1280) == 5
        assert found(**at_size, height=480, width=832, flow_shift=4.0) == 4
        shift = find_model(name)[0].own_settings(find_model(name)[1])["flow_shift"]
        assert str(shift).endswith("(as the authors generate: 3 up to 832x480, 5 above)")
    assert found(model="wan2.1-t2v-14b", height=480, width=832) == 5


@pytest.mark.parametrize(
    ("model", "begins"),
    [("tiny-cogvideox", ""), ("wan2.1-t2v-14b", "色调艳丽"), ("ltx-video-2b-0.9.1", "worst quality")],
)
def test_a_negative_prompt_that_is_not_set_is_the_models_own_and_may_be_empty(
    model: str, begins: str, tmp_path: Path
) -> None:
    own, empty = (
        inputs_of(Workspace.open(tmp_path), SampleSettings(model=model, prompt="x", negative_prompt=text))
        for text in (None, "")
    )
    assert own.negative_prompt == find_model(model)[1].negative_prompt
    assert own.negative_prompt.startswith(begins)
    assert empty.negative_prompt == ""
