"""Scenes as one video: a sample of its own, in which each scene lacks the frames that it took over from the one before.

The queue requests it behind the scenes, and the worker writes it. Not covered: generating the scenes, each from the
last frames of the one before (queue, worker).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.errors import ConfigError
from workbench.sampler.samples import video_path, write_sample
from workbench.sampler.settings import MARK, SampleSettings
from workbench.workspace import Workspace, read_object


def check_target(target: Path) -> None:
    """Refuse a file that no video can be written to, before anything is generated. Raises ConfigError."""
    if target.suffix.lower() != ".mp4":
        raise ConfigError(f"join is {str(target)!r}, which is no mp4: give a name that ends in .mp4")
    if target.exists():
        raise ConfigError(f"join is {str(target)!r}, which exists: name a new file")


def chains_of(count: int, chains: int) -> list[range]:
    """Of so many samples, each going on from the one `chains` before it: the numbers of those that are one story."""
    return [range(first, count, chains) for first in range(chains)] if 0 < chains < count else []


def joined_settings(scenes: Sequence[SampleSettings]) -> SampleSettings:
    """The settings that make a story again: those of its first scene, with a line of the prompt a scene.

    What differs from scene to scene, its number of frames and how many it takes over, is in its line.
    """
    frames, kept = (
        found.pop() if len(found := {getattr(one, name) for one in scenes}) == 1 else None
        for name in ("frames", "kept_frames")
    )
    lines = []
    for one in scenes:
        own = [] if one.frames == frames else [str(one.frames)]
        own += [] if one.kept_frames == kept else [f"keep {one.kept_frames}"]
        lines.append(f"{one.prompt}{MARK}{' '.join(own)}" if own else one.prompt)
    return scenes[0].changed(prompt="\n".join(lines), frames=frames, kept_frames=kept)


def join(workspace: Workspace, scenes: Sequence[str], settings: SampleSettings, target: Path) -> None:
    """Write the samples of these ids as one. Raises ConfigError where one has no video, DataError, CannotWrite."""
    import numpy as np

    parts: list[np.ndarray] = []
    records: list[dict[str, Any]] = []
    for number, sample_id in enumerate(scenes, 1):
        path = video_path(workspace, sample_id)
        record = read_object(path.with_suffix(".json"))
        if not (record and path.is_file()):
            raise ConfigError(f"scene {number}, {sample_id}, has no video: join the scenes again once it has")
        kept = int(record.get("kept_frames", 0)) if records else 0
        parts.append(media.read_frames(path, range(kept, media.probe(path).frames)))
        records.append(record)
    frames = np.concatenate(parts)
    own = {
        "settings": settings.model_dump(mode="json"),
        "prompt": settings.prompt,
        "frames": len(frames),
        "seconds": round(sum(float(one.get("seconds") or 0) for one in records), 3),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "scenes": [
            {"id": sample_id, "prompt": str(record.get("prompt", "")), "frames": len(part)}
            for sample_id, record, part in zip(scenes, records, parts, strict=True)
        ],
    }
    write_sample(
        target, frames, media.probe(video_path(workspace, scenes[0])).fps, {**records[0], **own}, workspace.root
    )
