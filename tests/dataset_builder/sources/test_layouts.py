"""Every layout is detected and reads back what it wrote, and SAT's reader accepts our shards."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tests.dataset_builder.sat_reader import taken
from tests.dataset_builder.small import write_dataset
from tests.drawing import draw
from workbench.clips import media
from workbench.clips.records import Clip, file_sha256, read_clips, write_clips
from workbench.dataset_builder.export import export
from workbench.dataset_builder.settings import ExportSettings
from workbench.dataset_builder.sources.archives import extract
from workbench.dataset_builder.sources.columns import clean_caption
from workbench.dataset_builder.sources.layouts import LAYOUTS, text_files
from workbench.dataset_builder.sources.layouts.base import Problem
from workbench.dataset_builder.sources.survey import Survey, survey
from workbench.dataset_builder.sources.tree import SourceFile
from workbench.errors import ConfigError, DataError

NAMES = [layout.name for layout in LAYOUTS]
ORDERED = {"videofolder", "csv", "lists", "webdataset", "videox-fun", "musubi", "ltx", "diffsynth"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("small") / "small-things")


def content(source: SourceFile, folder: Path) -> str:
    """Return the SHA-256 of a source's bytes, extracted from its archive if needed."""
    if not source.member:
        return file_sha256(source.path)
    extract(source, folder / "member.mp4", 10_000_000)
    return file_sha256(folder / "member.mp4")


@pytest.mark.parametrize(
    ("name", "ending"),
    [*((name, "") for name in NAMES), ("lists", ".zip"), ("webdataset", ".zip"), ("sidecars", ".tar")],
)
def test_what_is_exported_comes_back_whole(small: Path, tmp_path: Path, name: str, ending: str) -> None:
    settings = ExportSettings(layout=name, target=str(tmp_path / f"out{ending}"))
    if (name, ending) == ("webdataset", ".zip"):
        with pytest.raises(ConfigError, match="choose a folder or a .tar"):
            export(small, settings)
        assert not list(tmp_path.iterdir())
        return
    target = export(small, settings)
    found = survey([target])
    expected = [(clip.sha256, clean_caption(clip.text)) for clip in read_clips(small)]
    got = [(content(source, tmp_path), source.caption) for source in found.sources]
    assert [part.layout for part in found.found] == ["webdataset" if (name, ending) == ("sidecars", ".tar") else name]
    assert not found.refused
    if name in ORDERED:
        assert got == expected
    else:
        assert sorted(got) == sorted(expected)
    assert {problem: len(names) for problem, names in found.found[0].problems.items()} == {Problem.NO_CAPTION: 1}
    forced = survey([target], layout=name)
    assert sorted(forced.sources, key=lambda source: source.key) == sorted(found.sources, key=lambda source: source.key)


@pytest.mark.parametrize("pack", ["xztar", "zip"])
def test_an_archive_of_a_folder_is_read_as_the_folder(small: Path, tmp_path: Path, pack: str) -> None:
    export(small, ExportSettings(layout="lists", target=str(tmp_path / "in" / "deep" / "cats")))
    archive = Path(shutil.make_archive(str(tmp_path / "cats"), pack, tmp_path / "in"))
    found = survey([archive])
    assert [part.layout for part in found.found] == ["lists"]
    expected = [(clip.sha256, clean_caption(clip.text)) for clip in read_clips(small)]
    assert [(content(source, tmp_path), source.caption) for source in found.sources] == expected


def test_shards_are_split_and_read_as_one(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "SHARD_CLIPS", 3)
    target = export(small, ExportSettings(layout="webdataset", target=str(tmp_path / "shards")))
    assert sorted(path.name for path in target.iterdir()) == [f"shard-{number:06d}.tar" for number in range(3)]
    (part,) = survey([target]).found
    assert (part.parts, part.path, len(part.sources)) == (3, target, 7)
    assert part.sentence.startswith("shards: WebDataset shards (.tar): 7 videos, 3 archives, 6 captions, ")
    assert survey(sorted(target.iterdir())).sources == list(part.sources)


def test_shards_of_other_tools(tmp_path: Path) -> None:
    members = {
        "a/000.mp4": b"video", "a/000.json": json.dumps({"caption": "from json", "fps": 8}).encode(),
        "a/001.v2.avi": b"video", "a/001.caption": b"from caption", "a/002.mp4": b"video", "a/002.json": b"[1]",
        "a/003.txt": b"nobody's",
    }  # fmt: skip
    for name, data in members.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        for name in members:
            tar.add(tmp_path / name, name)
    (part,) = survey([tmp_path / "s.tar"]).found
    assert [source.caption for source in part.sources] == ["from json", "from caption", ""]
    assert part.problems == {
        Problem.BROKEN: ("002.json",),
        Problem.UNPAIRED_TEXT: ("003.txt",),
        Problem.NO_CAPTION: ("002.mp4",),
    }


def given(folder: Path, files: dict[str, bytes | str]) -> Survey:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return survey([folder])


def test_lists_of_different_lengths_give_no_captions(tmp_path: Path) -> None:
    found = given(tmp_path, {"a.mp4": "v", "b.mp4": "v", "videos.txt": "a.mp4\nb.mp4\n", "prompts.txt": "only one\n"})
    assert [source.caption for source in found.sources] == ["", ""]
    assert Problem.UNPAIRED in found.found[0].problems


def test_lists_pair_by_line_whatever_the_editor_wrote(tmp_path: Path) -> None:
    found = given(
        tmp_path,
        {
            "videos/a.mp4": "v", "videos/b.mp4": "v", "videos/c.mp4": "v", "images/first.png": "p",
            "images/a.png": "p", "videos.txt": ".\\videos\\b.mp4\r\nvideos/a.mp4\r\nvideos/gone.mp4\r\n",
            "prompts.txt": "\ufeffé one\u2028line\r\n\r\nthree\r\n\r\n".encode("utf-16-le"),
            "images.txt": "images/a.png\nimages/first.png\nimages/gone.png\n",
        },
    )  # fmt: skip
    (part,) = found.found
    assert [(source.name, source.caption) for source in part.sources] == [
        ("b.mp4", "é one line"),
        ("a.mp4", ""),
        ("c.mp4", ""),
    ]
    assert [[file.name for _, file in source.companions] for source in part.sources] == [["a.png"], ["first.png"], []]
    assert part.problems == {
        Problem.NO_VIDEO: ("videos/gone.mp4",),
        Problem.NO_PICTURE: ("images/gone.png",),
        Problem.NO_CAPTION: ("videos/a.mp4", "videos/c.mp4"),
    }


def test_first_frames_pair_by_line_or_not_at_all(tmp_path: Path) -> None:
    files: dict[str, bytes | str] = {
        "a.mp4": "v", "b.mp4": "v", "one.png": "p", "two.png": "p", "videos.txt": "a.mp4\nb.mp4\n",
        "prompts.txt": "a\nb\n",
    }  # fmt: skip
    (paired,) = given(tmp_path / "paired", {**files, "images.txt": "two.png\none.png\n\n"}).found
    pictures = [file.name for source in paired.sources for _, file in source.companions]
    assert ([source.name for source in paired.sources], pictures) == (["a.mp4", "b.mp4"], ["two.png", "one.png"])
    assert "2 videos, 2 captions, 2 first frames" in paired.sentence
    assert paired.problems == {}
    (short,) = given(tmp_path / "short", {**files, "images.txt": "one.png\n"}).found
    assert [source.companions for source in short.sources] == [()] * 3  # two.png is a clip, because no list names it
    assert short.problems == {
        Problem.UNPAIRED_PICTURES: ("videos.txt (2 lines), images.txt (1 lines)",),
        Problem.POSTER: ("one.png",),
        Problem.NO_CAPTION: ("two.png",),
    }


def test_csv_cells_that_a_spreadsheet_would_run_are_written_as_text(small: Path, tmp_path: Path) -> None:
    target = export(small, ExportSettings(layout="csv", target=str(tmp_path / "out")))
    table = (target / "metadata.csv").read_text()
    assert ",'=cmd|'/c calc'!A0" in table
    assert "''=a quote" in table
    assert "\"'-i option" in table


def test_a_layout_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").touch()
    with pytest.raises(DataError, match="nothing here has the layout 'lists'.*looks like sidecars"):
        survey([tmp_path], layout="lists")
    with pytest.raises(ConfigError, match="must be one of lists, labels"):
        survey([tmp_path], layout="latents")


RATES = (8, 12.5, 15, 23.976, 24, 25, 29.97, 30)
FPS, FRAMES = 8, 5  # SAT's settings in these tests


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 clips at eight rates, from barely long enough for SAT to slightly longer."""
    folder = tmp_path_factory.mktemp("many") / "many"
    clips = []
    for number in range(64):
        fps = RATES[number % 8]
        count = int(np.ceil(FRAMES / FPS * fps)) + number // 8
        path = folder / "clips" / f"{number:016x}.mp4"
        media.encode(draw(count), path, fps)
        clips.append(
            Clip(
                file_name=f"clips/{path.name}",
                text=f"clip {number} é",
                fps=fps,
                frames=count,
                width=64,
                height=64,
                sha256=file_sha256(path),
            )
        )
    write_clips(folder, clips)
    return folder


def test_sat_takes_all_64_clips_of_our_shards(many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "SHARD_CLIPS", 40)
    folder = export(many, ExportSettings(layout="webdataset", target=str(tmp_path / "shards")))
    found = [one for tar in sorted(folder.iterdir()) for one in taken(tar, fps=FPS, num_frames=FRAMES)]
    assert [one.caption for one in found] == [f"clip {number} é" for number in range(64)]
    assert {one.frames.shape for one in found} == {(FRAMES, 64, 64, 3)}
    # A trainer configured for records beside the shards reads ours too.
    tar = next(folder.iterdir())
    assert taken(tar, fps=FPS, num_frames=FRAMES, meta_names=("caption", "duration", "fps"))
    assert [source.caption for source in survey([folder]).sources] == [f"clip {number} é" for number in range(64)]
