"""The report of a run: one file that needs nothing else and says what the run's files say."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.drawing import MakeClip
from tests.written_run import NOW, add_preview, ended, write_run
from workbench.charts import Line, chart, number, ticks
from workbench.errors import ExitCode
from workbench.runs import sessions
from workbench.runs.analysis import report
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
    path = report.write_report(run)
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
    assert "<script" not in text
    assert "url(" not in text.replace("url(#plot", "")
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
    assert text.count('<figure class="chart">') == 4 + 5  # loss twice, change, learning rate; a chart a band
    assert "best checkpoint, step 200" in text
    assert "held out, to measure with</td><td>9x40x48</td><td>1" in text
    assert re.search(r"<td>200</td><td>0\.\d+</td><td>.* MB</td><td>newest, lowest held-out loss</td>", text)
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
    monkeypatch.setattr(report, "EMBEDDED", 4.5 * clip.stat().st_size)
    text = written(run)
    assert re.findall(r"<th>(base model|step \d+)</th>", text) == ["base model", "step 100", "step 200"]
    assert text.count("<video") == 3
    assert "8 more steps have previews" in text


def test_a_run_that_never_started_has_a_report(workspace: Workspace) -> None:
    folder = workspace.run("new")
    TrainSettings(dataset="cats").save(folder / "config.json")
    text = written(Run(folder))
    assert "not started yet" in text
    assert "Nothing was exported yet" in text


def test_starts_tell_time_and_machine(run: Run) -> None:
    (run.folder / sessions.SESSIONS).unlink()
    append_line(run.folder / sessions.SESSIONS, f'{{"time": {NOW - 1000}, "step": 0, "device": "CPU", "later": 1}}')
    append_line(run.folder / sessions.SESSIONS, '{"torn')
    sessions.record_session(run.folder, 100, device="GPU")  # a resume, after the last line of metrics 30 s ago
    first, second = sessions.read_sessions(run.folder)
    assert (first.step, second.step, second.device) == (0, 100, "GPU")
    assert second.before == pytest.approx(NOW - 30, abs=1)
    # 970 s until the last line before the resume; then from the process's start 100 s ago to its end 20 s ago.
    assert sessions.seconds_used(run.folder) == pytest.approx(970 + 80, abs=1)
    text = written(run)
    assert "went on from the checkpoint of step 100" in text
    assert "<td>before</td><td>CPU</td>" in text


@pytest.mark.parametrize(
    ("low", "high", "want"),
    [
        (0, 450, [0, 100, 200, 300, 400]),
        (0.183, 0.411, [0.2, 0.25, 0.3, 0.35, 0.4]),
        (0, 2.2e-3, [0, 0.0005, 0.001, 0.0015, 0.002]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_ticks_are_round(low: float, high: float, want: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(want)


def test_a_chart_draws_every_value_where_it_belongs() -> None:
    drawn = chart("Loss", [Line("loss", [(0, 0.0), (50, 1.0), (100, 0.5)])], (200, 138))
    (path,) = re.findall(r'class="curve line"[^>]* d="M([^"]+)"', drawn)
    points = [tuple(map(float, point.split())) for point in path.split("L")]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(2 * (y0 - y2), abs=0.2)
    assert "loss: 0.5" in drawn
    assert "step 50" in drawn


def test_one_wild_value_does_not_flatten_a_chart() -> None:
    raw = [(step, 1.0 + step % 2) for step in range(100)]
    lines = [Line("raw", [*raw, (100, 1e6)], 1, "faint"), Line("soft", [(0, 1.5), (100, float("nan")), (100, 1.5)])]
    shown = {float(text) for text in re.findall(r'text-anchor="end">([\d.]+)<', chart("Loss", lines))}
    assert max(shown) <= 3


@pytest.mark.parametrize(("value", "text"), [(25_000, "25k"), (450, "450"), (0.041283, "0.04128"), (1e-5, "1e-5")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_no_points_no_chart() -> None:
    assert chart("Loss", [Line("loss", []), Line("other", [(1, float("nan"))])]) == ""
