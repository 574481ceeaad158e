"""The dataset check listens: silent, quiet, distorted, short and missing sound are found, and nothing in good sound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import tiny_vision
from tests.dataset_builder.foreign import write_video
from tests.dataset_builder.scenery import scenery
from tests.patience import PATIENCE
from tests.sounds import tone
from workbench.clips.media import read_frames
from workbench.clips.records import REMOVED, Clip, DatasetInfo
from workbench.clips.sound import loudness
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.checks.dataset_check import check_speech
from workbench.dataset_builder.checks.findings import Finding, read_findings, write_report
from workbench.dataset_builder.checks.measures import Heard, Measures
from workbench.dataset_builder.settings import CheckSettings
from workbench.jobs import State
from workbench.vision import transcribing
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
        "good": good, "fine": good / 2, "silent": good * 0, "hush": good / 100, "loud": np.clip(4 * good, -1, 1),
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


def test_a_softer_clip_is_matched_to_the_others_without_clipping(tmp_path: Path) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    good = tone(440, 1.0, RATE)
    click = good / 30
    click[0, RATE // 2] = 0.5  # a peak that leaves 5 dB
    sounds = {"a": good / 2, "b": good / 2.5, "c": good / 2, "soft": good / 8, "click": click, "loud": good * 1.5}
    for number, (name, sound) in enumerate(sounds.items()):
        write_video(folder / f"{name}.mkv", scenery(number, 24), fps=24, sound=sound)
    dataset = Dataset.create(Workspace.open(tmp_path), "Levels")
    dataset.import_files([folder])
    before = {clip.source: clip for clip in dataset.clips}
    found = {named(dataset, one)[0]: one for one in checked(dataset) if one.kind == "sound_level"}
    assert found.keys() == {"soft.mkv", "click.mkv", "loud.mkv"}
    assert found["soft.mkv"].values["gain"] == pytest.approx(11, abs=0.5)
    assert found["click.mkv"].values["gain"] == pytest.approx(5, abs=2)
    assert "dB louder than most" in found["loud.mkv"].sentence
    assert dataset.fix(list(found.values()), "match_loudness") == "Matched the loudness of 3 clips."
    clips = {clip.source: clip for clip in dataset.clips}
    levels = {name: loudness(dataset.path_of(clip)) for name, clip in clips.items()}
    for name in ("soft.mkv", "loud.mkv"):
        now = levels[name]
        assert now is not None
        assert now.rms == pytest.approx(-16, abs=0.7)  # the median before
    for now in levels.values():
        assert now is not None
        assert now.clipped == 0
    assert clips["a.mkv"] == before["a.mkv"]
    for name in ("soft.mkv", "click.mkv"):  # the pictures are the same, to the bit
        paths = (dataset.folder / REMOVED / before[name].file_name, dataset.path_of(clips[name]))
        one, other = (read_frames(path, range(24)) for path in paths)
        assert np.array_equal(one, other)
    assert not [one for one in checked(dataset) if named(dataset, one) == ["soft.mkv"]]
    dataset.undo()
    assert {clip.source: clip for clip in dataset.clips} == before
    assert dataset.path_of(before["soft.mkv"]).is_file()


def test_captions_that_leave_speech_out_are_found() -> None:
    clips = [
        Clip(file_name=f"clips/{number}.mp4", text=text, sha256=str(number), source=f"{number}.mp4")
        for number, text in enumerate(("a yellow bird on a single tree", "a woman speaks", 'a man: "Go!"', "", "rain"))
    ]
    speech = (1.0, 1.0, 0.5, 1.0, 0.0)
    measured = {
        clip.file_name: Measures(sha256=clip.sha256, sound=Heard(rms=-20, speech=share))
        for clip, share in zip(clips, speech, strict=True)
    }
    (finding,) = check_speech(clips, measured, DatasetInfo())
    assert (finding.kind, finding.clips) == ("speech_unsaid", ("clips/0.mp4",))
    assert finding.captions
    assert not list(check_speech(clips[:1], {"clips/0.mp4": Measures(sha256="0")}, DatasetInfo()))


def test_what_is_said_is_quoted_in_the_captions_as_a_task(tmp_path: Path, sources: Path) -> None:
    """The button next to the finding does what the finding advises, and undo restores the captions."""
    workspace = Workspace.open(tmp_path)
    dataset = Dataset.create(workspace, "Spoken")
    dataset.import_files([sources / "good.mkv", sources / "mute.mkv"])
    for clip in dataset.clips:
        dataset.set_caption(clip.file_name, "a street")
    said = np.float32(tone(440, 1.0, transcribing.RATE)[0])
    model = tiny_vision.make_listener(tmp_path / "tiny", {'mind the "gap"': said})
    measured = {
        clip.file_name: Measures(sha256=clip.sha256, sound=Heard(rms=-20, speech=1.0)) for clip in dataset.clips
    }
    found = list(check_speech(dataset.clips, measured, dataset.info))
    write_report(dataset.folder, 0.0, "", dataset.clips, found)
    assert found[0].fixes == ("quote_speech", "tag")
    assert "Quote what is said in 2 clips, with Whisper Small" in dataset.preview_fix(found, "quote_speech")
    assert not dataset.start_fix(found, "quote_speech", str(model))
    status = dataset.task("fix").wait(PATIENCE)
    assert status.state == State.FINISHED, status.message
    assert "Quoted what is said in 1 clip. mute" in dataset.task("fix").result["done"]
    texts = {clip.source: clip.text for clip in dataset.clips}
    assert texts == {"good.mkv": "a street. A voice says: \"mind the 'gap'\"", "mute.mkv": "a street"}
    assert not list(check_speech(dataset.clips[:1], measured, dataset.info))
    dataset.undo()
    assert {clip.text for clip in dataset.clips} == {"a street"}


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
