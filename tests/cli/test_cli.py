"""The shell: flags made from settings, sentences and exit codes, the loop with real processes, and a quick start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.shell import Shell, ctrl_c
from tests.written_run import write_run
from workbench import demo, jobs
from workbench.cli import COMMANDS
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.errors import ExitCode
from workbench.families.model import Model
from workbench.jobs import processes
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, write_json

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parent.parent.parent


def fast(model: Model) -> list[str]:
    """Flags for a run of seconds."""
    flags = f"--frames {model.frames} --steps 3 --rank 2 --preview-every 0 --evaluate-every 1 --warmup-steps 0"
    return ["--dataset", "squares", "--model", model.source, *flags.split()]


# ---- flags and sentences


def test_every_command_explains_itself(shell: Shell) -> None:
    for command in COMMANDS:
        assert command == "webui" or shell(command, "--help").code == 0, command  # whose help is the page's own


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["train", "--steps", "many"], 64, 'Error: steps is "many", must be 1 to 1000000 steps: the default is 300\n'),
        (["train"], 64, "Error: dataset is empty: choose one of yours"),
        (["train", "--dataset", "none"], 64, "Error: dataset is 'none', which this workspace does not have"),
        (["train", "--config", "missing.json"], 64, "is missing: check the name"),
        (["runs", "show", "none"], 64, "Error: there is no run 'none': choose one of none yet"),
        (["runs", "stop", "../x"], 64, "cannot be used"),
        (["sample", "x", "--model", "none"], 64, "Error: model is 'none'"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_a_mistake_is_one_sentence_and_a_code(shell: Shell, arguments: list[str], code: int, sentence: str) -> None:
    said = shell(*arguments)
    assert said.code == code
    assert sentence in said.err
    assert "Traceback" not in said.err


def test_flags_win_over_the_file_and_the_file_over_defaults(
    shell: Shell,
    workspace: Workspace,
    dataset: Dataset,
    toy_model: Model,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(Run, "start", lambda run: run.status)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"dataset": dataset.name, "model": toy_model.source, "steps": 7, "rank": 3}))
    flags = ["--rank", "4", "--exact", "--frames", "", "--preview-prompt", "a", "--preview-prompt", "b"]
    assert shell("train", "--config", config, *flags, "--detach", "--name", "one").code == 0
    kept = Run.open(workspace, "one").settings
    assert (kept.steps, kept.rank, kept.batch_size) == (7, 4, 1)
    assert kept.exact
    assert kept.frames is None
    assert kept.preview_prompts == ("a", "b")
    (prompts := tmp_path / "prompts.txt").write_bytes("\ufeffa ship\r\n\nein Löwe \n".encode())
    more = ["--detach", "--preview-prompt", f"@{prompts}", "--preview-prompt", "c"]
    assert shell("train", "--config", config, *more, "--name", "two").code == 0
    assert Run.open(workspace, "two").settings.preview_prompts == ("a ship", "ein Löwe", "c")
    said = shell("train", "--config", config, "--preview-prompt", "@nowhere.txt")
    assert said.err.startswith("Error: preview_prompts is @nowhere.txt, not a UTF-8 text file: ")


def test_the_workspace_may_be_named_before_or_behind_the_command(shell: Shell, tmp_path: Path) -> None:
    for place in (["--workspace", tmp_path / "w", "runs"], ["runs", "--workspace", tmp_path / "w"]):
        assert shell(*place).code == 0
        assert (tmp_path / "w" / "runs").is_dir()
        (tmp_path / "w" / "runs").rmdir()
    (tmp_path / "file").touch()
    said = shell("runs", "--workspace", tmp_path / "file" / "below")
    assert (said.code, said.err.startswith("Error: cannot write")) == (ExitCode.CANNOT_WRITE, True)


# ---- the loop, with real processes


def test_train_watch_and_sample(shell: Shell, workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    said = shell("train", *fast(toy_model), "--name", "short")
    assert said.code == 0, said.out + said.err
    run = Run.open(workspace, "short")
    assert run.lora
    assert str(run.lora) in said.out
    assert "held-out loss" in said.out
    assert "3/3" in shell("runs").out
    assert "short: finished" in shell("runs", "show", "short").out
    assert shell("runs", "follow", "short").code == 0
    said = shell("runs", "pause", "short")
    assert said.code == 64
    assert "short has finished, and only a running run takes commands" in said.err

    flags = ["--model", toy_model.source, "--steps", "1", "--frames", str(toy_model.frames)]
    said = shell("sample", "a square", *flags, "--lora", "short=0.5", "--guidance-scale", "1")
    assert said.code == 0, said.err
    video = Path(said.out.strip())
    assert video.exists()
    assert json.loads(video.with_suffix(".json").read_text())["settings"]["loras"]
    for config in (video, video.with_suffix(".json")):
        said = shell("sample", "--config", config, "--seed", "5")
        assert said.code == 0, said.err
        again = json.loads(Path(said.out.strip()).with_suffix(".json").read_text())["settings"]
        assert (again["prompt"], again["seed"], again["steps"]) == ("a square", 5, 1)
    assert shell("sample").code == 2

    story = ["sample", "a square\na circle", *flags, "--join", workspace.root / "story.mp4"]
    assert "give --scenes" in shell(*story).err
    said = shell(*story, "--scenes")
    assert said.code == 0, said.err
    first, second, sample, joined = (Path(line) for line in said.out.split())
    assert sample.read_bytes() == joined.read_bytes()
    kept = json.loads(second.with_suffix(".json").read_text())["kept_frames"]
    assert 0 < kept < toy_model.frames
    assert media.probe(joined).frames == 2 * toy_model.frames - kept
    assert np.abs(media.read_frames(joined, [0]) * 1.0 - media.read_frames(first, [0])).mean() < 5
    assert "which exists" in shell(*story, "--scenes").err
    said = shell("sample", "--config", sample, "--seed", "5", "--join", workspace.root / "again.mp4")
    assert said.code == 0, said.err
    assert len(said.out.split()) == 4  # the video knows that its lines are scenes
    said = shell("sample", "a square", *flags, "--scenes", "--join", workspace.root / "one.mp4")
    assert said.code == 0, said.err
    only, copy = (Path(line) for line in said.out.split())
    assert only.read_bytes() == copy.read_bytes()


def test_the_demo_ends_with_a_video_and_can_be_repeated(
    shell: Shell, workspace: Workspace, dataset: Dataset, toy_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = TrainSettings(
        dataset=dataset.name, model=toy_model.source, steps=2, rank=2, preview_every=0, evaluate_every=1, held_out=1
    )
    monkeypatch.setattr(demo, "prepare", lambda workspace, on_progress: settings)
    monkeypatch.setattr(demo, "prompts", lambda: ("a square",))
    Run.create(workspace, settings, "demo")  # somebody's first, which stays as it is
    said = shell("demo")
    assert said.code == 0, said.out + said.err
    run = Run.open(workspace, "demo-2")
    for left in ("before_after.mp4", "before_after.png", "lora.safetensors"):
        assert (run.folder / left).exists()
        assert str(run.folder / left) in said.out
    assert "held-out loss" in said.out
    assert "4/4" in said.out
    assert media.probe(run.folder / "before_after.mp4").width > 2 * 200  # without and with the LoRA
    with Image.open(run.folder / "before_after.png") as sheet:
        assert sheet.width > 6 * 200  # three frames of each
    assert not (workspace.run("demo") / "lora.safetensors").exists()


def test_ctrl_c_leaves_the_run_alone_and_stop_ends_it(
    shell: Shell, workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = Run(workspace.run("long"))
    try:
        flags = [*fast(toy_model), "--steps", "100000", "--name", "long"]
        out = ctrl_c("train", *flags, when=lambda: bool(run.metrics))
        assert "The run continues. Watch: workbench runs follow long" in out
        assert run.status.state.alive
        assert "pauses after this step" in shell("runs", "pause", "long").out
        assert "long resumes" in shell("runs", "resume", "long").out
        assert shell("runs", "stop", "long", "--grace", "60").code == 0
        assert run.status.state is jobs.State.STOPPED
        said = shell("runs", "follow", "long")
        assert said.code == ExitCode.STOPPED
        assert "workbench runs start long" in said.out
    finally:
        jobs.kill(run.folder)


# ---- what watching shows


def test_watching_a_run_shows_its_newest_losses(
    shell: Shell, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(workspace, "cats")
    result, metrics = run.folder / "result.json", run.folder / "metrics.jsonl"
    ending = result.read_bytes()
    result.unlink()
    metrics.write_text('{"step": 0, "held_out_loss": 0.9}\n{"step": 1, "loss": 0.5}\n{"step": 2, "lo')
    write_json(run.folder / "process.json", {**processes.identity(os.getpid()), "started_at": 1.0})

    def goes_on(seconds: float) -> None:
        with metrics.open("a") as file:
            file.write('ss": 0.25}\n{"step": 2, "held_out_loss": 0.8}\n')
        result.write_bytes(ending)

    monkeypatch.setattr(time, "sleep", goes_on)
    said = shell("runs", "follow", "cats").out
    assert "loss 0.5000, held-out 0.9000\n" in said
    assert "loss 0.2500, held-out 0.8000\n" in said
    assert "finished at step 2" in said


def test_doctor_says_what_it_found(shell: Shell) -> None:
    said = shell("doctor", "--quick")
    for word in ("python", "torch", "device", "workspace", "model cache", "browser"):
        assert word in said.out
    assert said.out.rstrip().endswith(("all in order", "to fix"))


@pytest.mark.parametrize("arguments", [["runs"], ["dataset", "--help"]])
def test_the_shell_loads_nothing_large(arguments: list[str], tmp_path: Path) -> None:
    """What makes a command slow to start is what it imports: a machine's speed plays no part."""
    code = (
        "import sys; from workbench.cli import main; sys.argv[1:] = sys.argv[2:]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(len(sys.modules), *{name.partition('.')[0] for name in sys.modules})"
    )
    environment = {**os.environ, "WORKBENCH_HOME": str(tmp_path)}
    command = [sys.executable, "-c", code, "-", *arguments]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    count, *loaded = said.stdout.splitlines()[-1].split()
    large = {"torch", "diffusers", "transformers", "peft", "gradio", "pandas", "matplotlib", "cv2", "httpx", "IPython"}
    assert not large & set(loaded)
    assert int(count) < 600
