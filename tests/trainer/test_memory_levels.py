"""Every memory level in a run's own session computes what the plain model does."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.driving import create, session
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families.cogvideox import FAMILY
from workbench.runs.checks import check
from workbench.runs.settings import TrainSettings
from workbench.trainer.loop import training_loop
from workbench.trainer.session import Session
from workbench.workspace import Workspace

pytestmark = pytest.mark.long

Gradients = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the folder of a miniature by the name of its architecture."""

    @functools.cache
    def made(variant: str) -> str:
        return str(FAMILY.toy(tmp_path_factory.mktemp("toys") / variant, variant).source)

    return made


def gradients(made: Session) -> tuple[float, Gradients]:
    """Return loss and gradients of the first step's batch, with a LoRA that is not zero."""
    draw = torch.Generator().manual_seed(5)
    for name, parameter in made.trainable.named:
        if "lora_B" in name:
            parameter.data = torch.randn(parameter.shape, generator=draw) * 0.1
    batch = made.inputs.batch(1, 0)
    each = made.family.loss(made.transformer, made.schedule, batch.inputs)
    each.mean().backward()
    found = {name: parameter.grad.clone() for name, parameter in made.trainable.named if parameter.grad is not None}
    return each.mean().item(), found


def cosine(one: Gradients, other: Gradients) -> float:
    joined = [torch.cat([gradient.flatten() for gradient in both.values()]) for both in (one, other)]
    return float(torch.cosine_similarity(*joined, dim=0))


USUAL = ("image-1.5",)  # at every change: patches over frames, rotary positions, a picture; all before a release


@pytest.mark.parametrize(
    "variant", [pytest.param(one, marks=[] if one in USUAL else [pytest.mark.release]) for one in FAMILY.toys]
)
def test_each_level_computes_what_the_plain_model_does(
    workspace: Workspace, dataset: Dataset, toy: Any, variant: str, tmp_path: Path
) -> None:
    frames = 9 if variant in ("sincos", "rotary") else 17

    def outcome(number: int, **values: Any) -> tuple[float, Gradients]:
        run = create(workspace, toy(variant), frames=frames, batch_size=2, **values)
        return gradients(session(run))

    loss, plain = outcome(0)
    for values in (
        {"gradient_checkpointing": "keep attention"},
        {"gradient_checkpointing": "full"},
        {"gradient_checkpointing": "offloaded"},
        {"gradient_checkpointing": "full", "blocks_to_swap": 2},
        {"gradient_checkpointing": "offloaded", "blocks_to_swap": 1},
    ):
        found, ours = outcome(1, **values)
        assert found == loss
        assert ours.keys() == plain.keys()
        assert all(torch.equal(ours[name], plain[name]) for name in plain), values
    found, ours = outcome(2, attention="stock")
    assert found == pytest.approx(loss, rel=1e-6)
    assert cosine(ours, plain) > 1 - 1e-6
    for how, least in (("int8", 0.995), ("fp8", 0.99), ("nf4", 0.9)):
        found, ours = outcome(3, base_model_precision=how)
        assert found == pytest.approx(loss, rel=0.05), how
        assert cosine(ours, plain) > least, how
        both = outcome(4, base_model_precision=how, gradient_checkpointing="full", blocks_to_swap=1)[1]
        assert all(torch.equal(both[name], ours[name]) for name in ours), how


def test_a_run_ends_with_a_proved_lora_while_its_weights_are_rounded_and_elsewhere(
    workspace: Workspace, dataset: Dataset, toy: Any
) -> None:
    run = create(
        workspace,
        toy("rotary"),
        frames=9,
        steps=3,
        evaluate_every=2,
        preview_every=2,
        preview_steps=2,
        base_model_precision="nf4",
        gradient_checkpointing="offloaded",
        blocks_to_swap=2,
    )
    made = session(run)
    training_loop(made)
    assert made.job.outcome["change"] > 0
    assert (run.folder / made.job.outcome["lora"]).exists()
    assert {preview.step for preview in run.previews} == {0, 2, 3}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"blocks_to_swap": 2}, "gradient_checkpointing is none, and a swapped block must be recomputed"),
        (
            {"blocks_to_swap": 2, "gradient_checkpointing": "keep attention"},
            "gradient_checkpointing is keep attention",
        ),
        ({"method": "full", "base_model_precision": "fp8"}, "base_model_precision is fp8, which is for frozen weights"),
        ({"method": "full", "blocks_to_swap": 2, "gradient_checkpointing": "full"}, "blocks_to_swap is 2"),
    ],
    ids=str,
)
def test_levels_that_exclude_one_another_are_refused(
    workspace: Workspace, dataset: Dataset, toy: Any, values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check(workspace, TrainSettings(dataset="squares", model=toy("rotary")).changed(**values))
