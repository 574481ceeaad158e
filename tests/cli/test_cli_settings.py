"""What flags and files make of settings, and what is said of those that do nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.shell import Shell
from tests.written_run import write_run
from workbench.cli import samples as samples_command
from workbench.cli.options import settings_from
from workbench.dataset_builder import Dataset
from workbench.errors import ExitCode
from workbench.form_rules import DECIDED_BY, NEEDED, needless
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace, write_json


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


def test_the_length_of_a_run_is_said_once(shell: Shell, workspace: Workspace, dataset: Dataset) -> None:
    refused = shell("train", "--dataset", "squares", "--steps", "20", "--epochs", "3")
    assert refused.code == ExitCode.BAD_CONFIG
    assert "--steps and --epochs both say how long the run is" in refused.err
    write_run(workspace, "old", epochs=3.0)
    assert fit(shell, "--clone", "old")["epochs"] == 3.0
    longer = fit(shell, "--clone", "old", "--steps", "77")
    assert (longer.get("epochs"), longer["steps"]) == (None, 77)


def test_a_file_gives_a_prompt_a_line(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many: list[SampleSettings] = []
    monkeypatch.setattr(samples_command, "generate_all", lambda workspace, wanted, chains: many.extend(wanted) or [])
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a cat\n\n a dog, at night \n", encoding="utf-8")
    with pytest.raises(IndexError):  # nothing was generated
        shell("sample", f"@{prompts}", "--seed", "3")
    assert [(one.prompt, one.seed) for one in many] == [("a cat", 3), ("a dog, at night", 3)]
    missing = shell("sample", f"@{tmp_path / 'none.txt'}")
    assert missing.code == ExitCode.BAD_CONFIG
    assert "none.txt, no file of text in UTF-8" in missing.err


def test_a_setting_without_effect_names_the_one_that_decides() -> None:
    """Guidance 1 and a negative prompt, a gamma without its weighting: every rule that forms hide by."""
    given = settings_from(SampleSettings, (), {"negative_prompt": "blurry", "guidance_scale": "1"}, prompt="a cat")
    assert needless(given, ["negative_prompt"]) == ["negative_prompt has no effect while guidance_scale is 1."]
    assert not needless(given.changed(guidance_scale=6.0), ["negative_prompt"])
    run = TrainSettings(dataset="cats").changed(snr_gamma=3.0, validation_dataset="more", held_out=0)
    assert needless(run, ["snr_gamma", "validation_dataset"]) == [
        "validation_dataset has no effect while held_out is 0.",
        "snr_gamma has no effect while loss_weighting is none.",
    ]
    assert not needless(run, []), "only what was given"
    named = {name for names in DECIDED_BY.values() for name in names}
    refused = {"start_from", "train_also", "preservation_weight"}  # by runs.checks, in a sentence of their own
    assert all(set(rules) - refused <= named for rules in NEEDED.values())


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
