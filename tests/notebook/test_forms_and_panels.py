"""Forms, embedded videos, and the run panel on run folders as a trainer leaves them.

Panels on real runs and samples are in test_run_panels_live.py, the notebooks themselves in tests/notebooks/.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

import workbench
from tests.patience import until
from workbench import Run, Workspace, jobs
from workbench.dataset_builder.settings import (
    CaptionSettings,
    CheckSettings,
    ExportSettings,
    ImportSettings,
    SplitSettings,
)
from workbench.display import inline_html
from workbench.display.charts import thinned
from workbench.errors import ConfigError
from workbench.notebook import attach, form, train_panel
from workbench.notebook.live import Ticker
from workbench.runs import display
from workbench.runs.previews import Preview, RunPreviews
from workbench.runs.settings import TrainSettings
from workbench.sampler.settings import SampleSettings
from workbench.settings import specs


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.open(tmp_path / "workspace")


def folder_of_run(workspace: Workspace, steps: int = 30, result: dict | None = None) -> Run:
    """A run's folder without a process."""
    folder = workspace.run("stripes")
    TrainSettings(steps=steps).save(folder / jobs.CONFIG)
    lines = [{"step": 0, "time": 1.0, "held_out_loss": 0.2}]
    lines += [{"step": step, "time": 1.0, "loss": 1 / step, "lr": 1e-3, "seconds": 0.1} for step in range(1, steps + 1)]
    lines.append({"step": steps, "time": 1.0, "held_out_loss": 0.05})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if result:
        (folder / jobs.RESULT).write_text(json.dumps(result))
    return Run(folder)


# ---- the public names -----------------------------------------------------------------------------------------------


def test_public_names_are_sorted_there_and_loaded_only_when_used() -> None:
    assert workbench.__all__ == sorted(workbench.__all__) == ["Dataset", "Run", "Samples", "Workspace"]
    for name in workbench.__all__:
        assert getattr(workbench, name).__name__ == name
        assert name in dir(workbench)
    with pytest.raises(AttributeError, match="Nothing"):
        workbench.Nothing  # noqa: B018
    check = "import sys, workbench; sys.exit(any(m in sys.modules for m in ('pydantic', 'torch', 'gradio', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_panels_import_neither_torch_nor_gradio() -> None:
    check = "import sys, workbench.notebook; sys.exit(any(m in sys.modules for m in ('torch', 'gradio', 'diffusers')))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


# ---- forms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings_class",
    [TrainSettings, SampleSettings, ImportSettings, SplitSettings, CheckSettings, CaptionSettings, ExportSettings],
)
def test_a_form_shows_every_setting_and_gives_back_its_defaults(settings_class: type, workspace: Workspace) -> None:
    panel = form(settings_class, workspace)
    assert list(panel.fields) == [spec.name for spec in specs(settings_class)]
    assert panel.settings == settings_class()


def test_a_form_reads_what_was_typed(workspace: Workspace) -> None:
    panel = form(TrainSettings, workspace, preview_prompts=["a ring"], learning_rate=5e-4)
    panel.fields["frames"].value = "9"
    panel.fields["fps"].value = "7.5"
    panel.fields["preview_prompts"].value = " a ring \n\n a <b>square</b> "
    panel.fields["regularization_dataset"].value = None
    wanted = TrainSettings(
        frames=9,
        fps=7.5,
        preview_prompts=("a ring", "a <b>square</b>"),
        learning_rate=5e-4,
        regularization_dataset=None,
    )
    assert panel.settings == wanted
    panel.fields["frames"].value = ""
    assert panel.settings.frames is None


def test_a_form_says_what_breaks_a_rule_and_stops_saying_it(workspace: Workspace) -> None:
    panel = form(TrainSettings, workspace)
    panel.fields["steps"].value = 0
    panel.fields["frames"].value = "<nine>"
    assert "steps is 0, must be 1 to" in panel.message.value
    assert "&lt;nine&gt;" in panel.message.value
    assert "<nine>" not in panel.message.value
    with pytest.raises(ConfigError, match="steps is 0"):
        _ = panel.settings
    panel.set({"steps": 10, "frames": 17})
    assert panel.message.value == ""
    assert (panel.settings.steps, panel.settings.frames) == (10, 17)
    with pytest.raises(ConfigError, match="did you mean steps"):
        panel.set({"stepz": 1})


def test_a_form_offers_what_the_workspace_has(workspace: Workspace) -> None:
    panel = form(TrainSettings, workspace, dataset="gone")
    assert panel.settings.dataset == "gone", "a choice that is gone from the disk is kept, not silently replaced"
    (workspace.dataset("cats")).mkdir()
    (workspace.dataset("cats") / "metadata.jsonl").write_text("")
    panel.refresh_choices()
    assert [value for _, value in panel.fields["dataset"].options] == ["", "cats", "gone"]
    assert [value for _, value in panel.fields["regularization_dataset"].options] == [None, "cats"]
    assert "tiny-cogvideox" in panel.fields["model"].options


# ---- embedded videos ------------------------------------------------------------------------------------------------


def test_videos_travel_inside_the_page(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"video")
    assert 'src="data:video/mp4;base64,dmlkZW8="' in inline_html.video(path, source_width=48)
    assert "pixelated" in inline_html.video(path, source_width=48)
    assert "pixelated" not in inline_html.video(path, source_width=720)
    with path.open("wb") as file:
        file.truncate(inline_html.EMBED_LIMIT + 1)
    assert "too large" in inline_html.video(path)
    path.unlink()
    assert "gone" in inline_html.video(path)


def test_previews_are_a_table_of_prompts_by_steps_and_prompts_are_escaped(tmp_path: Path) -> None:
    found: list[Preview] = []
    prompts = ["<script>x</script>", "a ring"]
    for step in range(0, 100, 10):
        path = tmp_path / f"{step}.mp4"
        path.write_bytes(b"v")
        found += [Preview(step, index, prompt, path) for index, prompt in enumerate(prompts)]
    table = display.previews(RunPreviews(tuple(found)), 64)
    assert "<script>" not in table
    ElementTree.fromstring(f"<div>{table}</div>".replace(" autoplay loop muted playsinline controls ", " "))
    assert table.count("<video") == 2 * display.COLUMNS
    assert "base model" in table
    assert "step 90" in table
    assert thinned([0, 10, 20, 30, 40, 50], 5)[0::4] == [0, 50]


# ---- the run panel --------------------------------------------------------------------------------------------------


def test_a_finished_run_is_shown_from_its_files(workspace: Workspace) -> None:
    run = folder_of_run(workspace, result={"status": "finished", "exit_code": 0})
    (run.folder / "lora.safetensors").write_bytes(b"x")
    (run.folder / jobs.LOG).write_text("<img src=x onerror=alert(1)>\n")
    panel = attach(workspace)
    assert "finished" in panel.head.value
    assert "0.0500" in panel.facts.value
    assert "<svg" in panel.chart.value
    assert "<img" not in panel.log.value
    assert "The LoRA is ready" in panel.head.value
    assert "go on" not in panel.buttons
    assert "stop" not in panel.buttons
    panel.close()
    assert not panel.ticker.running


def test_a_dead_run_says_how_to_go_on(workspace: Workspace) -> None:
    run = folder_of_run(workspace)
    (run.folder / jobs.PROCESS).write_text(json.dumps({"pid": 1, "start_time": "no", "boot_id": "another"}))
    panel = attach(workspace, "stripes")
    assert "ended without a word" in panel.failure.value
    assert "No checkpoint was written yet" in panel.failure.value
    assert panel.button_row.children[0].description == "Begin again at step 0"
    panel.close()


def test_metrics_are_read_on_and_a_resumed_run_is_read_anew(workspace: Workspace) -> None:
    run = folder_of_run(workspace, steps=3)
    panel = attach(workspace)
    panel.close()
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "time": 2.0, "loss": 8.0}\n{"step": 5, "ti')
    panel.refresh()
    assert panel._reader.read().curves.last["step"] == 4
    (run.folder / "metrics.jsonl").write_text('{"step": 1, "time": 3.0, "loss": 7.0}\n')
    panel.refresh()
    assert [mean.value for mean in panel._reader.read().curves.losses.means()] == [7.0]


def test_attaching_to_nothing_says_so(workspace: Workspace) -> None:
    with pytest.raises(ConfigError, match="no run in this workspace"):
        attach(workspace)
    with pytest.raises(ConfigError, match="there is no run 'x'"):
        attach(workspace, "x")


def test_starting_with_a_bad_setting_shows_the_sentence_instead_of_a_traceback(workspace: Workspace) -> None:
    panel = train_panel(workspace, TrainSettings(dataset=""))
    panel.start_button.click()
    assert "dataset is empty" in panel.message.value
    with pytest.raises(ConfigError, match="no run was started here"):
        panel.wait()
    panel.close()


def test_a_ticker_ends_when_told_and_can_begin_again() -> None:
    ticks: list[float] = []
    others = set(threading.enumerate())

    def tick() -> bool:
        ticks.append(time.monotonic())
        return True

    ticker = Ticker(tick, seconds=0.01)
    ticker.start()
    until(lambda: len(ticks) > 1)
    ticker.stop()
    count = len(ticks)
    time.sleep(0.05)
    assert len(ticks) == count
    ticker.start()
    until(lambda: len(ticks) > count)
    ticker.stop()
    until(lambda: set(threading.enumerate()) <= others)
