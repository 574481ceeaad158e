"""A canonical video with sound loses the sound and nothing else; what cannot be copied exactly is written anew."""

from __future__ import annotations

import itertools
from pathlib import Path

import av
import numpy as np
import pytest

from tests.dataset_builder.foreign import flip_bits, noisy, write_video
from tests.drawing import draw
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.ingest.canonical import CanonicalClip, convert
from workbench.paths import ASSETS


def streams(path: Path) -> list[bytes]:
    """The bytes of every packet of the video."""
    with av.open(str(path)) as file:
        return [bytes(packet) for packet in file.demux(video=0) if packet.size]


def frames(path: Path) -> list[tuple[float, np.ndarray]]:
    return [(time, frame.to_ndarray()) for time, frame in media.raw_frames(path)]


def taken(source: Path) -> tuple[CanonicalClip, Path]:
    target = source.with_name(f"{source.stem}-clip.mp4")
    return convert(source, target), target


@pytest.mark.parametrize(("name", "fps"), [("talking.mp4", 30000 / 1001), ("talking.mov", 24)])
def test_the_video_is_copied_byte_for_byte(tmp_path: Path, name: str, fps: float) -> None:
    source = write_video(tmp_path / name, noisy(40), fps=fps, sound=True)  # with B-frames, as x264 likes it
    made, target = taken(source)
    assert made.changes == ("sound removed: its video is copied as it is",)
    assert streams(target) == streams(source)
    for (one, before), (other, after) in itertools.zip_longest(frames(source), frames(target)):
        assert one == pytest.approx(other, abs=1e-3)
        assert np.array_equal(before, after)
    about = media.probe(target)
    assert (about.audio, about.frames, about.tracks) == (False, 40, 1)
    assert about.fps == pytest.approx(fps, abs=1e-6)
    assert (made.frames, made.fps) == (40, about.fps)
    assert np.array_equal(media.read_frames(target, [39])[0], media.read_frames(source, [39])[0])
    again = convert(target, tmp_path / "again.mp4")
    assert (again.changes, (tmp_path / "again.mp4").read_bytes()) == ((), target.read_bytes()), "it is canonical itself"
    assert not list(tmp_path.glob(".*"))


def test_what_has_more_wrong_with_it_is_written_anew(tmp_path: Path) -> None:
    made, target = taken(write_video(tmp_path / "ten.mp4", draw(24), pixels="yuv420p10le", sound=True))
    assert made.changes == ("10-bit colors brought to 8 bits", "sound removed")
    assert media.probe(target).frames == 24


def test_frames_that_the_file_says_not_to_show_stay_hidden(tmp_path: Path) -> None:
    hidden = {"avoid_negative_ts": "disabled"}
    made, target = taken(write_video(tmp_path / "early.mp4", draw(24), start=-12, container=hidden, sound=True))
    assert (made.frames, media.probe(target).frames, len(frames(target))) == (12, 12, 12)
    assert made.changes == ("sound removed",)


def test_a_damaged_one_is_not_copied(tmp_path: Path) -> None:
    source = write_video(tmp_path / "torn.mp4", noisy(48), fps=24, container={"movflags": "+faststart"}, sound=True)
    flip_bits(source)
    made, target = taken(source)
    assert "sound removed" in made.changes
    assert any("cut off or damaged" in note for note in made.changes)
    assert media.probe(target).frames == made.frames < 48


def test_a_clip_says_nothing_of_where_its_source_was_made(tmp_path: Path) -> None:
    """Datasets are exported and published: notes of other programs hold paths, names and places."""
    notes = {
        "comment": '{"workflow": "/home/ann/models/secret.safetensors"}',
        "title": "Ann",
        "location": "+48.1+011.5/",
    }
    plain, source = tmp_path / "plain.mp4", tmp_path / "noted.mp4"
    media.encode(np.stack(noisy(12)), plain, 8)
    with av.open(str(plain)) as read, av.open(str(source), "w", options={"movflags": "use_metadata_tags"}) as write:
        write.metadata.update(notes)
        copy = write.add_stream_from_template(read.streams.video[0])
        for packet in read.demux(video=0):
            if packet.dts is not None:
                packet.stream = copy
                write.mux(packet)
    assert b"/home/ann" in source.read_bytes()
    made, target = taken(source)
    assert made.changes == ("metadata removed: its video is copied as it is",)
    assert streams(target) == streams(plain)
    assert not any(word in target.read_bytes() for word in (b"/home", b"Ann", b"+48"))
    assert taken(plain)[0].changes == ()


def test_the_demo_s_clips_are_taken_as_they_are(dataset: Dataset) -> None:
    """Some were encoded with B-frames allowed and none used: such times are right, and nothing is encoded again."""
    dataset.import_files([ASSETS / "demo_clips" / "stripes"])
    assert {result.outcome for result in dataset.import_results if "striped" in result.name} == {"taken"}
