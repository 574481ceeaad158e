"""Clips that a class of an installed package yields."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.drawing import MakeClip
from tests.shell import Shell
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.sources.own import ENTRY_POINTS
from workbench.errors import ExitCode
from workbench.workspace import Workspace

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
    """A package of a researcher's, as this process and those that it starts find it installed."""
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
        ("wrong=name", "item 1 is named '../a', must be a file name of its own"),
        ("wrong", "item 1, a: frames are float64 [3], must be uint8 [F, H, W, 3]"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(shell: Shell, source: str, sentence: str) -> None:
    said = shell("dataset", "import", "falling", "--own-source", source)
    assert said.code in (ExitCode.BAD_CONFIG, ExitCode.BAD_DATA)
    assert sentence in said.err + said.out
