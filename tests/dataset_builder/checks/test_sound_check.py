"""The dataset check listens: silent, quiet, distorted, short and missing sound are found, and nothing in good sound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.dataset_builder.foreign import write_video
from tests.dataset_builder.scenery import scenery
from tests.patience import PATIENCE
from tests.sounds import tone
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.checks.findings import Finding, read_findings
from workbench.dataset_builder.settings import CheckSettings
from workbench.jobs import State
from workbench.workspace import Workspace

RATE = 44100


def checked(dataset: Dataset) -> list[Finding]:
    """The real job's findings about sound."""
    dataset.task("check").start(CheckSettings(captions=False))
    status = dataset.task("check").wait(PATIENCE)
    assert status.state == State.FINISHED, status.message
    return [one for one in read_findings(dataset.folder) if one.kind.startswith("sound")]


def named(dataset: Dataset, finding: Finding) -> list[str]:
    return sorted(dataset.clip(name).source for name in finding.clips)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clips of a second."""
    folder = tmp_path_factory.mktemp("sounds")
    good = tone(440, 1.0, RATE)
    sounds = {
        "good": good, "fine": good / 4, "silent": good * 0, "hush": good / 100, "loud": np.clip(4 * good, -1, 1),
        "short": good[:, : RATE // 2], "mute": False,
    }  # fmt: skip
    for number, (name, sound) in enumerate(sounds.items()):
        write_video(folder / f"{name}.mkv", scenery(number, 24), fps=24, sound=sound)
    return folder


def test_each_fault_is_found_once_and_good_sound_is_not_mentioned(tmp_path: Path, sources: Path) -> None:
    dataset = Dataset.create(Workspace.open(tmp_path), "Sounds")
    dataset.import_files([sources])
    found = {one.kind: (named(dataset, one), one.sentence) for one in checked(dataset)}
    assert {kind: names for kind, (names, _) in found.items()} == {
        "sound_silent": ["silent.mkv"], "sound_quiet": ["hush.mkv"], "sound_clipped": ["loud.mkv"],
        "sound_short": ["short.mkv"], "sound_missing": ["mute.mkv"],
    }  # fmt: skip
    assert found["sound_silent"][1] == (
        "The sound of silent.mkv is silent (-120 dB): a model with sound would learn silence."
    )
    assert "hush.mkv is very quiet: -49 dB" in found["sound_quiet"][1]
    assert "ends after 0.5" in found["sound_short"][1]
    assert found["sound_missing"][1] == "1 of 7 clips has no sound: a model with sound learns none from them."


def test_clips_that_were_imported_without_their_sound_are_told_from_silent_files(tmp_path: Path, sources: Path) -> None:
    dataset = Dataset.create(Workspace.open(tmp_path), "Silenced")
    dataset.import_files([sources / "good.mkv", sources / "mute.mkv"], keep_sound=False)
    whole = next(clip for clip in dataset.clips if clip.source == "good.mkv")
    dataset.trim(whole.id, 0.0, 0.5)  # a part is told, too
    (finding,) = checked(dataset)
    assert (finding.kind, named(dataset, finding)) == ("sound_removed", ["good.mkv"])
    assert finding.sentence == (
        "1 clip was imported without the sound of the files: to train on it, import them into a new dataset."
    )
