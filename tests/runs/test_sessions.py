"""How long a run trained: neither the queue nor stopped hours, loading or a pause count."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.written_run import NOW, write_run
from workbench import jobs
from workbench.runs.metrics import SESSIONS, record_session, training_seconds
from workbench.runs.run import Run
from workbench.workspace import Workspace, append_line, write_json


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
