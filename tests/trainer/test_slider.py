"""A slider: prompts alone, both strengths in one step, clips that the base model generates, exact resume, refusals."""

from __future__ import annotations

import gc
import shutil
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.driving import create, go, session
from workbench.clips.records import file_sha256
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families.model import Model
from workbench.operations.overview import overview
from workbench.operations.plans import look
from workbench.runs import checkpoints
from workbench.runs.checks import check
from workbench.runs.report import run_html
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.trainer import slider
from workbench.trainer.loop import base_prediction, export, preview
from workbench.workspace import Workspace

PROMPTS: dict[str, Any] = {
    "slider_positive": ["a large ring"],
    "slider_negative": ["a small ring"],
    "slider_neutral": ["a ring"],
    "slider_samples": 3,
    "preview_steps": 2,
}
ALONE: dict[str, Any] = {**PROMPTS, "dataset": "", "held_out": 2}


def saved(run: Run, step: int) -> str:
    made = go(run, step)
    made.save()
    made.metrics.close()
    del made
    gc.collect()
    return file_sha256(checkpoints.folder_of(run.folder, step) / "lora.safetensors")


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


def test_with_a_dataset_its_clips_are_learned_at(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    made = go(create(workspace, toy_model.source, **PROMPTS, steps=2), 2)
    assert all(item.generated is None for item in made.data.items)
    assert made.data.held_out


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"slider_negative": []}, "slider_negative has 0 lines, slider_positive 1"),
        ({"slider_neutral": ["a", "b"]}, "write one for each, one for all, or none"),
        ({"method": "full"}, "method is full and slider_positive is set"),
        ({"dora": True}, "dora is on and slider_positive is set"),
        ({"train_also": ["norm_final"]}, "train_also is norm_final and slider_positive is set"),
        ({"slider_positive": []}, "dataset is empty: choose one of yours"),
        ({"model": "tiny-phenaki"}, "predicts codes"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    workspace: Workspace, toy_model: Model, values: dict[str, Any], said: str
) -> None:
    settings = TrainSettings(model=toy_model.source).changed(**ALONE)
    check(workspace, settings)
    with pytest.raises(ConfigError, match=said):
        check(workspace, settings.changed(**values))


def test_the_form_names_and_estimates_a_run_without_a_dataset(workspace: Workspace, toy_model: Model) -> None:
    found = look(workspace, settings={"model": toy_model.source, **ALONE})
    assert found.problems == {}
    assert found.name == "slider"
    assert Run.create(workspace, TrainSettings(model=toy_model.source).changed(**ALONE)).name == "slider"
