"""A clip keeps its source's sound: through import, cuts, other frame rates, undo and export. Judged by spectrum."""

from __future__ import annotations

import json
from pathlib import Path

import av
import numpy as np
import pytest

from tests.dataset_builder.foreign import noisy, uneven_times, write_video
from tests.drawing import draw
from tests.sounds import onset, pitch, tone
from workbench.clips import media, sound
from workbench.clips.records import Clip, read_clips
from workbench.dataset_builder import Dataset, export
from workbench.dataset_builder.ingest.canonical import convert
from workbench.dataset_builder.settings import ExportSettings
from workbench.workspace import Workspace

RATE = 44100


def scale(*hertz: float) -> np.ndarray:
    """One tone a second."""
    return np.concatenate([tone(one, 1.0, RATE) for one in hertz], axis=1)


def heard(dataset: Dataset, clip: Clip) -> list[int]:
    """The pitch in each half second of a clip, in Hz; 0 for silence."""
    samples = sound.read_sound(dataset.path_of(clip), seconds=clip.seconds, channels=1)[0]
    halves = [samples[at : at + 8000] for at in range(0, len(samples) - 7999, 8000)]
    return [round(pitch(one, 16000)) if np.abs(one).max() > 0.02 else 0 for one in halves]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """One clip of 4 s at 24 fps, with a tone a second, in a container that must be converted."""
    write_video(tmp_path / "song.mkv", draw(96), fps=24, sound=scale(440, 550, 660, 880))
    dataset = Dataset.create(Workspace.open(tmp_path / "workspace"), "Song")
    dataset.import_files([tmp_path / "song.mkv"])
    return dataset


def test_cuts_are_cut_by_ear_too_and_undone_with_the_clip(dataset: Dataset) -> None:
    (clip,) = dataset.clips
    assert (clip.sound.rate, clip.sound.channels) == (44100, 1)
    assert clip.sound.seconds == pytest.approx(4.0, abs=0.03)
    assert heard(dataset, clip) == [440, 440, 550, 550, 660, 660, 880, 880]

    part = dataset.trim(clip.id, 1.0, 3.0)
    assert heard(dataset, part) == [550, 550, 660, 660]
    assert part.sound.seconds == pytest.approx(2.0, abs=0.03)
    slow = dataset.set_fps(12, part.id)[0]
    assert (slow.frames, slow.seconds) == (24, 2.0)
    assert heard(dataset, slow) == [550, 550, 660, 660], "a lower frame rate plays no slower"
    cropped = dataset.crop(slow.id, (0, 0, 32, 32))
    assert (cropped.width, heard(dataset, cropped)) == (32, [550, 550, 660, 660])
    longer = dataset.trim(cropped.id, 0.0, 4.0)
    assert heard(dataset, longer) == [440, 440, 550, 550, 660, 660, 880, 880], "the source video has all of it"

    for _ in range(4):
        dataset.undo()
    assert dataset.clips == [clip]
    assert heard(dataset, clip) == [440, 440, 550, 550, 660, 660, 880, 880]
    one, other = dataset.split(clip.id, [(0.0, 2.0), (2.0, 4.0)])
    assert (heard(dataset, one), heard(dataset, other)) == ([440, 440, 550, 550], [660, 660, 880, 880])


def test_pictures_and_records_without_sound_stay_byte_for_byte(tmp_path: Path) -> None:
    """The pictures of a clip do not depend on its sound, and a clip without one has the record that it always had."""
    with_sound = write_video(tmp_path / "a.mkv", noisy(24), sound=scale(440))
    without = write_video(tmp_path / "b.mkv", noisy(24))
    for name, source in (("with.mp4", with_sound), ("without.mp4", without)):
        convert(source, tmp_path / name)
    convert(with_sound, tmp_path / "removed.mp4", keep_sound=False)
    assert (tmp_path / "removed.mp4").read_bytes() == (tmp_path / "without.mp4").read_bytes()
    kept = [np.asarray(frame) for _, frame in media.decode(tmp_path / "with.mp4")]
    assert np.array_equal(kept, [frame for _, frame in media.decode(tmp_path / "without.mp4")])

    dataset = Dataset.create(Workspace.open(tmp_path / "workspace"), "Both")
    dataset.import_files([with_sound, without])
    loud, silent = map(json.loads, (dataset.folder / "metadata.jsonl").read_text().splitlines())
    assert loud["sound"] == {"seconds": pytest.approx(1.0, abs=0.03), "rate": 44100, "channels": 1}
    assert "sound" not in silent
    assert silent["sha256"] == dataset.clips[1].sha256


def test_a_file_whose_sound_is_right_is_copied_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "ours.mp4"
    media.encode(draw(24), path, 12, crf=None)
    sound.write_sound(path, tone(440, 2.0, RATE), RATE)
    assert convert(path, tmp_path / "clip.mp4").changes == ()
    assert (tmp_path / "clip.mp4").read_bytes() == path.read_bytes()


def test_sound_follows_a_variable_frame_rate_and_shortened_stills(tmp_path: Path) -> None:
    times = uneven_times(30)
    steady = write_video(tmp_path / "uneven.mkv", draw(30), times=times, sound=scale(440, 660))
    made = convert(steady, tmp_path / "steady.mp4")
    read = sound.read_sound(tmp_path / "steady.mp4", seconds=made.frames / made.fps, rate=RATE, channels=1)[0]
    original = scale(440, 660)[0, : len(read)]
    assert np.abs(read - original).mean() < 0.02, "each sample is where it was"

    # The picture is still for 40 s, and 30 of them are kept, so a sound at 41 s moves to 31 s.
    wave = np.zeros((1, 44 * RATE), np.float32)
    wave[:, 41 * RATE :] = tone(880, 3.0, RATE)
    still = write_video(tmp_path / "still.mkv", draw(11), times=[0, 0.5, *np.arange(40.5, 45, 0.5)], sound=wave)
    made = convert(still, tmp_path / "shorter.mp4")
    assert any("shortened to 30 s" in note for note in made.changes)
    assert "sound re-encoded" in made.changes
    assert onset(sound.read_sound(tmp_path / "shorter.mp4")[0]) / 16000 == pytest.approx(31.0, abs=0.1)


def test_damaged_sound_is_silent_where_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "damaged.mov"
    media.encode(draw(72), path, 24, crf=None)
    sound.write_sound(path, scale(440, 440, 440), RATE)
    with av.open(str(path)) as file:
        places = [(packet.pos, packet.size, packet.pts / RATE) for packet in file.demux(audio=0) if packet.size]
    data = bytearray(path.read_bytes())
    for position, size, seconds in places:
        if 1.0 < seconds < 2.0:
            data[position : position + size] = b"\xff" * size
    path.write_bytes(data)
    made = convert(path, tmp_path / "clip.mp4")
    assert made.changes == ("sound re-encoded, silent where it is damaged (from 1.0 s on): video copied unchanged",)
    read = sound.read_sound(tmp_path / "clip.mp4", seconds=3.0)[0]
    assert [bool(np.abs(read[at : at + 8000]).max() > 0.2) for at in (4000, 20000, 36000)] == [True, False, True]


def test_unwanted_sound_is_left_out_and_said(tmp_path: Path, dataset: Dataset) -> None:
    source = write_video(tmp_path / "talk.mkv", draw(24, color="blue"), sound=scale(440, 660))
    silent = Dataset.create(Workspace.open(tmp_path / "workspace"), "Silent")
    (found,) = silent.import_files([source], keep_sound=False)
    assert "sound removed" in found.notes
    assert silent.clips[0].sound is None
    (again,) = silent.import_files([source])
    assert again.outcome == "known"
    assert "the clip has no sound: import the file into a new dataset to keep its sound" in again.notes[0]
    (known,) = dataset.import_files([tmp_path / "song.mkv"])
    assert known.notes == ()


@pytest.mark.parametrize("layout", ["videofolder", "sidecars", "musubi"])
def test_exports_carry_the_sound_and_come_back_unchanged(tmp_path: Path, dataset: Dataset, layout: str) -> None:
    dataset.trim(dataset.clips[0].id, 1.0, 3.0)
    folder = export.export(dataset.folder, ExportSettings(target=str(tmp_path / "out"), layout=layout))
    (file,) = folder.rglob("*.mp4")
    assert file.read_bytes() == dataset.path_of(dataset.clips[0]).read_bytes()
    back = Dataset.create(Workspace.open(tmp_path / "workspace"), "Back")
    (result,) = back.import_files([folder])
    assert (result.outcome, result.notes) == ("taken", ())
    (clip,) = read_clips(back.folder)
    assert clip.sound == dataset.clips[0].sound
    assert heard(back, clip) == [550, 550, 660, 660]
