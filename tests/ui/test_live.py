"""What the page says of a run, from folders that the real writers made."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from tests.written_run import write_run
from workbench import jobs
from workbench.display.charts import thinned
from workbench.errors import ExitCode
from workbench.jobs import platform
from workbench.runs import snapshot
from workbench.runs.metrics import MetricsWriter
from workbench.runs.run import Run
from workbench.ui.core.live import Live
from workbench.ui.core.view import Seen
from workbench.ui.server.serving import read_ahead
from workbench.ui.train import head, previews
from workbench.workspace import Workspace, write_json


def alive(run: Run, step: int, total: int = 100) -> None:
    """Make the folder look as if this very process ran it."""
    pid = os.getpid()
    identity = {"pid": pid, "start_time": platform.start_time(pid), "boot_id": platform.boot_id()}
    write_json(run.folder / jobs.PROCESS, {"module": "test", **identity, "started_at": time.time() - 60})
    beat = {"phase": "train", "step": step, "total": total, "time": time.time(), "step_seconds": 2.0}
    write_json(run.folder / jobs.HEARTBEAT, beat)


def ended(run: Run, status: str, code: ExitCode, message: str = "") -> None:
    result = {"status": status, "exit_code": int(code), "message": message, "ended_at": time.time()}
    write_json(run.folder / jobs.RESULT, result)


def write_steps(writer: MetricsWriter, first: int, last: int) -> None:
    for step in range(first, last + 1):
        writer.write(step=step, time=0.0, loss=1 / step, lr=1e-3, grad_norm=1.0, timestep=500, seconds=0.1, memory_gb=2)


def preview(run: Run, step: int, prompt: str) -> None:
    folder = run.folder / "previews" / f"step-{step:08d}"
    folder.mkdir(parents=True)
    (folder / "0.mp4").write_bytes(b"")
    write_json(folder / "0.json", {"prompt": prompt})


def look(workspace: Workspace, run: Run) -> Any:
    snapshot = Live(workspace).snapshot(run.name)
    assert snapshot is not None
    return snapshot


def test_a_look_shows_what_was_written_since_the_last_one(workspace: Workspace, run: Run) -> None:
    live, writer = Live(workspace), MetricsWriter(run.folder, 0)
    write_steps(writer, 1, 5)
    first = live.snapshot(run.name, now=True)
    assert first is not None
    version = first.curves.version
    assert live.snapshot(run.name, now=True).curves.version == version  # type: ignore[union-attr]
    write_steps(writer, 6, 8)
    writer.write(step=8, time=0.0, held_out_loss=0.5)
    preview(run, 8, "a cat")
    again = live.snapshot(run.name, now=True)
    assert again is not None
    assert again.curves.version > version
    assert again.curves.last["step"] == 8
    assert again.curves.held_out == {8: 0.5}
    assert [one.step for one in again.previews.previews] == [8]
    assert again.diagnosis is not None
    assert again.diagnosis.kind == "too short", "it is not running"


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 1000])
def test_thinning_keeps_both_ends(count: int) -> None:
    kept = thinned(list(range(count)), 10)
    assert len(kept) <= 10
    assert (kept[0], kept[-1]) == (0, count - 1)


def test_a_living_run_is_found_whoever_started_it(workspace: Workspace, run: Run) -> None:
    other = Run.create(workspace, run.settings, "newer")
    alive(run, 40)
    live = Live(workspace)
    assert live.default() == "first"
    ended(run, "stopped", ExitCode.STOPPED)
    live.statuses(now=True)
    assert live.default() in (other.name, run.name)
    assert live.snapshot("no-such-run") is None


def test_the_head_tells_phase_progress_and_time_left(workspace: Workspace, run: Run) -> None:
    alive(run, 40)
    write_steps(MetricsWriter(run.folder, 0), 1, 40)
    shown = head.head(look(workspace, run))
    for words in ("running", "train · 40 of 100", "about 2 min 00 s left", "width:40.0%", "loss, smoothed"):
        assert words in shown
    assert "load" not in shown, "one line of facts: the others stand below, in All figures"


def test_previews_stand_in_a_table_with_the_base_model_first(workspace: Workspace, run: Run) -> None:
    for step in (0, 50, 100):
        preview(run, step, "a cat")
    table = previews.previews(look(workspace, run))
    assert table.count("<video") == 3
    assert table.index("base model") < table.index("step 50") < table.index("step 100")
    assert "pixelated" in table  # the built-in model's videos are tiny
    assert previews.before_after(look(workspace, run)).count("<video") == 2


def test_what_people_and_files_wrote_is_shown_as_text(workspace: Workspace, run: Run) -> None:
    evil = "<img src=x onerror=alert(1)>"
    preview(run, 0, evil)
    preview(run, 10, evil)
    (run.folder / jobs.LOG).write_text(evil)
    alive(run, 1)
    ended(run, "failed", ExitCode.BUG, evil)
    snapshot = look(workspace, run)
    assert snapshot.failure is not None
    shown = [previews.previews(snapshot), previews.before_after(snapshot), head.ending(snapshot)]
    for html in (*shown, head.head(snapshot)):
        assert "<img" not in html


def test_only_what_changed_is_sent_again() -> None:
    seen, made = Seen(), []
    values = {"text": "a", "chart": (1, lambda: made.append(1) or "drawn")}
    assert seen.changed(values, values) == ["a", "drawn"]
    assert all(isinstance(update, dict) and "value" not in update for update in seen.changed(values, values))
    assert seen.changed(["text"], {"text": "b"})[0] == "b"
    assert made == [1]
    seen.choose("other")
    assert seen.changed(values, values) == ["a", "drawn"]


def test_what_is_typed_beside_a_button_is_sent_again_only_when_the_disk_changes() -> None:
    seen, values = Seen(), {"notes": ("mine", lambda: "mine"), "head": "a"}
    seen.changed(values, values)
    seen.choose("same run", ["notes"])
    notes, head = seen.changed(values, values)
    assert ("value" in notes, head) == (False, "a")
    assert seen.changed(["notes"], {"notes": ("mine, and more", lambda: "mine, and more")}) == ["mine, and more"]


def test_a_tick_about_the_run_shown_before_comes_too_late() -> None:
    seen = Seen()
    assert not seen.late("old")
    seen.choose("new")
    assert seen.late("old")
    assert not seen.late("new")


def test_what_could_not_be_made_leaves_nothing_as_seen() -> None:
    """A file that goes while its picture is made: the tick sends nothing, so the next one must send everything."""

    def gone() -> str:
        raise FileNotFoundError

    seen = Seen()
    with pytest.raises(FileNotFoundError):
        seen.changed(["button", "picture"], {"button": "Go on", "picture": (1, gone)})
    assert seen.would_change(["button"], {"button": "Go on"})
    assert seen.changed(["button", "picture"], {"button": "Go on", "picture": (1, lambda: "there")}) == [
        "Go on",
        "there",
    ]


def test_the_first_run_is_read_before_anybody_opens_the_page(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = Live(workspace)
    read_ahead(live)  # no run: nothing to do
    write_run(workspace, "newest", 20)
    live.statuses(now=True)
    read_ahead(live)
    monkeypatch.setattr(snapshot, "curves_of", None)  # reads all lines, of a run that was not read before
    seen = live.chosen(None)
    assert seen is not None
    assert (seen.name, seen.curves.last["step"]) == ("newest", 20)
