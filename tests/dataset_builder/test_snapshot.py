"""A dataset and its tasks as plain data, which every face renders."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from workbench import jobs
from workbench.clips.frame_plan import shape_for
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.snapshot import OUTCOME_OF, task_snapshot
from workbench.dataset_builder.tasks import NAMES, Name
from workbench.families import find_model
from workbench.workspace import write_json


def test_a_dataset_names_its_numbers_and_what_is_to_do(dataset: Dataset) -> None:
    dataset.set_caption(dataset.clips[0].file_name, "")
    found = dataset.snapshot(shape_for(find_model("tiny-cogvideox")[1]))
    assert (found.name, found.trigger_word, found.facts["clips"]) == ("squares", "zwx", "6")
    assert found.facts["without caption"] == "1"
    assert "left out by the model" in found.facts
    assert "left out by the model" not in dataset.snapshot().facts
    assert "1 clip has no caption" in found.next_steps[0]
    assert found.tasks == ()
    assert json.loads(json.dumps(asdict(found)))["summary"]["clips"] == 6


def test_a_task_says_how_it_ended_and_what_may_be_done(dataset: Dataset) -> None:
    task = dataset.task("split")
    assert (task_snapshot(task).sentence, task_snapshot(task).actions) == ("", ())
    write_json(task.folder / jobs.RESULT, {"status": "stopped", "message": "stopped after 2 of 6 clips"})
    stopped = task_snapshot(task)
    assert stopped.sentence == "The task split was stopped; what was done stays. stopped after 2 of 6 clips"
    assert stopped.actions == ("resume", "dismiss")
    assert [one.name for one in dataset.snapshot().tasks] == ["split"]
    task.dismiss()
    assert (task_snapshot(task).sentence, dataset.snapshot().tasks) == ("", ())


def test_an_import_says_what_became_of_each_file_the_refused_first(dataset: Dataset) -> None:
    task = dataset.task("import")
    files = [
        {"name": "a.mp4", "outcome": "taken", "note": ""},
        {"name": "b.mov", "outcome": "converted", "note": "turned upright"},
        {"name": "c.mp4", "outcome": "refused", "note": "empty file"},
        {"name": "d.docx", "outcome": "skipped", "note": "a kind of file that is not taken"},
    ]
    counts = {"taken": 3, "converted": 1, "refused": 1, "skipped": 1}
    write_json(task.folder / jobs.RESULT, {"status": "finished", "counts": counts, "files": files})
    found = task_snapshot(task)
    assert found.sentence == "Imported: 3 taken, 1 converted, 1 refused, 1 skipped."
    assert [one.sentence for one in found.files] == [
        "'c.mp4': refused: empty file",
        "'d.docx': skipped: a kind of file that is not taken",
        "'b.mov': converted: turned upright",
        "'a.mp4': taken",
    ]
    assert found.details == ("2 more files are not named here: the dataset's history has them.",)


@pytest.mark.parametrize(
    ("name", "result", "sentence", "details"),
    [
        (
            "import",
            {"counts": {"taken": 1, "known": 1}, "files": [{}, {}], "problems": ["a.mp4: without a caption"]},
            "Imported: 1 taken, 1 already here.",
            ["a.mp4: without a caption"],
        ),
        (
            "split",
            {"clips": 1, "parts": 2, "preview": True, "splits": ["a.mp4: 2 pieces"], "spans": [[[0, 1], [1, 2]]]},
            "1 clip would be cut into 2.",
            ["a.mp4: 2 pieces: 0.00 to 1.00 s, 1.00 to 2.00 s"],
        ),
        ("fix", {"done": "Tagged 1 clip for later."}, "Tagged 1 clip for later.", []),
        (
            "caption",
            {"counts": {"captioned": 2, "kept": 1}, "failed": {"clips/1.mp4": "a.mp4: no caption: too dark"}},
            "2 captions were written. 1 clip got one by hand meanwhile. 1 clip failed.",
            ["a.mp4: no caption: too dark"],
        ),
        ("export", {"clips": 3, "target": "/x"}, "3 clips written: /x", []),
    ],
)
def test_what_came_of_a_task(name: Name, result: dict[str, Any], sentence: str, details: list[str]) -> None:
    assert OUTCOME_OF[name](result) == (sentence, details)
    assert set(OUTCOME_OF) == set(NAMES)
