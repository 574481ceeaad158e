"""What a setting offers is one list for page and shell, and what is offered is accepted."""

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
from workbench.families import find_model
from workbench.fit.gpus import gpu_of
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
    fitting = [choice.group for choice, too_large in zip(found, large, strict=True) if not too_large][2:]
    assert len(dict.fromkeys(fitting)) == sum(a != b for a, b in pairwise(["", *fitting])), "each family together"


def test_checkpoints_are_those_of_the_chosen_run(full: Workspace) -> None:
    spec = of(GridSettings, "checkpoints")
    assert choices_of(spec, full) == []
    assert choices_of(spec, full, {"run": "gone"}) == []
    assert [choice.value for choice in choices_of(spec, full, {"run": "ring"})] == ["base", "5", "final"]


def test_without_a_workspace_only_what_needs_none_is_offered() -> None:
    assert choices_of(of(TrainSettings, "dataset"), None) == []
    assert choices_of(of(TrainSettings, "model"), None)[0].value == "tiny-cogvideox"
