"""What a run starts with: recipes, presets, sweeps, an initial LoRA, and the limits of a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families import find_model, models
from workbench.families.base import ResolvedModel
from workbench.families.model import Model
from workbench.families.recipes import MODES, SUBJECTS
from workbench.jobs.devices import Device
from workbench.runs.checks import check_device, initial_lora
from workbench.runs.recipes import NOT_SHARED, UNKNOWN, load_preset, preset_names, refusal, save_preset, suggest
from workbench.runs.settings import TrainSettings
from workbench.runs.sweeps import created, parse_values
from workbench.workspace import Workspace


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_recipe_is_legal_and_every_value_has_a_reason(subject: str) -> None:
    for model in models():
        check_recipe(subject, model.id)


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_has_a_recipe_where_the_model_can_be_trained_so(mode: str) -> None:
    legal = 0
    for model in models():
        named = find_model(model.id)
        if refusal(mode, named):
            with pytest.raises(ConfigError, match=f"recipe is {mode}, but"):
                suggest(mode, named)
        elif suggest(mode, named).settings:
            check_recipe(mode, model.id)
            legal += 1
    assert legal or mode == "control"  # which models in diffusers' layout alone can follow


def check_recipe(subject: str, model: str) -> None:
    found = suggest(subject, find_model(model), 30)
    settings = TrainSettings(model=model).changed(**found.settings)
    assert {"steps", "rank", "learning_rate", "caption_dropout", "lora_dropout"} <= found.settings.keys()
    assert {one.setting for one in found.reasons if one.setting} == found.settings.keys()
    assert [one.title for one in found.reasons[:2]] == ["Clips", "Captions"]
    assert all(one.reason.endswith(".") or "..." in one.reason for one in found.reasons)
    assert settings.steps == found.settings["steps"]
    assert found.evidence
    assert not found.warning


def test_steps_follow_the_number_of_clips() -> None:
    model, counts = find_model("cogvideox-5b"), (0, 10, 25, 50, 75, 100, 6000)
    steps = [suggest("style", model, clips).settings["steps"] for clips in counts]
    assert steps == [2000, 2000, 2000, 2000, 3000, 4000, 4000]


def test_too_few_clips_are_a_warning() -> None:
    assert "10 clips, but published runs had 25 or more" in suggest("style", find_model("cogvideox-5b"), 10).warning
    assert not suggest("style", find_model("cogvideox-5b"), 0).warning


def test_what_nobody_published_is_said_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    family, model = find_model("cogvideox-5b")
    monkeypatch.setattr(type(family), "recipes", lambda family, model: ())
    found = suggest("motion", ResolvedModel(family, model), 30)
    assert (found.evidence, found.settings, list(found.reasons)) == (UNKNOWN, {}, [])


def test_a_mode_turns_on_what_it_is_for_and_its_figures_stand_before_those_of_subjects() -> None:
    ltx = suggest("reference", find_model("ltx-video-2b-0.9.5"), 100)
    assert (ltx.settings["reference"], ltx.settings["given"], ltx.settings["rank"]) == (True, ("first 0.2",), 128)
    slider = suggest("slider", find_model("cogvideox-2b"))
    assert (slider.settings["steps"], slider.settings["rank"], slider.settings["slider_reach"]) == (1000, 4, 2.0)
    assert suggest("masked", find_model("cogvideox-2b")).settings["loss_mask"] == "inside"


def test_an_unknown_subject_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="recipe is 'mood', must be one of style, character"):
        suggest("mood", find_model("cogvideox-5b"))


# ---- presets


def test_a_preset_comes_back_without_what_names_things_of_the_workspace(workspace: Workspace) -> None:
    settings = TrainSettings(dataset="cats", rank=64, learning_rate=3e-4, preview_prompts=("a cat",))
    assert preset_names(workspace) == []
    assert save_preset(workspace, "My style!", settings) == "my-style"
    assert preset_names(workspace) == ["my-style"]
    loaded = load_preset(workspace, "my-style")
    assert not set(NOT_SHARED) & loaded.keys()
    assert TrainSettings(dataset="cats").changed(**loaded) == settings
    (workspace.presets / "friend-s.json").write_text('{"rank": 32, "dataset": "theirs"}')
    assert load_preset(workspace, "friend-s") == {"rank": 32}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"rank": 0}', "rank is 0, must be"),
        ('{"loss": 1}', "loss is not a setting"),
        ("[]", "must hold a JSON object"),
        ("rank=3", "cannot be read as JSON"),
    ],
)
def test_a_file_that_is_no_preset_is_refused(workspace: Workspace, content: str, sentence: str) -> None:
    workspace.presets.mkdir(parents=True, exist_ok=True)
    (workspace.presets / "wrong.json").write_text(content)
    with pytest.raises(ConfigError, match=sentence):
        load_preset(workspace, "wrong")


# ---- sweeps


@pytest.fixture
def settings(dataset: Dataset, toy_model: Model) -> TrainSettings:
    return TrainSettings(model=toy_model.source, dataset="squares", frames=9)


def test_every_combination_becomes_a_run_named_after_its_values(workspace: Workspace, settings: TrainSettings) -> None:
    values = parse_values(["learning_rate=1e-4,3e-4", "rank=8,16"])
    runs = created(workspace, settings, values, "cats")
    assert [(run.settings.learning_rate, run.settings.rank) for run in runs] == [
        (1e-4, 8),
        (1e-4, 16),
        (3e-4, 8),
        (3e-4, 16),
    ]
    assert runs[2].name == "cats-learning_rate-0.0003-rank-8"
    assert {run.settings.dataset for run in runs} == {"squares"}
    assert all(run.status.state == "new" for run in runs)


def test_one_bad_value_and_no_run_is_written(workspace: Workspace, settings: TrainSettings) -> None:
    with pytest.raises(ConfigError, match="rank is 0, must be 1 to 1024"):
        created(workspace, settings, {"rank": [8, 0]})
    with pytest.raises(ConfigError, match="frames is 10"):
        created(workspace, settings, {"frames": [9, 10]})
    with pytest.raises(ConfigError, match="each only once"):
        created(workspace, settings, {"rank": [8, 8]})
    with pytest.raises(ConfigError, match="make 121 runs, but a sweep has at most 100"):
        created(workspace, settings, {"rank": list(range(1, 12)), "seed": list(range(11))})
    assert not list(workspace.runs.iterdir())


def test_values_are_read_as_people_write_them() -> None:
    assert parse_values(["dora=on,off", "frames=none,17", 'targets="to_q,to_k",attention']) == {
        "dora": [True, False],
        "frames": [None, 17],
        "targets": ["to_q,to_k", "attention"],
    }
    assert parse_values(["preview-prompts=a cat;a dog,a cat"]) == {"preview_prompts": [["a cat", "a dog"], ["a cat"]]}
    for text, sentence in (
        ("rnak=8", "did you mean rank"),
        ("rank", "is not a list of values"),
        ("rank=", "is not a list of values"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            parse_values([text])
    assert parse_values(["Learning rate=1e-4", "learning-rate SCHEDULE=cosine"]) == {
        "learning_rate": [1e-4],
        "lr_schedule": ["cosine"],
    }
    with pytest.raises(ConfigError, match="listed twice"):
        parse_values(["rank=8", "rank=16"])


# ---- device_rules


APPLE = Device("mps", "Apple M2 Max", 48.0, uuid="mps")
AMD = Device("cuda", "AMD Instinct MI300X", 192.0, uuid="amd-0", rocm="7.1.0")
NVIDIA = Device("cuda", "NVIDIA H100", 80.0, uuid="GPU-1")
CPU = Device("cpu", "processor", 24.0)
REFUSED = [
    (APPLE, "blocks_to_swap", 4, 0), (APPLE, "gradient_checkpointing", "offloaded", "full"),
    (APPLE, "base_model_precision", "fp8", "int8"), (APPLE, "optimizer", "adamw-8bit", "adamw"),
    (APPLE, "optimizer", "adam-8bit", "adam"), (APPLE, "compile", True, False), (APPLE, "exact", True, False),
    (APPLE, "attention", "flash", "auto"), (AMD, "attention", "cudnn", "auto"),
]  # fmt: skip


@pytest.mark.parametrize(("device", "name", "value", "instead"), REFUSED)
def test_refused_with_a_remedy_that_is_accepted(device: Device, name: str, value: Any, instead: Any) -> None:
    settings = TrainSettings().changed(**{name: value})
    with pytest.raises(ConfigError) as error:
        check_device(settings, device)
    sentence = error.value.problems[name]
    assert sentence.startswith(f"{name} is {value}, but the device is {'mps' if device is APPLE else 'an AMD GPU'}")
    assert sentence.endswith(f": set {name} to {instead}")
    check_device(settings.changed(**{name: instead}), device)
    for other in (NVIDIA, CPU):
        check_device(settings, other)


# ---- start_from


def write_lora(path: Path, rank: int) -> None:
    import torch
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    name = "transformer.transformer_blocks.0.attn1.to_q.lora_"
    save_file({f"{name}A.weight": torch.zeros(rank, 8), f"{name}B.weight": torch.zeros(8, rank)}, path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rank": 8}, "has rank 16, but rank is 8: set rank to 16"),
        ({"targets": "all-linear"}, "targets is all-linear, but base has attention. Use the same values"),
        ({"dora": True}, "dora is on, but base has off"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(workspace: Workspace, values: dict[str, object], said: str) -> None:
    folder = workspace.run("base")
    write_lora(folder / "lora.safetensors", 16)
    TrainSettings(dataset="cats").save(folder / "config.json")
    fits = TrainSettings(dataset="cats", start_from="base")
    assert initial_lora(workspace, fits) == folder / "lora.safetensors"
    assert initial_lora(workspace, fits.changed(targets=r".*attn1.*")), "it may name the same layers"
    with pytest.raises(ConfigError, match=said) as refused:
        initial_lora(workspace, fits.changed(**values))
    assert list(refused.value.problems) == list(values)


def test_a_file_of_another_rank_is_refused_and_one_of_another_layout_left_to_its_family(
    workspace: Workspace, tmp_path: Path
) -> None:
    write_lora(tmp_path / "mine.safetensors", 4)
    with pytest.raises(ConfigError, match="mine.safetensors has rank 4, but rank is 16"):
        initial_lora(workspace, TrainSettings(dataset="cats", start_from=str(tmp_path / "mine.safetensors")))
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"no header")
    assert initial_lora(workspace, TrainSettings(dataset="cats", start_from=str(other))) == other


def test_a_run_that_trains_all_weights_is_named_as_that(workspace: Workspace) -> None:
    TrainSettings(dataset="cats", method="full").save(workspace.run("whole") / "config.json")
    with pytest.raises(ConfigError, match="start_from is 'whole', a run that trains all weights"):
        initial_lora(workspace, TrainSettings(dataset="cats", start_from="whole"))
