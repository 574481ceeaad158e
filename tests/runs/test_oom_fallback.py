"""A run whose memory ran out goes on with less and ends in the same bits; a second time it ends with its card."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from accelerate.state import AcceleratorState
from safetensors.torch import load_file

from tests.driving import create
from workbench.dataset_builder import Dataset
from workbench.errors import ExitCode
from workbench.families.model import Model
from workbench.jobs import Job, State, Status
from workbench.runs.failures import cheaper, failure_of, fallback_record, fallback_sentence, lighter, settings_in_use
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.trainer import loop
from workbench.trainer.loop import train
from workbench.workspace import Workspace

OUT = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.20 GiB is free."
)


def driven(run: Run, monkeypatch: pytest.MonkeyPatch, fails_at: list[int]) -> list[str]:
    """Train the run in this process, memory running out before the steps named, once each; levels used, by step."""
    AcceleratorState._reset_state(reset_partial_state=True)
    levels, usual, left = [], loop.train_step, list(fails_at)

    def step(session: Any) -> None:
        if session.step + 1 in left:
            left.remove(session.step + 1)
            raise torch.OutOfMemoryError(OUT)
        levels.append(f"{session.step + 1} {session.settings.gradient_checkpointing}")
        usual(session)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", step)
        train(Job(run.folder))
    return levels


def weights(run: Run) -> dict[str, bytes]:
    """What the last checkpoint holds, to the bit."""
    folder = run.folder / "checkpoints" / f"step-{run.checkpoints[-1]:08d}"
    files = ("lora.safetensors", "optimizer.safetensors")
    return {
        f"{file} {name}": tensor.numpy().tobytes()
        for file in files
        for name, tensor in load_file(folder / file).items()
    }


def test_it_goes_on_from_the_checkpoint_with_less_and_ends_in_the_same_bits(
    workspace: Workspace, dataset: Dataset, toy_model: Model, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    values = {"steps": 5, "save_every": 2, "evaluate_every": 0}
    whole = create(workspace, toy_model.source, **values)
    assert driven(whole, monkeypatch, []) == [f"{step} none" for step in range(1, 6)]
    run = create(workspace, toy_model.source, **values)
    assert driven(run, monkeypatch, [4]) == [
        "1 none", "2 none", "3 none", "3 keep attention", "4 keep attention", "5 keep attention",
    ]  # fmt: skip
    assert weights(run) == weights(whole)
    assert [line["loss"] for line in run.metrics] == [line["loss"] for line in whole.metrics]
    assert run.settings.gradient_checkpointing == "none"
    said = fallback_sentence(fallback_record(run.folder))
    assert said == (
        "Memory ran out after step 3. The run continued with settings that need less and learn the same: gradient "
        "checkpointing none → keep attention."
    )
    assert said in capfd.readouterr().out


def test_a_second_time_it_ends_and_its_card_knows_what_was_tried(
    workspace: Workspace, dataset: Dataset, toy_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"steps": 3, "save_every": 1, "evaluate_every": 0, "gradient_checkpointing": "full"}
    run = create(workspace, toy_model.source, **values)
    with pytest.raises(torch.OutOfMemoryError):
        driven(run, monkeypatch, [2, 3])
    assert run.checkpoints == [1, 2]
    # Started again it begins with what it stepped down to, and does not step down another time.
    with pytest.raises(torch.OutOfMemoryError):
        driven(run, monkeypatch, [3])
    assert settings_in_use(run.folder, run.settings).gradient_checkpointing == "offloaded"
    ended = Status(run.folder, State.FAILED, message=OUT, exit_code=ExitCode.OUT_OF_MEMORY)
    found = failure_of(ended, "", run.checkpoints, run.settings)
    assert found.actions[0].settings == {"blocks_to_swap": 1}


def test_the_ladder_ends(toy_model: Model) -> None:
    settings: TrainSettings | None = TrainSettings(model=toy_model.source)
    seen = []
    while settings is not None:
        seen.append((settings.gradient_checkpointing, settings.blocks_to_swap))
        settings = cheaper(settings)
    assert seen == [
        ("none", 0), ("keep attention", 0), ("full", 0), ("offloaded", 0), ("offloaded", 1), ("offloaded", 2),
    ]  # fmt: skip
    full = TrainSettings(model=toy_model.source, method="full", gradient_checkpointing="offloaded")
    assert cheaper(full) is None
    assert lighter(full.changed(precision="bf16")) == {}
