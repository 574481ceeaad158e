"""Files that belong to a clip are found by columns, folders and endings, and are no clips of their own."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from workbench.dataset_builder.sources.layouts.base import Problem
from workbench.dataset_builder.sources.survey import Survey, survey


def beside(found: Survey) -> dict[str, dict[str, str]]:
    """Clip -> kind -> the end of the file's path."""
    return {
        source.name: {kind: "/".join(file.key.replace("::", "/").split("/")[-2:]) for kind, file in source.companions}
        for source in found.sources
    }


def looked(folder: Path, files: dict[str, Any], archives: dict[str, Any] | None = None) -> Survey:
    """The survey of a folder of files by their names; what is neither text nor bytes is written as JSON."""
    given = folder / "given"
    for name, content in files.items():
        (given / name).parent.mkdir(parents=True, exist_ok=True)
        (given / name).write_text(content if isinstance(content, str) else json.dumps(content))
    for name, members in (archives or {}).items():
        given.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(given / name, "w") as archive:
            for member in members:
                archive.writestr(member, b"v")
    return survey([given])


def problems(found: Survey) -> dict[Problem, tuple[str, ...]]:
    return {problem: names for part in found.found for problem, names in part.problems.items()}


@pytest.mark.parametrize("folder", ["clips/", "videos/", "", "train/x/"])
@pytest.mark.parametrize(
    ("kind", "where"),
    [("control", "control"), ("control", "controls"), ("mask", "masks"), ("mask", "mask"), ("reference", "references")],
)
def test_a_folder_of_the_kind(tmp_path: Path, folder: str, kind: str, where: str) -> None:
    parent = folder.rpartition("/")[0].rpartition("/")[0]
    parent += "/" if parent else ""
    found = looked(tmp_path, {f"{folder}a.mp4": "v", f"{folder}b.mp4": "v", f"{parent}{where}/a.mp4": "m"})
    assert beside(found) == {"a.mp4": {kind: f"{where}/a.mp4"}, "b.mp4": {}}
    assert found.found[0].sentence.count(f"1 {'control clip' if kind == 'control' else kind}") == 1


def test_an_ending_of_the_kind(tmp_path: Path) -> None:
    names = ["a.mp4", "a.mask.mp4", "a.control.mkv", "a.reference.png", "a.last.png", "b.mp4", "b.mask.png"]
    found = looked(tmp_path, dict.fromkeys(names, "v"))
    given = {"control": "given/a.control.mkv", "mask": "given/a.mask.mp4"}
    given |= {"reference": "given/a.reference.png", "last_frame": "given/a.last.png"}
    assert beside(found) == {"a.mp4": given, "b.mp4": {"mask": "given/b.mask.png"}}


def test_our_own_dataset_folder_names_its_files(tmp_path: Path) -> None:
    row = {"file_name": "clips/1a.mp4", "text": "A", "mask": "clips/1a.mask-0123abcd.mp4", "control": ""}
    files = {"clips/1a.mp4": "v", "clips/1a.mask-0123abcd.mp4": "m", "clips/1a.mask-99999999.mp4": "older"}
    found = looked(tmp_path, {**files, "metadata.jsonl": json.dumps(row)})
    assert beside(found) == {"1a.mp4": {"mask": "clips/1a.mask-0123abcd.mp4"}}


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        *(("control", one) for one in ("control_path", "control_file_path", "control_video", "vace_video", "depth")),
        *(("reference", one) for one in ("reference_video", "reference_path", "edit_image", "vace_reference_image")),
        *(("mask", one) for one in ("mask", "video_mask", "mask_path", "loss_mask_path", "vace_video_mask")),
        *(("last_frame", one) for one in ("end_image", "last_image", "last_frame")),
    ],
)
def test_a_column_of_the_kind(tmp_path: Path, kind: str, column: str) -> None:
    rows = [{"video": "a.mp4", "prompt": "A", column: "x/p.mp4"}, {"video": "b.mp4", "prompt": "B", column: None}]
    found = looked(tmp_path, {"a.mp4": "v", "b.mp4": "v", "x/p.mp4": "m", "metadata.json": rows})
    assert beside(found) == {"a.mp4": {kind: "x/p.mp4"}, "b.mp4": {}}
    assert problems(found) == {}


def test_a_missing_or_second_file_is_said_and_orphans_are_no_clips(tmp_path: Path) -> None:
    rows = [
        {"video_path": "a.mp4", "caption": "A", "control_path_0": "c/0.mp4", "control_path_1": "c/1.mp4"},
        {"video_path": "b.mp4", "caption": "B", "control_path_0": "c/lost.mp4"},
    ]
    files = {"a.mp4": "v", "b.mp4": "v", "c/0.mp4": "c", "c/1.mp4": "c", "masks/a.mp4": "m", "masks/z.mp4": "m"}
    found = looked(tmp_path, {**files, "data.jsonl": "\n".join(map(json.dumps, rows))})
    assert beside(found) == {"a.mp4": {"control": "c/0.mp4", "mask": "masks/a.mp4"}, "b.mp4": {}}
    assert problems(found) == {
        Problem.COMPANION: ("data.jsonl (control_path_1)",),
        Problem.NO_COMPANION: ("c/lost.mp4",),
        Problem.NO_CLIP: ("masks/z.mp4",),
    }


def test_a_folder_of_masks_alone_is_a_folder_of_clips(tmp_path: Path) -> None:
    files = {"venice/a.mp4": "v", "masks/carnival.mp4": "v", "masks/carnival.txt": "a carnival", "venice/a.txt": "A"}
    assert beside(looked(tmp_path, files)) == {"a.mp4": {}, "carnival.mp4": {}}
    same = {"venice/a.mp4": "v", "masks/a.mp4": "v", "masks/a.txt": "a carnival", "venice/a.txt": "A"}
    assert len(looked(tmp_path / "same", same).sources) == 2  # a caption of its own makes it a clip


def test_a_name_without_its_folder_means_the_clip_and_not_its_mask(tmp_path: Path) -> None:
    files = {"x/a.mp4": "v", "masks/a.mp4": "m", "captions/a.txt": "A"}
    found = looked(tmp_path, files)
    assert [(source.name, source.caption) for source in found.sources] == [("a.mp4", "A")]
    table = looked(tmp_path / "t", {"x/a.mp4": "v", "masks/a.mp4": "m", "t.csv": "file_name,text\na.mp4,A\n"})
    assert [(source.key[-7:], source.caption) for source in table.sources] == [("x/a.mp4", "A")]


def test_in_an_archive_and_from_around_it(tmp_path: Path) -> None:
    inside = looked(tmp_path, {}, {"v.zip": ("videos/a.mp4", "masks/a.mp4")})
    assert beside(inside) == {"a.mp4": {"mask": "masks/a.mp4"}}
    table = "file_name,text,control_path\na.mp4,A,ctl/a.mp4\n"
    around = looked(tmp_path / "around", {"t.csv": table}, {"v.zip": ("a.mp4", "ctl/a.mp4")})
    assert beside(around) == {"a.mp4": {"control": "ctl/a.mp4"}}
