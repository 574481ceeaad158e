"""The report of a run: one file that needs nothing else and says what the run's files say."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.drawing import MakeClip
from tests.written_run import NOW, add_preview, ended, two_sessions, write_run
from workbench.errors import ExitCode
from workbench.runs import report
from workbench.runs.metrics import SESSIONS, read_sessions, record_session, training_seconds
from workbench.runs.report import write_report
from workbench.runs.run import Run
from workbench.runs.snapshot import snapshot
from workbench.workspace import Workspace, append_line, write_json

EVIL = '<img src=x onerror="alert(1)">'


@pytest.fixture(scope="module")
def clip(make_clip: MakeClip, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clip(tmp_path_factory.mktemp("clip") / "0.mp4")


@pytest.fixture
def run(workspace: Workspace) -> Run:
    return write_run(workspace, "cats", learning_rate=3e-4, dora=True)


def written(run: Run) -> str:
    path = write_report(run)
    assert path == run.folder / "report.html"
    return path.read_text(encoding="utf-8")


def data(text: str) -> dict[str, Any]:
    """What the file holds for its elements: properties and answers."""
    found = re.search(r'<script type="application/json" id="wb-data">(.*?)</script>', text, re.DOTALL)
    read: dict[str, Any] = json.loads(found[1])
    return read


def rows(text: str, title: str) -> list[list[str]]:
    """The rows of all tables of a section."""
    sections = {one["title"]: one["parts"] for one in data(text)["properties"]["report"]["sections"]}
    return [row for part in sections[title] for row in part.get("rows", ())]


def answer(text: str, operation: str, **more: bool) -> dict[str, Any]:
    """What an operation has answered about the run."""
    asked = json.dumps([operation, {"name": "cats", **more}], separators=(",", ":"))
    found: dict[str, Any] = data(text)["answers"][asked]
    return found


def test_it_needs_nothing_but_itself(run: Run, clip: Path) -> None:
    for step in (0, 100, 200):
        add_preview(run, step, clip)
    text = written(run)
    names = re.findall(r'<script type="text/plain" id="([^"]*)">', text)
    assert names == [f"previews/step-{step:08d}/0.mp4" for step in (0, 100, 200)]
    assert [*answer(text, "progress/previews")["rows"][0]["videos"]] == names
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = "default-src 'none'; media-src blob:; img-src blob: data:; style-src 'unsafe-inline'; script-src 'sha256-"
    assert f"{allowed}{digest}'" in text
    assert "url(" not in text.partition("<body>")[0]
    assert not re.search(r"""(src|href)=["']?https?://""", text.partition("<script>")[0])
    assert str(run.folder.parent) not in text.replace(f"In the folder {run.folder}:", "")


def test_it_says_how_the_run_went_and_what_was_set(run: Run) -> None:
    text = written(run)
    head = data(text)["properties"]["report"]["head"]
    diagnosis = snapshot(run).diagnosis
    assert head["verdict"]["claim"] == diagnosis.sentence
    assert head["what"].startswith("DoRA of rank 16 on ")
    sections = {one["title"]: one["parts"] for one in data(text)["properties"]["report"]["sections"]}
    changed, folded = sections["Settings"]
    assert ["0.0003", "0.0001"] in [row[2:] for row in changed["rows"]]
    assert "Weight decay" not in [row[1] for row in changed["rows"]]
    assert "Weight decay" in [row[1] for row in folded["rows"]]
    assert folded["folded"]
    charts = [*answer(text, "progress/curves")["charts"], *answer(text, "progress/curves", more=True)["charts"]]
    assert len(charts) == 5 + 5  # loss three times, change, learning rate; a chart a band
    assert [200, "best checkpoint, step 200"] in [line.get("marked") for one in charts for line in one["lines"]]
    assert ["held out, for measuring", "9x40x48", "1"] in rows(text, "Data")
    (newest,) = [row for row in rows(text, "Checkpoints") if row[0] == "200"]
    assert newest[3] == "newest, lowest held-out loss"
    assert ["torch", "2.13"] in rows(text, "Machine and versions")


def test_what_people_wrote_is_shown_as_text(workspace: Workspace, clip: Path) -> None:
    run = write_run(workspace, "evil", preview_prompts=(EVIL,))
    add_preview(run, 0, clip, EVIL)
    write_json(run.folder / "parent.json", {"run": EVIL, "step": 1, "changed": {"rank": [EVIL, 2]}})
    ended(run.folder, "failed", ExitCode.BUG, EVIL)
    text = written(run).partition("<script>")[0]
    assert "<img" not in text
    assert text.count(EVIL.replace("<", "\\u003c").replace('"', '\\"')) >= 5


def test_videos_are_thinned_to_fit_first_and_last_stay(run: Run, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(0, 201, 20):
        add_preview(run, step, clip)
    add_preview(run, 200, clip, stem="0-scale-0.5", scale=0.5)  # not one of the steps' own
    monkeypatch.setattr(report, "EMBEDDED", 4.5 * clip.stat().st_size)
    text = written(run)
    shown = answer(text, "progress/previews")
    assert shown["steps"] == [0, 100, 200]
    assert text.count('<script type="text/plain"') == 3 + 1  # the newest again, at half its scale
    assert shown["scaled"]["scales"] == [0.5, 1.0]
    assert "8 more steps have previews" in shown["note"]


def test_its_time_is_that_of_training(run: Run) -> None:
    two_sessions(run)
    facts = data(written(run))["properties"]["report"]["head"]["facts"]
    assert {"label": "training time", "text": "1 min 10 s", "tone": "plain"} in facts


def test_starts_tell_time_and_machine(run: Run) -> None:
    (run.folder / SESSIONS).unlink()
    append_line(run.folder / SESSIONS, f'{{"time": {NOW - 1000}, "step": 0, "device": "CPU", "later": 1}}')
    append_line(run.folder / SESSIONS, '{"torn')
    record_session(run.folder, 100, device="GPU")  # a resume, after the last line of metrics 30 s ago
    first, second = read_sessions(run.folder)
    assert (first.step, second.step, second.device) == (0, 100, "GPU")
    assert second.before == pytest.approx(NOW - 30, abs=1)
    assert training_seconds(run.folder) == pytest.approx(970, abs=1)  # until the last line before the resume
    text = written(run)
    assert "resumed from the checkpoint at step 100" in text
    assert ["before", "CPU"] in rows(text, "Machine and versions")
