"""Captions by a job with real processes and a real server, and by hand: nobody loses a word."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dataset_builder.chat_server import ChatServer, Reply, chat_server, refuses, says
from tests.patience import PATIENCE
from workbench import jobs
from workbench.captioners import keys
from workbench.captioners.base import CaptionFailed
from workbench.captioners.vision_language import VisionLanguage
from workbench.dataset_builder import Dataset, history
from workbench.dataset_builder.captions import captioning, editing
from workbench.dataset_builder.captions.captioning import instruction, sample_frames, tidy
from workbench.dataset_builder.captions.editing import Rewritten, Search
from workbench.dataset_builder.settings import CaptionSettings
from workbench.errors import ConfigError, DataError, ExitCode
from workbench.workspace import read_json

MODULE = "workbench.dataset_builder"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        yield running


def settings(server: ChatServer, **values: Any) -> CaptionSettings:
    """All clips, every instruction its clip's caption, quick to give up."""
    usual = {"captioner": "endpoint", "base_url": server.url, "endpoint_model": "eye", "which": "all", "frames": 2}
    return CaptionSettings().changed(**{**usual, "instruction": "now: {caption}", "retries": 0, **values})


def start(dataset: Dataset, server: ChatServer, **values: Any) -> jobs.Status:
    folder = dataset.folder / ".caption"
    settings(server, **values).save(folder / jobs.CONFIG)
    return jobs.start(folder, MODULE)


def finish(dataset: Dataset) -> tuple[jobs.Status, dict[str, Any]]:
    folder = dataset.folder / ".caption"
    status = jobs.wait(folder, PATIENCE)
    return status, dataset.task("caption").result


def texts(dataset: Dataset) -> list[str]:
    return [clip.text for clip in dataset.clips]


def test_clips_without_a_caption_get_one_and_it_can_be_undone(dataset: Dataset, server: ChatServer) -> None:
    for number in (1, 4):
        dataset.set_caption(dataset.clips[number].file_name, "")
    before, entries = dataset.clips, len(dataset.history)
    template = "Show {trigger}.\nIt is known that {caption}\n{x} {{trigger}}"
    start(dataset, server, which="missing", instruction=template)
    status, result = finish(dataset)
    assert (status.state, status.step, status.total) == (jobs.State.FINISHED, 2, 2)
    assert result["counts"] == {"captioned": 2, "kept": 0, "failed": 0}
    assert server.questions == ["Show zwx.\n{x} {zwx}"] * 2
    changed = [clip for clip, old in zip(dataset.clips, before, strict=True) if clip != old]
    assert [(clip.text, clip.caption_by) for clip in changed] == [("caption 0", "endpoint"), ("caption 1", "endpoint")]
    assert dataset.history[-1].what == "captions by eye"
    assert len(dataset.history) == entries + 1
    dataset.undo()
    assert dataset.clips == before
    assert not (dataset.folder / ".caption" / "captions.jsonl").exists()


def test_what_a_person_wrote_stays_even_when_written_meanwhile(dataset: Dataset, server: ChatServer) -> None:
    names = [clip.file_name for clip in dataset.clips]
    dataset.set_caption(names[0], "mine")

    def answer(number: int, body: dict[str, Any]) -> Reply:
        if number == 2:
            dataset.set_caption(names[3], "written while the model looks at it")
            dataset.set_caption(names[1], "written after the model was asked")
        return says(f"caption {number}")

    server.answer = answer
    start(dataset, server)
    status, result = finish(dataset)
    assert status.state == jobs.State.FINISHED
    assert texts(dataset) == [
        "mine", "written after the model was asked", "caption 1", "written while the model looks at it", "caption 3",
        "caption 4",
    ]  # fmt: skip
    assert result["counts"]["kept"] == 1
    start(dataset, server, which="chosen", chosen=[names[0].split("/")[1][:-4]], overwrite_hand=True)
    finish(dataset)
    assert texts(dataset)[:2] == ["caption 5", "written after the model was asked"]


def test_a_clip_that_fails_is_named_and_the_rest_goes_on(dataset: Dataset, server: ChatServer) -> None:
    broken = dataset.clips[3]
    dataset.path_of(broken).write_bytes(b"no video")
    replies = {0: Reply(b"<html>"), 1: Reply(b"<html>"), 2: refuses(500), 4: refuses(429, Retry_After="0")}
    server.answer = lambda number, body: replies.get(number, says(f"<think>hm</think> 'caption {number}'\n"))
    start(dataset, server, retries=1)
    status, result = finish(dataset)
    assert status.state == jobs.State.FINISHED
    first, *others = dataset.clips
    assert first.text == "a red square moving right, 0"
    assert [clip.text for clip in others] == ["caption 3", "caption 5", broken.text, "caption 6", "caption 7"]
    assert set(result["failed"]) == {first.file_name, broken.file_name}
    assert "not a chat completion" in result["failed"][first.file_name]
    assert result["counts"] == {"captioned": 4, "kept": 0, "failed": 2}


def test_a_refused_key_ends_the_job_and_what_was_done_stays(dataset: Dataset, server: ChatServer) -> None:
    server.answer = lambda number, body: refuses(401) if number == 3 else says(f"caption {number}")
    start(dataset, server)
    status, _ = finish(dataset)
    assert (status.state, status.exit_code) == (jobs.State.FAILED, ExitCode.BAD_CONFIG)
    assert "there is no key in OPENAI_API_KEY" in status.message
    assert texts(dataset)[:3] == ["caption 0", "caption 1", "caption 2"]


def test_killed_half_way_it_goes_on_without_asking_twice(dataset: Dataset, server: ChatServer) -> None:
    asked, dead = threading.Event(), threading.Event()

    def answer(number: int, body: dict[str, Any]) -> Reply:
        if number == 3:
            asked.set()
            dead.wait(PATIENCE)
        return says(f"caption {number}")

    server.answer = answer
    before = texts(dataset)
    status = start(dataset, server)
    assert asked.wait(PATIENCE)
    # Three answers are on disk, two of them in the records; the third clip's is written into them after the kill.
    assert texts(dataset) == ["caption 0", "caption 1", *before[2:]]
    assert status.pid is not None
    os.kill(status.pid, signal.SIGKILL)
    assert finish(dataset)[0].state == jobs.State.DIED
    dead.set()
    start(dataset, server)
    status, result = finish(dataset)
    assert (status.state, result["counts"]["captioned"]) == (jobs.State.FINISHED, 6)
    assert texts(dataset) == ["caption 0", "caption 1", "caption 2", "caption 4", "caption 5", "caption 6"]
    assert server.questions == [f"now: {text}" for text in [*before[:4], *before[3:]]]
    assert [entry.what for entry in dataset.undoable] == ["captions by eye"], "one entry, although it was killed"
    assert dataset.undoable[0].clips == 6
    dataset.undo()
    assert texts(dataset) == before
    dataset.redo()
    assert texts(dataset)[0] == "caption 0"


def test_stopped_while_it_waits_then_asked_anew(dataset: Dataset, server: ChatServer) -> None:
    server.answer = lambda n, body: refuses(429, Retry_After="60") if n == 2 else says(f"caption {n}")
    start(dataset, server, retries=3)
    task = dataset.task("caption")
    while "retrying in" not in task.status.message and task.status.state.alive:
        task.wait(0.1)
    task.stop()
    status, _ = finish(dataset)
    assert (status.state, status.exit_code) == (jobs.State.STOPPED, ExitCode.STOPPED)
    assert status.message == "stopped after 2 of 6 clips: start it again to resume"
    assert len(server.requests) == 3
    dataset.undo()  # what a person takes back is asked for again, what stands is not
    start(dataset, server, retries=3)
    finish(dataset)
    assert texts(dataset) == [f"caption {number}" for number in range(3, 9)]
    # A job that came to its end is not continued: the same settings ask for every clip again.
    start(dataset, server, retries=3)
    finish(dataset)
    assert texts(dataset) == [f"caption {number}" for number in range(9, 15)]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"captioner": "nobody"}, "captioner is 'nobody', which does not exist: choose endpoint or vision_language"),
        ({"base_url": ""}, "base_url is not set: enter the server's address"),
        (
            {"base_url": "https://api.example.com/v1"},
            "no key for api.example.com was found: set it (and",
        ),
        ({"which": "chosen", "chosen": ["gone"]}, "there is no clip 'gone' in this dataset"),
        (
            {"captioner": "vision_language", "model": "/nowhere"},
            "model is '/nowhere', neither a known model nor a folder",
        ),
    ],
)
def test_what_must_fail_is_said_before_anything_starts(
    dataset: Dataset, settings: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(VisionLanguage, "imports", ())
    values: dict[str, Any] = {"captioner": "endpoint", "base_url": "http://localhost:1/v1", "endpoint_model": "eye"}
    task = dataset.task("caption")
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        task.start(CaptionSettings().changed(**{**values, **settings}))
    assert task.status.state == jobs.State.NEW
    assert not task.folder.exists()


@pytest.mark.parametrize("at", ["details", "records"])
def test_a_task_killed_while_it_writes_is_undone_all_the_same(
    dataset: Dataset, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dataset.clips

    def caption(number: int) -> None:
        new = before[number].changed(text=f"caption {number}")
        history.edit(dataset.folder, "captions", lambda clips: [new], "task")

    class Killed(BaseException):
        pass

    def kill(*_: Any) -> None:
        raise Killed

    caption(0)
    name = {"details": "write_clips", "records": "_append"}[at]
    with monkeypatch.context() as dying:
        dying.setattr(history, name, kill)
        with pytest.raises(Killed):
            caption(1)
    if at == "details":
        dataset.undo()
        assert dataset.clips == before
        dataset.redo()
    for number in (1, 2):  # the task goes on
        caption(number)
    standing = 1 if at == "records" else 2  # what was undone and done again grows no more
    assert len(dataset.undoable) == standing
    for _ in range(standing):
        dataset.undo()
    assert dataset.clips == before


def test_what_a_person_did_meanwhile_is_undone_by_itself(dataset: Dataset) -> None:
    before = dataset.clips

    def caption(number: int, text: str) -> None:
        history.edit(dataset.folder, "captions", lambda clips: [clips[number].changed(text=text)], "task")

    caption(0, "by the task")
    dataset.set_caption(before[0].file_name, "by hand")
    caption(1, "by the task")
    caption(0, "by the task again")
    assert [entry.what for entry in dataset.undoable] == ["captions", "caption of 0.mp4", "captions"]
    dataset.undo()
    assert [clip.text for clip in dataset.clips[:2]] == ["by hand", "by the task"]
    dataset.undo()
    dataset.undo()
    assert dataset.clips == before


def test_the_key_reaches_the_job_and_no_file(
    dataset: Dataset, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-not-a-real-key")
    monkeypatch.setenv(keys.HOSTS, "MY_API_KEY=127.0.0.1")
    task = dataset.task("caption")
    values = {"captioner": "endpoint", "base_url": server.url, "endpoint_model": "eye", "which": "all"}
    task.start(CaptionSettings().changed(**values, key_variable="MY_API_KEY"))
    assert task.wait(PATIENCE).state == jobs.State.FINISHED
    assert {headers["authorization"] for _, headers, _ in server.requests} == {"Bearer sk-not-a-real-key"}
    written = [path for path in dataset.folder.rglob("*") if path.is_file()]
    assert not [path for path in written if b"sk-not-a-real-key" in path.read_bytes()]


def test_other_settings_start_afresh(dataset: Dataset, server: ChatServer) -> None:
    server.answer = lambda n, body: refuses(401) if n == 2 else says(f"caption {n}")
    start(dataset, server)
    finish(dataset)
    start(dataset, server, instruction="otherwise")
    finish(dataset)
    assert texts(dataset) == [f"caption {number}" for number in range(3, 9)]
    assert server.questions[3:] == ["otherwise"] * 6


def test_the_instruction_is_filled_in_word_for_word() -> None:
    assert instruction("{trigger}: {caption}", "zwx", "a {trigger} {0}") == "zwx: a {trigger} {0}"
    assert instruction("a\nwith {caption}\nb", "zwx", " ") == "a\nb"
    filled = instruction(CaptionSettings().instruction, "", "")
    assert "{" not in filled
    assert "Describe this video" in filled


def test_an_answer_becomes_one_clean_line() -> None:
    assert tidy('<think>\nhm\n</think>\n"A red  square.\nIt moves."') == "A red square. It moves."
    assert tidy('"Go," he said. "Now."') == '"Go," he said. "Now."'
    for nothing in ("", " \n", "<think>never ends", '""'):
        with pytest.raises(CaptionFailed, match="answer is empty"):
            tidy(nothing)


def test_frames_are_spread_over_the_clip_and_reduced(dataset: Dataset) -> None:
    clip = dataset.clips[0]  # 17 frames at 8 fps
    frames, fps = sample_frames(dataset.path_of(clip), clip, 5, 32)
    assert (frames.shape, fps) == ((5, 32, 32, 3), 2.0)
    lefts = [int((frame[16, :, 0] > 150).argmax()) for frame in frames]
    assert lefts[0] == 0
    assert lefts == sorted(set(lefts))
    assert sample_frames(dataset.path_of(clip), clip, 64, 768)[0].shape == (17, 64, 64, 3)
    assert sample_frames(dataset.path_of(clip), clip, 1, 768)[0].shape == (1, 64, 64, 3)
    with pytest.raises(DataError, match="does not say its size"):
        sample_frames(dataset.path_of(clip), clip.changed(frames=0), 5, 32)


def test_two_ask_one_dies_and_no_clip_is_lost_or_asked_for_twice(dataset: Dataset, server: ChatServer) -> None:
    before = [clip.text for clip in dataset.clips]

    def slowly(number: int, body: dict[str, Any]) -> Reply:
        time.sleep(0.3)
        return says(f"caption {number}")

    server.answer = slowly
    task = dataset.task("caption")
    task.start(settings(server, processes=2, key_variable="A_KEY"))
    shared = task.folder / captioning.FOLDER
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
    task.start(settings(server, processes=2))
    status = task.wait(PATIENCE)
    assert status.state == jobs.State.FAILED
    assert "workers keep failing" in status.message
    assert status.exit_code == 69


# ---- editing by hand


def give(dataset: Dataset, *captions: str) -> None:
    for clip, text in zip(dataset.clips, captions, strict=False):
        dataset.set_caption(clip.file_name, text, by="file")


def test_an_edit_is_one_entry_of_the_history_and_one_undo(dataset: Dataset) -> None:
    before, entries = dataset.clips, len(dataset.history)
    assert editing.replace(dataset.folder, Search("SQUARE moving"), "box going") == 6
    assert texts(dataset)[0] == "a red box going right, 0"
    assert len(dataset.history) == entries + 1
    assert (dataset.history[-1].what, dataset.history[-1].clips) == (
        "'SQUARE moving' became 'box going' in captions",
        6,
    )
    assert {clip.caption_by for clip in dataset.clips} == {"file"}
    dataset.undo()
    assert dataset.clips == before
    assert editing.replace(dataset.folder, Search("circle"), "box") == 0
    assert len(dataset.history) == entries + 2


@pytest.mark.parametrize(
    ("search", "replacement", "result"),
    [
        (Search("cat"), "dog", "A dog, a dogalog and a dog. (dog)"),
        (Search("cat", match_case=True), "dog", "A Cat, a dogalog and a dog. (dog)"),
        (Search("(c)at", expression=True), r"\1ub", "A Cub, a cubalog and a cub. (cub)"),
        (Search("cat|and", expression=True, whole_word=True), "x", "A x, a catalog x a x. (x)"),
    ],
)
def test_find_and_replace(dataset: Dataset, search: Search, replacement: str, result: str) -> None:
    clip = dataset.clips[2]
    dataset.set_caption(clip.file_name, "A Cat, a catalog and a cat. (cat)")
    before = dataset.clip(clip.file_name)
    [seen] = editing.preview_replace(dataset.folder, search, replacement, [clip.id])
    assert seen == Rewritten(name=clip.name, before=before.text, after=result)
    assert dataset.clip(clip.file_name) == before
    assert editing.replace(dataset.folder, search, replacement, [clip.id]) == 1
    assert dataset.clip(clip.file_name).text == result
    assert texts(dataset)[0] == "a red square moving right, 0"


@pytest.mark.parametrize(
    ("search", "replacement", "sentence"),
    [
        (Search(""), "x", "the text to find is empty: enter one"),
        (Search("(a", expression=True), "x", r"'\(a' cannot be used as a regular expression \(missing \)"),
        (Search("a", expression=True), r"\7", r"expression \(invalid group reference\): fix or simplify it"),
        (Search("(a+)+$", expression=True), "x", r"expression \(it takes too long\): fix"),
    ],
)
def test_a_search_that_cannot_be_used_says_why(
    dataset: Dataset, search: Search, replacement: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editing, "PATTERN_SECONDS", 0.2)
    give(dataset, "a" * 3000 + "b")
    before = dataset.clips
    with pytest.raises(ConfigError, match=sentence):
        editing.replace(dataset.folder, search, replacement)
    assert dataset.clips == before


def test_prefix_and_suffix(dataset: Dataset) -> None:
    give(dataset, "one", "in short: two, end", "")
    names = [clip.id for clip in dataset.clips[:3]]
    assert editing.add_prefix(dataset.folder, " in short: ", names) == 2
    assert texts(dataset)[:3] == ["in short: one", "in short: two, end", "in short:"]
    assert [clip.caption_by for clip in dataset.clips[:3]] == ["file", "file", "hand"]
    give(dataset, "one", "two, end", "")
    assert editing.add_suffix(dataset.folder, ", end", names) == 2
    assert texts(dataset)[:3] == ["one, end", "two, end", "end"]
    assert editing.add_suffix(dataset.folder, "of all", names) == 3
    assert texts(dataset)[:3] == ["one, end of all", "two, end of all", "end of all"]
    with pytest.raises(ConfigError, match="the prefix is empty: give a text"):
        editing.add_prefix(dataset.folder, "  ")
    with pytest.raises(ConfigError, match="there is no clip 'gone' in this dataset"):
        editing.add_prefix(dataset.folder, "x", ["gone"])


def test_the_trigger_word_goes_in_and_out(dataset: Dataset) -> None:
    give(dataset, "ZWX running", "a zwxy, sitting", "a dog, zwx, on grass", "zwx, a dog", "seen with zwx, asleep", "")
    assert editing.add_trigger_word(dataset.folder) == 2
    assert texts(dataset)[1] == "zwx a zwxy, sitting"
    assert texts(dataset)[5] == "zwx"
    assert [dataset.captions[clip.file_name] for clip in dataset.clips] == texts(dataset)
    assert editing.remove_trigger_word(dataset.folder) == 6
    assert texts(dataset) == ["running", "a zwxy, sitting", "a dog, on grass", "a dog", "seen with, asleep", ""]
    dataset.set_trigger_word("")
    with pytest.raises(ConfigError, match="no trigger word: set one first"):
        editing.add_trigger_word(dataset.folder)


def test_tags_are_counted_and_removed(dataset: Dataset) -> None:
    give(dataset, "Dog, grass,  sun", "dog,dog , rain", "a dog", "", "grass", "it's a well-lit, dog's")
    assert editing.tag_counts(dataset.clips) == {
        "Dog": 2, "grass": 2, "sun": 1, "rain": 1, "a dog": 1, "it's a well-lit": 1, "dog's": 1,
    }  # fmt: skip
    assert editing.remove_tag(dataset.folder, " dog ") == 2
    assert texts(dataset) == ["grass, sun", "rain", "a dog", "", "grass", "it's a well-lit, dog's"]
