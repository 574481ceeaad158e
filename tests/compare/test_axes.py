"""Rows and columns from settings: products, sameness, names that stay, sentences for what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drawing import MakeClip
from tests.written_run import add_preview, write_run
from workbench.compare import GridSettings
from workbench.compare.axes import plan_grid
from workbench.compare.suggestions import base_of, completed, of_sample
from workbench.errors import ConfigError
from workbench.families import default_model, find_model
from workbench.sampler.settings import SampleSettings
from workbench.settings import parse
from workbench.workspace import Workspace


def test_a_run_on_pictures_is_compared_in_videos(workspace: Workspace, tmp_path: Path, make_clip: MakeClip) -> None:
    run = write_run(workspace, "pictures")
    (run.folder / "lora.safetensors").touch()
    add_preview(run, 0, make_clip(tmp_path / "0.mp4"), frames=1, seed=7)
    settings = completed(workspace, GridSettings(run="pictures"))
    shown = base_of(workspace, settings)
    assert (shown.frames, shown.seed) == (None, 7)
    assert [column.name for column in plan_grid(workspace, settings, shown).columns] == ["base model", "final LoRA"]


def base(**values: object) -> SampleSettings:
    return SampleSettings(model=default_model(), prompt="a ring").changed(**values)


def test_two_axes_multiply_and_the_base_model_stands_once(workspace: Workspace) -> None:
    settings = GridSettings(run="cats", checkpoints=("base", "5", "final"), scales=("0", "0.5", "1"))
    columns = plan_grid(workspace, settings, base()).columns
    assert [column.labels for column in columns] == [
        ("base model", ""),
        ("step 5", "scale 0.5"),
        ("step 5", "scale 1"),
        ("final LoRA", "scale 0.5"),
        ("final LoRA", "scale 1"),
    ]
    assert {column.reference for column in columns} == {0}
    guided = plan_grid(
        workspace, GridSettings(run="cats", checkpoints=("base", "5"), guidance=("1", "6")), base()
    ).columns
    assert [column.name for column in guided] == [
        "base model, guidance 1",
        "base model, guidance 6",
        "step 5, guidance 1",
        "step 5, guidance 6",
    ]
    assert [column.reference for column in guided] == [0, 1, 0, 1]


def test_a_stack_of_loras_is_scaled_together(workspace: Workspace) -> None:
    settings = GridSettings(loras=("none", "a=0.5 + b"), scales=("0.5", "1"))
    loras = [column.changes["loras"] for column in plan_grid(workspace, settings, base()).columns]
    assert loras == [[], ["a=0.25", "b=0.5"], ["a=0.5", "b=1"]]


def test_a_name_stands_for_all_that_decides_a_video_and_nothing_else(workspace: Workspace) -> None:
    def key(settings: GridSettings, **values: object) -> str:
        return plan_grid(workspace, settings, base(**values)).keys[0][0]

    plain = GridSettings(prompts=("a ring",))
    known, own = key(plain), f"{find_model(default_model())[1].guidance_scale:g}"
    assert key(plain, device="cpu") == known
    assert key(GridSettings(prompts=("a ring",), guidance=(own,))) == known, "it is the model's own"
    assert key(plain, speed="fast") != known
    assert key(GridSettings(prompts=("a ring",), seeds=("3",))) != known
    moved = Workspace.open(workspace.root.parent / "elsewhere")
    of_run = GridSettings(run="cats", prompts=("a ring",), checkpoints=("5",))
    assert plan_grid(moved, of_run, base()).keys == plan_grid(workspace, of_run, base()).keys


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"scales": ["0", "1"], "guidance": ["4", "6"], "steps": ["2", "4"]}, "at most two"),
        ({"prompts": ["a", "b"], "images": ["1.png", "2.png", "3.png"]}, "3 files for 2 prompts"),
        ({"seeds": ["1", "2"], "column_seeds": ["1", "2"]}, "seeds and column_seeds both have values"),
        ({"scales": ["strong"]}, "scales has 'strong', must be a number"),
        ({"checkpoints": ["last"]}, "checkpoints has 'last', must be a step, base or final"),
        ({"schedulers": ["Eulr"]}, "must be model or a scheduler of the model's family"),
    ],
)
def test_what_cannot_be_says_so(workspace: Workspace, values: dict[str, list[str]], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_grid(workspace, parse(GridSettings, values), base())


def test_values_stand_as_people_type_them(tmp_path: Path) -> None:
    settings = parse(
        GridSettings, {"checkpoints": ["Base, step-00000150 300"], "scales": ["0.50,1.0"], "prompts": ["a, b\nc"]}
    )
    assert settings.checkpoints == ("base", "150", "300")
    assert settings.scales == ("0.5", "1")
    assert settings.prompts == ("a, b", "c")
    settings.save(tmp_path / "grid.json")
    assert GridSettings.load(tmp_path / "grid.json") == settings


def test_a_sample_suggests_its_lora_at_other_scales_or_other_guidance() -> None:
    sample = SampleSettings(prompt="a cat", seed=3, loras=("one=0.5", "two"))
    settings, base = of_sample(sample, 6.0)
    assert (settings.prompts, settings.seeds, settings.loras) == (("a cat",), ("3",), ("one=0.5 + two",))
    assert settings.scales[0] == "0"
    assert base.loras == ()
    plain, _ = of_sample(sample.changed(loras=[]), 2.5)
    assert plain.guidance == ("1", "2.5", "4.5")
