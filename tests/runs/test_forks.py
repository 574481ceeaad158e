"""Forks: what is taken along, what is refused, and that a fork under the same settings is the run itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families.model import Model
from workbench.runs import checkpoints
from workbench.runs.run import Run, carried
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, read_json, write_json

SETTINGS = TrainSettings(dataset="cats", steps=100, ema_decay=0.9)


def saved(run: Path, step: int, settings: TrainSettings) -> Path:
    """A checkpoint as a run under these settings leaves it."""

    def fill(folder: Path) -> None:
        for name in (checkpoints.LORA, checkpoints.OPTIMIZER, checkpoints.EMA):
            (folder / name).write_bytes(name.encode() * 100)
        state = {
            "step": step,
            "settings": settings.model_dump(mode="json"),
            "versions": {"torch": "1.0"},
            "scaler": {"scale": 2.0},
            "optimizer": {"group.0/k": 3},
        }
        write_json(folder / checkpoints.STATE, state)

    return checkpoints.publish(run, step, fill)


@pytest.mark.parametrize(
    ("changed", "missing", "said"),
    [
        ({"learning_rate": 1e-5, "weight_decay": 0.5, "batch_size": 2, "dataset": "dogs"}, set(), ""),
        ({"optimizer": "prodigy"}, {checkpoints.OPTIMIZER}, "prodigy cannot use that of adamw"),
        ({"ema_decay": 0.0}, {checkpoints.EMA}, "ema_decay is now 0"),
    ],
)
def test_what_fits_goes_along_and_what_does_not_is_said(
    tmp_path: Path, changed: dict[str, Any], missing: set[str], said: str
) -> None:
    folder = saved(tmp_path, 20, SETTINGS)
    taken = carried(folder, read_json(folder / checkpoints.STATE), SETTINGS.changed(**changed))
    assert {checkpoints.LORA, checkpoints.OPTIMIZER, checkpoints.EMA} - set(taken.files) == missing
    assert ("optimizer" in taken.state) == (checkpoints.OPTIMIZER not in missing)
    assert said in " ".join(taken.dropped)


@pytest.mark.parametrize(
    "changed", [{"rank": 8}, {"method": "full"}, {"targets": "attention+feed-forward"}, {"alpha": 8.0}, {"dora": True}]
)
def test_other_weights_are_refused_with_the_way_that_is_open(tmp_path: Path, changed: dict[str, Any]) -> None:
    folder = saved(tmp_path, 20, SETTINGS)
    state = read_json(folder / checkpoints.STATE)
    with pytest.raises(ConfigError, match=f"{next(iter(changed))} was .* start_from"):
        carried(folder, state, SETTINGS.changed(**changed))
    with pytest.raises(ConfigError, match="steps is 20, but the fork begins at step 20"):
        carried(folder, state, SETTINGS.changed(steps=20))


def test_a_fork_is_the_run_itself_until_a_setting_makes_it_another(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    settings = TrainSettings(
        model=toy_model.source,
        dataset="squares",
        steps=6,
        rank=2,
        learning_rate=0.01,
        preview_every=0,
        evaluate_every=3,
        save_every=3,
        held_out=1,
        warmup_steps=2,
        frames=9,
    )
    parent = Run.create(workspace, settings, "parent")
    parent.start()
    parent.wait(PATIENCE)
    assert parent.lora is not None, jobs.log_tail(parent.folder)

    same = parent.fork(workspace, 3, settings, "same")
    assert same.parent == {"run": "parent", "step": 3, "changed": {}, "dropped": []}
    same.start()
    same.wait(PATIENCE)
    assert same.lora is not None, jobs.log_tail(same.folder)
    assert tensors(same) == tensors(parent)
    assert [line["step"] for line in same.metrics if "loss" in line] == [4, 5, 6]

    other = parent.fork(workspace, 3, settings.changed(learning_rate=0.5))
    assert other.name == "parent-2"
    assert other.parent["changed"] == {"learning_rate": [0.01, 0.5]}
    first = checkpoints.newest(other.folder)
    assert read_json(first[1] / checkpoints.STATE)["settings"]["learning_rate"] == 0.5
    assert parent.clone(workspace, "again").settings == settings

    path = checkpoints.folder_of(parent.folder, 6) / checkpoints.LORA
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="parent has no intact checkpoint from step 6: choose one of 3"):
        parent.fork(workspace, 6, settings.changed(steps=9))
    assert sorted(run.name for run in Run.all(workspace)) == ["again", "parent", "parent-2", "same"]


def tensors(run: Run) -> dict[str, bytes]:
    """The exported LoRA to the bit; its notes name the run, so the files differ."""
    from safetensors.torch import load_file

    assert run.lora is not None
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(run.lora).items()}
