"""What SAT's trainer reads from WebDataset shards, reimplemented without its packages.

Source: sat/sgm/webds.py and sat/data_video.py of CogVideo at commit e519ece.
"""

from __future__ import annotations

import io
import json
import random
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import decord
import numpy as np


@dataclass(frozen=True)
class Taken:
    """A sample that SAT would train on."""

    caption: str
    frames: np.ndarray


def members(tar: Path, meta_names: tuple[str, ...]) -> Iterator[tuple[str, bytes | Any]]:
    """tar_file_iterator_with_meta."""
    beside = tar.with_name(tar.name.split(".")[0] + ".meta.jsonl")
    rows = [json.loads(line) for line in beside.read_text().splitlines()] if beside.exists() else []
    meta = {row["key"]: row for row in rows}
    with tarfile.open(tar) as stream:
        for info in stream:
            if info.isreg() and not re.match(r"__[^/]*__($|/)", info.name):
                file = stream.extractfile(info)
                yield info.name, file.read()
                if info.name.endswith(".id"):
                    key = info.name.split(".")[0]
                    for name in meta_names:
                        yield f"{key}.{name}", meta.get(key.split("-$#%@&")[0], {}).get(name)


def samples(tar: Path, meta_names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """group_by_keys of the package webdataset."""
    current: dict[str, Any] = {}
    for name, data in members(tar, meta_names):
        match = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", name)
        if not match:
            continue
        key, suffix = match[1], match[2].lower()
        if current.get("__key__") != key:
            if current:
                yield current
            current = {"__key__": key}
        assert suffix not in current, f"duplicate file name in tar file {name}"
        current[suffix] = data
    if current:
        yield current


def taken(
    tar: Path, *, fps: float, num_frames: int, skip: int = 0, seed: int = 0, meta_names: tuple[str, ...] = ()
) -> list[Taken]:
    """process_fn_video applied to a shard: the samples it accepts."""
    found, chance = [], random.Random(seed)
    for r in samples(tar, meta_names):
        if "mp4" not in r:
            continue
        text = r.get("caption", b"")
        caption = text.decode("utf-8") if isinstance(text, bytes) else str(text)
        if r.get("duration") is None or r.get("fps") is None:
            continue
        duration, actual_fps = float(r["duration"]), float(r["fps"])
        if duration < num_frames / fps + 2 * skip / actual_fps:
            continue
        try:
            frames = load_video(r["mp4"], duration, num_frames, fps, actual_fps, skip, chance)
        except (ValueError, IndexError) as error:  # like SAT, skip the sample after an error
            print(error)
            continue
        found.append(Taken(caption, frames))
    return found


def load_video(
    data: bytes,
    duration: float,
    num_frames: int,
    wanted_fps: float,
    actual_fps: float,
    skip: int,
    chance: random.Random,
) -> np.ndarray:
    reader = decord.VideoReader(io.BytesIO(data))
    ori_vlen = min(int(duration * actual_fps) - 1, len(reader))
    max_seek = int(ori_vlen - skip - num_frames / wanted_fps * actual_fps)
    start = chance.randint(skip, max_seek + 1)
    end = int(start + num_frames / wanted_fps * actual_fps)
    indices = np.arange(start, end, (end - start) / num_frames).astype(int)
    frames = reader.get_batch(np.arange(start, end)).asnumpy()[indices - start]
    padding = np.repeat(frames[-1:], max(0, num_frames - len(frames)), axis=0)
    return np.concatenate([frames, padding])[:num_frames]
