"""A run at one moment: facts, notes, actions and previews, from folders that the real writers made."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.drawing import MakeClip
from tests.runs.test_forks import saved
from tests.written_run import add_preview, ended, write_run
from workbench import jobs
from workbench.display.inline_html import escaped
from workbench.errors import ExitCode
from workbench.jobs import processes
from workbench.jobs.devices import Load
from workbench.runs import snapshot as snapshots
from workbench.runs.analysis.curves import curves_of
from workbench.runs.analysis.diagnosis import Diagnosis, beside_failure, diagnose
from workbench.runs.checkpoints import folder_of
from workbench.runs.metrics import MetricsWriter
from workbench.runs.report import run_html, write_report
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot, SnapshotReader, snapshot
from workbench.runs.view import main_charts, more_charts
from workbench.workspace import Workspace, write_json


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "machine_load", lambda: ("GPU 0", Load(50.0, 4.0, 24.0)))


def alive(run: Run, **beat: Any) -> None:
    """Make the folder look as if this very process ran it."""
    (run.folder / jobs.RESULT).unlink(missing_ok=True)
    write_json(run.folder / jobs.PROCESS, {**processes.identity(os.getpid()), "started_at": time.time() - 60})
    now = {"phase": "training", "step": 40, "total": 200, "time": time.time(), "step_seconds": 2.0}
    write_json(run.folder / jobs.HEARTBEAT, {**now, **beat})


def facts_of(seen: RunSnapshot) -> dict[str, str]:
    return {fact.key: fact.text for fact in seen.facts}


def kinds(seen: RunSnapshot) -> list[str]:
    return [action.kind for action in seen.actions]


def test_a_finished_run_has_its_numbers_and_its_outcome(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    (run.folder / "lora.safetensors").write_bytes(b"0" * 2_000_000)
    seen = snapshot(run)
    facts = facts_of(seen)
    assert (seen.headline, seen.tone, seen.share, seen.time_left) == ("finished", "good", 1.0, "")
    assert facts["held_out_loss"] == "0.8000 → 0.6071"
    assert facts["lowest_held_out_loss"] == "0.6071 at step 200"
    assert facts["prior_drift"].endswith("(0.10 of the change)")
    assert facts["learning_rate"] == "1.00e-04"
    assert facts["lora"] == "2.0 MB"
    assert "load" not in facts
    assert seen.diagnosis.tone == "good"
    assert seen.outcome is not None
    assert seen.failure is None
    assert kinds(seen) == ["sample", "new run", "report"]


def test_a_living_run_says_how_far_it_is_and_what_may_be_done(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    alive(run)
    seen = snapshot(run)
    assert (seen.headline, seen.tone, seen.share) == ("running", "going", 0.2)
    assert seen.activity == "training · 40 of 200"
    assert seen.time_left == "about 5 min 20 s left"
    assert facts_of(seen)["load"] == "50%, 4.0 of 24 GB"
    assert kinds(seen) == ["pause", "stop", "save", "preview", "live sample", "new run", "report"]
    alive(run, paused=True)
    assert kinds(snapshot(run)) == ["sample", "resume", "stop", "new run", "report"]


def test_a_snapshot_stays_as_it_was_while_the_run_is_read_on(workspace: Workspace) -> None:
    """Several threads show one reader's snapshots: the charts of one must not change while they are drawn."""
    run = write_run(workspace, "cats")
    alive(run)
    reader = SnapshotReader(run)

    def said(seen: RunSnapshot) -> list[Any]:
        curves = seen.curves
        shown = [main_charts(curves, None), more_charts(curves), curves.to_json(), curves.detrended()]
        return [*shown, seen.step, list(curves.held_out), len(curves.points), curves.slowed]

    before = reader.read()
    at_first = said(before)
    writer = MetricsWriter(run.folder, 200)
    for step in range(201, 1401):  # enough for wider buckets in every curve
        samples = [[step * 37 % 1000 / 1000, 0.4], [0.5, 0.3]]
        writer.write(step=step, time=0.0, loss=0.35, lr=1e-3, seconds=0.5, samples=samples)
        if step % 5 == 0:
            writer.write(
                step=step, time=0.0, held_out_loss=0.2, held_out_bands=[0.2] * 5, change_own=0.3, change_others=0.1
            )
    writer.close()
    later = said(reader.read())
    assert said(before) == at_first
    assert later == said(snapshot(run))
    assert later != at_first


def test_a_waiting_run_has_a_position_and_nothing_to_command_but_stop(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(workspace, "cats")
    alive(run, phase="waiting: second in the queue, after run dogs")
    monkeypatch.setattr(snapshots.queue, "order", lambda workspace: ["dogs", "cats"])
    seen = snapshot(run)
    assert (seen.headline, seen.position, seen.share, seen.tone) == ("waiting", 2, 0.0, "idle")
    assert "second in the queue, after run dogs" in seen.activity
    assert kinds(seen) == ["stop", "new run", "report"]


def test_notes_say_what_nobody_expects(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    parent = {"run": "dogs", "step": 50, "changed": {"rank": [8, 16]}, "dropped": ["the optimizer's state"]}
    write_json(run.folder / "parent.json", parent)
    alive(run, time=time.time() - 1000)
    texts = [note.text for note in snapshot(run).notes]
    assert texts[0].startswith("No sign of life for 16 min")
    assert texts[1] == "Continues from step 50 of dogs, with rank 8 → 16. Not carried over: the optimizer's state."


def test_checkpoints_say_why_they_stay_and_which_go(workspace: Workspace) -> None:
    run = Run(workspace.run("many"))
    TrainSettings(dataset="cats", steps=100, save_every=10, keep_checkpoints=2).save(run.folder / jobs.CONFIG)
    for step in (10, 20, 30):
        saved(run.folder, step, run.settings)
    reader = SnapshotReader(run)
    assert [(one.step, one.reasons) for one in reader.read().checkpoints] == [
        (10, ("removed at the next save",)),
        (20, ("removed at the next save",)),
        (30, ("newest",)),
    ]
    MetricsWriter(run.folder, 0).write(step=20, time=0.0, held_out_loss=0.5)
    found = reader.read()
    assert found.checkpoints[1].reasons == ("lowest held-out loss",)
    assert found.best_step == 20
    assert facts_of(found)["held_out_loss"] == "0.5000"


def test_previews_come_with_their_records(workspace: Workspace, make_clip: MakeClip, tmp_path: Path) -> None:
    run, clip = write_run(workspace, "cats"), make_clip(tmp_path / "0.mp4")
    reader = SnapshotReader(run)
    assert reader.read().preview_note == "This run has no previews."
    for step in (0, 200):
        add_preview(run, step, clip, "a cat", seed=7)
    add_preview(run, 200, clip, "a cat", "0-scale-0.5", scale=0.5)
    add_preview(run, 200, clip, "a dog", "live-0", seed=3, steps=9, guidance_scale=6.0)
    add_preview(run, 0, clip, "a cat", "input-0")
    for step in (0, 100, 200):
        add_preview(run, step, clip, "a known thing", "control-0")
    found = reader.read().previews
    assert [(one.step, one.prompt) for one in found.controls] == [(step, "a known thing") for step in (0, 100, 200)]
    assert [(one.step, one.record["seed"]) for one in found.previews] == [(0, 7), (200, 7)]
    assert [(before.step, after.step) for before, after in found.pairs] == [(0, 200)]
    assert [one.scale for one in found.by_scale[0]] == [0.5, 1.0]
    assert found.live[0].facts == ["step 200", "seed 3", "9 denoising steps", "guidance 6.0", "LoRA at 1"]
    assert found.inputs[0].reconstruction is None


def test_a_failed_run_is_not_good_news_on_any_face(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    assert snapshot(run).diagnosis == diagnose(curves_of(run), [100, 200], ended=True)
    ended(run.folder, "failed", int(ExitCode.OUT_OF_MEMORY), "CUDA out of memory")
    seen = snapshot(run)
    assert (seen.diagnosis.kind, seen.diagnosis.tone, seen.diagnosis.advice) == ("learning", "plain", "")
    assert seen.diagnosis.sentence.startswith("Until it failed: Learning: ")
    cause, until = escaped(seen.failure.cause), "Until it failed"
    report = write_report(run).read_text(encoding="utf-8")
    for text in (run_html(run), report):
        assert 0 < text.index(cause) < text.index(until)
    (run.folder / "metrics.jsonl").unlink()
    assert snapshot(run).diagnosis is None
    assert beside_failure(Diagnosis("too early", "Too early to tell.", "Wait.", None)) is None
    destroyed = beside_failure(Diagnosis("destroyed", "The model is destroyed.", "Begin again.", None))
    assert (destroyed.tone, destroyed.advice) == ("bad", "Begin again.")


def test_a_run_of_another_version_is_shown_without_its_settings(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    write_json(run.folder / jobs.CONFIG, {"flux": 9})
    seen = snapshot(run)
    assert seen.settings is None
    assert seen.diagnosis is not None
    assert "new run" not in kinds(seen)


def test_a_checkpoint_that_is_removed_while_it_is_listed_costs_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(workspace, "cats")
    listed = run.checkpoints
    assert listed
    shutil.rmtree(folder_of(run.folder, listed[0]))
    monkeypatch.setattr(Run, "checkpoints", listed)  # as listed a moment before
    assert [(one.step, one.bytes > 0) for one in snapshot(run).checkpoints] == [
        (step, step != listed[0]) for step in listed
    ]


@pytest.mark.parametrize(
    ("values", "skips"),
    [
        # three previews (two captions and a control) of 25 steps with guidance are 150 predictions
        ({"preview_every": 50}, False),
        ({"preview_every": 49}, True),
        ({"preview_every": 49, "batch_size": 2}, False),
        ({"preview_every": 49, "preview_guidance": 1.0}, False),
        ({"preview_every": 1, "preview_steps": 8}, False),  # too few to skip any
        ({"preview_every": 49, "preview_speed": "exact"}, False),
        ({"preview_every": 0}, False),
        ({"preview_every": 1000, "preview_speed": "fast"}, True),
    ],
)
def test_previews_skip_steps_where_they_would_take_longer_than_the_training(
    values: dict[str, Any], skips: bool
) -> None:
    assert TrainSettings(dataset="cats", model="tiny-cogvideox", **values).skips_preview_steps is skips


@pytest.mark.parametrize(("record", "told"), [({"speed": "fast"}, True), ({}, False)])
def test_a_run_says_that_its_previews_skip_steps(
    record: dict[str, Any], told: bool, workspace: Workspace, make_clip: MakeClip, tmp_path: Path
) -> None:
    run = write_run(workspace, "cats")
    add_preview(run, 100, make_clip(tmp_path / "0.mp4"), **record)
    assert any(note.text.startswith("Previews skip half") for note in snapshot(run).notes) is told


def test_a_full_gpu_whose_steps_take_ten_times_as_long_has_spilled_into_the_machines_memory(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(workspace, "cats")
    alive(run)
    writer = MetricsWriter(run.folder, 200)
    for step in range(201, 221):
        writer.write(step=step, loss=0.5, lr=1e-4, seconds=2.0 if step < 211 else 30.0)
    writer.close()

    def spilling(used: float, device: str = "GPU 0") -> bool:
        monkeypatch.setattr(snapshots, "machine_load", lambda: (device, Load(50.0, used, 24.0)))
        return any("moved part of it into the machine's memory" in note.text for note in snapshot(run).notes)

    assert spilling(23.7)
    assert not spilling(12.0)  # something else slows it down
    assert not spilling(23.7, "CPU, 8 cores")
    writer = MetricsWriter(run.folder, 220)
    for step in range(221, 226):
        writer.write(step=step, loss=0.5, lr=1e-4, seconds=2.0)
    writer.close()
    assert not spilling(23.7)  # it is over
