"""What every face offers of a choice, and which settings a form leaves out."""

from __future__ import annotations

from itertools import pairwise

import click
import pytest

from tests.loras.making import layer, put_export, put_lora
from workbench import choices
from workbench.captioners import find_captioner
from workbench.choices import choices_of
from workbench.cli.options import SettingOption
from workbench.compare.settings import GridSettings
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import CaptionSettings
from workbench.families import families, find_model, models
from workbench.fit.gpus import gpu_of
from workbench.form_rules import adapted, owners, summary, without_effect
from workbench.loras.settings import MergeSettings
from workbench.operations import settings as operations
from workbench.operations.settings import FORMS
from workbench.runs.checks import initial_lora
from workbench.runs.settings import TrainSettings
from workbench.sampler.loras import resolve
from workbench.sampler.settings import SampleSettings
from workbench.settings import Settings, Spec, specs
from workbench.workspace import Workspace

CLASSES = (TrainSettings, SampleSettings, CaptionSettings, GridSettings, MergeSettings)


@pytest.fixture
def full(workspace: Workspace, dataset: Dataset) -> Workspace:
    """A workspace with a dataset, a finished run and a LoRA that belongs to no run."""
    put_export(workspace, "ring", rank=2, alpha=2.0, step=10, checkpoints=(5,))
    put_lora(workspace, "merged", layer("a", 2, 8, 8))
    return workspace


def offered(spec: Spec, workspace: Workspace) -> list[str]:
    return [choice.value for choice in choices_of(spec, workspace)]


def of(cls: type[Settings], name: str) -> Spec:
    return next(spec for spec in specs(cls) if spec.name == name)


@pytest.mark.parametrize("cls", CLASSES)
def test_page_notebook_and_shell_offer_the_same(cls: type[Settings], full: Workspace) -> None:
    form = next((name for name, known in FORMS.items() if known is cls), None)
    for spec in specs(cls):
        if spec.source or spec.choices:
            expected = offered(spec, full)
            if form and spec.source:
                assert [one.value for one in operations.choices(full, form, spec.name)] == expected
            assert in_shell(spec, full) == expected


def in_shell(spec: Spec, workspace: Workspace) -> list[str]:
    option = SettingOption([f"--{spec.name}"], spec=spec)
    with click.Context(click.Command("command", params=[option])) as context:
        context.params["workspace"] = str(workspace.root)
        return [item.value for item in option.shell_complete(context, "")]


def test_what_is_offered_is_accepted(full: Workspace) -> None:
    assert [Dataset.open(full, name).name for name in offered(of(TrainSettings, "dataset"), full)] == ["squares"]
    starts = offered(of(TrainSettings, "start_from"), full)
    assert starts == ["ring"]
    assert all(initial_lora(full, TrainSettings(start_from=name, rank=2)) for name in starts)
    loras = offered(of(SampleSettings, "loras"), full)
    assert sorted(loras) == ["loras/merged", "runs/ring", "runs/ring@5"]
    assert len(resolve(full, loras)) == 3
    assert all(find_model(name) for name in offered(of(TrainSettings, "model"), full))
    assert all(find_captioner(name) for name in offered(of(CaptionSettings, "captioner"), full))


def test_models_that_fit_come_first_by_family_with_their_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "gpu_of", lambda _: gpu_of("12 GB"))
    found = choices_of(of(TrainSettings, "model"), None)
    assert [choice.value for choice in found[:2]] == ["tiny-cogvideox", "tiny-cogvideox-i2v"]
    titles = {choice.value: choice.title for choice in found}
    assert titles["wan2.1-t2v-1.3b"] == "Wan 2.1 1.3B · 29 GB"
    assert titles["wan2.1-i2v-14b-480p"] == f"Wan 2.1 14B, image to video, 480p · 90 GB · {choices.TOO_LARGE}"
    large = [choice.title.endswith(choices.TOO_LARGE) for choice in found]
    assert large == sorted(large), "what fits comes first"
    built_in = [choice.title.endswith("(built in)") for choice in found]
    assert built_in == sorted(built_in, reverse=True), "before all others"
    fitting = [one.group for one, *no in zip(found, large, built_in, strict=True) if not any(no)]
    assert len(dict.fromkeys(fitting)) == sum(a != b for a, b in pairwise(["", *fitting])), "each family together"


def test_checkpoints_are_those_of_the_chosen_run(full: Workspace) -> None:
    spec = of(GridSettings, "checkpoints")
    assert choices_of(spec, full) == []
    assert choices_of(spec, full, {"run": "gone"}) == []
    assert [choice.value for choice in choices_of(spec, full, {"run": "ring"})] == ["base", "5", "final"]


def test_without_a_workspace_only_what_needs_none_is_offered() -> None:
    assert choices_of(of(TrainSettings, "dataset"), None) == []
    assert choices_of(of(TrainSettings, "model"), None)[0].value == "tiny-cogvideox"


# ---- rules of forms


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
        "First-frame placement was every, is first: Wan 2.1 1.3B has no such setting.",
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
    assert owners("timestep_shift") == "CogVideoX, HunyuanVideo 1.5, Kandinsky 5, LTX-Video, Mochi and Wan"
