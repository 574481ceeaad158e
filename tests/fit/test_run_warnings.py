"""Warnings about likely training problems, before a run starts."""

from __future__ import annotations

import time

import pytest

from tests.shell import Shell
from workbench import demo
from workbench.clips.records import Clip, read_clips, read_info, write_clips
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.checks.dataset_check import check_tokens
from workbench.dataset_builder.checks.findings import write_report
from workbench.families import find_model, models
from workbench.families.recipes import SUBJECTS
from workbench.fit.warnings import run_warnings
from workbench.runs.recipes import suggest
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

DEMO = demo.teach("stripes", "known")
MOSTLY_KNOWN = DEMO.changed(regularization_share=0.7)


def test_the_demo_the_defaults_and_recipes_have_none(workspace: Workspace) -> None:
    assert run_warnings(workspace, DEMO) == []
    for model in models():
        settings = TrainSettings(dataset="cats", model=model.id)
        assert run_warnings(workspace, settings) == [], model.id
        for subject in SUBJECTS:
            recipe = suggest(subject, settings.resolved).settings
            published = settings.changed(regularization_dataset="known", **recipe)
            assert run_warnings(workspace, published) == [], (model.id, subject)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"steps": 800}, "Only 960 of the 3,200 clips that the steps train on show the concept"),
        ({"steps": 800}, "Set steps to 834, or regularization_share to 0.4."),
        ({"steps": 200}, "Set steps to 834, or regularization_share to 0.4 and steps to 417."),
    ],
)
def test_a_regularization_dataset_that_takes_most_of_a_short_run_is_named(
    workspace: Workspace, values: dict[str, int], words: str
) -> None:
    (sentence,) = run_warnings(workspace, MOSTLY_KNOWN.changed(**values))
    assert words in sentence
    assert run_warnings(workspace, MOSTLY_KNOWN.changed(regularization_dataset=None, **values)) == []
    assert run_warnings(workspace, DEMO.changed(regularization_share=0.4, steps=417)) == []


@pytest.mark.parametrize(
    ("model", "values", "warned"),
    [
        ("tiny-cogvideox", {"timestep_shift": 0.1}, True),
        ("tiny-cogvideox", {"timestep_shift": 0.5}, False),
        ("wan2.1-t2v-1.3b", {"timestep_shift": 0.3}, True),
        ("wan2.1-t2v-1.3b", {"timestep_shift": 1.0}, False),
        ("wan2.1-t2v-1.3b", {"timestep_density": "uniform", "timestep_shift": 0.3}, False),
        ("wan2.2-t2v-a14b", {"timestep_shift": 0.3, "expert": "low noise"}, True),
        ("ltx-video-2b-0.9.5", {"timestep_shift": 0.3}, False),  # its own density has much noise
        ("ltx-video-2b-0.9.5", {"timestep_shift": 0.1, "frames": 9, "height": 256, "width": 256}, True),
    ],
)
def test_noise_levels_that_are_hardly_drawn_are_named(
    workspace: Workspace, model: str, values: dict[str, object], warned: bool
) -> None:
    found = run_warnings(workspace, TrainSettings(dataset="cats").changed(model=model, **values))
    assert ["timestep_shift" in one for one in found] == [True] * warned


def test_a_trigger_word_that_is_not_read_is_found_by_the_check_and_named_in_the_form(
    workspace: Workspace, dataset: Dataset, shell: Shell
) -> None:
    settings = TrainSettings(dataset=dataset.name)
    family, model = find_model(settings.model)
    clips = dataset.clips
    dataset.set_caption(clips[0].id, f"{'a very long tale of a square ' * 20}zwx")
    dataset.set_caption(clips[1].id, f"zwx {'a very long tale of a square ' * 20}")
    found, _ = check_tokens(read_clips(dataset.folder), read_info(dataset.folder), family, model)
    assert [(one.kind, one.clips) for one in found] == [
        ("trigger_unread", (clips[0].file_name,)),
        ("long_caption", (clips[1].file_name,)),
    ]
    assert "never sees the trigger word 'zwx'" in found[0].sentence
    assert run_warnings(workspace, settings) == [], "nobody has checked it yet"
    write_report(dataset.folder, time.time(), model.id, read_clips(dataset.folder), found)
    (sentence,) = run_warnings(workspace, settings)
    assert "In 1 caption of squares the trigger word comes after the part that" in sentence
    assert sentence in shell("fit", "--dataset", dataset.name).out
    assert run_warnings(workspace, settings.changed(model="cogvideox-2b")) == [], "it was checked for another model"


def test_clips_that_lack_what_lies_beside_the_others_are_named(workspace: Workspace, dataset: Dataset) -> None:
    records = read_clips(dataset.folder)
    write_clips(dataset.folder, [one.changed(control=one.file_name) for one in records[1:]] + records[:1])
    settings = TrainSettings(dataset=dataset.name).changed(control=True)
    (said,) = run_warnings(workspace, settings)
    assert said == (
        f"1 of {len(records)} clips of dataset {dataset.name} is left out. {records[0].name}: it has no control video, "
        f"which control needs: add one beside the clip."
    )
    assert not run_warnings(workspace, settings.changed(control=False))
    write_clips(dataset.folder, records)
    assert not run_warnings(workspace, settings), "the start is refused"


def test_a_warm_up_longer_than_the_run_is_named(workspace: Workspace) -> None:
    settings = TrainSettings(dataset="cats", steps=24)
    (said,) = run_warnings(workspace, settings.changed(warmup_steps=500))
    assert said == (
        "The warm-up of 500 steps takes the whole run of 24: the learning rate reaches only 5% of its value. "
        "Set warmup_steps to 2."
    )
    assert not run_warnings(workspace, settings.changed(warmup_steps=23))
    assert not run_warnings(workspace, settings.changed(warmup_steps=500, lr_schedule="constant"))


@pytest.mark.parametrize(("model", "named"), [("cogvideox-5b", True), ("cogvideox-2b", False)])
def test_fp16_is_warned_of_for_models_made_in_bf16(workspace: Workspace, model: str, named: bool) -> None:
    settings = TrainSettings(dataset="cats", model=model)
    said = " ".join(run_warnings(workspace, settings.changed(precision="fp16")))
    assert ("precision is fp16, but" in said) == named
    assert not run_warnings(workspace, settings.changed(precision="bf16"))


# ---- pictures


SHAPES = ("9x40x40", "1x40x40")


def make_pictures(dataset: Dataset, count: int) -> list[Clip]:
    """Record the first clips as pictures."""
    records = read_clips(dataset.folder)
    records = [clip.changed(frames=1, fps=0.0) if n < count else clip for n, clip in enumerate(records)]
    write_clips(dataset.folder, records)
    return records


def warning(workspace: Workspace, **values: object) -> str:
    settings = TrainSettings().changed(dataset="squares", held_out=0, **values)
    return " ".join(run_warnings(workspace, settings))


def test_a_run_is_warned_by_what_it_draws(workspace: Workspace, dataset: Dataset) -> None:
    assert warning(workspace, buckets=SHAPES) == ""
    make_pictures(dataset, 1)
    assert warning(workspace, buckets=SHAPES) == ""
    make_pictures(dataset, 5)
    assert warning(workspace, buckets=SHAPES).startswith("83% of the training data is still pictures")
    assert warning(workspace) == ""  # without a shape of one frame they are left out
    assert warning(workspace, buckets=SHAPES, picture_share=0.2) == ""
    assert warning(workspace, buckets=["10x40x40"]) == ""  # starting says what is wrong
    make_pictures(dataset, 6)
    assert "learns no motion" in warning(workspace, buckets=SHAPES)
