"""The report of a run: one file that needs nothing else and says what the run's files say."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.drawing import MakeClip
from tests.written_run import NOW, add_preview, ended, two_sessions, write_run
from workbench.display import charts
from workbench.errors import ExitCode
from workbench.runs import display
from workbench.runs.display import write_report
from workbench.runs.metrics import SESSIONS, read_sessions, record_session, training_seconds
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import snapshot
from workbench.workspace import Workspace, append_line, write_json

EVIL = '<img src=x onerror="alert(1)">'
VOID = {"meta", "br", "img"}


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


class Tags(HTMLParser):
    """What is open, what is embedded, what is read from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "poster", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """It closes itself."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_it_needs_nothing_but_itself(run: Run, clip: Path) -> None:
    for step in (0, 100, 200):
        add_preview(run, step, clip)
    text = written(run)
    tags = Tags(text)
    assert not tags.open
    assert len(tags.sources) == 3
    assert all(source.startswith("data:video/mp4;base64,") for source in tags.sources)
    assert text.count("<script") == 1
    digest = base64.b64encode(hashlib.sha256(charts.script().encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; media-src data:; script-src 'sha256-{digest}'" in text
    assert "url(" not in text
    assert "@import" not in text


def test_it_says_how_the_run_went_and_what_was_set(run: Run) -> None:
    text = written(run)
    diagnosis = snapshot(run).diagnosis
    assert diagnosis is not None
    assert diagnosis.sentence in text
    assert "DoRA of rank 16" in text
    changed, _, defaults = text.partition("<details><summary>")
    assert "<td>0.0003</td><td>0.0001</td>" in changed
    assert "Weight decay" not in changed
    assert "Weight decay" in defaults
    assert text.count('<figure class="chart"') == 5 + 5  # loss three times, change, learning rate; a chart a band
    assert "best checkpoint, step 200" in text
    assert "held out, to measure with</td><td>9x40x48</td><td>1" in text
    assert re.search(r"<td>200</td><td>0\.\d+</td><td>.* kB</td><td>newest, lowest held-out loss</td>", text)
    assert "<td>torch</td><td>2.13</td>" in text


def test_what_people_wrote_is_shown_as_text(workspace: Workspace, clip: Path) -> None:
    run = write_run(workspace, "evil", preview_prompts=(EVIL,))
    add_preview(run, 0, clip, EVIL)
    write_json(run.folder / "parent.json", {"run": EVIL, "step": 1, "changed": {"rank": [EVIL, 2]}})
    ended(run.folder, "failed", ExitCode.BUG, EVIL)
    text = written(run)
    assert "<img" not in text
    assert text.count("&lt;img") >= 5


def test_a_failed_run_says_why(run: Run) -> None:
    ended(run.folder, "failed", ExitCode.NON_FINITE_LOSS, "the loss of step 7 is not a number")
    text = written(run)
    assert "the loss of step 7 is not a number" in text
    assert "last checkpoint is of step 200" in text


def test_videos_are_thinned_to_fit_first_and_last_stay(run: Run, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(0, 201, 20):
        add_preview(run, step, clip)
    add_preview(run, 200, clip, stem="0-scale-0.5", scale=0.5)  # not one of the steps' own
    monkeypatch.setattr(display, "EMBEDDED", 4.5 * clip.stat().st_size)
    text = written(run)
    assert re.findall(r"<th>(base model|step \d+)</th>", text) == ["base model", "step 100", "step 200"]
    assert text.count("<video") == 3 + 2  # the newest again, at either scale
    assert "<th>LoRA at 0.5</th>" in text
    assert "8 more steps have previews" in text


def test_a_run_that_never_started_has_a_report(workspace: Workspace) -> None:
    folder = workspace.run("new")
    TrainSettings(dataset="cats").save(folder / "config.json")
    text = written(Run(folder))
    assert "not started yet" in text
    assert "Nothing was exported yet" in text


def test_its_time_is_that_of_training(run: Run) -> None:
    two_sessions(run)
    assert re.search(r"<dt[^>]*>training time</dt>\s*<dd[^>]*>1 min 10 s</dd>", written(run))


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
    assert "went on from the checkpoint of step 100" in text
    assert "<td>before</td><td>CPU</td>" in text
