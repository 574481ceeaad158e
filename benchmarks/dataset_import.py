"""Compare the import of foreign clips with a plain decode-and-encode loop, and with the diffusers example's loader.

The clips are generated: 5 seconds of 1280x720 at 24 fps with sound, in Matroska like screen recordings, so that each
must be re-encoded (the video of an mp4 would be copied). A few moving scenes with grain are encoded; the other clips
differ from them by a few bytes, which makes them different content for an import. Ours is the product's import: child
processes, results, checksums, thumbnails, records. The plain loop decodes and encodes with PyAV with the same settings
in as many processes. They take turns on the same clips. The loader is the example's VideoDataset (decord, 49 frames,
480x720). It keeps every clip in memory as float32, so it gets fewer clips. Peak memory is that of all processes
together.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from common import arguments, report

FPS = 24
SCENES = 8
LOADED_FRAMES, LOADED_SIZE = 49, (480, 720)


# ---- the clips ------------------------------------------------------------------------------------------------------


def write_clips(folder: Path, count: int, size: tuple[int, int], seconds: int) -> list[Path]:
    """Write `count` different files of SCENES different scenes."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(count):
        path = folder / f"{number:04}.mkv"
        if number < SCENES:
            write_scene(path, number, size, seconds)
        else:
            void = b"\xec\x88" + number.to_bytes(8, "big")  # EBML's void element
            path.write_bytes(paths[number % SCENES].read_bytes() + void)
        paths.append(path)
    return paths


def write_scene(path: Path, seed: int, size: tuple[int, int], seconds: int) -> None:
    """Write a camera pan over a texture with detail at every scale, sensor grain and a hum."""
    import av
    import numpy as np

    random = np.random.default_rng(seed)
    wide, height = size
    width = wide + 4 * FPS * seconds
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None])
    waves = np.exp(2j * np.pi * random.random((height, width))) / np.maximum(frequency, 1 / width) ** 1.2
    field = np.fft.ifft2(waves).real
    luma = 120 + 45 * (field - field.mean()) / field.std()
    ground = np.stack([luma, 0.8 * luma + 20, 0.6 * luma + 50], axis=-1)
    grain = [random.normal(0, 3, (height, wide, 1)) for _ in range(5)]
    with av.open(str(path), "w") as file:
        stream: Any = file.add_stream("libx264", rate=FPS, options={"crf": "20", "preset": "veryfast"})
        stream.width, stream.height, stream.pix_fmt = wide, height, "yuv420p"
        sound: Any = file.add_stream("aac", rate=44100)
        for number in range(FPS * seconds):
            picture = ground[:, 4 * number : 4 * number + wide] + grain[number % len(grain)]
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture.clip(0, 255).astype(np.uint8), "rgb24")))
        file.mux(stream.encode())
        for number in range(44100 * seconds // 1024):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
            frame.sample_rate, frame.pts = 44100, number * 1024
            file.mux(sound.encode(frame))
        file.mux(sound.encode())


# ---- the three readers ----------------------------------------------------------------------------------------------


def ours(paths: Sequence[Path], folder: Path, cores: int) -> None:
    """Import the clips into a new dataset."""
    from workbench.dataset_builder.ingest import intake
    from workbench.dataset_builder.sources.tree import SourceFile

    results = intake.ingest(folder, [SourceFile(path) for path in paths])
    wrong = [result.sentence for result in results if result.notes != ("sound re-encoded",)]
    assert not wrong, wrong[0]


def plain(paths: Sequence[Path], folder: Path, cores: int) -> None:
    """Decode and encode each clip, with the low priority of an import."""
    folder.mkdir()
    with multiprocessing.Pool(cores, os.nice, (10,)) as pool:
        pool.starmap(recode, [(path, folder / f"{path.stem}.mp4") for path in paths], chunksize=1)


def recode(source: Path, target: Path) -> None:
    import av

    from workbench.clips.media import FAITHFUL, KEYFRAME_EVERY
    from workbench.clips.video_files import THREADS

    with av.open(str(source)) as read, av.open(str(target), "w", options={"movflags": "+faststart"}) as written:
        options = {**FAITHFUL, "bf": "0", "g": str(KEYFRAME_EVERY)}
        stream: Any = written.add_stream("libx264", rate=FPS, options=options)
        given = read.streams.video[0]
        stream.width, stream.height, stream.pix_fmt = given.width, given.height, "yuv420p"
        for context in (given.codec_context, stream.codec_context):
            context.thread_count = THREADS
        given.thread_type = "AUTO"
        for frame in read.decode(video=0):
            frame.pict_type = av.video.frame.PictureType.NONE
            written.mux(stream.encode(frame))
        written.mux(stream.encode())


def loader(paths: Sequence[Path], folder: Path, cores: int) -> None:
    """Load the videos as the example does before training, which keeps all of them in memory."""
    import decord
    import torch

    decord.bridge.set_bridge("torch")
    videos = []
    for path in paths:
        reader = decord.VideoReader(uri=path.as_posix())
        count = len(reader)
        every = max(1, count // LOADED_FRAMES)
        frames = reader.get_batch(list(range(0, count, every)))[:LOADED_FRAMES]
        frames = ((frames - 127.5) / 127.5).permute(0, 3, 1, 2)
        height, width = LOADED_SIZE
        scale = max(height / frames.shape[2], width / frames.shape[3])
        size = (round(frames.shape[2] * scale), round(frames.shape[3] * scale))
        frames = torch.nn.functional.interpolate(frames, size, mode="bicubic", antialias=True, align_corners=False)
        top, left = (size[0] - height) // 2, (size[1] - width) // 2
        videos.append(frames[:, :, top : top + height, left : left + width].contiguous())


ROLES: dict[str, Callable[[Sequence[Path], Path, int], None]] = {"ours": ours, "plain": plain, "loader": loader}


# ---- measuring ------------------------------------------------------------------------------------------------------


def measured(role: str, paths: Sequence[Path], folder: Path, cores: int) -> tuple[float, float, float]:
    """Return (seconds, CPU seconds, peak memory in GB) of a separate process with all its children."""
    command = [sys.executable, __file__, "--role", role, "--folder", str(folder), "--cores", str(cores)]
    began, before, peak = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN), 0
    with subprocess.Popen([*command, *map(str, paths)]) as process:
        while process.poll() is None:
            peak = max(peak, memory(psutil.Process(process.pid)))
            time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{role} failed with {process.returncode}")
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak / 1e9


def memory(process: psutil.Process) -> int:
    """Return the bytes held by a process and its descendants."""
    total = 0
    try:
        for one in (process, *process.children(recursive=True)):
            total += one.memory_info().rss
    except psutil.NoSuchProcess:
        pass
    return total


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], clips=2, rounds=1, loaded=1, size=(96, 64), seconds=1)
    parser.add_argument("--clips", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=4, help="turns of the two through the clips")
    parser.add_argument("--size", type=int, nargs=2, default=(1280, 720), help="width and height of the clips")
    parser.add_argument("--seconds", type=int, default=5, help="length of the clips")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--loaded", type=int, default=8, help="clips for the loader, which keeps 0.2 GB of each")
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("paths", type=Path, nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
        ROLES[options.role](options.paths, options.folder, options.cores)
        return
    with tempfile.TemporaryDirectory() as name:
        compare(options, Path(name))


def compare(options: argparse.Namespace, base: Path) -> None:
    paths = write_clips(base / "given", options.clips, tuple(options.size), options.seconds)
    found: dict[str, list[tuple[float, float, float]]] = {"ours": [], "plain": []}
    for number in range(options.rounds):
        part = paths[number :: options.rounds]
        for role in sorted(found, reverse=bool(number % 2)):  # alternate which one is first
            found[role].append(measured(role, part, base / f"{role}{number}", options.cores))
    loaded = min(options.loaded, len(paths))
    found["loader"] = [measured("loader", paths[:loaded], base, options.cores)]
    names = {
        "ours": "import into a dataset",
        "plain": "plain PyAV decode and encode",
        "loader": "load as the diffusers example does",
    }
    rows, spent = [], {}
    for role, results in found.items():
        count = loaded if role == "loader" else len(paths)
        seconds, computing = (sum(column) for column in list(zip(*results, strict=True))[:2])
        spent[role] = (seconds, computing)
        row = {"what": names[role], "clips": count, "seconds": seconds, "clips a second": count / seconds}
        rows.append({**row, "CPU seconds": computing, "peak memory GB": max(result[2] for result in results)})
    ratio, computing_ratio = (ours / plain for ours, plain in zip(spent["ours"], spent["plain"], strict=True))
    report(rows, options.json, ratio=ratio, cpu_ratio=computing_ratio, cores=options.cores)
    print(f"ours over the plain loop's: {ratio:.3f} of the seconds, {computing_ratio:.3f} of the computing")


if __name__ == "__main__":
    main()
