"""The workspace: paths stay inside, files are whole or not there, archives come in pieces."""

from __future__ import annotations

import errno
import io
import json
import os
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workbench.errors import CannotWrite, ConfigError
from workbench.workspace import (
    Workspace,
    checked_slug,
    confined,
    disk,
    fresh_folder,
    layout,
    read_json,
    slugify,
    write_bytes,
    write_json,
    write_text,
)
from workbench.workspace.zip_stream import PIECE_BYTES, write_zip, zip_stream


def test_the_given_folder_comes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "home"))
    assert Workspace.open(tmp_path / "given").root == tmp_path / "given"
    assert Workspace.open().root == tmp_path / "home"
    monkeypatch.delenv("WORKBENCH_HOME")
    monkeypatch.chdir(tmp_path)
    assert Workspace.open().root == tmp_path / "workspace"
    assert (tmp_path / "workspace" / "runs").is_dir()


def test_a_workspace_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotWrite, match="cannot write"):
        Workspace.open(tmp_path / "file" / "below")


def test_a_workspace_is_opened_from_a_text_not_made_of_one() -> None:
    with pytest.raises(ConfigError, match=r"root is 'mine', must be a Path: use Workspace.open\('mine'\)"):
        Workspace("mine")  # type: ignore[arg-type]


def test_any_title_becomes_a_legal_name() -> None:
    slugs = {
        "Été, 2 clips!": "ete-2-clips", "../../etc/passwd": "etc-passwd", "a..b": "a.b", "....": "untitled",
        "日本": "untitled", "x" * 100: "x" * 64, "x" * 63 + "..y": "x" * 63, " -a\tb-\n": "a-b", "nul.v2": "nul-1.v2",
        "con.": "con-1", "Console": "console",
    }  # fmt: skip
    assert {title: slugify(title) for title in slugs} == slugs
    assert all(checked_slug(slug) == slug for slug in slugs.values())
    illegal = ["", "..", "a/b", "a\\b", "A", "-a", ".a", "a..b", "x" * 65, "a\n", "\0", "a.", "con", "com1.v2.3"]
    for name in illegal:
        with pytest.raises(ConfigError, match="use '"):
            checked_slug(name)


def test_a_path_that_windows_would_not_take_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "ON_WINDOWS", True)
    deep = tmp_path / ("x" * 100)
    with pytest.raises(ConfigError, match="allows at most 99: choose another folder"):
        Workspace.open(deep)
    assert not deep.exists()


def test_the_longest_path_of_a_workspace_is_not_underestimated(tmp_path: Path) -> None:
    """The longest name in the longest kind of path: a temporary file beside a weight of a run's checkpoint."""
    name = f".optimizer.safetensors.{2**22}.{2**47}.tmp"
    path = Path("runs") / ("x" * 64) / "checkpoints" / "step-00000250" / name
    assert len(str(path)) < layout.LONGEST


def test_fresh_names_are_numbered_and_each_who_asks_gets_one(tmp_path: Path) -> None:
    assert [fresh_folder(tmp_path, "Dogs").name for _ in range(3)] == ["dogs", "dogs-2", "dogs-3"]
    with ThreadPoolExecutor(16) as pool:
        names = list(pool.map(lambda _: fresh_folder(tmp_path, "Cats").name, range(48)))
    assert len(set(names)) == 48
    (tmp_path / ("x" * 64)).mkdir()
    assert checked_slug(fresh_folder(tmp_path, "x" * 100).name) == "x" * 58 + "-2"


def test_paths_stay_inside(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").touch()
    (root / "link").symlink_to(tmp_path / "secret")
    assert confined(root, "a/b.mp4") == root / "a" / "b.mp4"
    for outside in ("../secret", "a/../../secret", str(tmp_path / "secret"), "link"):
        with pytest.raises(ConfigError, match="leads outside"):
            confined(root, outside)


def test_a_write_that_fails_leaves_the_old_file_and_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    write_text(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotWrite, match="the disk is full: free some space"):
        write_bytes(path, b"new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.json"]


def test_readers_see_whole_files_while_others_write(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_json(path, {"n": 0, "pad": "x" * 20_000})
    over = threading.Event()

    def keep_writing() -> None:
        for n in range(100):
            write_json(path, {"n": n, "pad": "x" * 20_000})
        over.set()

    writer = threading.Thread(target=keep_writing)
    writer.start()
    while not over.is_set():
        assert len(read_json(path)["pad"]) == 20_000
    writer.join()


def test_several_threads_may_write_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "file.json"

    def keep_writing(who: int) -> None:
        for _ in range(50):
            write_json(path, {"who": who, "pad": str(who) * 5000})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(keep_writing, range(4)))  # raises what a thread has raised
    found = read_json(path)
    assert found["pad"] == str(found["who"]) * 5000


def test_what_is_no_json_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is missing: check the name"):
        read_json(tmp_path / "none.json")
    for content in (b'{"a": ', b"\xff\xfe\x00"):
        (tmp_path / "torn.json").write_bytes(content)
        with pytest.raises(ConfigError, match="cannot be read as JSON"):
            read_json(tmp_path / "torn.json")


def test_what_is_no_number_is_written_as_null_and_old_files_that_hold_it_are_read(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_json(path, {"loss": float("nan"), "bands": [1.5, (float("inf"), -float("inf"))]})
    assert json.loads(path.read_text(), parse_constant=pytest.fail) == {"loss": None, "bands": [1.5, [None, None]]}
    path.write_text('{"loss": NaN, "bands": [1.5, -Infinity]}')
    assert read_json(path) == {"loss": None, "bands": [1.5, None]}


# ---- zips


def contents(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_large_file_comes_in_small_pieces(tmp_path: Path) -> None:
    video = tmp_path / "a.mp4"
    video.write_bytes(os.urandom(5 * PIECE_BYTES + 7))
    files = [("videos/a.mp4", video), ("é.txt", b"a cat"), ("empty.mp4", b"")]
    pieces = list(zip_stream(files))
    assert max(map(len, pieces)) < PIECE_BYTES + 1000
    assert len(pieces) > 5
    expected = {"videos/a.mp4": video.read_bytes(), "é.txt": b"a cat", "empty.mp4": b""}
    assert contents(b"".join(pieces)) == expected
    for target in (tmp_path / "a.zip", tmp_path / "b.zip"):
        write_zip(target, files)
    assert contents((tmp_path / "a.zip").read_bytes()) == expected
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
