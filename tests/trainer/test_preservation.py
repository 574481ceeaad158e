"""Keeping a LoRA close to the base model: preservation prompts, and clips of a regularization dataset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.driving import create, go, session
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families import families
from workbench.families.base import Family
from workbench.families.denoising import DenoiseInputs
from workbench.families.model import Model
from workbench.families.wan import FAMILY
from workbench.families.wan import FAMILY as WAN
from workbench.families.wan_models import FIRST, NEGATIVE_PROMPT
from workbench.runs import model_card
from workbench.runs.model_card import CardFacts
from workbench.runs.run import Run
from workbench.trainer.loop import preview
from workbench.trainer.losses import preservation_loss
from workbench.trainer.session import Session
from workbench.workspace import Workspace

pytestmark = pytest.mark.long

PROMPTS = ("a blue circle", "a green triangle", "a dog", "a cat", "a house")


def preserved(made: Session) -> float:
    """Return the distance from the base model for preservation prompts on five batches of the run."""
    batches = [(made.inputs.batch(step, 0), step) for step in range(1, 6)]
    inputs = [made.inputs.preservation(batch, PROMPTS, step, 0) for batch, step in batches]
    with torch.no_grad():
        return sum(float(preservation_loss(made, one)) for one in inputs)


def test_a_larger_weight_keeps_more_of_the_base_model(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    values = {"preservation_prompts": PROMPTS, "batch_size": 2, "held_out": 0}
    found = []
    for weight in (0.0, 1.0, 30.0):
        made = go(create(workspace, toy_model.source, preservation_weight=weight, **values), 7)
        found.append(preserved(made))
        made.close()
    assert found[0] > found[1] > found[2] > 0


def test_it_leaves_batch_noise_and_loss_of_a_step_as_they_are_and_begins_at_zero(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    plain, ours = (
        create(workspace, toy_model.source, preservation_weight=weight, lora_dropout=0.3) for weight in (0.0, 1.0)
    )
    for run in (plain, ours):
        made = go(run, 2)
        assert all(parameter.requires_grad for parameter in made.trainable.parameters)
        made.close()
    first, second = ours.metrics
    assert {key: first[key] for key in ("loss", "samples", "grad_norm")} == {
        key: plain.metrics[0][key] for key in ("loss", "samples", "grad_norm")
    }
    assert first["preservation_loss"] == 0  # a LoRA begins as the base model
    assert "preservation_loss" not in plain.metrics[0]
    assert second["samples"][0][0] == plain.metrics[1]["samples"][0][0]


def test_all_prompts_are_drawn_and_drift_is_measured_on_the_first_three(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    values = {"preservation_prompts": PROMPTS, "batch_size": 5, "preservation_weight": 1.0}
    made = session(create(workspace, toy_model.source, **values))
    batch = made.inputs.batch(1, 0)
    known = made.inputs.embeddings(PROMPTS)
    drawn = set()
    for step in range(1, 13):
        text = made.inputs.preservation(batch, PROMPTS, step, 0).text
        drawn |= {
            index
            for row in range(5)
            for index in range(len(PROMPTS))
            if all(torch.equal(text[name][row], known[name][index]) for name in known)
        }
    assert drawn == set(range(len(PROMPTS)))
    made.evaluate()
    assert Run(made.run).metrics[-1]["change_others"] == 0
    made.close()


# ---- clips of the regularization dataset, towards the base model

KNOWN = {"regularization_dataset": "squares", "regularization_share": 0.5, "batch_size": 2, "held_out": 0}
TOWARDS = KNOWN | {"regularization_target": "base model"}


def losses_of_clips(run: Run) -> list[list[float]]:
    return [[loss for _, loss in line["samples"]] for line in run.metrics if "samples" in line]


def test_known_clips_teach_nothing_and_hold_the_model_to_what_it_was(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    plain, ours = (go(create(workspace, toy_model.source, **values), 6) for values in (KNOWN, TOWARDS))
    roles = [[item.role for item in ours.inputs.batch(step, 0).items] for step in range(1, 7)]
    assert all(sorted(each) == ["known", "train"] for each in roles)
    known = [each.index("known") for each in roles]
    begun, as_before = losses_of_clips(Run(ours.run)), losses_of_clips(Run(plain.run))
    assert begun[0][known[0]] == pytest.approx(0, abs=1e-9)  # a LoRA begins as the base model
    assert begun[0][1 - known[0]] == as_before[0][1 - known[0]] > 0
    kept = [line[index] for line, index in zip(begun, known, strict=True)]
    assert max(kept) > 1e-6
    assert max(kept) < min(line[index] for line, index in zip(as_before, known, strict=True))
    for made in (plain, ours):
        made.close()


def toy_of(family: Any, folder: Path) -> tuple[Model, dict[str, Any]]:
    """Return one of the family's miniatures, and the settings that a run on it needs."""
    toy: Model = family.toy(folder / "toy", "a14b" if family is WAN else family.toys[-1])
    return toy, {"expert": "low noise"} if family is WAN else {}


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_each_family_and_each_expert_is_held_to_its_base_model_by_prompts_and_by_known_clips(
    workspace: Workspace, dataset: Dataset, family: Any, tmp_path: Path
) -> None:
    toy, values = toy_of(family, tmp_path)
    by_clips = "regularization_target" in family.own_settings(toy)
    if not by_clips:
        with pytest.raises(ConfigError, match="regularization_target is base model, a setting that .* does not have"):
            create(workspace, toy.source, **TOWARDS, **values)
    run = create(workspace, toy.source, preservation_weight=1.0, **(TOWARDS if by_clips else {}), **values)
    go(run, 4).close()
    by_prompts = [line["preservation_loss"] for line in run.metrics]
    assert by_prompts[0] == pytest.approx(0, abs=1e-6)
    assert by_prompts[-1] > 0
    if by_clips:
        assert min(losses_of_clips(run)[0]) == pytest.approx(0, abs=1e-6)
        assert min(losses_of_clips(run)[-1]) > 0


@pytest.mark.parametrize("values", [{"method": "full"}, {"train_also": ["norm_final"]}], ids=["full", "beside a LoRA"])
@pytest.mark.parametrize(
    ("keeping", "said"),
    [
        ({"preservation_weight": 1.0}, "preservation_weight is 1, .* train only a LoRA, or set .* to 0"),
        (TOWARDS, "regularization_target is base model, .* or set .* to clips"),
    ],
    ids=["prompts", "clips"],
)
def test_a_run_that_changes_the_base_model_is_refused(
    workspace: Workspace, dataset: Dataset, toy_model: Model, keeping: dict[str, Any], said: str, values: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=said):
        create(workspace, toy_model.source, **keeping, **values)


# ---- What a dropped caption becomes: the empty prompt, or zeros as in SAT; and that previews and the card keep to i


VALUES = {"caption_dropout": 0.5, "batch_size": 6, "held_out": 0, "preview_steps": 2, "preview_guidance": 5.0}


def negatives(made: Session, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    """Return the negative text that the family gets for each preview."""
    seen, denoise = [], type(made.family).denoise

    def spy(family: Family, transformer: Any, inputs: DenoiseInputs) -> torch.Tensor:
        assert inputs.negative_text is not None
        seen.append(dict(inputs.negative_text))
        return denoise(family, transformer, inputs)

    with monkeypatch.context() as patch:
        patch.setattr(type(made.family), "denoise", spy)
        preview(made)
    return seen


def test_previews_are_guided_away_from_the_models_own_negative_prompt(
    workspace: Workspace, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wan's authors always give one; the list differs from the empty prompt even in a toy's few words."""
    toy = FAMILY.toy(tmp_path / "toy", "text")
    assert toy.negative_prompt == NEGATIVE_PROMPT
    monkeypatch.setattr("workbench.families.wan.FIRST", replace(FIRST, negative_prompt="the red circle"))
    made = session(create(workspace, toy.source, **{**VALUES, "batch_size": 1}))
    wanted, empty = made.inputs.embeddings(["the red circle"]), made.inputs.embeddings([""])
    seen = negatives(made, monkeypatch)
    assert seen
    assert all(torch.equal(one[name], wanted[name]) for one in seen for name in one)
    assert not any(torch.equal(wanted[name], empty[name]) for name in empty)
    made.close()


def test_dropped_captions_are_the_empty_prompt_or_zeros(
    workspace: Workspace, dataset: Dataset, toy_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = create(workspace, toy_model.source, **VALUES)
    made = session(run)
    empty = made.inputs.embeddings([""])
    plain = [made.inputs.batch(step, 0).inputs.text for step in range(1, 7)]
    assert all(torch.equal(one[name], empty[name]) for one in negatives(made, monkeypatch) for name in empty)
    sentence = model_card.what(toy_model, CardFacts(made.settings, 2, 6))
    assert "50% of the captions were dropped in training and replaced by the empty prompt" in sentence
    made.close()

    run = run.create(workspace, made.settings.changed(dropped_caption="zeros"), "two")
    made = session(run)
    zeroed, dropped = [made.inputs.batch(step, 0).inputs.text for step in range(1, 7)], 0
    for before, after in zip(plain, zeroed, strict=True):
        for index in range(6):
            rows = [(before[name][index], after[name][index], empty[name][0]) for name in empty]
            if all(torch.equal(old, nothing) for old, _, nothing in rows):
                assert not any(new.any() for _, new, _ in rows)
                dropped += 1
            else:
                assert all(torch.equal(old, new) for old, new, _ in rows)
    assert 8 <= dropped <= 28
    assert not any(one[name].any() for one in negatives(made, monkeypatch) for name in empty)
    sentence = model_card.what(toy_model, CardFacts(made.settings, 2, 6))
    assert "their embeddings replaced by zeros, as SAT does for training and guidance" in sentence
    made.close()
