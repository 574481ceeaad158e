"""Measuring in a real process: figures are kept, nothing is left, and the shell shows them."""

from __future__ import annotations

from tests.shell import Shell
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.families.model import Model
from workbench.fit import measurement, memory
from workbench.fit.estimate import estimate
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

FILES = {"config.json", "process.json", "heartbeat.json", "control", "job.log", "result.json", ".start.lock"}


def test_a_trial_leaves_its_figures_and_nothing_else(
    workspace: Workspace, dataset: Dataset, toy_model: Model, shell: Shell
) -> None:
    flags = ("--model", toy_model.source, "--dataset", "squares", "--batch-size", "2")
    said = shell("fit", *flags, "--measure")
    assert said.code == 0, said.err
    assert " in all; measured." in said.out
    settings = TrainSettings(model=toy_model.source, dataset="squares", batch_size=2)
    fit = estimate(workspace, settings)
    assert fit.measured is not None
    assert set(fit.measured.phases) == set(memory.PHASES)
    assert all(0.1 < gb < 4.0 for gb in fit.measured.phases.values())
    assert fit.measured.step_seconds > 0
    assert fit.measured.checkpoint_bytes > 1000
    assert all(path.name.startswith(".queue") for path in workspace.runs.iterdir())
    status = measurement.newest(workspace)
    assert status is not None
    assert status.state is jobs.State.FINISHED
    assert {path.name for path in status.folder.iterdir()} <= FILES
    assert [path.name for path in (workspace.root / measurement.FOLDER).iterdir()] == [status.name]


def test_the_shell_says_what_would_fit(workspace: Workspace, shell: Shell) -> None:
    said = shell("fit", "--model", "cogvideox-5b", "--rank", "64", "--gpu-memory", "24")
    assert said.code == 91
    assert "It does not fit: most is needed in training." in said.out
    said = shell("fit", "--model", "cogvideox-5b", "--rank", "64", "--gpu-memory", "24", "--fit-to-gpu")
    assert said.code == 0
    assert "--gradient-checkpointing full" in said.out
    assert shell("fit", "--gpu-memory", "24", "--measure").code == 64
    refused = shell("train", "--target", "nowhere", "--fit-to-gpu")
    assert refused.code == 64
