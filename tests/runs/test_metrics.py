"""A run's metrics, its sessions and the summary that lists show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.written_run import NOW, write_run
from workbench import jobs
from workbench.runs import metrics
from workbench.runs.listing import SUMMARY, summary_of
from workbench.runs.metrics import (
    METRICS,
    SESSIONS,
    MetricsReader,
    MetricsWriter,
    read_metrics,
    record_session,
    training_seconds,
)
from workbench.runs.run import Run
from workbench.workspace import Workspace, append_line, write_json


def test_a_torn_last_line_waits_until_it_is_whole(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_bytes(b'{"step": 1, "loss": 0.5}\n{"step": 2, "lo')
    reader = MetricsReader(tmp_path)
    assert [line["step"] for line in reader.lines()] == [1]
    with (tmp_path / METRICS).open("ab") as file:
        file.write(b'ss": 0.25}\n')
    assert [line["step"] for line in reader.lines()] == [2]


def test_going_on_cuts_back_to_the_checkpoint_and_readers_start_over(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path, 0)
    for step in range(1, 9):
        writer.write(step=step, loss=1 / step)
    reader = MetricsReader(tmp_path)
    assert len(list(reader.lines())) == 8
    MetricsWriter(tmp_path, 5)
    assert reader.restarted()
    assert [line["step"] for line in reader.lines()] == [1, 2, 3, 4, 5]
    again = MetricsWriter(tmp_path, 3)
    for step in range(4, 12):  # the new file is longer than the old one
        again.write(step=step, loss=2 / step)
    assert reader.restarted()
    assert [line["step"] for line in reader.lines()] == list(range(1, 12))


def test_a_number_that_is_none_is_json_and_left_out(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path, 0)
    writer.write(step=1, loss=0.5, grad_norm=float("inf"), samples=[[10, float("nan")], [20, 0.5]])
    text = (tmp_path / METRICS).read_text()
    assert json.loads(text, parse_constant=pytest.fail)["grad_norm"] is None
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"step": 2, "loss": 0.25, "grad_norm": Infinity}\n[1, 2]\n{"loss": 1}\nno json\n')
    assert read_metrics(tmp_path) == [
        {"step": 1, "loss": 0.5, "samples": [[10, None], [20, 0.5]]},
        {"step": 2, "loss": 0.25},
    ]


def test_a_reader_sees_each_line_once_however_the_file_is_cut_into_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "BLOCK", 33)
    reader, writer = MetricsReader(tmp_path), MetricsWriter(tmp_path, 0)
    assert list(reader.lines()) == []
    for last in (7, 8, 20):
        for step in range(last - 5, last + 1):
            writer.write(step=step, loss=1 / step)
        assert [line["step"] for line in reader.lines()] == list(range(last - 5, last + 1))
        assert not reader.restarted()


# ---- sessions


def session(run: Run, began: float, **more: Any) -> None:
    append_line(run.folder / SESSIONS, json.dumps({"time": NOW + began, "step": 100, **more}))


def process(run: Run, started: float, **beat: Any) -> None:
    """As if its process had begun at that moment, and sent this heartbeat."""
    (run.folder / jobs.RESULT).unlink(missing_ok=True)
    known = {"pid": 1, "start_time": "0", "boot_id": "none", "started_at": NOW + started}
    write_json(run.folder / jobs.PROCESS, known)
    write_json(run.folder / jobs.HEARTBEAT, {"phase": "training", "step": 100, "time": NOW, **beat})


def test_only_training_counts(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")  # ready 90 s ago, its last line 30 s ago, ended 20 s ago
    write_json(run.folder / jobs.PROCESS, {"pid": 1, "started_at": NOW - 90_000})  # a day in the queue
    assert training_seconds(run.folder) == pytest.approx(70, abs=1)
    # Started again a day later, it waits for its device: until its last line of metrics.
    process(run, 86_000, phase="waiting: second in the queue", time=NOW + 86_400)
    assert training_seconds(run.folder) == pytest.approx(60, abs=1)
    # It was ready, trained for 30 s more, and ended.
    session(run, 86_400, before=NOW - 30)
    process(run, 86_000)
    write_json(run.folder / jobs.RESULT, {"status": "stopped", "ended_at": NOW + 86_430})
    assert training_seconds(run.folder) == pytest.approx(60 + 30, abs=1)


def test_a_pause_does_not_count(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    process(run, -100, paused=True, time=NOW + 5000)
    assert training_seconds(run.folder) == pytest.approx(60, abs=1)
    process(run, -100, phase="waiting: first in the queue", time=NOW + 5000)  # resumed, and its device is taken
    assert training_seconds(run.folder) == pytest.approx(60, abs=1)
    record_session(run.folder, 100, paused_at=NOW - 28)
    write_json(run.folder / jobs.RESULT, {"status": "finished", "ended_at": NOW})
    assert training_seconds(run.folder) == pytest.approx(62, abs=1)


# ---- the summary of a list


def test_a_folder_that_cannot_be_written_is_shown_all_the_same(workspace: Workspace) -> None:
    run = write_run(workspace, "cats", steps=20)
    (run.folder / SUMMARY).mkdir()
    assert summary_of(run).step == 20
    assert summary_of(Run(workspace.run("none"))).step == 0
    assert not list(run.folder.glob("*.tmp"))
