"""Frames per second of random windows of 49 frames from canonical clips: ours (PyAV), decord, torchcodec.

Every window is read by each reader, in turn, as training reads it: open the file, take the frames. Their pixels must be
those of decoding the file from its start. What is not installed is left out.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import arguments, report

from workbench import media

WINDOW = 49
CLIP_FRAMES, FPS = 240, 24
SIZES = ((720, 480), (1280, 720))
Reader = Callable[[Path, Sequence[int]], Any]


def write_clip(path: Path, size: tuple[int, int], seed: int) -> Path:
    """A canonical clip with detail and grain."""
    generator = np.random.default_rng(seed)
    width, height = size
    coarse = generator.integers(0, 255, (height // 8, (width + 2 * CLIP_FRAMES) // 8 + 1, 3), np.uint8)
    ground = coarse.repeat(8, axis=0).repeat(8, axis=1)
    grain = generator.integers(0, 12, (height, width, 3), np.uint8)
    with media.Writer(path, width, height, FPS) as writer:
        for number in range(CLIP_FRAMES):
            part = ground[:height, 2 * number : 2 * number + width] // 2 + 60
            writer.write(media.bt709_frame(part + np.roll(grain, number, axis=1)))
    return path


def readers() -> dict[str, Reader]:
    """Those that are installed, by name."""
    found: dict[str, Reader] = {"ours (PyAV)": media.read_frames}
    try:
        import decord
    except ImportError as error:
        print(f"decord is left out: {error}")
    else:
        threads = {"num_threads": media.opening.THREADS}
        found["decord"] = lambda path, indices: decord.VideoReader(str(path), **threads).get_batch(indices).asnumpy()
    try:
        from torchcodec.decoders import VideoDecoder
    except (ImportError, RuntimeError, OSError) as error:
        print(f"torchcodec is left out: {str(error).splitlines()[0]}")
        return found

    def read_torchcodec(path: Path, indices: Sequence[int]) -> Any:
        decoder = VideoDecoder(str(path), dimension_order="NHWC", num_ffmpeg_threads=media.opening.THREADS)
        return decoder.get_frames_at(indices=list(indices)).data.numpy()

    return {**found, "torchcodec": read_torchcodec}


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--clips", type=int, default=4, help="of each size")
    parser.add_argument("--windows", type=int, default=40, help="of each size")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            names = [Path(folder) / f"{size[0]}-{number}.mp4" for number in range(options.clips)]
            clips = [write_clip(path, size, number) for number, path in enumerate(names)]
            rows += compare(clips, size, options.windows)
    report(rows, options.json)


def compare(clips: Sequence[Path], size: tuple[int, int], windows: int) -> list[dict[str, Any]]:
    """Rows of one size: each reader's frames a second and how far its pixels are from the truth."""
    known = readers()
    chance = random.Random(0)
    seconds, wrong = dict.fromkeys(known, 0.0), dict.fromkeys(known, 0)
    for path in clips:
        truth = np.stack([picture for _, picture in media.decode(path)])
        for _ in range(windows // len(clips)):
            first = chance.randrange(CLIP_FRAMES - WINDOW + 1)
            indices = list(range(first, first + WINDOW))
            for name in chance.sample(list(known), len(known)):
                began = time.perf_counter()
                frames = known[name](path, indices)
                seconds[name] += time.perf_counter() - began
                wrong[name] += not np.array_equal(frames, truth[first : first + WINDOW])
    count = windows // len(clips) * len(clips)
    return [
        {
            "size": f"{size[0]}x{size[1]}",
            "reader": name,
            "frames a second": count * WINDOW / seconds[name],
            "windows": count,
            "windows with wrong pixels": wrong[name],
        }
        for name in known
    ]


if __name__ == "__main__":
    main()
