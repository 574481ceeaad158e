"""A run that pushes its LoRA when it has finished: privately, with the stored login, and never at the run's cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_hub import TOKEN, FakeHub
from tests.patience import PATIENCE, until
from workbench import demo, jobs
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.publishing import push
from workbench.runs.model_card import start_push
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, read_json


def prepared(workspace: Workspace, **more: object) -> TrainSettings:
    dataset = Dataset.create(workspace, "stripes")
    dataset.import_files(sorted((demo.DEMO_CLIPS / demo.concept()).glob("*"))[:2])
    chosen = {"steps": 2, "held_out": 0, "preview_every": 0, "rank": 2, "push_to_hub": True, **more}
    return TrainSettings(dataset=dataset.name, **chosen)  # type: ignore[arg-type]


def test_a_finished_run_pushes_its_lora_and_a_failing_push_is_not_its_failure(
    workspace: Workspace, hub: FakeHub
) -> None:
    run = Run.create(workspace, prepared(workspace), "cats")
    run.start()
    assert jobs.wait(run.folder, PATIENCE).state is jobs.State.FINISHED, jobs.log_tail(run.folder)
    place = push.folder(workspace, "lora", "runs/cats")
    until(lambda: jobs.result(place), lambda: jobs.log_tail(place) + jobs.log_tail(run.folder))
    assert jobs.status(place).state is jobs.State.FINISHED, jobs.log_tail(place)
    assert "pytorch_lora_weights.safetensors" in hub.repos["me/cats"]
    assert hub.private == {"me/cats"}
    assert read_json(run.folder / "published.json")["repo_id"] == "me/cats"
    assert "workbench publish lora cats" in jobs.log_tail(run.folder)
    until(lambda: not jobs.status(place).state.alive)
    kept = [path for path in workspace.root.rglob("*") if path.is_file() and not path.name.endswith(".room")]
    assert not [path for path in kept if TOKEN.encode() in path.read_bytes()]

    # Refused by the Hub: the run stays what it was, and the push says why.
    hub.failing, hub.failing_path = 403, "me/cats"
    result = jobs.result(run.folder)
    assert "pushing the LoRA to a private repository" in start_push(run.folder, run.settings)
    assert jobs.wait(place, PATIENCE).state is jobs.State.FAILED
    assert jobs.status(place).message
    assert jobs.result(run.folder) == result

    # Where no job can be started, that is a line of the log.
    place.rename(place.with_name("elsewhere"))
    place.write_text("a file in the way")
    assert "could not be started" in start_push(run.folder, run.settings)


def test_what_would_fail_at_the_end_is_refused_at_the_start(
    workspace: Workspace, hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = prepared(workspace)
    with pytest.raises(ConfigError, match="is no repository|OWNER/NAME"):
        Run.create(workspace, settings.changed(repository="cats of mine"))
    with pytest.raises(ConfigError, match="push_to_hub is on, which pushes a LoRA, but method is full"):
        Run.create(workspace, settings.changed(method="full", learning_rate=1e-5))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="nobody is logged in to the Hub on this machine: log in with"):
        Run.create(workspace, settings)
    assert not list(workspace.runs.glob("*/config.json"))
