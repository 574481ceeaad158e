"""metrics.jsonl under a reader that comes at any time and a writer that may die at any time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workbench.runs import metrics
from workbench.runs.metrics import METRICS, MetricsReader, MetricsWriter, read_metrics


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
