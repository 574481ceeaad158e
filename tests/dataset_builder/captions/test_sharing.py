"""Captions by two processes at a real server, one of them killed: every clip gets one caption, asked for once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dataset_builder.chat_server import ChatServer, Reply, chat_server, refuses, says
from tests.patience import PATIENCE
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.captions import sharing
from workbench.dataset_builder.captions.settings import CaptionSettings
from workbench.workspace import read_json


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        yield running


def settings(server: ChatServer, **values: Any) -> CaptionSettings:
    return CaptionSettings(
        captioner="endpoint",
        base_url=server.url,
        endpoint_model="eye",
        which="all",
        frames=2,
        processes=2,
        instruction="now: {caption}",
        retries=0,
        **values,
    )


def test_two_ask_one_dies_and_no_clip_is_lost_or_asked_for_twice(dataset: Dataset, server: ChatServer) -> None:
    before = [clip.text for clip in dataset.clips]

    def slowly(number: int, body: dict[str, Any]) -> Reply:
        time.sleep(0.3)
        return says(f"caption {number}")

    server.answer = slowly
    task = dataset.task("caption")
    task.start(settings(server, key_variable="A_KEY"))
    shared = task.folder / sharing.FOLDER
    end = time.monotonic() + PATIENCE
    while not (answers := list(shared.glob("answers-*.jsonl"))):
        assert task.status.state.alive, jobs.log_tail(task.folder)
        assert time.monotonic() < end
        time.sleep(0.01)
    claim = next(path for path in shared.glob("shards/*.claim") if str(read_json(path)["pid"]) in answers[0].name)
    os.kill(read_json(claim)["pid"], signal.SIGKILL)
    status = task.wait(PATIENCE)
    assert status.state == jobs.State.FINISHED, jobs.log_tail(task.folder)
    assert (status.step, status.total) == (6, 6)
    assert task.result["counts"] == {"captioned": 6, "kept": 0, "failed": 0}
    assert all(clip.caption_by == "endpoint" for clip in dataset.clips)
    asked = [question.removeprefix("now: ") for question in server.questions]
    assert set(asked) == set(before)
    assert len(asked) <= len(before) + 1  # the one that was being asked when its worker was killed
    assert not shared.exists()
    dataset.undo()
    assert [clip.text for clip in dataset.clips] == before


def test_when_nobody_answers_the_job_ends_with_the_reason(dataset: Dataset, server: ChatServer) -> None:
    server.answer = lambda number, body: refuses(503)
    task = dataset.task("caption")
    task.start(settings(server))
    status = task.wait(PATIENCE)
    assert status.state == jobs.State.FAILED
    assert "workers end again and again" in status.message
    assert status.exit_code == 69
