"""Write mp4 files that play in every browser and decode to the same frames everywhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.clips.media.opening import THREADS, opened
from workbench.workspace import disk, sync_folder, writing

if TYPE_CHECKING:
    from workbench.clips.media.reading import Pixels

BT709, LIMITED_RANGE = 1, 1  # FFmpeg's codes for the colors that browsers assume
KEYFRAME_EVERY = 30  # frames: a seek decodes at most this many extra
# A constant quantizer bounds the error of every block: at least 46 dB even for pure noise, where a constant rate factor
# of the same size on ordinary footage drops to 40. Slower presets save no space.
FAITHFUL = {"qp": "13", "preset": "superfast"}

BARE = {"movflags": "+faststart", "fflags": "+bitexact"}


class VideoWriter:
    """Write an mp4 for browsers (H.264 yuv420p, index first) atomically. A context manager.

    Args:
        crf, preset: Quality of videos for display; crf None writes at FAITHFUL quality, for training clips.
        like: A PyAV frame with the color matrix, primaries and transfer of the frames; None for BT.709.
        comment: Text for the file's metadata.
    """

    def __init__(
        self,
        path: Path,
        width: int,
        height: int,
        fps: float | Fraction,
        *,
        comment: str | None = None,
        crf: int | None = None,
        preset: str = "medium",
        like: Any = None,
    ) -> None:
        import av

        self.path = path
        self.frames = 0
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._container = av.open(str(self._temporary), "w", format="mp4", options={"movflags": "+faststart"})
        if comment is not None:
            self._container.metadata["comment"] = comment
        rate = Fraction(fps).limit_denominator(1001)
        # Without B-frames, every decoder counts and seeks alike, those of other trainers too.
        options = {"bf": "0", "g": str(KEYFRAME_EVERY)}
        options |= FAITHFUL if crf is None else {"crf": str(crf), "preset": preset}
        self._stream: Any = self._container.add_stream("libx264", rate=rate, options=options)
        self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
        context = self._stream.codec_context
        context.thread_count = THREADS
        context.time_base = 1 / rate
        context.colorspace = BT709 if like is None else like.colorspace
        context.color_primaries = BT709 if like is None else like.color_primaries
        context.color_trc = BT709 if like is None else like.color_trc
        context.color_range = LIMITED_RANGE

    def write(self, frame: Any) -> None:
        """Append a yuv420p PyAV frame with the writer's size and colors."""
        import av

        frame.pts, frame.time_base = self.frames, self._stream.codec_context.time_base
        frame.pict_type = av.video.frame.PictureType.NONE  # do not copy the source's keyframes
        with writing(self.path):
            self._container.mux(self._stream.encode(frame))
        self.frames += 1

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            with writing(self.path):
                if error is None:
                    self._container.mux(self._stream.encode())
                self._container.close()
                if error is None:
                    with self._temporary.open("rb") as file:
                        os.fsync(file.fileno())
                    disk.replace(self._temporary, self.path)
                    sync_folder(self.path.parent)
        finally:
            self._temporary.unlink(missing_ok=True)


def filter_graph(first: Any, steps: Sequence[tuple[str, str]]) -> Any:
    """Chain FFmpeg filters, given as (name, arguments), for PyAV frames like `first`: push a frame, then pull."""
    import av

    graph = av.filter.Graph()
    last = graph.add_buffer(
        width=first.width, height=first.height, format=first.format, time_base=first.time_base or Fraction(1, 1000)
    )
    for name, arguments in (*steps, ("buffersink", "")):
        node = graph.add(name, arguments) if arguments else graph.add(name)
        last.link_to(node)
        last = node
    graph.configure()
    return graph


def encode(frames: Pixels, path: Path, fps: float, comment: str | None = None, crf: int | None = 14) -> None:
    """Write uint8 [F, H, W, 3] with `VideoWriter`, padding odd sizes by repeating the last row or column.

    Raises CannotWrite.
    """
    import numpy as np

    _, height, width, _ = frames.shape
    frames = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    with VideoWriter(path, frames.shape[2], frames.shape[1], fps, comment=comment, crf=crf) as writer:
        for picture in frames:
            writer.write(bt709_frame(picture))


def without_comment(path: Path) -> bytes:
    """Return the bytes of one of our mp4 files without its metadata, deterministically. Raises DataError."""
    import tempfile

    import av

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "video.mp4"
        with opened(path) as (source, stream), av.open(str(target), "w", options=dict(BARE)) as copy:
            track: Any = copy.add_stream_from_template(stream)
            for packet in source.demux(stream):
                if packet.dts is not None:
                    packet.stream = track
                    copy.mux(packet)
        return target.read_bytes()


def bt709_frame(picture: Pixels) -> Any:
    """Convert a uint8 [H, W, 3] picture to a PyAV frame for `VideoWriter`."""
    import av
    import numpy as np
    from av.video.reformatter import ColorRange, Colorspace

    return av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24").reformat(
        format="yuv420p",
        dst_colorspace=Colorspace.ITU709,
        src_color_range=ColorRange.JPEG,
        dst_color_range=ColorRange.MPEG,
    )
