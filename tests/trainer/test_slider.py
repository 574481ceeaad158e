"""Sliders from prompts and from pairs: both strengths in one step, clips that the base model generates (also from
pictures and with both experts), exact resume, refusals."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests.driving import create, go, saved, session
from tests.trainer.test_told_in_training import attached
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, DataError
from workbench.families.cogvideox import FAMILY as COGVIDEOX
from workbench.families.model import Model
from workbench.families.wan import FAMILY as WAN
from workbench.operations.overview import overview
from workbench.runs.checks import check
from workbench.runs.report import run_html
from workbench.runs.settings import TrainSettings
from workbench.trainer import slider
from workbench.trainer.loop import export, preview
from workbench.trainer.losses import base_prediction
from workbench.workspace import Workspace

pytestmark = pytest.mark.long

PROMPTS: dict[str, Any] = {
    "slider_positive": ["a large ring"],
    "slider_negative": ["a small ring"],
    "slider_neutral": ["a ring"],
    "slider_samples": 3,
    "preview_steps": 2,
}
ALONE: dict[str, Any] = {**PROMPTS, "dataset": "", "held_out": 2}


@pytest.mark.parametrize(
    "values",
    [{}, {"batch_size": 2, "gradient_accumulation": 2, "gradient_checkpointing": "full"}, {"preservation_weight": 0.5}],
)
def test_a_run_without_clips_trains_resumes_exactly_and_exports(
    workspace: Workspace, toy_model: Model, values: dict[str, Any]
) -> None:
    values = {**ALONE, **values, "steps": 4, "preview_every": 2}
    whole = create(workspace, toy_model.source, **values)
    want = saved(whole, 4)
    shutil.rmtree(whole.folder)
    shutil.rmtree(workspace.cache)
    run = create(workspace, toy_model.source, **values)
    first = saved(run, 2)
    assert first != want
    assert saved(run, 4) == want
    made = session(run)
    assert [item.caption for item in made.data.train] == ["a ring", "a large ring", "a small ring"]
    made.evaluate()
    preview(made)
    export(made)
    assert made.job.outcome["change"] > 0
    card = (run.folder / "README.md").read_text()
    assert 'from "a small ring" to "a large ring"' in card
    assert "clips that the model generated itself" in card
    assert (run.folder / "dataset.lock.json").read_text().strip() == "[]"
    assert "a slider" in run_html(run)
    assert overview(workspace).counts["runs"] == 1


def test_the_strengths_learn_opposite_directions(
    workspace: Workspace, toy_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = session(create(workspace, toy_model.source, **ALONE, steps=1, slider_guidance=5.0))
    batch, seen, original = made.inputs.batch(1, 0), [], made.family.loss

    def loss(transformer: Any, schedule: Any, inputs: Any, base: torch.Tensor) -> torch.Tensor:
        strength = next(one.scaling["default"] for one in transformer.modules() if hasattr(one, "scaling"))
        seen.append((base, strength))
        return original(transformer, schedule, inputs, base)

    with monkeypatch.context() as patched:
        patched.setattr(type(made.family), "loss", lambda _, *arguments: loss(*arguments))
        each = slider.backward(made, batch, batch.weights, 1, 0, lambda inputs: base_prediction(made, inputs))
    (plus, one), (minus, other) = seen
    assert one == -other == 8.0
    at = {
        side: base_prediction(made, replace(batch.inputs, text=made.inputs.embeddings([f"a {side}ring"])))
        for side in ("large ", "small ", "")
    }
    torch.testing.assert_close((plus + minus) / 2, at[""])
    torch.testing.assert_close((plus - minus) / 2, 5.0 * (at["large "] - at["small "]), rtol=1e-4, atol=1e-5)
    assert each.shape == (1,)
    assert all(parameter.grad is not None for parameter in made.trainable.parameters)


@pytest.mark.parametrize(
    ("family", "variant"),
    [(COGVIDEOX, "image"), (WAN, "a14b-image"), (WAN, "vace")],
)
def test_clips_are_generated_from_pictures_by_both_experts_and_of_nothing_told(
    workspace: Workspace, tmp_path: Path, family: Any, variant: str
) -> None:
    values = {**ALONE, "steps": 2, "preview_every": 2}
    if "a14b" in variant:
        values["expert"] = "low noise"
    if "image" in variant:
        for color in ("red", "blue"):
            Image.new("RGB", (48, 40), color).save(tmp_path / f"{color}.png")
        values["preview_images"] = [str(tmp_path / "red.png"), str(tmp_path / "blue.png")]
    run = create(workspace, str(family.toy(tmp_path / "toy", variant).source), **values)
    made = go(run, 2)
    assert [Path(item.picture).stem for item in made.data.train] == (
        ["red", "blue", "red"] if "image" in variant else ["", "", ""]
    )
    before, given = made.inputs.batch(1, 0), made.inputs.clips(made.data.train)
    if "image" in variant:
        red, blue, again = (one.given.beside for one in given if one.given is not None and one.given.beside is not None)
        assert not torch.equal(red, blue)
        if variant != "image":  # CogVideoX adds noise to each picture
            assert torch.equal(red, again)
    made.save()
    preview(made)
    export(made)
    kept = sorted(path.name for path in workspace.cache.glob("*.safetensors"))
    after = session(run).inputs.batch(1, 0)  # the clips come from the cache
    assert torch.equal(before.inputs.latents, after.inputs.latents)
    assert sorted(path.name for path in workspace.cache.glob("*.safetensors")) == kept


def test_further_strengths_are_learned_that_much_further(workspace: Workspace, toy_model: Model) -> None:
    settings = TrainSettings(model=toy_model.source).changed(**ALONE, slider_reach=3.0)
    drawn = [slider.strength_of(settings, step, 0) for step in range(1, 60)]
    assert 1 <= min(drawn) < 1.3
    assert 2.7 < max(drawn) <= 3
    assert {slider.strength_of(settings.changed(slider_reach=1.0), step, 0) for step in range(1, 9)} == {1.0}
    made = session(create(workspace, toy_model.source, **ALONE, steps=1, slider_reach=3.0))
    assert learned_at(made) == pytest.approx([drawn[0], -drawn[0]])


def test_pairs_are_learned_at_opposite_strengths_and_exactly_again(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    values = {"slider_from": "pairs", "horizontal_flip": 0.5, "steps": 4}
    with pytest.raises(DataError, match="its reference is missing, but slider_from is pairs"):
        create(workspace, toy_model.source, **values)
    attached(dataset, "reference")
    run = create(workspace, toy_model.source, **values)
    saved(run, 2)
    want = saved(run, 4)
    shutil.rmtree(run.folder)
    whole = create(workspace, toy_model.source, **values)
    assert saved(whole, 4) == want
    made = session(whole)
    batch = made.inputs.batch(1, 0)
    assert batch.opposite is not None
    assert not torch.equal(batch.opposite, batch.inputs.latents)
    assert learned_at(made) == pytest.approx([1.0, -1.0])
    export(made)
    assert "pairs of clips" in (whole.folder / "README.md").read_text()
    settings = whole.settings
    for wrong, said in (({"reference": True}, "reference"), ({"dataset": ""}, "dataset is empty and slider_from")):
        with pytest.raises(ConfigError, match=said):
            check(workspace, settings.changed(**wrong))


def learned_at(made: Any) -> list[float]:
    """Return the strengths at which a batch is trained."""
    seen, loss = list[float](), type(made.family).loss
    own = next(one.scaling["default"] for one in made.bare_transformer.modules() if hasattr(one, "scaling"))

    def noted(family: Any, transformer: Any, *arguments: Any) -> torch.Tensor:
        seen.append(next(one.scaling["default"] for one in transformer.modules() if hasattr(one, "scaling")) / own)
        found: torch.Tensor = loss(family, transformer, *arguments)
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(made.family), "loss", noted)
        batch = made.inputs.batch(1, 0)
        slider.backward(made, batch, batch.weights, 1, 0, lambda inputs: base_prediction(made, inputs))
    return seen


def test_with_a_dataset_its_clips_are_learned_at(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    made = go(create(workspace, toy_model.source, **PROMPTS, steps=2), 2)
    assert all(item.generated is None for item in made.data.items)
    assert made.data.held_out


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"slider_negative": []}, "slider_negative has 0 lines and slider_positive 1"),
        ({"slider_neutral": ["a", "b"]}, "write one for each, one for all, or none"),
        ({"method": "full"}, "method is full and slider_positive is set"),
        ({"dora": True}, "dora is on and slider_positive is set"),
        ({"train_also": ["norm_final"]}, "train_also is norm_final and slider_positive is set"),
        ({"slider_positive": []}, "dataset is empty: choose one of yours"),
        ({"model": "tiny-phenaki"}, "predicts codes"),
        ({"model": "tiny-cogvideox-i2v"}, "preview_images is empty, but .* starts from an image"),
        ({"model": "tiny-cogvideox-i2v", "condition": "low resolution"}, "condition is low resolution"),
        ({"model": "tiny-cogvideox-i2v", "given": ["first 1"]}, "given is set, but the slider has no dataset"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    workspace: Workspace, toy_model: Model, values: dict[str, Any], said: str
) -> None:
    settings = TrainSettings(model=toy_model.source).changed(**ALONE)
    check(workspace, settings)
    with pytest.raises(ConfigError, match=said):
        check(workspace, settings.changed(**values))
