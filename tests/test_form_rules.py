"""Which settings a form leaves out, and what another model changes in one that is filled in."""

from __future__ import annotations

from workbench.families import families, models
from workbench.form_rules import adapted, owners, summary, without_effect
from workbench.runs.settings import TrainSettings
from workbench.sampler.settings import SampleSettings
from workbench.settings import specs

NOISE = {"timestep_density", "timestep_shift"}


def run(**values: object) -> dict[str, object]:
    return TrainSettings().model_dump(mode="json") | values


def sample(**values: object) -> dict[str, object]:
    return SampleSettings().model_dump(mode="json") | values


def test_a_form_has_the_settings_of_the_models_family_alone() -> None:
    own = {spec.name for spec in specs(TrainSettings) if spec.own}
    for family in families():
        for model in family.models:
            hidden = set(without_effect(TrainSettings, run(model=model.id)))
            assert own - set(family.own_settings(model)) <= hidden
            if model.task == "text-to-video":
                assert {"image_dropout", "preview_images", "condition"} <= hidden
    assert set(without_effect(TrainSettings, run(model="cogvideox-5b"))) & NOISE == {"timestep_density"}
    assert not set(without_effect(TrainSettings, run(model="wan2.1-t2v-1.3b"))) & NOISE
    assert "picture_share" in without_effect(TrainSettings, run())
    for shapes in ({"bucket_limit": 2}, {"buckets": ["1x480x720"]}):
        assert "picture_share" not in without_effect(TrainSettings, run(**shapes))
    assert "scheduler" in without_effect(SampleSettings, sample(model="wan2.1-t2v-1.3b"))
    assert "scheduler" not in without_effect(SampleSettings, sample(model="cogvideox-5b"))
    assert "image_scale" in without_effect(SampleSettings, sample(model="wan2.1-i2v-14b-480p"))
    assert not set(without_effect(TrainSettings, run(model="some/folder"))) & (NOISE | {"condition"})


def test_another_model_keeps_what_applies_and_names_the_rest() -> None:
    found = adapted(TrainSettings, run(model="wan2.1-t2v-1.3b", frames=49, rank=64, condition_frames="every"))
    assert found.values == {"condition_frames": "first"}
    assert found.notes == [
        "Where the first frame stands was every, is first: Wan 2.1 1.3B has no such setting.",
    ]
    sizes = adapted(
        TrainSettings, run(model="ltx-video-2b-0.9.5", frames=45, height=480, width=720, timestep_shift=3.0)
    )
    assert sizes.values == {"frames": None, "height": None, "width": None}
    assert "Frames was 45, is the model's own: LTX-Video 2B 0.9.5 needs 1 or 8k+1" in sizes.notes[0]
    back = adapted(TrainSettings, run(model="cogvideox-5b", timestep_shift=3.0, timestep_density="uniform"))
    assert back.values == {"timestep_density": "model"}
    drawn = adapted(SampleSettings, sample(model="wan2.2-ti2v-5b", scheduler="DPM", steps=20))
    assert drawn.values == {"scheduler": "model"}
    assert drawn.notes == ["Scheduler was DPM, is the model's own: Wan 2.2 5B has UniPC."]
    assert not adapted(TrainSettings, run(model="some/folder", frames=50)).values


def test_every_model_is_described_in_a_line() -> None:
    for model in models():
        assert model.license in summary(model.id)
    assert summary("wan2.1-t2v-14b").startswith("text to video, 14.3B parameters, 81 frames of 832x480 at 16 fps")
    assert summary("nonsense") == ""
    assert owners("timestep_shift") == "CogVideoX, LTX-Video, Mochi and Wan"
