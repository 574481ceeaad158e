"""Run panels on folders as runs leave them: diagnosis, failure, forks, sweeps; runs compared.

Panels on real runs are in test_run_panels_live.py, the notebooks themselves in tests/notebooks/.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.test_cli_runs import living, save
from tests.drawing import MakeClip
from tests.written_run import add_preview, ended, write_run
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, ExitCode
from workbench.form_rules import without_effect
from workbench.jobs.queue import QUEUE, order
from workbench.notebook import attach, clone_panel, compare_runs, fork_panel, form, train_panel
from workbench.runs import checkpoints
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.settings import specs
from workbench.workspace import Workspace, write_json


@pytest.fixture
def not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are written, no process begins."""
    monkeypatch.setattr(Run, "start", lambda run: run.status)


def test_another_model_shows_its_settings_and_names_what_it_changes(workspace: Workspace) -> None:
    panel = form(TrainSettings, workspace, model="cogvideox-5b-i2v", condition_frames="every", rank=64)
    panel.sections.selected_index = 0
    row, density = panel._row(panel._specs["condition_frames"]), panel._row(panel._specs["timestep_density"])
    assert (row.layout.display or "", density.layout.display or "") == ("", "none")
    assert "5.63B parameters" in panel.about_model.value
    panel.fields["model"].value = "wan2.1-t2v-1.3b"
    assert (row.layout.display or "", density.layout.display or "") == ("none", "")
    assert "Where the first frame stands was every" in panel.about_model.value
    assert (panel.settings.condition_frames, panel.settings.rank) == ("first", 64)
    panel.set({"model": "cogvideox-5b-i2v", "condition_frames": "every"})  # filled in, as from a finished run
    assert panel.settings.condition_frames == "every"
    assert "was" not in panel.about_model.value


def test_eighty_settings_are_folded_by_section_and_found_by_what_they_do(workspace: Workspace) -> None:
    panel = form(TrainSettings, workspace, ema_decay=0.9)
    advanced = [spec for spec in specs(TrainSettings) if spec.advanced]
    off = without_effect(TrainSettings, panel.values)
    counts = Counter(spec.section for spec in advanced if spec.name not in off)

    def titles() -> list[str]:
        return [panel.sections.get_title(place) for place in range(len(panel.sections.children))]

    assert len(titles()) == len(Counter(spec.section for spec in advanced))
    assert f"Model ({counts['Model']})" == titles()[0]
    assert f"Training ({counts['Training']}, 1 changed)" in titles()
    assert not any(fold.children for fold in panel.sections.children), "rows are made when somebody looks"
    panel.sections.selected_index = 0
    shown = [row for row in panel.sections.children[0].children if not row.layout.display]
    assert len(shown) == counts["Model"]
    panel.search.value = "memory less"
    found = [name for name, row in panel._rows.items() if row in panel.found.children]
    assert {"gradient_checkpointing", "optimizer"} <= set(found)
    assert len(found) < len(advanced) / 4
    assert panel.sections.layout.display == "none"
    panel.fields["gradient_checkpointing"].value = "full"
    assert panel.settings.gradient_checkpointing == "full"
    assert f"Memory and speed ({counts['Memory and speed']}, 1 changed)" in titles()
    panel.search.value = "nonsense"
    assert "No setting contains these words" in panel.found.children[0].value
    panel.search.value = ""
    assert panel.found.children == ()
    assert panel.sections.layout.display == ""


def test_a_run_shows_its_diagnosis_and_renders_the_rest_when_it_is_opened(
    workspace: Workspace, make_clip: MakeClip, tmp_path: Path
) -> None:
    run = write_run(workspace, "cats")
    clip = make_clip(tmp_path / "0.mp4")
    add_preview(run, 0, clip)
    add_preview(run, 200, clip, scale=1.0)
    add_preview(run, 200, clip, stem="0-scale-0.5", scale=0.5)
    add_preview(run, 0, clip, "<i>a cat</i>", stem="input-0", kind="input")
    panel = attach(workspace, "cats")
    assert "Learning: the held-out loss is" in panel.diagnosis.value
    assert "38.6" in panel.facts.value
    assert "best checkpoint, step 200" in panel.chart.value
    assert panel.previews.value.count("<video") == 4
    assert "LoRA at 0.5" in panel.previews.value
    assert panel.more.value == panel.inputs.value == ""
    panel.more_fold.selected_index = 0
    assert panel.more.value.count('class="chart"') == 9
    panel.inputs_fold.selected_index = 0
    assert "&lt;i&gt;a cat" in panel.inputs.value
    assert 'download="report.html"' in panel.write_report().data
    panel.close()

    shown = run._repr_html_()
    assert "Learning: the held-out loss is" in shown
    assert shown.count("<video") == 4


def test_checkpoints_are_listed_with_what_keeps_them(workspace: Workspace) -> None:
    run = write_run(workspace, "cats", keep_checkpoints=1)
    for step in (50, 100, 200):
        save(run, step)
    ended(run.folder, "stopped", ExitCode.STOPPED)
    checkpoints.star(run.folder, 50)
    panel = attach(workspace, "cats")
    assert "starred" in panel.checkpoints.value
    assert "lowest held-out loss" in panel.checkpoints.value
    assert "The last checkpoint is of step 200" in panel.head.value
    panel.close()


@pytest.mark.usefixtures("not_started")
def test_the_failure_of_a_run_has_buttons_that_act(workspace: Workspace, dataset: Dataset) -> None:
    run = write_run(workspace, "cats", batch_size=4, gradient_checkpointing="full")
    settings = run.settings.changed(dataset=dataset.name)
    settings.save(run.folder / jobs.CONFIG)
    save(run, 100, settings)
    ended(run.folder, "failed", ExitCode.OUT_OF_MEMORY, "CUDA out of memory. <b>Tried</b> to allocate 2.00 GiB")
    (run.folder / "checkpoints" / "step-00000200" / "MANIFEST.json").unlink()
    panel = attach(workspace, "cats")
    assert "The GPU ran out of memory" in panel.failure.value
    assert "&lt;b&gt;" in panel.failure.value
    fork, new, resume = panel.button_row.children[:3]
    assert fork.description == "Fork from step 100 with batch_size 2, gradient_accumulation 2"
    fork.click()
    assert panel.message.value == ""
    made = Run.open(workspace, "cats-2")
    assert (made.parent["run"], made.parent["step"]) == ("cats", 100)
    assert (made.settings.batch_size, made.settings.gradient_accumulation) == (2, 2)
    assert panel.forked is not None
    assert "Goes on from step 100 of cats" in panel.forked.head.value
    new.click()
    assert "clone_panel(workspace, &#x27;cats&#x27;, batch_size=2" in panel.message.value
    resume.click()
    assert panel.message.value == ""
    panel.close()
    assert "The GPU ran out of memory" in run._repr_html_()


@pytest.mark.usefixtures("not_started")
def test_clones_forks_and_sweeps_begin_from_a_form(workspace: Workspace, dataset: Dataset) -> None:
    settings = TrainSettings(dataset=dataset.name, steps=20)
    run = Run.create(workspace, settings, "one")
    save(run, 10, settings)
    with pytest.raises(ConfigError, match="no checkpoint of step 11: choose one of"):
        fork_panel(workspace, "one", 11)
    fork = fork_panel(workspace, "one", 10, learning_rate=1e-5)
    assert fork.start().parent["changed"] == {"learning_rate": [1e-4, 1e-5]}
    fork.sweep.value = "rank=1,2"
    fork.start_button.click()
    assert "values to try start runs at step 0" in fork.message.value
    fork.close()
    clone = clone_panel(workspace, "one", rank=2)
    assert clone.start().settings == settings.changed(rank=2)
    clone.close()

    panel = train_panel(workspace, settings)
    panel.sweep.value = "learning_rate=1e-4,3e-4\nrank=2"
    panel.start_button.click()
    assert [each.settings.learning_rate for each in panel.runs] == [1e-4, 3e-4]
    assert panel.run.name == "squares-learning_rate-0.0001-rank-2"
    assert len(panel.panels) == 2
    panel.sweep.value = "rnak=1"
    panel.start_button.click()
    assert "did you mean rank?" in panel.message.value
    panel.close()


def test_compared_runs_show_curves_and_a_table(workspace: Workspace) -> None:
    slow, fast = write_run(workspace, "slow"), write_run(workspace, "fast", 100, learning_rate=3e-4)
    one = compare_runs([slow])._repr_html_()
    assert one.count('class="chart"') == 5
    assert "Settings that differ" not in one
    both = compare_runs([slow, fast])._repr_html_()
    assert "Settings that differ" in both
    assert "0.0003" in both


def test_a_waiting_run_can_be_put_in_front(workspace: Workspace) -> None:
    for name in ("first", "second"):
        living(write_run(workspace, name))
    beat = {"phase": "waiting: second in the queue, after run first", "time": time.time(), "patient": True}
    write_json(workspace.run("second") / jobs.HEARTBEAT, beat)
    write_json(workspace.runs / QUEUE, ["first", "second"])
    panel = attach(workspace, "second")
    assert panel.front_button.layout.display == ""
    assert "second in the queue" in panel.head.value
    panel.front_button.click()
    assert order(workspace) == ["second", "first"]
    panel.close()
