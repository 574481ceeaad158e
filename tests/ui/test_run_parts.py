"""What the Train tab shows of a run and what its buttons do, on folders that the real writers made."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr
import pytest

from tests.drawing import MakeClip
from tests.runs.test_forks import saved
from tests.written_run import add_preview, ended, write_run
from workbench import jobs
from workbench.display.quantities import moment
from workbench.errors import ConfigError, ExitCode
from workbench.form_rules import NEEDED, without_effect
from workbench.jobs import platform
from workbench.overview import OverviewReader
from workbench.runs.checkpoints import starred
from workbench.runs.metrics import record_session
from workbench.runs.run import Action, Run, perform
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot
from workbench.ui.core import render
from workbench.ui.core.live import Live
from workbench.ui.train import checkpoints, curves, head, previews, queue
from workbench.ui.train.part import perform_chosen
from workbench.workspace import Workspace, write_json

T = TypeVar("T")
MEMORY = "CUDA out of memory. Tried to allocate 2.50 GiB. 8.00 GiB total capacity, 1.20 GiB free."


def look(workspace: Workspace, run: Run) -> RunSnapshot:
    snapshot = Live(workspace).snapshot(run.name)
    assert snapshot is not None
    return snapshot


def alive(run: Run, **beat: Any) -> None:
    """Make the folder look as if this very process ran it."""
    (run.folder / jobs.RESULT).unlink(missing_ok=True)
    identity = {"pid": os.getpid(), "boot_id": platform.boot_id()}
    identity["start_time"] = platform.start_time(os.getpid())
    write_json(run.folder / jobs.PROCESS, {"module": "test", **identity, "started_at": time.time() - 60})
    now = {"phase": "training", "step": 40, "total": 200, "time": time.time(), "step_seconds": 2.0}
    write_json(run.folder / jobs.HEARTBEAT, {**now, **beat})


def action_of(snapshot: RunSnapshot, kind: str) -> Action:
    assert snapshot.failure is not None
    return next(action for action in snapshot.failure.actions if action.kind == kind)


def built(make: Callable[[], T]) -> T:
    """What `make` builds inside a page."""

    async def build() -> T:
        with gr.Blocks():
            return make()

    return asyncio.run(build())  # outside of a loop Gradio makes one and never closes it


def failed(workspace: Workspace, code: ExitCode, message: str, **settings: Any) -> Run:
    run = Run.create(workspace, TrainSettings(dataset="cats", steps=100).changed(**settings), "failed")
    write_json(run.folder / jobs.PROCESS, {"pid": 1, "start_time": "0", "boot_id": "none", "started_at": 0.0})
    saved(run.folder, 50, run.settings)
    ended(run.folder, "failed", int(code), message)
    return run


# ---- diagnosis, curves


def test_the_head_says_how_the_run_goes_in_words(workspace: Workspace) -> None:
    snapshot = look(workspace, write_run(workspace, "cats"))
    shown = head.head(snapshot)
    assert snapshot.diagnosis is not None
    assert snapshot.diagnosis.sentence in shown
    assert snapshot.diagnosis.advice in shown


def test_the_loss_chart_marks_the_best_checkpoint_and_the_folded_ones_hold_every_band(workspace: Workspace) -> None:
    snapshot = look(workspace, write_run(workspace, "cats"))
    main = curves.main(snapshot)
    assert "best checkpoint, step 200" in main
    assert "without the effect of the sampled noise levels" in main
    assert "prior drift" in main
    assert "Held-out loss by noise level" in main
    assert "80 to 100 %, much noise" in main
    folded = curves.folded(snapshot)
    bands = re.findall(r"<b>(\d+ to \d+ %)</b>", folded)
    assert bands == ["0 to 20 %", "20 to 40 %", "40 to 60 %", "60 to 80 %", "80 to 100 %"]
    assert "Learning rate" in folded
    assert "Loss per step" in folded


def test_a_long_runs_charts_stay_small_and_are_rendered_only_when_they_look_different(workspace: Workspace) -> None:
    run = write_run(workspace, "long", steps=20_000)
    live = Live(workspace)
    alive(run, step=20_000, total=20_000)
    before = live.snapshot(run.name)
    assert before is not None
    assert len(curves.main(before)) < 100_000
    mark = curves.mark(before)
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 20001, "time": 0.0, "loss": 0.3, "lr": 1e-4, "samples": [[10, 0.3]]}\n')
    after = live.snapshot(run.name, now=True)
    assert after is not None
    assert after.curves.last["step"] == 20_001
    assert curves.mark(after) == mark
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 20001, "time": 0.0, "held_out_loss": 0.2}\n')
    measured = live.snapshot(run.name, now=True)
    assert measured is not None
    assert curves.mark(measured) != mark


# ---- failures


@pytest.mark.parametrize("code", [code for code in ExitCode if code not in (ExitCode.FINISHED, ExitCode.STOPPED)])
def test_every_failure_is_explained_and_every_action_is_a_button_or_a_sentence(
    workspace: Workspace, code: ExitCode
) -> None:
    snapshot = look(workspace, failed(workspace, code, "batch_size is 9, too much"))
    found = snapshot.failure
    assert found is not None
    shown = head.ending(snapshot)
    for words in (found.cause, found.advice, "batch_size is 9, too much", "step 50"):
        assert render.escaped(words) in shown
    part = built(head.HeadPart)
    labels = [part.values(snapshot)[button][0] for button in part.remedies]
    for action in found.actions[: head.REMEDIES]:
        assert (action.label in labels) != (bool(action.hint) and render.escaped(action.hint) in shown)


def test_the_failures_fork_goes_on_with_what_helps(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(Run, "start", lambda run: started.append(run.name))
    run = failed(workspace, ExitCode.OUT_OF_MEMORY, MEMORY)
    snapshot = look(workspace, run)
    fork = perform(workspace, run, action_of(snapshot, "fork"))
    assert isinstance(fork, Run)
    assert started == [fork.name]
    assert fork.settings == run.settings.changed(gradient_checkpointing="full")
    assert fork.checkpoints == [50]
    assert "gradient_checkpointing none → full" in head.head(look(workspace, fork))
    filled = perform(workspace, run, action_of(snapshot, "new run"))
    assert filled == run.settings.changed(gradient_checkpointing="full")


def test_a_button_of_a_failure_that_is_gone_does_nothing(workspace: Workspace) -> None:
    run = failed(workspace, ExitCode.OUT_OF_MEMORY, MEMORY)
    assert head.remedies(look(workspace, run))
    alive(run)
    with pytest.raises(ConfigError, match="gone on meanwhile"):
        perform_chosen(workspace, look(workspace, run), lambda seen: next(iter(head.remedies(seen)), None))


def test_logging_in_is_explained_and_never_done_on_the_page(workspace: Workspace) -> None:
    run = failed(workspace, ExitCode.MODEL_UNAVAILABLE, "the model asks for consent: gated repo")
    snapshot = look(workspace, run)
    assert "hf auth login" in head.ending(snapshot)
    assert all(action.kind != "log in" for action in head.remedies(snapshot))


# ---- checkpoints and forks


def test_the_table_says_what_is_kept_and_what_goes_before_it_goes(workspace: Workspace) -> None:
    run = Run.create(workspace, TrainSettings(dataset="cats", steps=100, save_every=10, keep_checkpoints=2), "many")
    for step in (10, 20, 30):
        saved(run.folder, step, run.settings)
    assert checkpoints.star(run, "10") == "The checkpoint of step 10 is kept for good."
    rows = re.findall(
        r"<tr><td>step (\d+)</td><td>([\d.]+) kB</td><td>(.*?)</td>", checkpoints.table(look(workspace, run))
    )
    assert [(step, words) for step, _, words in rows] == [
        ("30", "newest"),
        ("20", "goes with the next save"),
        ("10", "starred"),
    ]
    saved(run.folder, 40, run.settings)
    said, button, listed = checkpoints.about_to_go(look(workspace, run))
    assert "1 would go" in said
    assert "step 20" in said
    assert button["visible"]
    assert run.checkpoints == [10, 20, 30, 40]
    for other, why in ((["other", [20]], "is not of many"), ([], "is not of many")):
        with pytest.raises(ConfigError, match=why):
            checkpoints.remove(run, other)
    checkpoints.star(run, "20")
    with pytest.raises(ConfigError, match="nothing was removed: the checkpoint of step 20 is kept by now"):
        checkpoints.remove(run, listed)
    checkpoints.unstar(run, "20")
    saved(run.folder, 50, run.settings)  # now step 30 would go, too, which nobody was shown
    checkpoints.remove(run, listed)
    assert run.checkpoints == [10, 30, 40, 50]
    checkpoints.unstar(run, "10")
    assert starred(run.folder) == []


def test_a_checkpoint_that_is_not_there_is_refused(workspace: Workspace, run: Run) -> None:
    with pytest.raises(ConfigError, match="no checkpoint yet"):
        checkpoints.chosen_step(run, "")
    saved(run.folder, 10, run.settings)
    assert checkpoints.chosen_step(run, "") == checkpoints.chosen_step(run, "10") == 10
    with pytest.raises(ConfigError, match="choose one of 10"):
        checkpoints.chosen_step(run, "11")


def test_what_a_fork_would_change_is_shown_before_it_starts(workspace: Workspace, run: Run) -> None:
    saved(run.folder, 10, run.settings)
    form = run.settings.model_dump(mode="json")
    same, button, compared = checkpoints.differences(look(workspace, run), "", form)
    assert "nothing changed" in same
    changed, button, _ = checkpoints.differences(look(workspace, run), "10", {**form, "learning_rate": 3e-5})
    assert "<td>Learning rate</td><td>0.0001</td><td>3e-05</td>" in changed
    assert button["value"] == "Fork from step 10 and start"
    saved(run.folder, 20, run.settings)
    assert checkpoints.step_of_fork(run, compared, "", run.settings) == 10, "the step that was listed"
    for step, settings in (("20", run.settings), ("", run.settings.changed(learning_rate=3e-5))):
        with pytest.raises(ConfigError, match="nothing was started"):
            checkpoints.step_of_fork(run, compared, step, settings)
    wrong, button, _ = checkpoints.differences(look(workspace, run), "10", {**form, "rank": 0})
    assert "1 to 1024" in wrong
    assert not button["visible"]


# ---- queue, time limit, silence, report


def test_waiting_runs_stand_in_their_order(workspace: Workspace) -> None:
    runs = [write_run(workspace, name) for name in ("one", "two")]
    for run in runs:
        alive(run, phase="waiting: second in the queue, after run one")
    write_json(workspace.runs / ".queue.json", ["two", "one"])
    snapshot = look(workspace, runs[0])
    assert snapshot.queue == ("two", "one")
    shown = queue.waiting_runs(snapshot.queue, "one")
    assert shown.index(">two<") < shown.index(">one<")
    shown = head.head(snapshot)
    assert ">waiting<" in shown
    assert "second in the queue, after run one" in shown
    assert not head.available(snapshot, "pause-run")
    assert not head.available(snapshot, "save-run")
    assert head.available(snapshot, "stop-run")
    assert queue.waiting_runs([], "one") == ""


def test_the_time_limit_is_a_time_of_day(workspace: Workspace) -> None:
    run = write_run(workspace, "limited", time_limit=90.0)
    (run.folder / "sessions.jsonl").unlink()  # it waits for its turn
    alive(run)
    assert "stops at" not in head.head(look(workspace, run))
    limit = time.time() + 90 * 60
    record_session(run.folder, 0, stops_at=limit)
    when = moment(limit)
    # Its last step comes first: 160 steps of 2 seconds.
    assert f"<dt>time limit</dt><dd>{when}, after its last step</dd>" in head.head(look(workspace, run))
    assert look(workspace, run).time_left == "about 5 min 20 s left"
    alive(run, step_seconds=100.0)
    seen = look(workspace, run)
    assert re.search(f"<dt>stops at its time limit</dt><dd>{when}, near step 9[34] of 200</dd>", head.head(seen))
    assert seen.time_left.endswith(" until its time limit")
    assert [one.activity.endswith(" until its time limit") for one in OverviewReader(workspace).read().active] == [True]
    alive(run, step_seconds=None)
    assert f"<dt>stops at the latest</dt><dd>{when}</dd>" in head.head(look(workspace, run))
    # A pause is no reason to stop later.
    record_session(run.folder, 10, paused_at=time.time(), stops_at=limit)
    assert f"<dt>stops at the latest</dt><dd>{when}</dd>" in head.head(look(workspace, run))


def test_a_silent_run_says_so_and_offers_its_stacks(workspace: Workspace) -> None:
    run = write_run(workspace, "silent")
    alive(run, time=time.time() - 1000)
    snapshot = look(workspace, run)
    assert "No sign of life for 16 min" in head.head(snapshot)
    assert head.available(snapshot, "show-stacks")
    alive(run)
    assert "No sign of life" not in head.head(look(workspace, run))


def test_the_report_is_a_link_once_it_is_written(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    assert head.report_link(run) == ""
    head.report(run)
    assert "cats-report.html" in head.report_link(run)


# ---- previews


def test_training_inputs_and_other_scales_stand_beside_the_previews(
    workspace: Workspace, make_clip: MakeClip, tmp_path: Path
) -> None:
    run, clip = write_run(workspace, "cats"), make_clip(tmp_path / "0.mp4")
    for stem in ("input-0", "reconstruction-0"):
        add_preview(run, 0, clip, "a <b>cat</b>", stem)
    add_preview(run, 100, clip, "a cat")
    for scale in ("0", "0.5"):
        add_preview(run, 100, clip, "a cat", f"0-scale-{scale}")
    snapshot = look(workspace, run)
    assert previews.training_inputs(snapshot).count("<video") == 2
    assert "a &lt;b&gt;cat" in previews.training_inputs(snapshot)
    scaled = previews.scaled(snapshot)
    assert scaled.count("<video") == 3
    assert scaled.index("base model") < scaled.index("scale 0.5<") < scaled.index("scale 1<")
    assert previews.previews(snapshot).count("<video") == 1


def test_previews_kept_as_latents_are_counted_and_can_be_decoded(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    folder = run.folder / "previews" / "step-00000100"
    folder.mkdir(parents=True)
    (folder / "0.safetensors").write_bytes(b"")
    snapshot = look(workspace, run)
    part = built(lambda: previews.PreviewsPart(workspace))
    assert "1 preview is kept as latents" in previews.previews(snapshot)
    assert part.values(snapshot)[part.decode][0]
    job = Run(run.folder / ".decode")
    job.folder.mkdir()
    alive(job, phase="decoding previews", step=0, total=1)
    snapshot = look(workspace, run)
    assert "decoding previews, 0 of 1" in previews.previews(snapshot)
    assert not part.values(snapshot)[part.decode][0]


# ---- the form


def test_settings_without_effect_are_known(workspace: Workspace) -> None:
    values = TrainSettings().model_dump(mode="json")
    hidden = set(without_effect(TrainSettings, values))
    assert {"image_dropout", "preview_images", "snr_gamma", "lr_power"} <= hidden
    assert not hidden & {"rank", "dora", "learning_rate"}
    assert {"rank", "dora", "start_from"} <= set(without_effect(TrainSettings, {**values, "method": "full"}))
    assert "snr_gamma" not in without_effect(TrainSettings, {**values, "loss_weighting": "min-snr"})
    assert "image_dropout" not in without_effect(TrainSettings, {**values, "model": "some/folder"})
    assert set(NEEDED[TrainSettings]) <= set(values)
