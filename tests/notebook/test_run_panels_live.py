"""Run and sample panels at work: their buttons pressed, on runs and samples of a random miniature."""

from __future__ import annotations

import pytest

from tests.patience import PATIENCE, until
from tests.studio import Studio
from workbench import Run
from workbench.jobs import State
from workbench.notebook import attach, preview_table, sample_panel, side_by_side, train_panel
from workbench.notebook.run_panel import RunPanel
from workbench.runs.run import ActionKind

pytestmark = pytest.mark.long


def press(panel: RunPanel, kind: ActionKind) -> None:
    """Click a button of a run once it is there: the panel fills in its parts one after another."""
    until(lambda: kind in panel.buttons)
    panel.buttons[kind].click()


def test_the_buttons_command_a_run_and_another_panel_finds_it(studio: Studio) -> None:
    settings = studio.settings.changed(steps=100_000, preview_every=0, save_every=100_000)
    panel = train_panel(studio.workspace, settings)
    panel.name.value = "Long Run"
    panel.start_button.click()
    assert panel.message.value == ""
    live = panel.live
    assert panel.run.name == "long-run"
    until(lambda: "<svg" in live.chart.value and "running" in live.head.value)
    press(live, "pause")
    until(lambda: "paused" in live.head.value)
    press(live, "resume")
    until(lambda: "running" in live.head.value)
    press(live, "save")
    until(lambda: panel.run.checkpoints)
    live.prompt.value = "a <ring> of one's own"
    press(live, "preview")
    until(lambda: "a &lt;ring&gt; of one&#x27;s own" in live.previews.value)
    panel.close()
    assert not live.ticker.running
    assert Run.open(studio.workspace, "long-run").status.state.alive, "closing a panel leaves the run alone"

    again = attach(studio.workspace, "long-run")
    press(again, "stop")
    assert again.wait(PATIENCE).state is State.STOPPED
    assert "The last checkpoint is of step" in again.head.value
    before = again.run.metrics[-1]["step"]
    press(again, "go on")
    until(lambda: again.run.metrics[-1]["step"] > before)
    press(again, "stop")
    assert again.wait(PATIENCE).state is State.STOPPED
    again.close()


def test_a_run_to_its_end_and_its_lora_beside_the_base_model(studio: Studio) -> None:
    panel = train_panel(studio.workspace, studio.settings)
    run = panel.start()
    assert panel.wait(PATIENCE).state is State.FINISHED
    assert "The LoRA is ready" in panel.live.head.value
    assert "go on" not in panel.live.buttons
    assert preview_table(run).data.count("<video") == 4, "the base model and the end, of the prompt and of a control"
    panel.close()

    panel = sample_panel(studio.workspace, model=studio.settings.model, prompt="a ring", steps=2, loras=[run.name])
    panel.both_button.click()
    assert panel.message.value == ""
    base, tuned = panel.wait(PATIENCE)
    assert base.settings.loras == ()
    assert tuned.settings.loras == (run.name,)
    assert base.settings.seed == tuned.settings.seed
    assert panel.videos.value.count("<video") == side_by_side([base, tuned]).data.count("<video") == 2
    assert panel.bar.value == 1.0
    panel.close()


def test_samples_show_each_step_can_be_cancelled_and_come_back_from_the_history(studio: Studio) -> None:
    panel = sample_panel(studio.workspace, model=studio.settings.model, prompt="a disc", steps=1000)
    panel.generate_button.click()
    until(lambda: ": step " in panel.progress.value and "of 1000" in panel.progress.value)
    again = sample_panel(studio.workspace)
    assert again.ids == panel.ids, "a panel made after a restart shows what is under way"
    again.close()
    panel.cancel_button.click()
    assert panel.wait(PATIENCE) == []
    until(lambda: "cancelled" in panel.progress.value)
    panel.form.set({"steps": 1})
    panel.generate_button.click()
    (sample,) = panel.wait(PATIENCE)
    panel.form.set({"prompt": "something else"})
    panel.history_fold.selected_index = 0
    assert panel.history_choice.value == sample.id
    panel.restore_button.click()
    assert panel.form.settings.prompt == "a disc"
    panel.remove_button.click()
    assert not sample.path.exists()
    assert sample.id not in [value for _, value in panel.history_choice.options]
    panel.form.set({"loras": ["nobody"]})
    panel.generate_button.click()
    assert "no LoRA here" in panel.message.value
    panel.close()
