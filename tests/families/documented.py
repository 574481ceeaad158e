"""The family that docs/add_a_family.md writes, put into a package of its own as the document says."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from workbench.families import ENTRY_POINTS, families
from workbench.families.base import Family

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "add_a_family.md"
MARK = "<!-- the test reads the next block -->\n\n```python\n"


def text() -> str:
    """The module as it stands in the document."""
    document = DOCUMENT.read_text(encoding="utf-8")
    assert document.count(MARK) == 1
    return document.partition(MARK)[2].partition("\n```\n")[0] + "\n"


@contextmanager
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Family]:
    """The documented family, found as one of an installed package by this process and by those that it starts."""
    (folder / "skyreels.py").write_text(text(), encoding="utf-8")
    notes = folder / "skyreels-1.dist-info"
    notes.mkdir()
    (notes / "METADATA").write_text("Metadata-Version: 2.1\nName: skyreels\nVersion: 1\n")
    (notes / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\nskyreels = skyreels\n")
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *([before] if before else [])]))
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    families.cache_clear()
    try:
        yield next(family for family in families() if family.name == "skyreels")
    finally:
        sys.modules.pop("skyreels", None)
        sys.path.remove(str(folder))
        families.cache_clear()
