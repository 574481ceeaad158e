"""The notebook's run and sample panels at work: their buttons pressed, on runs and samples of a random miniature."""

from __future__ import annotations

import pytest

from tests.patience import PATIENCE, until
from tests.studio import Studio
from workbench import Run
from workbench.jobs import State
from workbench.notebook import attach, preview_table, sample_panel, side_by_side, train_panel

pytestmark = pytest.mark.long


def test_the_buttons_command_a_run_and_another_panel_finds_it(studio: Studio) -> None:
    settings = studio.settings.changed(steps=100_000, preview_every=0, save_every=100_000)
    panel = train_panel(studio.workspace, settings)
    panel.name.value = "Long Run"
    panel.start_button.click()
    assert panel.said.value == ""
    live = panel.live
    assert live is not None
    assert panel.run.name == "long-run"
    until(lambda: "<svg" in live.chart.value and "running" in live.head.value)
    live.pause_button.click()
    until(lambda: "paused" in live.head.value and live.pause_button.description == "Resume")
    live.pause_button.click()
    until(lambda: "running" in live.head.value)
    live.save_button.click()
    until(lambda: panel.run.checkpoints)
    live.prompt.value = "a <ring> of one's own"
    live.preview_button.click()
    until(lambda: "a &lt;ring&gt; of one&#x27;s own" in live.previews.value)
    panel.close()
    assert not live.ticker.running
    assert Run.open(studio.workspace, "long-run").status.state.alive, "closing a panel leaves the run alone"

    again = attach(studio.workspace, "long-run")
    assert again.curves.last
    again.stop_button.click()
    assert again.wait(PATIENCE).state is State.STOPPED
    assert "Go on starts from step" in again.said.value
    before = again.curves.last["step"]
    again.start_button.click()
    until(lambda: again.curves.last.get("step", 0) > before)
    again.stop_button.click()
    assert again.wait(PATIENCE).state is State.STOPPED
    again.close()


def test_a_run_to_its_end_and_its_lora_beside_the_base_model(studio: Studio) -> None:
    panel = train_panel(studio.workspace, studio.settings)
    run = panel.start()
    assert panel.wait(PATIENCE).state is State.FINISHED
    assert panel.live is not None
    assert "Finished" in panel.live.said.value
    assert panel.live.start_button.disabled
    assert preview_table(run).data.count("<video") == 2, "the base model and the end"
    panel.close()

    draw = sample_panel(studio.workspace, model=studio.settings.model, prompt="a ring", steps=2, loras=[run.name])
    draw.both_button.click()
    assert draw.said.value == ""
    base, tuned = draw.wait(PATIENCE)
    assert base.settings.loras == ()
    assert tuned.settings.loras == (run.name,)
    assert base.settings.seed == tuned.settings.seed
    assert draw.videos.value.count("<video") == side_by_side([base, tuned]).data.count("<video") == 2
    assert draw.bar.value == 1.0
    draw.close()


def test_samples_show_each_step_can_be_cancelled_and_come_back_from_the_history(studio: Studio) -> None:
    draw = sample_panel(studio.workspace, model=studio.settings.model, prompt="a disc", steps=1000)
    draw.draw_button.click()
    until(lambda: ": step " in draw.doing_now.value and "of 1000" in draw.doing_now.value)
    again = sample_panel(studio.workspace)
    assert again.ids == draw.ids, "a panel made after a restart shows what is under way"
    again.close()
    draw.cancel_button.click()
    assert draw.wait(PATIENCE) == []
    until(lambda: "cancelled" in draw.doing_now.value)
    draw.form.set({"steps": 1})
    draw.draw_button.click()
    (sample,) = draw.wait(PATIENCE)
    draw.form.set({"prompt": "something else"})
    draw.history_fold.selected_index = 0
    assert draw.history_choice.value == sample.id
    draw.restore_button.click()
    assert draw.form.settings.prompt == "a disc"
    draw.remove_button.click()
    assert not sample.path.exists()
    assert sample.id not in [value for _, value in draw.history_choice.options]
    draw.form.set({"loras": ["nobody"]})
    draw.draw_button.click()
    assert "no LoRA here" in draw.said.value
    draw.close()
