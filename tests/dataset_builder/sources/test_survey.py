"""What an import finds in folders, through links and in a package's own source, and reports before it starts."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.drawing import MakeClip, draw
from tests.patience import PATIENCE
from tests.shell import Shell
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.settings import ImportSettings
from workbench.dataset_builder.sources.columns import LONGEST_CAPTION, USUAL
from workbench.dataset_builder.sources.fetched import ENTRY_POINTS
from workbench.dataset_builder.sources.files import trees_of
from workbench.dataset_builder.sources.survey import Survey, survey
from workbench.errors import ConfigError, DataError, ExitCode
from workbench.operations import datasets
from workbench.workspace import Workspace
from workbench.workspace.named_paths import confine


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def captions(given: Path) -> dict[str, str]:
    return {source.path.name: source.caption for source in survey([given]).sources}


def test_folders_are_searched_except_hidden_and_linked_ones(tmp_path: Path) -> None:
    for name in ("b.MP4", "a.mov", "deep/er/c.webm", ".hidden.mp4", ".import/d.mp4", "notes.txt", "photo.jpg"):
        touch(tmp_path / "given" / name)
    touch(tmp_path / "elsewhere" / "e.mp4")
    os.symlink(tmp_path / "elsewhere", tmp_path / "given" / "linked")
    alone = touch(tmp_path / "alone.bin")
    found = survey([tmp_path / "given", alone, alone, tmp_path / "given" / "a.mov"]).sources
    assert [source.path.name for source in found] == ["a.mov", "b.MP4", "photo.jpg", "c.webm", "alone.bin"]


@pytest.mark.parametrize(
    ("data", "caption"),
    [
        ("une télé à Zürich".encode(), "une télé à Zürich"), ("une télé".encode("utf-8-sig"), "une télé"),
        ("une télé".encode("utf-16"), "une télé"), ("\ufeffune télé".encode("utf-16-be"), "une télé"),
        ("a plain cat".encode("utf-16-le"), "a plain cat"), ("une télé".encode("latin-1"), "une télé"),
        ("une te\u0301le\u0301".encode(), "une télé"), (b" two\r\nlines\tand a\0 NUL\n", "two lines and a NUL"),
        (b"", ""), ("🐱🎬".encode(), "🐱🎬"), (b"<script>alert(1)</script>", "<script>alert(1)</script>"),
        (b"=cmd|'/c calc'!A0", "=cmd|'/c calc'!A0"),
        (b"word " * 300_000, ("word " * 300_000)[:LONGEST_CAPTION].rstrip()),
    ],
)  # fmt: skip
def test_captions_in_every_encoding(tmp_path: Path, data: bytes, caption: str) -> None:
    touch(tmp_path / "a.mp4")
    (tmp_path / "a.txt").write_bytes(data)
    assert captions(tmp_path) == {"a.mp4": caption}


def test_caption_tables_by_column_and_folder(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4", "deep/c.mp4", "deep/d.mp4", "e.mp4", "té.mp4"):
        touch(tmp_path / name)
    rows = [
        {"file_name": "a.mp4", "text": "from the table"},
        {"file_name": "deep/c.mp4", "caption": "from above"},
        {"file_name": "te\u0301.mp4", "prompt": "by another spelling"},
        {"file_name": "missing.mp4", "text": "no such clip"},
        ["not", "a", "record"],
        {"file_name": "e.mp4", "text": 7},
    ]
    table = "".join(json.dumps(row) + "\n" for row in rows) + '{"file_na'
    (tmp_path / "metadata.jsonl").write_text(table)
    (tmp_path / "a.txt").write_text("from beside")
    (tmp_path / "metadata.csv").write_text('file_name,text\nb.mp4,"a, b"\n', encoding="utf-8-sig")
    (tmp_path / "deep" / "metadata.csv").write_text("video;x\n")
    (tmp_path / "deep" / "d.txt").symlink_to("/etc/hostname")
    assert captions(tmp_path) == {
        "a.mp4": "from beside", "b.mp4": "a, b", "c.mp4": "from above", "d.mp4": "", "e.mp4": "",
        "té.mp4": "by another spelling",
    }  # fmt: skip


def test_files_dropped_on_the_page_find_captions_across_folders(tmp_path: Path) -> None:
    texts = {"a.txt": "caption of a", "metadata.jsonl": '{"file_name": "b.mp4", "text": "from the table"}\n'}
    paths = [touch(tmp_path / str(n) / name) for n, name in enumerate(("a.mp4", "b.mp4", "c.png", *texts))]
    for path in paths[3:]:
        path.write_text(texts[path.name])
    assert {source.name: source.caption for source in survey(paths).sources} == {
        "a.mp4": "caption of a",
        "b.mp4": "from the table",
        "c.png": "",
    }


def test_files_with_the_same_name_keep_their_own_captions(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        touch(tmp_path / folder / "a.mp4")
        (tmp_path / folder / "a.txt").write_text(f"from {folder}")
    found = survey([tmp_path / "x" / "a.mp4", tmp_path / "y" / "a.mp4"]).sources
    assert [source.caption for source in found] == ["from x", "from y"]


def test_a_survey_describes_what_an_import_would_do(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.MOV", "c.png", "a.jpg"):
        touch(tmp_path / "cats" / name).write_bytes(bytes(500_000))
    (tmp_path / "cats" / "a.txt").write_text("a cat")
    (tmp_path / "cats" / "gone.txt").write_text("a cat that left")
    (tmp_path / "not.zip").write_text("no archive")
    found = survey([tmp_path / "cats", tmp_path / "not.zip", tmp_path / "gone.tar"])
    lines = found.sentences
    assert lines[:4] == [
        "cats: A .txt file next to each video: 2 videos, 1 picture, 1 caption, 1.5 MB",
        "cats: pictures of videos that are also here, left out: 'a.jpg'",
        "cats: no caption: 'b.MOV', 'c.png'",
        "cats: texts without a video, not read: 'gone.txt'",
    ]
    assert "not.zip cannot be read as an archive" in lines[4]
    assert "gone.tar does not exist" in lines[5]


@pytest.mark.parametrize("pair", ["DNG JPG", "HEIC JPG"])
def test_of_a_raw_and_a_jpeg_file_the_jpeg_is_imported(tmp_path: Path, pair: str) -> None:
    raw, plain = (f"DSC_1.{ending}" for ending in pair.split())
    (tmp_path / raw).write_bytes(b"unknown bytes")
    Image.new("RGB", (64, 48)).save(tmp_path / plain)
    found = survey([tmp_path])
    assert "1 picture, 1 file that cannot be imported, 0 captions, " in found.sentences[0]
    assert f"(convert pictures to JPEG or PNG, videos to mp4): {raw!r}" in "\n".join(found.sentences)
    dataset = Dataset.create(Workspace.open(tmp_path / "workspace"), "Pair")
    results = {result.name: result for result in dataset.import_files([tmp_path / raw, tmp_path / plain])}
    assert results[plain].outcome == "converted"
    assert results[raw].notes[0].endswith("convert it to JPEG or PNG first")


def test_the_poster_of_a_video_is_left_out(tmp_path: Path) -> None:
    for name in ("IMG_1.MOV", "IMG_1.JPG", "IMG_1.HEIC"):
        touch(tmp_path / name)
    found = survey([tmp_path])
    assert [source.name for source in found.sources] == ["IMG_1.HEIC", "IMG_1.MOV"]
    assert any("pictures of videos that are also here, left out: 'IMG_1.JPG'" in line for line in found.sentences)


def test_thousands_of_files_are_surveyed_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2_000):
        (tmp_path / f"{number:05d}.mp4").touch()
        (tmp_path / f"{number:05d}.txt").write_text(f"caption {number}")
    found = survey([tmp_path])
    assert (len([one for one in found.sources if one.caption]), found.too_many) == (2_000, False)
    monkeypatch.setattr("workbench.dataset_builder.sources.survey.MOST_SOURCES", 1_500)
    capped = survey([tmp_path])
    assert (len(capped.sources), capped.too_many) == (1_500, True)
    assert capped.sentences[-1] == "more than 1,500 videos: only the first 1,500 are imported"


def test_unreadable_texts_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path / "a.mp4")
    touch(tmp_path / "a.txt").write_text("caption")
    opened = Path.open

    def refuse(self: Path, *rest: Any, **more: Any) -> Any:
        if self.suffix == ".txt":
            raise PermissionError(13, "Permission denied")
        return opened(self, *rest, **more)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"a\.txt cannot be read \(Permission denied\): check its permissions"):
        survey([tmp_path])


def write(folder: Path, frames: int = 12, name: str = "frame_{:04d}.png", size: tuple[int, int] = (64, 48)) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, picture in enumerate(draw(frames, size), 1):
        Image.fromarray(picture).save(folder / name.format(number))
    return folder


def captions_of(given: Path) -> dict[str, str]:
    return {source.name: source.caption for source in survey([given], frame_rate=12).sources}


def test_numbered_pictures_are_a_video_only_on_request(tmp_path: Path) -> None:
    write(tmp_path / "given" / "walk")
    write(tmp_path / "given" / "few", 4)
    found = survey([tmp_path / "given"])
    assert len(found.sources) == 16
    assert (
        "given: numbered pictures (to import each folder as one video, set frames_as_video and frame_rate): "
        "'12 numbered frames in walk/'"
    ) in found.sentences
    assert sorted(captions_of(tmp_path / "given")) == [*(f"frame_{number:04d}.png" for number in range(1, 5)), "walk"]


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("walk.txt", "it walks"),
        ("walk.caption", "it walks"),
        ("walk/caption.txt", "it walks"),
        ("metadata.jsonl", '{"file_name": "walk", "text": "it walks"}'),
        ("metadata.csv", "file_name,text\nwalk/,it walks\n"),
    ],
)
def test_the_folder_has_the_caption(tmp_path: Path, text: str, content: str) -> None:
    write(tmp_path / "given" / "walk")
    write(tmp_path / "given" / "other.v2", name="{}.jpg")
    (tmp_path / "given" / text).write_text(content)
    assert captions_of(tmp_path / "given") == {"walk": "it walks", "other.v2": ""}
    assert not any("missing" in line for line in survey([tmp_path / "given"], frame_rate=12).sentences)
    archive = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "given"))
    assert captions_of(archive) == {"walk": "it walks", "other.v2": ""}


def test_numbered_pictures_with_gaps_and_own_captions(tmp_path: Path) -> None:
    walk = write(tmp_path / "walk")
    (tmp_path / "walk.txt").write_text("it walks")
    assert captions_of(walk) == {"walk": "it walks"}
    (walk / "frame_0006.png").unlink()
    assert captions_of(walk) == {
        "walk frame_0001 to frame_0005": "it walks",
        "walk frame_0007 to frame_0012": "it walks",
    }
    for path in walk.glob("*.png"):
        path.with_suffix(".txt").write_text("a picture of its own")
    assert len(captions_of(walk)) == 11


@pytest.mark.parametrize("packed", [False, True])
def test_numbered_pictures_become_one_clip_at_the_given_rate(tmp_path: Path, packed: bool) -> None:
    given = tmp_path / "given"
    write(given / "walk", size=(65, 48))
    write(given / "mixed", 6)
    Image.fromarray(draw(1, (32, 32))[0]).save(given / "mixed" / "frame_0004.png")
    paths = [Path(shutil.make_archive(str(tmp_path / "packed"), "gztar", given))] if packed else [given]
    dataset = Dataset.create(Workspace.open(tmp_path / "workspace"), "Frames")
    found = {result.name: result for result in dataset.import_files(paths, frames_as_video=True, frame_rate=12)}
    assert found["walk"].notes == (
        "12 numbered pictures made into a clip at 12 fps",
        "cropped by one row or column to an even size",
    )
    assert found["mixed"].notes == (
        "its frames differ in size (64x48, frame 4 is 32x32): import them as pictures, without frames_as_video",
    )
    (clip,) = dataset.clips
    assert (clip.source, clip.frames, clip.fps, clip.width) == ("walk", 12, 12, 64)
    shown = media.read_frames(dataset.path_of(clip), range(12)).astype(int)
    assert np.abs(shown - draw(12, (65, 48))[:, :, :64]).mean() < 8
    again = {result.name: result.outcome for result in dataset.import_files(paths, frames_as_video=True, frame_rate=12)}
    assert again == {"walk": "known", "mixed": "refused"}
    assert not list((dataset.folder / ".import" / "scratch").glob("*"))


# ---- a package's own source


MODULE = """
import numpy as np


def falling(text):
    for number in range(2):
        frames = np.zeros((9, 33, 48, 3), np.uint8)
        frames[:, 4 * number : 4 * number + 16, :16] = 250
        yield {"name": f"ball-{number}", "caption": f"a ball {number}", "frames": frames, "fps": 8}
    if text:
        yield {"name": "file", "caption": "from a file", "video": text}


def wrong(text):
    yield {"name": "../a", "frames": None} if text == "name" else {"name": "a", "frames": np.zeros(3), "fps": 8}
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package with a source for this process and its children."""
    folder = tmp_path / "package"
    (notes := folder / "lab-1.dist-info").mkdir(parents=True)
    (folder / "lab_sources.py").write_text(MODULE)
    (notes / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1\n")
    entries = "".join(f"{name} = lab_sources:{name}\n" for name in ("falling", "wrong"))
    (notes / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{entries}")
    before = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *before]))
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("lab_sources", None)


@pytest.mark.usefixtures("package")
def test_items_become_clips_once(workspace: Workspace, shell: Shell, make_clip: MakeClip, tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "mine.mp4")
    for _ in range(2):
        said = shell("dataset", "import", "falling", "--own-source", f"falling={clip}")
        assert said.code == 0, said.err
    made = Dataset.open(workspace, "falling")
    assert sorted(clip.text for clip in made.clips) == ["a ball 0", "a ball 1", "from a file"]
    ball = next(clip for clip in made.clips if clip.text == "a ball 1")
    assert (ball.frames, ball.fps) == (9, 8)
    frames = media.read_frames(made.path_of(ball), range(9))
    assert np.abs(frames[0, 8:16, 2:14].astype(int) - 250).max() <= 4


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("nothing", "own_source is 'nothing', installed are falling, wrong: name an entry point of the group"),
        ("wrong=name", "item 1 is named '../a', must be a unique file name"),
        ("wrong", "item 1, a: frames are float64 [3], must be uint8 [F, H, W, 3]"),
    ],
)
def test_an_invalid_item_says_what_is_wrong(shell: Shell, source: str, sentence: str) -> None:
    said = shell("dataset", "import", "falling", "--own-source", source)
    assert said.code in (ExitCode.BAD_CONFIG, ExitCode.BAD_DATA)
    assert sentence in said.err + said.out


# ---- links


FORBIDDEN = "it is a link to a file that may not be read here: replace it with the file itself"
OUT = "it is a link that leads outside the imported folder: replace it with the file itself"


def hub_cache(folder: Path, as_text: bool = False) -> Path:
    """A snapshot in a Hub cache. as_text: whether links are text files, as on systems without links."""
    cache = folder / "datasets--o--n"
    snapshot = cache / "snapshots" / "abc"
    (snapshot / "data").mkdir(parents=True)
    (cache / "blobs").mkdir()
    for number, name in enumerate(("v0.mp4", "data/v1.mp4")):
        media.encode(draw(9 + number), cache / "blobs" / f"b{number}", 8)
        link(snapshot / name, f"{'../' * (2 + name.count('/'))}blobs/b{number}", as_text)
    (cache / "blobs" / "m").write_text(
        '{"file_name": "v0.mp4", "text": "clip zero"}\n{"file_name": "data/v1.mp4", "text": "clip one"}\n'
    )
    link(snapshot / "metadata.jsonl", "../../blobs/m", as_text)
    return snapshot


def link(path: Path, target: str, as_text: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(target) if as_text else os.symlink(target, path)


def captions_through(found: Survey) -> dict[str, str]:
    return {source.name: source.caption for source in found.sources if not source.refused}


@pytest.mark.parametrize("as_text", [False, True])
def test_a_snapshot_of_the_hub_cache_is_imported(tmp_path: Path, as_text: bool) -> None:
    snapshot = hub_cache(tmp_path, as_text)
    wanted = {"v0.mp4": "clip zero", "v1.mp4": "clip one"}
    for given in (snapshot, snapshot.parent.parent, tmp_path):
        found = survey([given])
        assert captions_through(found) == wanted
        assert not found.skipped, "blobs are read under the names of the links"
        assert not found.not_read
    assert captions_through(survey([snapshot / "v0.mp4"])) == {"v0.mp4": "clip zero"}
    dataset = Dataset.create(Workspace.open(tmp_path / "workspace"), "Hub")
    results = dataset.import_files([snapshot])
    assert {result.name: result.outcome for result in results} == dict.fromkeys(wanted, "taken")
    assert {clip.source: clip.text for clip in dataset.clips} == wanted


def test_all_other_links_are_refused_with_the_reason(tmp_path: Path) -> None:
    secret, given = tmp_path / "secret.txt", tmp_path / "given"
    secret.write_text("the secret")
    (given / ".hidden").mkdir(parents=True)
    (given / "folder").mkdir()
    (given / ".hidden" / "key.txt").write_text("the secret")
    for name in ("a.mp4", "b.mp4", "folder/c.mp4"):
        media.encode(draw(9), given / name, 8)
    links = {
        "a.txt": str(secret), "metadata.jsonl": str(secret), "table.zip": str(secret), "x.mp4": str(secret),
        "b.txt": ".hidden/key.txt", "gone.mp4": "nowhere.mp4", "gone.txt": "nowhere.txt", "loop.mp4": "loop.mp4",
        "device.mp4": "/dev/zero", "linked": "folder", "inside.mp4": "folder/c.mp4",
    }  # fmt: skip
    for name, target in links.items():
        link(given / name, target)
    os.mkfifo(given / "c.txt")
    found = survey([given])
    refused = found.not_read | {source.name: source.refused for source in found.sources if source.refused}
    assert {name: reason.partition(":")[0] for name, reason in refused.items()} == {
        **dict.fromkeys(("a.txt", "metadata.jsonl", "table.zip", "x.mp4", "b.txt"), OUT.partition(":")[0]),
        **dict.fromkeys(("gone.mp4", "gone.txt"), "it is a link to a file that does not exist"),
        "loop.mp4": "it is a link that points back to itself",
        "device.mp4": "it is a link to something that is not an ordinary file",
        "linked/": "a link to a folder",
        "c.txt": "not an ordinary file (a folder, pipe or device)",
    }
    assert captions_through(found) == dict.fromkeys(("a.mp4", "b.mp4", "inside.mp4", "c.mp4"), "")
    assert all(any(name in line for line in found.sentences) for name in ("'linked/'", "gone.mp4")), found.sentences
    assert "the secret" not in "".join(found.sentences)


def test_links_in_a_cache_may_only_lead_to_its_own_blobs(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret")
    snapshot = hub_cache(tmp_path)
    blobs = snapshot.parent.parent / "blobs"
    link(blobs / "evil", str(secret))
    link(snapshot / "v0.txt", "../../blobs/evil")
    (snapshot / "data" / "v1.txt").write_text("../../../blobs/../../secret.txt")
    assert survey([snapshot]).not_read == {"v0.txt": OUT}
    assert captions_through(survey([snapshot]))["v1.mp4"].startswith("../../../blobs"), "no link, so it is the caption"
    stranger = tmp_path / "stranger"
    link(stranger / "snapshots" / "abc" / "a.txt", "../../blobs/secret.txt")
    media.encode(draw(9), stranger / "snapshots" / "abc" / "a.mp4", 8)
    link(stranger / "blobs", str(tmp_path))
    assert survey([stranger / "snapshots"]).not_read == {"abc/a.txt": OUT}


def test_links_within_a_cache_may_be_chained(tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path)
    later = snapshot.parent / "def"
    link(later / "v0.mp4", "../abc/v0.mp4")
    link(later / "v0.txt", "../abc/v0.txt")
    link(snapshot / "v0.txt", "../../blobs/t")
    (snapshot.parent.parent / "blobs" / "t").write_text("by two links")
    assert captions_through(survey([later])) == {"v0.mp4": "by two links"}
    blobs = snapshot.parent.parent / "blobs"
    blobs.rename(tmp_path / "elsewhere")
    link(blobs, str(tmp_path / "elsewhere"))
    found = survey([later])
    assert found.not_read == {"v0.txt": OUT}
    assert [source.refused for source in found.sources] == [OUT]


# ---- a page that other machines can reach ---------------------------------------------------------------------------


@pytest.fixture
def confined() -> Iterator[Callable[..., None]]:
    yield lambda *roots: confine(roots)
    confine([])


def imported(workspace: Workspace, *paths: Path) -> Dataset:
    """Import paths entered on the page."""
    task = datasets.import_(workspace, "New", ImportSettings(sources=tuple(map(str, paths))))
    dataset = Dataset.open(workspace, task.id.partition("/")[0])
    dataset.task("import").wait(PATIENCE)
    return dataset


@pytest.mark.parametrize("named", ["files", "cache"])
def test_a_page_imports_a_hub_cache_below_its_root_as_the_shell_does(
    tmp_path: Path, workspace: Workspace, confined: Callable[..., None], named: str
) -> None:
    snapshot = hub_cache(tmp_path / "root")
    given = {
        "files": [snapshot / "v0.mp4", snapshot / "data" / "v1.mp4", snapshot / "metadata.jsonl"],
        "cache": [tmp_path / "root"],
    }[named]
    confined(tmp_path / "root", workspace.root)
    found = datasets.preview(workspace, tuple(map(str, given)), settings=ImportSettings())
    assert "2 videos, 2 captions" in str(found)
    dataset = imported(workspace, *given)
    assert {clip.source: clip.text for clip in dataset.clips} == {"v0.mp4": "clip zero", "v1.mp4": "clip one"}


def test_the_page_and_its_imports_follow_no_link_outside_its_roots(
    tmp_path: Path, workspace: Workspace, confined: Callable[..., None]
) -> None:
    snapshot = hub_cache(tmp_path)
    snapshot.with_name("abc.txt").write_text("next to the root")
    confined(snapshot, workspace.root)
    found = survey([snapshot])
    assert [source.refused for source in found.sources] == [FORBIDDEN] * 2
    assert found.not_read == {"metadata.jsonl": FORBIDDEN}
    dataset = imported(workspace, snapshot)
    assert dataset.task("import").status.exit_code == ExitCode.BAD_DATA
    assert {result.notes for result in dataset.import_results} == {(FORBIDDEN,)}
    assert not next(iter(trees_of([snapshot], {}, USUAL))).beside


def test_a_path_into_the_roots_through_a_link_is_refused(
    tmp_path: Path, workspace: Workspace, confined: Callable[..., None]
) -> None:
    snapshot = hub_cache(tmp_path / "root")
    (tmp_path / "private.mp4").write_bytes(b"secret")
    link(tmp_path / "other" / "v0.mp4", str(snapshot / "v0.mp4"))
    link(tmp_path / "root" / "deep", str(snapshot / "data"))
    confined(tmp_path / "root", workspace.root)
    for way in (tmp_path / "other" / "v0.mp4", tmp_path / "root" / "deep" / ".." / ".." / "private.mp4"):
        with pytest.raises(ConfigError, match="which this page may not read"):
            datasets.preview(workspace, (str(way),), settings=ImportSettings())
        with pytest.raises(ConfigError, match="sources is .* which this page may not read"):
            Dataset.ensure(workspace, "new").start_import([way])
