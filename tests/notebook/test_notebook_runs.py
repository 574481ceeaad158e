"""Runs in the notebook's panels, on folders as runs leave them: verdict, card, checkpoints, forks, sweeps, comparison.

The panels on real runs are in test_notebook_live.py, the notebooks themselves in notebooks/.
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
from workbench.notebook import attach, clone_panel, compare_panel, fork_panel, form, train_panel
from workbench.runs import retention
from workbench.runs.queue import QUEUE, order
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.settings import specs
from workbench.workspace import Workspace, write_json


@pytest.fixture
def not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are written, no process begins."""
    monkeypatch.setattr(Run, "start", lambda run: run.status)


def test_eighty_settings_are_folded_by_section_and_found_by_what_they_do(workspace: Workspace) -> None:
    panel = form(TrainSettings, workspace, ema_decay=0.9)
    advanced = [spec for spec in specs(TrainSettings) if spec.advanced]
    counts = Counter(spec.section for spec in advanced)

    def titles() -> list[str]:
        return [panel.sections.get_title(place) for place in range(len(panel.sections.children))]

    assert len(titles()) == len(counts)
    assert f"Model ({counts['Model']})" == titles()[0]
    assert f"Training ({counts['Training']}, 1 changed)" in titles()
    assert not any(fold.children for fold in panel.sections.children), "rows are made when somebody looks"
    panel.sections.selected_index = 0
    assert len(panel.sections.children[0].children) == counts["Model"]
    panel.search.value = "memory less"
    found = [name for name, row in panel._rows.items() if row in panel.found.children]
    assert {"gradient_checkpointing", "optimizer"} <= set(found)
    assert len(found) < len(advanced) / 4
    assert panel.sections.layout.display == "none"
    panel.fields["gradient_checkpointing"].value = "full"
    assert panel.settings.gradient_checkpointing == "full"
    assert f"Memory and speed ({counts['Memory and speed']}, 1 changed)" in titles()
    panel.search.value = "nonsense"
    assert "No setting says that" in panel.found.children[0].value
    panel.search.value = ""
    assert panel.found.children == ()
    assert panel.sections.layout.display == ""


def test_a_run_tells_its_verdict_and_draws_the_rest_when_it_is_opened(
    workspace: Workspace, make_clip: MakeClip, tmp_path: Path
) -> None:
    run = write_run(workspace, "cats")
    clip = make_clip(tmp_path / "0.mp4")
    add_preview(run, 0, clip)
    add_preview(run, 200, clip, scale=1.0)
    add_preview(run, 200, clip, stem="0-scale-0.5", scale=0.5)
    add_preview(run, 0, clip, "<i>a cat</i>", stem="input-0", kind="input")
    panel = attach(workspace, "cats")
    assert "Learning: the held-out loss is" in panel.verdict.value
    assert "output changed by 38.6% on its own captions, by 3.9% on others" in panel.numbers.value
    assert "best checkpoint, step 200" in panel.chart.value
    assert panel.previews.value.count("<video") == 4
    assert "LoRA at 0.5" in panel.previews.value
    assert panel.more.value == panel.inputs.value == ""
    panel.more_fold.selected_index = 0
    assert "others: the leak" in panel.more.value
    assert panel.more.value.count('class="chart"') == 8
    panel.inputs_fold.selected_index = 0
    assert "&lt;i&gt;a cat" in panel.inputs.value
    assert 'download="report.html"' in panel.write_report().data
    assert panel.report.value
    panel.close()


def test_checkpoints_are_starred_and_go_after_a_look(workspace: Workspace) -> None:
    run = write_run(workspace, "cats", keep_checkpoints=1)
    for step in (50, 100, 200):
        save(run, step)
    ended(run.folder, "stopped", ExitCode.STOPPED)
    panel = attach(workspace, "cats")
    part = panel.checkpoints
    assert list(part.step.options) == [50, 100, 200]
    assert part.table.value.count("goes when the next is saved") == 2
    part.step.value = 50
    part.star_button.click()
    assert retention.starred(run.folder) == [50]
    assert part.remove_button.layout.display == "none"
    part.look_button.click()
    assert "These can go: step 100 (0.7 MB)." in part.going.value
    assert run.checkpoints == [50, 100, 200]
    part.remove_button.click()
    assert run.checkpoints == [50, 200]
    panel.close()


@pytest.mark.usefixtures("not_started")
def test_the_card_of_a_failed_run_has_buttons_that_act(workspace: Workspace, dataset: Dataset) -> None:
    run = write_run(workspace, "cats", batch_size=4, gradient_checkpointing="full")
    settings = run.settings.changed(dataset=dataset.name)
    settings.save(run.folder / jobs.CONFIG)
    save(run, 100, settings)
    ended(run.folder, "failed", ExitCode.OUT_OF_MEMORY, "CUDA out of memory. <b>Tried</b> to allocate 2.00 GiB")
    (run.folder / "checkpoints" / "step-00000200" / "MANIFEST.json").unlink()
    panel = attach(workspace, "cats")
    assert "The GPU ran out of memory" in panel.failure.text.value
    assert "&lt;b&gt;" in panel.failure.text.value
    fork, new, go_on = panel.failure.buttons.children
    assert fork.description == "Go on from step 100 with batch_size 2, gradient_accumulation 2"
    fork.click()
    assert panel.said.value == ""
    made = Run.open(workspace, "cats-2")
    assert (made.parent["run"], made.parent["step"]) == ("cats", 100)
    assert (made.settings.batch_size, made.settings.gradient_accumulation) == (2, 2)
    assert panel.branched is not None
    assert "a fork of cats at step 100" in panel.branched.live.head.value
    new.click()
    assert panel.branched.begin.value is None
    assert panel.branched.form.settings.batch_size == 2
    panel.branched.start_button.click()
    assert Run.open(workspace, "cats-3").parent == {}
    go_on.click()
    assert panel.said.value == ""
    panel.close()


@pytest.mark.usefixtures("not_started")
def test_clones_forks_and_sweeps_begin_from_a_form(workspace: Workspace, dataset: Dataset) -> None:
    settings = TrainSettings(dataset=dataset.name, steps=20)
    run = Run.create(workspace, settings, "one")
    save(run, 10, settings)
    with pytest.raises(ConfigError, match="no checkpoint of step 11: choose one of"):
        fork_panel(workspace, "one", 11)
    fork = fork_panel(workspace, "one", 10, learning_rate=1e-5)
    assert fork.start().parent["changed"] == {"learning_rate": [1e-4, 1e-5]}
    fork.swept.value = "rank=1,2"
    fork.start_button.click()
    assert "runs that begin anew" in fork.said.value
    fork.close()
    clone = clone_panel(workspace, "one", rank=2)
    assert clone.start().settings == settings.changed(rank=2)
    clone.close()

    panel = train_panel(workspace, settings)
    panel.swept.value = "learning_rate=1e-4,3e-4\nrank=2"
    panel.start_button.click()
    assert [each.settings.learning_rate for each in panel.runs] == [1e-4, 3e-4]
    assert panel.run.name == "squares-learning_rate-0.0001-rank-2"
    assert "0.0003" in panel.live.table.value
    panel.swept.value = "rnak=1"
    panel.start_button.click()
    assert "did you mean rank?" in panel.said.value
    panel.close()


def test_runs_are_compared_and_others_chosen(workspace: Workspace) -> None:
    write_run(workspace, "slow")
    write_run(workspace, "fast", 100, learning_rate=3e-4)
    panel = compare_panel(workspace, "slow")
    assert panel.table.value.count('class="chart"') == 5
    assert "Settings that differ" not in panel.table.value
    panel.chosen.value = ("slow", "fast")
    assert "Settings that differ" in panel.table.value
    assert "0.0003" in panel.table.value
    panel.close()
    assert not panel.ticker.running
    with pytest.raises(ConfigError, match="there is no run 'none'"):
        compare_panel(workspace, "none")


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
