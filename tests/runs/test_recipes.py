"""Recipes are legal settings, each with a reason; what nobody published is said."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from workbench.demo import teach
from workbench.errors import ConfigError
from workbench.families import families, find_model, models
from workbench.families.base import ResolvedModel
from workbench.families.recipes import MODES, SUBJECTS, Source
from workbench.paths import GUIDE
from workbench.runs.recipes import UNKNOWN, refusal, suggest
from workbench.runs.settings import TrainSettings


def sources() -> list[Source]:
    """List every source that a recipe cites, once each."""
    found: dict[Source, None] = {}
    for family in families():
        for recipe in (recipe for model in family.models for recipe in family.recipes(model)):
            for advice in (recipe.clips, recipe.captions, recipe.why_steps, *(why for *_, why in recipe.settings)):
                found |= dict.fromkeys(advice.sources)
    return list(found)


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


def test_the_built_in_phenakis_recipe_is_its_own_alone(tmp_path: Path) -> None:
    family, model = find_model("tiny-phenaki")
    assert suggest("style", find_model(model.id)).settings["targets"].endswith("proj_out)")
    copy = shutil.copytree(model.source, tmp_path / "mine")
    assert family.recipes(family.describe_folder(copy)) == ()


def test_sources_are_papers_cards_and_documents() -> None:
    found = sources()
    assert len(found) > 8
    assert all(one.url.startswith("https://") or one.title.startswith("docs/") for one in found)
    assert len({one.url or one.title for one in found}) == len(found)


def test_steps_follow_the_number_of_clips() -> None:
    model, counts = find_model("cogvideox-5b"), (0, 10, 25, 50, 75, 100, 6000)
    steps = [suggest("style", model, clips).settings["steps"] for clips in counts]
    assert steps == [2000, 2000, 2000, 2000, 3000, 4000, 4000]


def test_too_few_clips_are_a_warning() -> None:
    assert "10 clips, where the known runs had 25 or more" in suggest("style", find_model("cogvideox-5b"), 10).warning
    assert not suggest("style", find_model("cogvideox-5b"), 0).warning


def test_the_built_in_models_recipe_is_that_of_the_demo() -> None:
    """Which has fewer steps: stripes are learned sooner than most."""
    demo = teach("stripes", "known").model_dump(mode="json")
    settings = suggest("style", find_model("tiny-cogvideox")).settings
    assert settings == {name: demo[name] for name in settings} | {"steps": settings["steps"]}
    assert settings["steps"] > demo["steps"]


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


def test_the_guide_names_every_source_of_the_recipes() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    assert not [one.title for one in sources() if one.url and one.url not in guide]
    used, defined = set(re.findall(r"\[([^\]\n]+)\](?![(:])", guide)), set(re.findall(r"^\[([^\]]+)\]:", guide, re.M))
    assert used == defined
