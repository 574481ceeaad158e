"""Compare reading chosen frames of canonical clips with PyAV, decord, and the product's choice between them.

    python benchmarks/clip_reading.py

Access patterns: the start of the clip, a window anywhere, every other frame, frames spread over the clip, a single
frame. Both readers take turns on every list, as in training: open the file, read the frames. "PyAV" and "decord" are
milliseconds of CPU time, medians over the lists; "ratio" is decord over PyAV; "taken" is the choice of
media.read_own_clip; "wrong" counts lists whose pixels differ from decoding from the start. torchcodec is measured, too,
if it is installed.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import arguments, report

from workbench.clips import media
from workbench.clips.media import suits_decord

WINDOW = 49
FPS = 24
SIZES = ((256, 256), (720, 480), (1280, 720))
LENGTHS = (60, 240, 1200)
Reader = Callable[[Path, Sequence[int]], Any]


def write_clip(path: Path, size: tuple[int, int], frames: int) -> Path:
    """Write a canonical clip with detail and grain."""
    generator = np.random.default_rng(frames)
    width, height = size
    coarse = generator.integers(0, 255, (height // 8 + 1, (width + 240) // 8 + 1, 3), np.uint8)
    ground = coarse.repeat(8, axis=0).repeat(8, axis=1)
    grain = generator.integers(0, 12, (height, width, 3), np.uint8)
    with media.VideoWriter(path, width, height, FPS) as writer:
        for number in range(frames):
            left = 2 * (number % 120)
            part = ground[:height, left : left + width] // 2 + 60
            writer.write(media.bt709_frame(part + np.roll(grain, number, axis=1)))
    return path


def ways(frames: int, chance: random.Random) -> dict[str, list[int]]:
    """Return a list of frames for each access pattern."""
    window = min(WINDOW, frames)
    first, wide = chance.randrange(frames - window + 1), chance.randrange(max(1, frames - 2 * window + 1))
    return {
        "start": list(range(window)),
        "window": list(range(first, first + window)),
        "every other": list(range(wide, min(frames, wide + 2 * window), 2)),
        "spread": [round(number * (frames - 1) / 7) for number in range(8)],
        "one": [chance.randrange(frames)],
    }


def readers() -> dict[str, Reader]:
    """Return the installed readers by name."""
    found: dict[str, Reader] = {"PyAV": media.read_frames}
    try:
        import decord
    except ImportError as error:
        print(f"decord is left out: {error}")
    else:
        threads = {"num_threads": media.THREADS}
        found["decord"] = lambda path, indices: decord.VideoReader(str(path), **threads).get_batch(indices).asnumpy()
    try:
        from torchcodec.decoders import VideoDecoder
    except (ImportError, RuntimeError, OSError) as error:
        print(f"torchcodec is left out: {str(error).splitlines()[0]}")
        return found

    def read_torchcodec(path: Path, indices: Sequence[int]) -> Any:
        decoder = VideoDecoder(str(path), dimension_order="NHWC", num_ffmpeg_threads=media.THREADS)
        return decoder.get_frames_at(indices=list(indices)).data.numpy()

    return {**found, "torchcodec": read_torchcodec}


def compare(path: Path, size: tuple[int, int], frames: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row per access pattern."""
    known, chance = readers(), random.Random(0)
    truth = np.stack([picture for _, picture in media.decode(path)])
    spent: dict[str, dict[str, list[float]]] = {}
    wrong: dict[str, int] = {}
    for _ in range(rounds):
        for way, indices in ways(frames, chance).items():
            for name in chance.sample(list(known), len(known)):
                began = time.process_time()
                pixels = known[name](path, indices)
                spent.setdefault(way, {}).setdefault(name, []).append(1000 * (time.process_time() - began))
                wrong[way] = wrong.get(way, 0) + (not np.array_equal(pixels, truth[indices]))
    rows = []
    for way, times in spent.items():
        middle = {name: statistics.median(values) for name, values in times.items()}
        decord = middle.get("decord", float("nan"))
        own = suits_decord((frames, size[1], size[0]), ways(frames, chance)[way])
        row = {"size": f"{size[0]}x{size[1]}", "frames": frames, "way": way, **middle, "ratio": decord / middle["PyAV"]}
        rows.append({**row, "taken": "decord" if own else "PyAV", "wrong": wrong[way]})
    return rows


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], sizes=[SIZES[0]], lengths=[60], rounds=1)
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in getattr(options, "sizes", SIZES):
            for frames in getattr(options, "lengths", LENGTHS):
                path = write_clip(Path(folder) / f"{size[0]}-{frames}.mp4", size, frames)
                rows += compare(path, size, frames, options.rounds)
    report(rows, options.json)


if __name__ == "__main__":
    main()
