"""The overview of a workspace: runs by what they need, the newest samples and datasets, next steps."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from tests.written_run import ended, write_run
from workbench import jobs
from workbench.clips import records
from workbench.jobs import processes
from workbench.overview import DATASETS, RUNS, Overview, OverviewReader
from workbench.runs.run import Run
from workbench.sampler.samples import new_id, video_path, write_sample
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace, append_line, write_json
from workbench.workspace.records import read_json_lines


def read(workspace: Workspace) -> Overview:
    return OverviewReader(workspace).read()


def at_work(run: Run, **beat: object) -> None:
    """Make the run look as if this process were training it."""
    (run.folder / jobs.RESULT).unlink(missing_ok=True)
    write_json(run.folder / jobs.PROCESS, {**processes.identity(os.getpid()), "started_at": time.time() - 60})
    write_json(run.folder / jobs.HEARTBEAT, {"phase": "train", "step": 5, "total": 20, "time": time.time(), **beat})


def add_sample(workspace: Workspace, prompt: str, *loras: str, id: str = "") -> str:
    made, settings = id or new_id(), SampleSettings(prompt=prompt, loras=loras, seed=7)
    record = {"settings": settings.model_dump(mode="json"), "seed": 7}
    write_sample(video_path(workspace, made), np.zeros((3, 32, 32, 3), np.uint8), 8, record)
    return made


def clip(number: int, text: str) -> records.Clip:
    return records.Clip(file_name=f"clips/{number}.mp4", text=text, fps=8, frames=40, width=64, height=64)


def add_dataset(workspace: Workspace, name: str, *captions: str) -> Path:
    folder = workspace.dataset(name)
    records.write_info(folder, records.DatasetInfo(title=name.title()))
    records.write_clips(folder, [clip(number, text) for number, text in enumerate(captions)])
    return folder


def steps(seen: Overview) -> list[tuple[str, str]]:
    return [(one.kind, one.target) for one in seen.next_steps]


def test_an_empty_workspace_offers_the_demo_and_then_clips_of_ones_own(workspace: Workspace) -> None:
    seen = read(workspace)
    assert seen.empty
    assert steps(seen) == [("demo", ""), ("import", "")]


def test_runs_stand_by_what_they_need(workspace: Workspace) -> None:
    for name in ("working", "broken", "old", "done"):
        write_run(workspace, name, 20)
    at_work(Run.open(workspace, "working"), step_seconds=4)
    ended(workspace.run("broken"), "failed", 3, "CUDA out of memory. Tried to allocate 2.00 GiB")
    result = {"status": "failed", "exit_code": 3, "message": "no room", "ended_at": time.time() - 30 * 86400}
    write_json(workspace.run("old") / jobs.RESULT, result)
    seen = read(workspace)
    (working,) = seen.active
    assert (working.name, working.state, working.share, working.tone) == ("working", "running", 0.25, "going")
    assert "5 of 20" in working.activity
    assert "about 1 min 00 s left" in working.activity
    (broken,) = seen.failed
    assert broken.name == "broken"
    assert broken.message
    assert {one.name for one in seen.ended} == {"old", "done"}


def test_a_finished_run_is_to_be_tried_until_a_sample_was_made_with_it(workspace: Workspace) -> None:
    write_run(workspace, "done", 20)
    add_dataset(workspace, "cats", "a cat")
    assert steps(read(workspace)) == [("sample", "done")]
    add_sample(workspace, "a cat", "runs/done")
    assert steps(read(workspace)) == []


def test_a_destroyed_run_is_to_be_looked_at(workspace: Workspace) -> None:
    metrics = write_run(workspace, "done", 200).folder / "metrics.jsonl"
    add_dataset(workspace, "cats", "a cat")
    for line in read_json_lines(metrics):
        if "held_out_loss" in line:
            worse = {"held_out_loss": 0.5 + line["step"] / 20, "change_own": 0.9}
            append_line(metrics, json.dumps(line | worse))
    assert steps(read(workspace)) == [("run", "done")]


def test_a_dataset_leads_to_its_captions_and_then_to_training(workspace: Workspace) -> None:
    folder = add_dataset(workspace, "cats", "a cat", "")
    seen = read(workspace)
    assert steps(seen)[0] == ("dataset", "cats")
    assert "1 clip has no caption" in seen.datasets[0].next_step
    records.write_clips(folder, [clip(0, "a cat")])
    assert steps(read(workspace)) == [("train", "cats"), ("demo", "")]


def test_only_the_newest_are_listed_and_what_is_broken_is_named(workspace: Workspace) -> None:
    made = [add_sample(workspace, f"prompt {number}") for number in range(8)]
    video_path(workspace, made[-1]).with_suffix(".json").write_text("{")
    for number in range(DATASETS + 2):
        folder = add_dataset(workspace, f"set-{number}", "a cat")
        os.utime(folder / records.METADATA, (number, number))
        os.utime(folder / records.INFO, (number, number))
    (folder / records.METADATA).write_text("{")
    for number in range(RUNS + 2):
        write_run(workspace, f"run-{number}", 20)
    seen = read(workspace)
    assert [one.id for one in seen.samples] == made[:-7:-1]
    assert len(seen.datasets) == DATASETS
    assert seen.datasets[0].next_step.startswith("set-7/metadata.jsonl, line 1 is left out"), "it says what is broken"
    assert len(seen.ended) == RUNS


@pytest.mark.parametrize(
    ("lora", "sampled"),
    [
        ("runs/cats=0.7", True),
        ("cats", True),
        ("runs/cats@20=1", True),
        ("runs/big-cats", False),
        ("loras/cats", False),
    ],
)
def test_a_run_counts_as_sampled_once_its_own_lora_was_used(workspace: Workspace, lora: str, sampled: bool) -> None:
    write_run(workspace, "cats", 20)
    add_sample(workspace, "a cat", lora)
    assert ("sample" in {step.kind for step in read(workspace).next_steps}) is not sampled
