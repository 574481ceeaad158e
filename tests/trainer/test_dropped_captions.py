"""What a dropped caption becomes: the empty prompt, or zeros as in SAT; and that previews and the card keep to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.driving import create, session
from workbench.dataset_builder import Dataset
from workbench.families.base import Family
from workbench.families.denoising import DenoiseInputs
from workbench.families.model import Model
from workbench.families.wan import FAMILY, FIRST, NEGATIVE_PROMPT
from workbench.runs import model_card
from workbench.runs.model_card import CardFacts
from workbench.trainer.loop import preview
from workbench.trainer.session import Session
from workbench.workspace import Workspace

VALUES = {"caption_dropout": 0.5, "batch_size": 6, "held_out": 0, "preview_steps": 2, "preview_guidance": 5.0}


def negatives(made: Session, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    """What previews are guided away from, as the family is given it."""
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
    assert "50% of the captions were dropped in training and became the empty prompt" in sentence
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
    assert "zeros in place of their embeddings, as SAT trains and guides" in sentence
    made.close()
