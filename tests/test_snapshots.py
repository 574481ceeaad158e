"""Snapshots take fields from the objects that they show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import ValidationError

from workbench.display.quantities import listed, shortened
from workbench.snapshots import Place, Snapshot, Values


@dataclass(frozen=True)
class Size:
    width: int
    height: int


@dataclass(frozen=True)
class Video:
    name: str
    size: Size
    path: Path = Path("a/b.mp4")

    @property
    def title(self) -> str:
        return self.name.title()


class Shown(Snapshot):
    """A video."""

    name: str
    """Its name."""

    title: str
    """Its title."""

    size: Values
    """Its size."""

    path: Place | None
    """Its path."""

    note: str = "none"
    """A note."""


def test_a_snapshot_takes_what_is_given_then_what_the_first_source_has() -> None:
    cat, dog = Video("cat", Size(64, 32)), Video("dog", Size(8, 8))
    found = Shown.from_objects(cat, dog, name="bird")
    assert found == Shown(name="bird", title="Cat", size={"width": 64, "height": 32}, path="a/b.mp4")
    assert found.model_dump(mode="json") == {
        **{"name": "bird", "title": "Cat", "size": {"width": 64, "height": 32}},
        **{"path": "a/b.mp4", "note": "none"},
    }
    assert Shown.from_objects(Size(1, 1), dog).size == {"width": 8, "height": 8}
    assert Shown.from_objects(dog, path=None).path is None


def test_a_field_that_no_source_has_is_an_error() -> None:
    with pytest.raises(ValidationError, match="title"):
        Shown.from_objects(Size(1, 1), name="cat", size={}, path=None)


def test_lists_name_a_few_and_count_the_others() -> None:
    assert [listed(["a", "b", "c"][:count], 2) for count in (1, 2, 3)] == ["a", "a, b", "a, b and 1 more"]
    assert listed(list(map(str, range(2000))), 1) == "0 and 1,999 more"
    assert [shortened(["a", "b", "c"][:count], 2) for count in (2, 3)] == ["a, b", "a, b ..."]
