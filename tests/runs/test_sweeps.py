"""Sweeps: every combination, all of them checked before the first is written."""

from __future__ import annotations

import pytest

from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families.model import Model
from workbench.runs.settings import TrainSettings
from workbench.runs.sweeps import created, parse_values
from workbench.workspace import Workspace


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
    with pytest.raises(ConfigError, match="each once"):
        created(workspace, settings, {"rank": [8, 8]})
    with pytest.raises(ConfigError, match="make 121 runs, at most 100"):
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
        ("rank", "is no list of values"),
        ("rank=", "is no list of values"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            parse_values([text])
    assert parse_values(["Learning rate=1e-4", "learning-rate SCHEDULE=cosine"]) == {
        "learning_rate": [1e-4],
        "lr_schedule": ["cosine"],
    }
    with pytest.raises(ConfigError, match="listed twice"):
        parse_values(["rank=8", "rank=16"])
