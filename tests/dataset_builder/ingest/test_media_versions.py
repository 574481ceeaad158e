"""Videos are read the same way with the oldest supported, the installed and the newest PyAV.

The newest has no wheel for Python 3.11, so the test removes by hand what it dropped.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.dataset_builder import media_core
from tests.dataset_builder.foreign import write_video
from tests.version_environments import environment, python
from workbench.clips import media

ROOT = Path(__file__).resolve().parents[3]
CHECK = """
import sys
from pathlib import Path
import av
from tests.dataset_builder.media_core import check
check(Path(sys.argv[1]))
print(av.__version__)
"""


def lowest() -> str:
    """Return the oldest PyAV version that pyproject.toml allows."""
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    (wanted,) = [line for line in map(Requirement, lines) if line.name == "av"]
    return next(one.version for one in wanted.specifier if one.operator == ">=")


def test_files_of_many_kinds_with_the_installed_version(tmp_path: Path) -> None:
    media_core.check(tmp_path)


def test_files_of_many_kinds_with_the_lowest_version(tmp_path: Path) -> None:
    version = lowest()
    said = python(CHECK, environment(f"av=={version}"), tmp_path, cwd=ROOT).split()[-1]
    assert said.startswith(f"{version}."), said


def test_an_open_without_the_option_that_version_19_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import av

    path, real = write_video(tmp_path / "clip.mp4"), av.open

    def newest(file: str, mode: str = "r", options: Any = None) -> Any:
        return real(file, mode, options=options)

    monkeypatch.setattr(av, "open", newest)
    monkeypatch.setattr(av, "__version__", "19.0.2")
    assert media.probe(path).frames == 24
