"""The core of the dataset builder's video handling, for an environment with little besides PyAV.

    python -m tests.dataset_builder.media_core FOLDER

Imports files of many kinds like the import's child process and checks the results. It needs little more than av, numpy,
pillow, pydantic and psutil, so that the oldest and newest PyAV can be tested with any Python. It prints the version and
"ok", or fails with the wrong sentence.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np

from tests.dataset_builder import foreign
from tests.dataset_builder.foreign import write_video
from tests.drawing import draw
from workbench.clips import media
from workbench.clips.records import file_sha256
from workbench.dataset_builder.ingest.results import ImportResult
from workbench.dataset_builder.ingest.worker import judge
from workbench.errors import DataError
from workbench.jobs.limited import Watch

CONVERTED = {
    "turned.mov": "turned upright", "uneven.mkv": "constant 30 fps", "ten_bit.mp4": "10-bit colors",
    "hdr.mkv": "HDR colors", "full.mp4": "full-range colors", "two.mp4": "2 video tracks",
    "stretched.mp4": "non-square pixels", "interlaced.mp4": "deinterlaced", "talking.mov": "sound re-encoded",
    "half.mp4": "cut off or damaged", "web.webm": "re-encoded for exact frame access",
}  # fmt: skip
REFUSED = {
    "noise.mp4": "not a readable video",
    "sound.mp4": "sound only",
    "no_index.mp4": "its index is missing",
    "one.mp4": "only one frame",
}


def write(folder: Path) -> None:
    """Write the named files, and two canonical ones."""
    foreign.turn(write_video(folder / "turned.mov", foreign.marked()))
    write_video(folder / "uneven.mkv", draw(30), times=foreign.uneven_times(30))
    write_video(folder / "ten_bit.mp4", pixels="yuv420p10le")
    write_video(folder / "hdr.mkv", pixels="yuv420p10le", transfer=16)
    write_video(folder / "full.mp4", pixels="yuvj420p")
    write_video(folder / "two.mp4", tracks=2)
    write_video(folder / "stretched.mp4", draw(24, (48, 64)), aspect=Fraction(2))
    write_video(folder / "interlaced.mp4", options={"x264-params": "tff=1"})
    write_video(folder / "talking.mov", sound=np.zeros((1, 3 * 44100), np.float32))  # longer than the pictures
    write_video(folder / "half.mp4", foreign.noisy(48), fps=24, container={"movflags": "+faststart"})
    foreign.cut(folder / "half.mp4", lambda data: len(data) * 6 // 10)
    write_video(folder / "web.webm", codec="libvpx")
    write_video(folder / "fine.mp4", draw(24, color="blue"))
    foreign.write_latin(folder / "latin.mp4")
    (folder / "noise.mp4").write_bytes(np.random.default_rng(0).bytes(50_000))
    foreign.write_sound(folder / "sound.mp4")
    write_video(folder / "one.mp4", draw(1))
    write_video(folder / "no_index.mp4")
    foreign.cut(folder / "no_index.mp4", lambda data: data.index(b"moov") - 4)


def check(base: Path) -> None:
    """Import the files to `base`. Raises AssertionError with the wrong sentence."""
    given = base / "given"
    given.mkdir(parents=True)
    write(given)
    found = {path.name: judged(path, base) for path in sorted(given.iterdir()) if path.is_file()}
    for name, words in CONVERTED.items():
        assert words in found[name].sentence, found[name].sentence
    for name, words in REFUSED.items():
        assert not found[name].usable, found[name].sentence
        assert words in found[name].sentence, found[name].sentence
    for name in ("fine.mp4", "latin.mp4"):
        assert found[name].outcome in ("taken", "converted", "known"), found[name].sentence
    assert media.read_comment(given / "latin.mp4") == "caf\ufffd"
    for result in found.values():
        if result.usable:
            about = media.probe(base / result.clip.file_name)
            assert (about.codec, about.pixel_format, about.frames) == ("h264", "yuv420p", result.clip.frames), result
            assert media.read_frames(base / result.clip.file_name, [result.clip.frames - 1]).dtype == np.uint8


def judged(path: Path, dataset: Path) -> ImportResult:
    sha256 = file_sha256(path)
    try:
        media.check_file(path)
    except DataError as error:
        return ImportResult(source=str(path), outcome="refused", notes=(str(error),))
    watch = Watch(300)
    try:
        task = {"source": str(path), "name": path.name, "sha256": sha256, "longest_side": None}
        return judge(dataset, task, watch)
    finally:
        watch.end()


if __name__ == "__main__":
    import av

    check(Path(sys.argv[1]))
    print(f"PyAV {av.__version__} on Python {sys.version.split()[0]}: ok")
