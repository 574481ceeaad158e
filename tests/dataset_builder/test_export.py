"""An export is written whole or not at all, overwrites nothing and says what is wrong with its settings."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.dataset_builder.small import CAPTIONS, write_dataset
from workbench import jobs
from workbench.clips import media
from workbench.clips.records import Clip, read_clips, write_clips
from workbench.dataset_builder.export import export
from workbench.dataset_builder.ingest.intake import import_files
from workbench.dataset_builder.settings import ExportSettings
from workbench.dataset_builder.sources.columns import clean_caption
from workbench.dataset_builder.sources.survey import survey
from workbench.errors import CannotWrite, ConfigError, DataError


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("small") / "small", trigger_word="zwx")


@pytest.mark.parametrize("name", ["out", "out.zip"])
def test_nothing_is_ever_overwritten_and_nothing_is_left_half_written(small: Path, tmp_path: Path, name: str) -> None:
    settings = ExportSettings(layout="sidecars", target=str(tmp_path / name))

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise jobs.Stop("enough")

    with pytest.raises(jobs.Stop):
        export(small, settings, stop)
    assert not list(tmp_path.iterdir())
    seen: list[tuple[int, int]] = []
    target = export(small, settings, lambda done, total: seen.append((done, total)))
    assert seen == [(number, 7) for number in range(1, 8)]
    about = target.stat()
    with pytest.raises(ConfigError, match="already exists: choose another name"):
        export(small, settings)
    assert (target.stat().st_mtime_ns, target.stat().st_ino) == (about.st_mtime_ns, about.st_ino)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["out", "out.tar"])
def test_who_takes_the_name_meanwhile_keeps_it(small: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / name

    def take(done: int, total: int) -> None:
        if done == total:
            target.mkdir()
            (target / "theirs").write_text("theirs")

    with pytest.raises(ConfigError, match="already exists"):
        export(small, ExportSettings(target=str(target)), take)
    assert [path.name for path in tmp_path.rglob("*")] == [name, "theirs"]


def test_a_killed_export_leaves_nothing_in_the_way(small: Path, tmp_path: Path) -> None:
    left = tmp_path / ".out.small.part"
    left.mkdir()
    (left / "half.mp4").write_text("half")
    target = export(small, ExportSettings(layout="labels", target=str(tmp_path / "out")))
    assert not left.exists()
    assert sorted(path.name for path in target.iterdir()) == ["labels", "videos"]


def test_settings_that_cannot_work_are_explained(small: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be a folder, .zip or .tar"):
        export(small, ExportSettings(target=str(tmp_path / "out.tar.gz")))
    with pytest.raises(ConfigError, match="inside the dataset"):
        export(small, ExportSettings(target=str(small / "export")))
    with pytest.raises(DataError, match="no clips"):
        export(tmp_path, ExportSettings(target=str(tmp_path.parent / "never")))
    with pytest.raises(CannotWrite):
        export(small, ExportSettings(target="/proc/no/such"))
    write_clips(tmp_path, [Clip(file_name="clips/gone.mp4")])
    with pytest.raises(DataError, match="clips/gone.mp4 is missing"):
        export(tmp_path, ExportSettings(target=str(tmp_path.parent / "never")))
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "../../../../../etc/passwd"}')
    with pytest.raises(DataError, match="no clips"):
        export(tmp_path, ExportSettings(target=str(tmp_path.parent / "never")))
    assert not (tmp_path.parent / "never").exists()


def test_trigger_word_first_frames_and_shared_files(small: Path, tmp_path: Path) -> None:
    target = export(
        small, ExportSettings(layout="lists", target=str(tmp_path / "out"), first_frames=True, hard_links=True)
    )
    prompts = (target / "prompts.txt").read_text().split("\n")
    assert prompts[:4] == [f"zwx {CAPTIONS[0]}", f"zwx {CAPTIONS[1]}", f"zwx {CAPTIONS[2]}", "zwx"]
    first = read_clips(small)[0]
    names = (target / "videos.txt").read_text().split()
    assert os.path.samefile(target / names[0], small / first.file_name)
    picture = np.asarray(Image.open(target / (target / "images.txt").read_text().split()[0]))
    assert np.array_equal(picture, media.read_frames(small / first.file_name, [0])[0])
    assert [source.path.name for source in survey([target]).sources] == [Path(name).name for name in names]
    plain = export(small, ExportSettings(layout="lists", target=str(tmp_path / "plain"), trigger_word=False))
    assert (plain / "prompts.txt").read_text().startswith(f"{CAPTIONS[0]}\n")
    assert not os.path.samefile(plain / names[0], small / first.file_name)


def test_names_of_a_foreign_dataset_are_made_safe_and_stay_apart(small: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    clips = []
    for number, name in enumerate(("a/my cat.v1.mp4", "b/my cat.v1.mp4", "c/MY CAT v1.mp4")):
        (foreign / name).parent.mkdir(parents=True)
        (foreign / name).write_bytes((small / read_clips(small)[number].file_name).read_bytes())
        clips.append(Clip(file_name=name, text=str(number)))
    write_clips(foreign, clips)
    target = export(foreign, ExportSettings(layout="webdataset", target=str(tmp_path / "out.tar")))
    found = survey([target]).sources
    assert [(source.name, source.caption) for source in found] == [
        ("my_cat_v1.mp4", "0"),
        ("my_cat_v1_2.mp4", "1"),
        ("MY_CAT_v1_3.mp4", "2"),
    ]


def test_what_is_exported_is_called_by_source_and_times_and_comes_back_equal(small: Path, tmp_path: Path) -> None:
    sources = [
        ("My walk.v2.mov", (12.0, 15.0)), ("My walk.v2.mov", (12.5, 15.25)), ("\u732b.mp4", None), ("Con.mp4", None),
        ("My walk.v2.mov", (12.04, 15.0)), ("x" * 300 + ".mp4", (3700.0, 3725.0)), ("t\u00e9l\u00e9.mp4", None),
    ]  # fmt: skip
    folder, found = tmp_path / "named", read_clips(small)
    shutil.copytree(small, folder)
    write_clips(folder, [c.changed(source=name, span=span) for c, (name, span) in zip(found, sources, strict=True)])
    target = export(folder, ExportSettings(target=str(tmp_path / "out.zip"), trigger_word=False))
    with zipfile.ZipFile(target) as archive:
        names = archive.namelist()
        rows = [json.loads(line) for line in archive.read("metadata.jsonl").decode().split("\n") if line]
        stems = [Path(row["file_name"]).stem for row in rows]
        texts = [archive.read(f"videos/{stem}.txt").decode() for stem in stems]
    assert stems[:5] == [
        "My_walk_v2_0m12-0m15",
        "My_walk_v2_0m12s5-0m15s2",
        f"clip_{found[2].id}",
        "clip_Con",
        "My_walk_v2_0m12-0m15_2",
    ]
    assert len(stems[5]) == 80
    assert stems[5].endswith("x_61m40-62m05")
    assert stems[6] == "tele"
    assert texts == [f"{clean_caption(clip.text)}\n" for clip in found]
    assert sorted(names) == sorted([f"videos/{s}{e}" for s in stems for e in (".mp4", ".txt")] + ["metadata.jsonl"])
    again = tmp_path / "again"
    import_files(again, [target])
    assert [(c.sha256, c.text) for c in read_clips(again)] == [(c.sha256, clean_caption(c.text)) for c in found]
