"""What a list shows of a run is kept beside its metrics, and made again exactly when they change."""

from __future__ import annotations

import os
import shutil

from tests.written_run import write_run
from workbench.runs.listing import SUMMARY, summary_of
from workbench.runs.metrics import METRICS
from workbench.runs.run import Run
from workbench.workspace import Workspace


def test_metrics_are_read_again_only_when_they_change(workspace: Workspace) -> None:
    run = write_run(workspace, "cats", steps=40)
    first = summary_of(run)
    assert (first.step, first.diagnosis != "", len(first.held_out)) == (40, True, 2)
    # The same size and time: what is in the file now is not looked at, for a thousand runs would take seconds.
    path = run.folder / METRICS
    text, stat = path.read_text(), path.stat()
    path.write_text("x" * len(text))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert summary_of(run) == first
    path.write_text(text + '{"step": 41, "loss": 0.5}\n')
    assert summary_of(run).step == 41
    shutil.rmtree(run.folder / "checkpoints")
    assert summary_of(run).step == 41
    (run.folder / SUMMARY).write_text('{"version": 1}')
    assert summary_of(run).step == 41


def test_a_folder_that_cannot_be_written_is_shown_all_the_same(workspace: Workspace) -> None:
    run = write_run(workspace, "cats", steps=20)
    (run.folder / SUMMARY).mkdir()
    assert summary_of(run).step == 20
    assert summary_of(Run(workspace.run("none"))).step == 0
    assert not list(run.folder.glob("*.tmp"))
