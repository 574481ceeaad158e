"""Sources of equal content are judged in the order they were given, whichever is read first."""

from __future__ import annotations

import threading

import pytest

from tests.patience import PATIENCE
from workbench.dataset_builder.ingest.contents import Contents
from workbench.jobs.limited import ChildClosed

A_WHILE = 0.1  # seconds in which a thread that need not wait would be through


def entering(contents: Contents, number: int, sha256: str) -> threading.Thread:
    thread = threading.Thread(target=contents.enter, args=(number, sha256), daemon=True)
    thread.start()
    thread.join(A_WHILE)
    return thread


def test_a_source_waits_for_earlier_ones_of_the_same_content_alone() -> None:
    contents = Contents()
    same = entering(contents, 2, "a")
    other = entering(contents, 1, "b")
    assert same.is_alive()
    assert other.is_alive()
    contents.enter(0, "a")
    other.join(PATIENCE)
    assert not other.is_alive()
    assert same.is_alive()
    contents.leave(0)
    same.join(PATIENCE)
    assert not same.is_alive()


def test_a_source_that_cannot_be_read_holds_nobody_up() -> None:
    contents = Contents()
    second = entering(contents, 1, "a")
    contents.leave(0)
    second.join(PATIENCE)
    assert not second.is_alive()


def test_nobody_waits_after_the_end() -> None:
    contents = Contents()
    ended: list[bool] = []

    def enter() -> None:
        with pytest.raises(ChildClosed):
            contents.enter(1, "a")
        ended.append(True)

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    contents.close()
    thread.join(PATIENCE)
    assert ended
