"""What Windows does differently with files, done on Linux as it is done there."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from workbench.workspace import disk


@pytest.fixture(autouse=True)
def _portable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "PORTABLE", True)


def test_a_lock_is_held_by_one_and_freed_by_closing(tmp_path: Path) -> None:
    path = tmp_path / "one.lock"
    with path.open("a") as first:
        disk.lock(first, shared=False, wait=True)
        for shared in (False, True):
            with path.open("a") as second, pytest.raises(BlockingIOError):
                disk.lock(second, shared, wait=False)
        taken = threading.Event()

        def take() -> None:
            with path.open("a") as third:
                disk.lock(third, shared=False, wait=True)
                taken.set()

        waiting = threading.Thread(target=take)
        waiting.start()
        assert not taken.wait(0.1)
    waiting.join(PATIENCE)
    assert taken.is_set()


def test_a_file_that_is_open_elsewhere_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As os.replace fails on Windows while another process reads the target."""
    refusals, replace = [1, 2, 3], os.replace

    def refusing(source: str, target: str) -> None:
        if refusals:
            refusals.pop()
            raise PermissionError(13, "it is open")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refusing)
    (tmp_path / "new").write_text("new")
    disk.replace(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_text() == "new"
    refusals = [1] * 100_000
    monkeypatch.setattr(disk, "PATIENCE_SECONDS", 0.05)
    (tmp_path / "new").write_text("newer")
    with pytest.raises(PermissionError):
        disk.replace(tmp_path / "new", tmp_path / "old")


def test_a_folder_replaces_an_empty_folder_alone(tmp_path: Path) -> None:
    for name in ("source", "target"):
        (tmp_path / name).mkdir()
    (tmp_path / "source" / "file").touch()
    disk.replace(tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "target" / "file").exists()
    (tmp_path / "source").mkdir()
    with pytest.raises(OSError, match="not empty"):
        disk.replace(tmp_path / "source", tmp_path / "target")


def test_a_file_gets_a_second_name_without_symbolic_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("weights")
    disk.link(tmp_path / "file", tmp_path / "linked")
    assert (tmp_path / "linked").samefile(tmp_path / "file")
    monkeypatch.delattr(os, "link")
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(1, "no links")), raising=False)
    disk.link(tmp_path / "file", tmp_path / "copied")
    assert (tmp_path / "copied").read_text() == "weights"
    assert not (tmp_path / "copied").samefile(tmp_path / "file")


def test_only_ordinary_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("video")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    os.close(disk.open_ordinary(tmp_path / "file"))
    os.close(disk.open_ordinary(tmp_path / "pipe"))  # waits for no writer; the caller sees that it is no file
    with pytest.raises(OSError, match="symbolic"):
        disk.open_ordinary(tmp_path / "link")
