"""The sound of video files: read at any rate, over any span, to the sample; written without touching the pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.dataset_builder.foreign import write_video
from tests.drawing import draw
from tests.sounds import onset, pitch, tone
from workbench.clips import media, sound
from workbench.errors import DataError


@pytest.mark.parametrize("rate", [16000, 24000, 44100, 48000])
def test_sound_reads_back_in_its_place_and_the_pictures_stay(tmp_path: Path, rate: int) -> None:
    path = tmp_path / "clip.mp4"
    media.encode(draw(24), path, 12, comment="kept", crf=None)
    pictures, about = media.read_frames(path, range(24)), media.probe(path)
    wave = np.concatenate([tone(440, 2.0, rate), tone(880, 2.0, rate) / 2])
    wave[:, : rate // 2] = 0
    sound.write_sound(path, wave, rate)
    assert sound.has_sound(path)
    assert media.read_comment(path) == "kept"
    assert np.array_equal(media.read_frames(path, range(24)), pictures)
    after = media.probe(path)
    assert (after.fps, after.frames, after.seconds) == (about.fps, about.frames, about.seconds)

    read = sound.read_sound(path, rate=rate, seconds=2.0)
    assert (read.dtype, read.shape) == (np.float32, (2, 2 * rate))
    assert np.sqrt(np.mean((read - wave) ** 2)) < 0.002
    assert abs(onset(read[0]) - rate // 2) <= 8

    later = sound.read_sound(path, start=0.25, seconds=1.0)
    assert later.shape == (2, 16000)
    assert abs(onset(later[0]) - 4000) <= 8
    assert [round(pitch(one, 16000)) for one in later] == [440, 880]
    assert pitch(sound.read_sound(path, channels=1, seconds=2.0)[0], 16000) == 440


def test_sound_that_ends_early_is_padded_with_silence(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    media.encode(draw(24), path, 12)
    sound.write_sound(path, tone(440, 1.0, 16000), 16000)
    read = sound.read_sound(path, start=0.5, seconds=1.5)
    assert read.shape == (2, 24000)
    assert np.abs(read[:, :7000]).max() > 0.4
    assert np.abs(read[:, 9200:]).max() == 0
    assert sound.read_sound(path, start=1.9, seconds=0.1).shape == (2, 1600)


@pytest.mark.parametrize("ending", ["mov", "mkv", "avi"])
def test_time_zero_is_the_first_picture_in_every_container(tmp_path: Path, ending: str) -> None:
    """The pictures begin 1 s late in the file, so the tone that sets in at 1.5 s is heard after 0.5 s."""
    wave = np.pad(tone(440, 1.0, 44100), ((0, 0), (66150, 0)))
    # avi has no timestamps, nor does it say that AAC begins with 1,024 samples more.
    start = 0 if ending == "avi" else 12
    path = write_video(tmp_path / f"late.{ending}", draw(24), start=start, sound=wave)
    read = sound.read_sound(path, seconds=2.0)
    assert abs(onset(read[0]) / 16000 - (0.5 if start else 1.5)) < (0.005 if start else 0.025)


def test_what_has_no_sound_or_cannot_take_one_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "silent.mp4"
    media.encode(draw(4), path, 8)
    before = path.read_bytes()
    assert not sound.has_sound(path)
    with pytest.raises(DataError, match=r"silent.mp4 has no sound track: import a file that has one"):
        sound.read_sound(path)
    with pytest.raises(DataError, match="rate is 7 Hz.*resample it"):
        sound.write_sound(path, tone(440, 1, 16000), 7)
    with pytest.raises(DataError, match=r"shape \[3, 9\].*mix it"):
        sound.write_sound(path, np.zeros((3, 9), np.float32), 16000)
    assert path.read_bytes() == before
    (tmp_path / "page.mp4").write_text("<html>")
    with pytest.raises(DataError, match="a web page"):
        sound.has_sound(tmp_path / "page.mp4")


def test_metadata_is_removed_without_the_sound(tmp_path: Path) -> None:
    path = tmp_path / "sample.mp4"
    media.encode(draw(12), path, 12, comment="a secret")
    sound.write_sound(path, tone(440, 1.0, 16000), 16000)
    shared = tmp_path / "shared.mp4"
    shared.write_bytes(media.without_comment(path))
    assert media.read_comment(shared) is None
    assert media.probe(shared).frames == 12
    assert pitch(sound.read_sound(shared, seconds=1.0)[0], 16000) == 440
    assert media.without_comment(path) == shared.read_bytes()
