"""Make the file of a part of a source video; the dataset's records stay as they are.

A part is always made from the master, so a span can be widened later, and a picture is never encoded more than twice.
The first cut links the whole clip's file to .masters/ID.mp4; parts are named by what they are (master, frames, crop,
rate), so the same part made twice is one file. Not covered: which parts are legal (cut), changing a dataset (cutting).
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.clips.records import REMOVED, Clip, file_sha256, read_clips
from workbench.dataset_builder.cuts.cut import MASTERS, Box, Cut, Master, checked, master_of, sampled_frames
from workbench.dataset_builder.cuts.seeking import frames_from
from workbench.dataset_builder.parallel import Tick, silent
from workbench.workspace import disk, writing


def make_part(dataset: Path, clip: Clip, cut: Cut, tick: Tick = silent) -> Clip:
    """The record of that part of the clip's master, whose file is made now unless it is there.

    The dataset's records stay as they are (`replace` puts parts into them). The file lies in clips/, or in
    .removed/clips/ if it was made before, from where a change brings it back. Raises ConfigError for an illegal span,
    crop or rate, DataError, CannotWrite, and whatever `tick` raises.
    """
    master = master_of(dataset, clip)
    cut = checked(cut, master)
    if cut == master.whole:
        return whole_clip(dataset, clip, master)
    name = part_name(master, cut)
    path = next((found for found in (dataset / name, dataset / REMOVED / name) if found.exists()), None)
    if path is None:
        _link(master.path, dataset / master.name)  # before anything is cut from it
        path = dataset / name
        _write(dataset, master, cut, path, tick)
    thumbnail = path.parent.parent / "thumbs" / f"{path.stem}.jpg"
    if not thumbnail.exists():
        media.thumbnail(path, thumbnail)
    # A picture of the source video's beginning is none of a part that begins elsewhere.
    lost = {"first_frame": ""} if clip.first_frame and (cut.start or cut.crop) else {}
    return clip.changed(
        **lost,
        file_name=name,
        fps=cut.fps or master.fps,
        frames=len(sampled_frames(cut, cut.fps or master.fps, master)),
        width=cut.crop[2] if cut.crop else master.width,
        height=cut.crop[3] if cut.crop else master.height,
        sha256=file_sha256(path),
        span=None if (cut.start, cut.end) == (0, master.frames) else (cut.start / master.fps, cut.end / master.fps),
        crop=cut.crop,
        master=master.name,
    )


def part_name(master: Master, cut: Cut) -> str:
    """The file name of a checked cut, below the dataset folder."""
    about = json.dumps([master.sha256, cut.start, cut.end, cut.crop, cut.fps])
    return f"clips/{hashlib.sha256(about.encode()).hexdigest()[:16]}.mp4"


def whole_clip(dataset: Path, clip: Clip, master: Master) -> Clip:
    """The record of the whole source video, with this clip's caption."""
    if not clip.master:
        return clip
    stem = Path(master.name).stem
    # A plain VideoFolder may have had it under another name than ours.
    was = [c for c in read_clips(dataset / REMOVED) if not c.master and c.sha256 == master.sha256]
    name = next((c.file_name for c in was if Path(c.file_name).stem == stem), f"clips/{stem}.mp4")
    first = next((found for c in was if (found := c.first_frame)), "")
    if not (dataset / REMOVED / name).exists():
        _link(master.path, dataset / name)
    return clip.changed(
        **({"first_frame": first} if first else {}),
        file_name=name,
        fps=master.fps,
        frames=master.frames,
        width=master.width,
        height=master.height,
        sha256=master.sha256,
        span=None,
        crop=None,
        master="",
    )


def _link(old: Path, new: Path) -> None:
    """The same file under a second name; a copy where the disk knows no links. One that is there stays."""
    with writing(new):
        new.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(old, new)
        except FileExistsError:
            return
        except OSError:
            temporary = new.parent / _temporary(new.name)
            shutil.copyfile(old, temporary)
            disk.replace(temporary, new)


def _temporary(name: str) -> str:
    """A name of this thread's own: two who make the same part at once do not meet."""
    return f".{name}.{os.getpid()}.{threading.get_ident()}.part"


def _write(dataset: Path, master: Master, cut: Cut, target: Path, tick: Tick) -> None:
    """Encode the part without visible loss (media.VideoWriter without a crf). Raises DataError, CannotWrite."""
    fps = cut.fps or master.fps
    wanted = sampled_frames(cut, fps, master)
    width, height = cut.crop[2:] if cut.crop else (master.width, master.height)
    temporary = dataset / MASTERS / _temporary(target.name)
    with contextlib.closing(frames_from(master.path, cut.start)) as frames:
        first = next(frames)
        cropped = _cropper(first[1], cut.crop)
        with media.VideoWriter(temporary, width, height, fps, like=first[1]) as writer:
            for number, frame in itertools.chain([first], frames):
                if number == wanted[writer.frames]:
                    writer.write(cropped(frame))
                tick()
                if writer.frames == len(wanted):
                    break
    with writing(target):
        disk.replace(temporary, target)


def _cropper(first: Any, crop: Box | None) -> Callable[[Any], Any]:
    """What cuts a PyAV frame like `first` to the crop."""
    import av

    if crop is None:
        return lambda frame: frame
    graph = av.filter.Graph()
    last = graph.add_buffer(width=first.width, height=first.height, format=first.format, time_base=first.time_base)
    left, top, width, height = crop
    for name, arguments in (("crop", f"{width}:{height}:{left}:{top}"), ("buffersink", None)):
        node = graph.add(name, arguments)
        last.link_to(node)
        last = node
    graph.configure()

    def cropped(frame: Any) -> Any:
        graph.push(frame)
        return graph.pull()

    return cropped
