"""The grid's half in Python: which clips a page holds, in which order, and what saving a caption may not do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from workbench.clips.records import Clip, write_clips
from workbench.dataset_builder.checks.findings import finding_of, write_report
from workbench.dataset_builder.dataset import Dataset
from workbench.ui.core.boundary import answering
from workbench.ui.datasets.clip_grid import ClipGrid, PageQuery, Query, Save, records_of
from workbench.workspace import Workspace

NAMES = [f"clips/{number:02}.mp4" for number in range(60)]


def record(number: int) -> Clip:
    by = ("hand", "file", "a-captioner", "")[number % 4]
    return Clip(
        file_name=NAMES[number],
        text=f"Square n{number}" if by else "",
        caption_by=by,
        source=f"{99 - number}.mov",
        fps=8,
        frames=1 if number == 7 else 90 - number,
        width=64 + number,
        height=64,
    )


@pytest.fixture
def many(workspace: Workspace) -> Dataset:
    dataset = Dataset.create(workspace, "Many")
    write_clips(dataset.folder, [record(number) for number in range(60)])
    return dataset


@pytest.fixture
def grid(workspace: Workspace, many: Dataset) -> ClipGrid:
    still = finding_of("still", "", [many.clip(NAMES[3])], title="nothing moves")
    write_report(many.folder, 0.0, "any", many.clips, [still])
    return ClipGrid(workspace)


def shown(answer: dict[str, Any]) -> list[str]:
    return [card["file_name"] for card in answer["clips"]]


def test_pages_hold_their_clips_and_the_totals(grid: ClipGrid) -> None:
    first = grid.page(PageQuery(dataset="many"))
    assert shown(first) == NAMES[:48]
    assert (first["matching"], first["all"], first["missing"], first["stale"]) == (60, 60, 15, False)
    assert shown(grid.page(PageQuery(dataset="many", page=1))) == NAMES[48:]
    beyond = grid.page(PageQuery(dataset="many", page=99, size=24))
    assert (beyond["page"], shown(beyond)) == (2, NAMES[48:])
    assert first["clips"][3]["marks"] == ["nothing moves"]
    json.dumps(first)  # plain data


def test_parts_of_one_source_video_are_told_apart_by_their_times(grid: ClipGrid, many: Dataset) -> None:
    spans = [(12.0, 15.0), (4.0, 8.0), None]
    parts = [record(number).changed(source="walk.mp4", span=span) for number, span in enumerate(spans)]
    write_clips(many.folder, parts)
    names = ["walk.mp4", "walk.mp4 0:04-0:08", "walk.mp4 0:12-0:15"]
    assert [one["name"] for one in grid.page(PageQuery(dataset="many", sort="name"))["clips"]] == names
    found = grid.page(PageQuery(dataset="many", search="walk 0:12"))
    assert [(one["source"], one["times"]) for one in found["clips"]] == [("walk.mp4", "0:12-0:15")]
    assert [one["name"] for one in found["clips"]] == names[2:]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"filter": "missing"}, NAMES[3::4]),
        ({"filter": "hand"}, NAMES[0::4]),
        ({"filter": "model"}, NAMES[2::4]),
        ({"filter": "marked"}, [NAMES[3]]),
        ({"filter": "images"}, [NAMES[7]]),
        ({"search": "SQUARE n5"}, [NAMES[n] for n in (5, 50, 52, 53, 54, 56, 57, 58)]),
        ({"search": "square 90.mov"}, [NAMES[9]]),
        ({"sort": "length"}, [NAMES[7], *NAMES[:7:-1], *NAMES[6::-1]]),
        ({"sort": "name"}, NAMES[::-1]),
        ({"sort": "size"}, NAMES),
    ],
)
def test_filters_and_orders(grid: ClipGrid, asked: dict[str, Any], expected: list[str]) -> None:
    assert grid.names(Query(dataset="many", **asked))["names"] == expected


def test_a_clip_keeps_its_place_when_its_caption_no_longer_fits(grid: ClipGrid, many: Dataset) -> None:
    asked = PageQuery(dataset="many", filter="missing", size=24)
    before = grid.page(asked)
    many.set_caption(NAMES[3], "now it has one")
    many.set_caption(NAMES[0], "")
    after = grid.page(asked.model_copy(update={"order": before["order"]}))
    assert shown(after) == [*shown(before), NAMES[0]], "none moves away from under the hand, what is new comes last"
    assert after["stale"]
    assert shown(grid.page(asked)) == [NAMES[0], *NAMES[7::4]], "asked anew, the filter holds again"


def test_a_caption_is_saved_over_the_one_it_was_typed_over(grid: ClipGrid, many: Dataset) -> None:
    answer = grid.save(Save(dataset="many", file_name=NAMES[1], text=" a  new one ", over="Square n1"))
    assert answer == {"text": many.clip(NAMES[1]).text, "by": "hand"}
    assert answer["text"].split() == ["a", "new", "one"]


def test_a_caption_that_changed_meanwhile_is_never_overwritten(grid: ClipGrid, many: Dataset) -> None:
    grid.page(PageQuery(dataset="many"))
    many.set_caption(NAMES[1], "a captioner was here", by="a-captioner")
    answer = grid.save(Save(dataset="many", file_name=NAMES[1], text="mine", over="Square n1"))
    assert answer == {"other": {"text": "a captioner was here", "by": "a-captioner"}}
    assert many.clip(NAMES[1]).text == "a captioner was here"
    grid.save(Save(dataset="many", file_name=NAMES[1], text="mine", over="a captioner was here"))
    assert many.clip(NAMES[1]).text == "mine"


def test_what_cannot_be_done_is_said_in_a_sentence(grid: ClipGrid, many: Dataset) -> None:
    save = answering("save_caption", Save, grid.save)
    request = {"dataset": "many", "file_name": NAMES[2], "text": "x", "over": "Square n2"}
    many.remove(NAMES[2])
    assert "no longer in many" in save(request)["problem"]
    assert "no dataset 'other'" in save({**request, "dataset": "other"})["problem"]


def test_records_are_parsed_once_for_each_state_of_the_file(many: Dataset) -> None:
    once = records_of(many.folder)
    assert records_of(many.folder) is once
    many.set_caption(NAMES[0], "changed")
    assert records_of(many.folder)[NAMES[0]].text == "changed"


def test_the_value_changes_with_the_records_and_with_the_findings(grid: ClipGrid, many: Dataset) -> None:
    before = grid.value(many)
    assert grid.value(many) == before
    write_report(many.folder, 1.0, "any", many.clips, [])
    checked = grid.value(many)
    assert checked != before
    many.set_caption(NAMES[0], "changed")
    assert grid.value(many) != checked
