"""Runs in the shell: settings from flags and files, sweeps, clones and forks, and reports about runs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.stripes import few_clips
from tests.shell import Shell
from tests.test_overview import at_work
from tests.written_run import ended, two_sessions, write_run
from workbench import jobs
from workbench.cli.options import settings_from
from workbench.dataset_builder import Dataset
from workbench.errors import ExitCode
from workbench.form_rules import needless
from workbench.jobs import processes
from workbench.jobs.queue import QUEUE
from workbench.runs import checkpoints
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.sampler.settings import SampleSettings
from workbench.settings import specs
from workbench.workspace import Workspace, write_json


@pytest.fixture
def not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write runs without starting their processes."""
    monkeypatch.setattr(Run, "start", lambda run: run.status)


def save(run: Run, step: int, settings: TrainSettings | None = None) -> None:
    """Save a checkpoint that passes verification."""

    def fill(folder: Path) -> None:
        (folder / checkpoints.LORA).write_bytes(b"weights" * 100_000)
        state = {"step": step, "settings": (settings or run.settings).model_dump(mode="json"), "versions": {}}
        write_json(folder / checkpoints.STATE, state)

    checkpoints.publish(run.folder, step, fill)


def living(run: Run) -> None:
    """Make the run look as if this process were training it."""
    (run.folder / jobs.RESULT).unlink()
    write_json(run.folder / jobs.PROCESS, {**processes.identity(os.getpid()), "started_at": 1.0})


# ---- starting


def test_the_help_begins_with_the_handful_and_has_every_setting_once(shell: Shell) -> None:
    said = shell("train", "--help").out
    first, rest = said.split("Most used:\n")[1].split("\nModel:\n")
    for spec in specs(TrainSettings):
        flag = f"--{spec.name.replace('_', '-')}"
        assert (f"  {flag}" in first or f", {flag}" in first) != spec.advanced, flag
    assert first.count("\n  --") <= 14
    assert rest.count("--train-also") == 1
    assert rest.index("Data:") < rest.index("Training:") < rest.index("Machine:")


@pytest.mark.usefixtures("not_started")
def test_a_clone_takes_over_the_settings_and_a_sweep_every_combination(
    shell: Shell, workspace: Workspace, dataset: Dataset
) -> None:
    shell("train", "--dataset", dataset.name, "--rank", "3", "--preview-prompt", "a", "--name", "one", "--detach")
    said = shell("train", "--clone", "one", "--steps", "7", "--preview-prompt", "", "--detach")
    assert said.code == 0, said.err
    assert "watch it: workbench runs follow one-2" in said.out
    clone = Run.open(workspace, "one-2").settings
    assert (clone.rank, clone.steps, clone.preview_prompts) == (3, 7, ())
    assert "'Learning rate=1e-4,3e-4'" in " ".join(shell("train", "--help").out.split())
    flags = ["--sweep", "Learning rate=1e-4,3e-4", "--sweep", "rank=2,4"]  # by label, and by key
    said = shell("train", "--clone", "one", *flags, "--detach")
    assert said.code == 0, said.err
    names = [f"one-learning_rate-{rate}-rank-{rank}" for rate in ("0.0001", "0.0003") for rank in (2, 4)]
    assert f"workbench runs compare {' '.join(names)}" in said.out
    assert [Run.open(workspace, name).settings.rank for name in names] == [2, 4, 2, 4]
    assert {Run.open(workspace, name).group for name in names} == {"one: learning rate, rank"}


@pytest.mark.usefixtures("not_started")
def test_a_fork_goes_on_from_a_checkpoint_with_what_was_changed(
    shell: Shell, workspace: Workspace, dataset: Dataset
) -> None:
    settings = TrainSettings(dataset=dataset.name, steps=20)
    parent = Run.create(workspace, settings, "parent")
    save(parent, 10, settings)
    flags = ["--learning-rate", "5e-5", "--optimizer", "muon", "--detach"]
    said = shell("train", "--fork", "parent@10", *flags)
    assert said.code == 0, said.err
    assert "not carried over: the optimizer's state" in said.out
    fork = Run.open(workspace, "parent-2")
    assert fork.checkpoints == [10]
    assert fork.settings == settings.changed(learning_rate=5e-5, optimizer="muon")
    changes = "with learning_rate 0.0001 → 5e-05; optimizer adamw → muon."
    assert f"Continues from step 10 of parent, {changes}" in shell("runs", "show", "parent-2").out
    said = shell("train", "--fork", "parent@10", "--rank", "3", "--detach")
    assert said.code == ExitCode.BAD_CONFIG
    assert "rank was 16, is 3" in said.err
    assert "choose one of 10" in shell("train", "--fork", "parent@9").err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--fork", "one"], "fork is 'one', must be RUN@STEP"),
        (["--clone", "a", "--fork", "b@1"], "--clone and --fork both say where the settings come from"),
        (["--sweep", "rnak=1,2"], "rnak is not a setting: did you mean rank?"),
    ],
)
def test_what_cannot_be_begun_is_one_sentence(shell: Shell, flags: list[str], sentence: str) -> None:
    said = shell("train", *flags)
    assert (said.code, sentence in said.err) == (ExitCode.BAD_CONFIG, True), said.err


# ---- looking


def test_the_list_tells_the_diagnosis_and_the_place_in_the_queue(shell: Shell, workspace: Workspace) -> None:
    for name in ("done", "waits", "goes"):
        write_run(workspace, name)
    for name in ("waits", "goes"):
        living(Run.open(workspace, name))
    write_json(workspace.runs / QUEUE, ["waits"])
    lines = {line.split()[0]: line for line in shell("runs").out.splitlines()}
    assert "waiting, next" in lines["waits"]
    assert "waiting" not in lines["goes"]
    assert "finished" in lines["done"]
    assert "learning" in lines["done"]
    assert "200/200" in lines["done"]
    said = shell("runs", "queue").out
    assert re.search(r"^now +goes$", said, re.MULTILINE)
    assert re.search(r"^1 +waits$", said, re.MULTILINE)
    write_json(workspace.runs / QUEUE, ["goes", "waits"])
    assert shell("runs", "move", "waits", "1").out == "1  waits\n2  goes\n"
    assert "only waiting runs have a position" in shell("runs", "move", "done", "1").err


def test_a_failed_run_explains_itself_with_commands_that_help(shell: Shell, workspace: Workspace) -> None:
    run = write_run(workspace, "cats", batch_size=4, gradient_checkpointing="full")
    error = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB"
    ended(run.folder, "failed", ExitCode.OUT_OF_MEMORY, error)
    for said in (shell("runs", "show", "cats"), shell("runs", "follow", "cats")):
        assert "The GPU ran out of memory" in said.out + said.err
        assert "The last checkpoint is from step 200." in said.out + said.err
        lighter = "--batch-size 2 --gradient-accumulation 2"
        for command in (f"train --fork cats@200 {lighter}", f"train --clone cats {lighter}", "runs start cats"):
            assert re.search(f"^next:? +workbench {command}$", said.out, re.MULTILINE)
    assert shell("runs", "follow", "cats").code == ExitCode.OUT_OF_MEMORY


def test_the_time_of_a_run_is_that_of_training(shell: Shell, workspace: Workspace) -> None:
    two_sessions(write_run(workspace, "cats"))
    shown = shell("runs", "show", "cats").out
    assert re.search(r"^training time +1 min 10 s$", shown, re.MULTILINE), shown
    assert "cats finished at step 200 after 1 min 10 s of training\n" in shell("runs", "follow", "cats").out


def test_stacks_of_a_run_that_hung_and_previews_at_other_scales(shell: Shell, workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    assert "left no stack traces" in shell("runs", "stacks", "cats").err
    (run.folder / "stacks.txt").write_text("Thread 0x1: in loader\n")
    assert "in loader" in shell("runs", "stacks", "cats").out
    assert "only a running run takes commands" in shell("runs", "preview", "cats").err
    living(run)
    assert shell("runs", "preview", "cats", "--prompt", "a cat", "--scale", "0", "--scale", "0.5").code == 0
    asked = json.loads((run.folder / "control" / "preview").read_text())
    assert asked == {"prompt": "a cat", "scales": [0.0, 0.5], "previews": True}


# ---- weights in another layout


def test_a_recipe_says_why_and_flags_win_over_it(shell: Shell, workspace: Workspace, not_started: None) -> None:
    said = shell("recipes", "effect", "--model", "cogvideox-5b").out
    assert "start: workbench train --recipe effect --dataset NAME --model cogvideox-5b" in said
    assert "2,000" not in said
    assert "https://huggingface.co/finetrainers/CogVideoX-1.5-crush-smol-v0" in said
    listed = json.loads(shell("recipes", "--model", "cogvideox-5b", "--json").out)
    assert [one["settings"]["steps"] for one in listed] == [2000, 2000, 2000, 2000, 2000, 3000, 2000, 1000, 2000]
    assert [one["subject"] for one in listed[6:]] == ["masked", "slider", "training adapter"]
    dataset = few_clips(workspace).dataset
    begun = shell("train", "--recipe", "style", "--dataset", dataset, "--rank", "4", "--name", "one", "--detach")
    assert begun.code == 0, begun.err
    settings = Run.open(workspace, "one").settings
    assert (settings.steps, settings.rank, settings.learning_rate, settings.batch_size) == (1400, 4, 2e-3, 4)
    assert "watch for overfitting" in begun.out
    assert "recipe is 'mood'" in shell("train", "--recipe", "mood").err
    model = ("--model", "cogvideox-5b", "--gpu-memory", "12")
    (small,) = json.loads(shell("recipes", "style", *model, "--json").out)
    assert small["gpu"] == "12 GB"
    fitted = json.loads(shell("fit", "--recipe", "style", *model, "--json").out)
    assert fitted["fits"]
    assert fitted["settings"]["gradient_checkpointing"] != "none"
    own = json.loads(shell("fit", "--recipe", "style", *model, "--gradient-checkpointing", "none", "--json").out)
    assert not own["fits"], "who sets one of the memory settings keeps them all"


def test_a_run_that_still_stops_is_not_silently_left_alone(shell: Shell, workspace: Workspace) -> None:
    run = write_run(workspace, "cats", 20)
    at_work(run)
    (run.folder / "control").mkdir()
    (run.folder / "control" / "stop").touch()
    refused = shell("runs", "start", "cats", "--detach")
    assert refused.code == 64
    assert "cats is still stopping: start it when it has ended" in refused.err


# ---- settings from flags and files


def fit(shell: Shell, *flags: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shell("fit", "--dataset", "squares", *flags, "--json").out)["settings"]
    return found


def test_files_of_settings_win_in_their_order_and_flags_over_all(
    shell: Shell, dataset: Dataset, tmp_path: Path
) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    write_json(one, {"rank": 8, "alpha": 4.0, "steps": 50})
    write_json(two, {"rank": 32, "steps": 70})
    both = ("--config", one, "--config", two)
    assert fit(shell, *both) == {"dataset": "squares", "rank": 32, "alpha": 4.0, "steps": 70}
    assert fit(shell, *both, "--steps", "9")["steps"] == 9
    assert fit(shell, *reversed([one, "--config", two, "--config"]))["rank"] == 8


def test_a_setting_without_effect_names_the_one_that_decides() -> None:
    """Guidance 1 and a negative prompt, a gamma without its weighting: every rule that hides a field of a form."""
    given = settings_from(SampleSettings, (), {"negative_prompt": "blurry", "guidance_scale": "1"}, prompt="a cat")
    assert needless(given, ["negative_prompt"]) == ["negative_prompt has no effect while guidance_scale is 1."]
    assert not needless(given.changed(guidance_scale=6.0), ["negative_prompt"])
    run = TrainSettings(dataset="cats").changed(snr_gamma=3.0, validation_dataset="more", held_out=0)
    assert needless(run, ["snr_gamma", "validation_dataset"]) == [
        "validation_dataset has no effect while held_out is 0.",
        "snr_gamma has no effect while loss_weighting is none.",
    ]
    assert not needless(run, []), "only what was given"


@pytest.mark.parametrize("state", ["finished", "new"])
def test_a_full_fine_tune_is_not_said_to_lack_its_lora(shell: Shell, workspace: Workspace, state: str) -> None:
    run = write_run(workspace, "whole", method="full")
    if state == "finished":
        write_json(run.folder / "model_index.json", {})
    shown, sampled = shell("runs", "show", "whole").out, shell("sample", "a cat", "--lora", "whole")
    assert "LoRA  " not in shown
    assert sampled.code == ExitCode.BAD_CONFIG
    assert "yet" not in sampled.err
    assert "choose runs/whole as the model" in sampled.err
    if state == "finished":
        assert str(run.folder) in shown
        assert "The model is ready" in (Run.open(workspace, "whole")._repr_html_())


def test_a_run_without_its_lora_offers_its_checkpoint(shell: Shell, workspace: Workspace) -> None:
    run = write_run(workspace, "cut")
    assert "workbench runs show cut" in shell("sample", "a cat", "--lora", "cut").err
    (run.folder / "checkpoints" / "step-00000200" / "lora.safetensors").write_bytes(b"x")
    assert "use its newest checkpoint, runs/cut@200" in shell("sample", "a cat", "--lora", "cut").err
