"""Cut clips from their source videos: legal spans, crops and frame rates, encoding a part, and changing the dataset.

The master is the canonical clip of the whole source video; times and pixels refer to it. Every part is cut from the
master, so a span can be extended later, and no frame is encoded more than twice. The first cut links the whole clip's
file to .masters/ID.mp4. A part is named by a hash of master, frames, crop and rate, so making it twice gives one file.
Each change is an entry in the history and can be undone.

Companions are cut with the clip (`_carried`), and so are painted masks (`painted`). Control clip and mask are cut like
the clip, from those of the whole source video if there are any (.masters/ID.mask-HASH.mp4). The reference stays
unchanged. The last frame becomes that of the new end; one that came from elsewhere is dropped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from workbench.clips import media, sound
from workbench.clips.records import (
    COMPANION_NAMES,
    COMPANIONS,
    REMOVED,
    Clip,
    clip_file,
    file_sha256,
    frame_at,
    read_clips,
)
from workbench.dataset_builder import history, tasks
from workbench.dataset_builder.cuts import painted
from workbench.dataset_builder.tasks import OnProgress, Tick, silent
from workbench.errors import ConfigError, DataError
from workbench.workspace import disk, write_bytes, writing
from workbench.workspace.records import read_once

MASTERS = ".masters"
SMALLEST = 16  # pixels per side, as for imports
FEWEST = 2  # frames
Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Cut:
    """The part of its master that a clip shows: frames start to end (exclusive), crop as in Clip, fps if it differs."""

    start: int
    end: int
    crop: Box | None = None
    fps: float | None = None


@dataclass(frozen=True)
class Master:
    """A whole source video. path: where it is now. name: its path in the dataset once a part is cut from it."""

    name: str
    path: Path
    sha256: str
    frames: int
    fps: float
    width: int
    height: int

    @property
    def whole(self) -> Cut:
        return Cut(0, self.frames)


def master_of(dataset: Path, clip: Clip) -> Master:
    """Return a clip's source video, which is the clip itself while it is whole. Raises DataError if it is missing."""
    if clip.is_latents:
        raise DataError(f"{clip.name} is latents, which cannot be cut: cut the video, and compute its latents again")
    path = clip_file(dataset, clip.master or clip.file_name)
    if not path.is_file():
        raise DataError(f"the source video of {clip.name} is missing ({path}): import it again")
    about, sha256 = read_once(path, media.probe), read_once(path, file_sha256)
    name = clip.master
    if not name:
        name = f"{MASTERS}/{clip.id}.mp4"
        taken = dataset / name
        if taken.exists() and not taken.samefile(path) and file_sha256(taken) != sha256:
            name = f"{MASTERS}/{clip.id}-{sha256[:16]}.mp4"  # same-named clips in different folders of another tool
    return Master(name, path, sha256, about.frames, about.fps, about.width, about.height)


def cut_of(clip: Clip, master: Master) -> Cut:
    """Return the clip's current cut of its master."""
    if not clip.master:
        return master.whole
    start, end = (round(second * master.fps) for second in clip.span or (0, master.frames / master.fps))
    return Cut(start, end, clip.crop, None if abs(clip.fps / master.fps - 1) < 1e-4 else clip.fps)


def checked(cut: Cut, master: Master) -> Cut:
    """Check and normalize a cut, dropping a crop or rate that changes nothing. Raises ConfigError with a legal one."""
    fewest = min(FEWEST, master.frames)
    if not 0 <= cut.start <= cut.end - fewest <= master.frames - fewest:
        start = min(max(0, min(cut.start, cut.end)), master.frames - fewest)
        end = min(max(start + fewest, cut.start, cut.end), master.frames)
        raise ConfigError(
            f"the span is {_in_seconds(cut, master)}, but must lie within the source video's "
            f"{_in_seconds(master.whole, master)} and have {FEWEST} frames or more: "
            f"use {_in_seconds(Cut(start, end), master)}"
        )
    rate = None if cut.fps is None else float(Fraction(max(-1.0, min(1e9, cut.fps))).limit_denominator(1001))
    if rate is not None and not 0 < rate <= master.fps * (1 + 1e-6):
        raise ConfigError(
            f"fps is {cut.fps:g}, but the source video has only {master.fps:.6g}: use {master.fps:.6g} or less"
        )
    if rate is not None and (master.frames == 1 or abs(rate / master.fps - 1) < 1e-6):
        rate = None
    if rate is not None and len(sampled_frames(cut, rate, master)) < FEWEST:
        least = FEWEST * master.fps / (cut.end - cut.start)
        raise ConfigError(f"fps is {cut.fps:g}, which leaves fewer than {FEWEST} frames: use {least:.4g} or more")
    crop = None if cut.crop == (0, 0, master.width, master.height) else cut.crop
    if crop is not None:
        left, width = _nearest_side(crop[0], crop[2], master.width)
        top, height = _nearest_side(crop[1], crop[3], master.height)
        if crop != (left, top, width, height):
            raise ConfigError(
                f"the crop is {', '.join(map(str, crop))} (left, top, width, height), but must be even, inside "
                f"{master.width}x{master.height} and {SMALLEST}x{SMALLEST} or more: "
                f"use {left}, {top}, {width}, {height}"
            )
    return Cut(cut.start, cut.end, crop, rate)


def _in_seconds(cut: Cut, master: Master) -> str:
    return f"{cut.start / master.fps:.6g} to {cut.end / master.fps:.6g} s"


def _nearest_side(offset: int, length: int, whole: int) -> tuple[int, int]:
    """Return the nearest legal (offset, length): even, within `whole`, at least SMALLEST long."""
    length = min(max(length - length % 2, SMALLEST), whole)
    return min(max(0, offset - offset % 2), whole - length), length


def sampled_frames(cut: Cut, fps: float, master: Master) -> list[int]:
    """List the master's frames in a part: at a lower rate, the frame shown at the middle of each time slot."""
    step = max(1.0, master.fps / fps)
    count = int((cut.end - cut.start) / step + 1e-6)
    return [cut.start + int((slot + 0.5) * step + 1e-6) for slot in range(count)]


# ---- the file of a part ----------------------------------------------------------------------------------------------


def make_part(dataset: Path, clip: Clip, cut: Cut, tick: Tick = silent) -> Clip:
    """Return the record of a part, and encode its file unless it exists. The dataset's records do not change.

    The file is in clips/, or in .removed/clips/ if it was made before; `replace` then moves it back. Raises ConfigError
    for an illegal span, crop or rate, DataError, CannotWrite, and what `tick` raises.
    """
    master = master_of(dataset, clip)
    cut = checked(cut, master)
    if cut == master.whole:
        return whole_clip(dataset, clip, master)
    name = part_name(master, cut)

    def write(temporary: Path) -> None:
        fps = cut.fps or master.fps
        frames = sampled_frames(cut, fps, master)
        write_frames(master.path, frames, temporary, fps, box=cut.crop, tick=tick)
        begin = cut.start / master.fps
        sound.carry(master.path, temporary, [(begin, begin + len(frames) / fps)], tick)

    path = _file_of(dataset, name, master, write)
    # The source's first frame is not that of a part that starts later or is cropped.
    first = "" if cut.start or cut.crop else clip.first_frame
    part = _record(clip, master, cut, name, path, master.name, first)
    return _with_all(dataset, clip, part, master, cut, path, tick)


def make_louder(dataset: Path, clip: Clip, gain: float, tick: Tick = silent) -> Clip:
    """Return the record of a clip whose sound is louder by `gain` dB, and write its file unless it exists.

    It is cut from the clip's master, which keeps its own loudness: another cut brings that back. Raises as `make_part`.
    """
    master = master_of(dataset, clip)
    own = clip_file(dataset, clip.file_name)
    about = json.dumps([read_once(own, file_sha256), gain])
    name = f"clips/{hashlib.sha256(about.encode()).hexdigest()[:16]}.mp4"
    path = _file_of(dataset, name, master, lambda target: sound.amplify(own, target, gain, lambda: tick(0)))
    tick(clip.frames)
    heard = {"file_name": name, "sha256": read_once(path, file_sha256), "sound": sound.track_of(path)}
    louder, cut = clip.changed(**heard, master=master.name), cut_of(clip, master)
    return _with_all(dataset, clip, louder, master, cut, path, tick)


def _file_of(dataset: Path, name: str, master: Master, write: Callable[[Path], None]) -> Path:
    """Return where the file of a part is, written unless it exists, and give it a thumbnail."""
    path = next((found for found in (dataset / name, dataset / REMOVED / name) if found.exists()), None)
    if path is None:
        _link(master.path, dataset / master.name)
        path = dataset / name
        temporary = dataset / MASTERS / _temporary(path.name)
        write(temporary)
        with writing(path):
            disk.replace(temporary, path)
    thumbnail = path.parent.parent / "thumbs" / f"{path.stem}.jpg"
    if not thumbnail.exists():
        media.thumbnail(path, thumbnail)
    return path


def _record(clip: Clip, master: Master, cut: Cut, name: str, path: Path, master_name: str, first_frame: str) -> Clip:
    """Return a clip's record with a new file and cut; caption and tags stay. path: where the file is now."""
    return clip.changed(
        file_name=name,
        fps=cut.fps or master.fps,
        frames=len(sampled_frames(cut, cut.fps or master.fps, master)),
        width=cut.crop[2] if cut.crop else master.width,
        height=cut.crop[3] if cut.crop else master.height,
        sha256=read_once(path, file_sha256),
        sound=sound.track_of(path),
        span=None if (cut.start, cut.end) == (0, master.frames) else (cut.start / master.fps, cut.end / master.fps),
        crop=cut.crop,
        master=master_name,
        first_frame=first_frame,
    )


def part_name(master: Master, cut: Cut) -> str:
    """Return the file name of a checked cut, relative to the dataset folder."""
    about = json.dumps([master.sha256, cut.start, cut.end, cut.crop, cut.fps])
    return f"clips/{hashlib.sha256(about.encode()).hexdigest()[:16]}.mp4"


def whole_clip(dataset: Path, clip: Clip, master: Master) -> Clip:
    """Return the record of the whole source video, with this clip's caption."""
    if not clip.master:
        return clip
    stem = Path(master.name).stem
    # In a plain VideoFolder, the whole clip may have had another name.
    was = [c for c in read_clips(dataset / REMOVED) if not c.master and c.sha256 == master.sha256]
    name = next((c.file_name for c in was if Path(c.file_name).stem == stem), f"clips/{stem}.mp4")
    first = next((found for c in was if (found := c.first_frame)), "")
    if not (dataset / REMOVED / name).exists():
        _link(master.path, dataset / name)
    whole = _record(clip, master, master.whole, name, master.path, "", first or clip.first_frame)
    return _with_all(dataset, clip, whole, master, master.whole, master.path, silent)


def _link(old: Path, new: Path) -> None:
    """Hard-link a file, or copy it if the file system has no links. Keeps an existing target."""
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
    """Return a temporary name for this thread, so that two can make the same part at once."""
    return f".{name}.{os.getpid()}.{threading.get_ident()}.part"


def write_frames(
    source: Path,
    wanted: Sequence[int],
    target: Path,
    fps: float,
    *,
    scale: tuple[int, int] | None = None,
    box: Box | None = None,
    colors: Literal["kept", "gray", "inverted"] = "kept",
    tick: Tick = silent,
) -> None:
    """Encode frames of a canonical video without visible loss (media.VideoWriter without a crf).

    wanted: ascending frame numbers; repeated ones are written repeatedly.
    scale: width and height to scale to first; None to keep the size.
    box: part of the (scaled) picture to keep: left, top, width, height.
    colors: kept, gray, or inverted (gray with black and white swapped).

    Raises DataError if the source has fewer frames or is damaged, CannotWrite.
    """
    with contextlib.closing(media.frames_from(source, wanted[0])) as frames:
        first = next(frames, None)
        if first is None:
            raise DataError(f"frame {wanted[0]} of {source.name} cannot be read: import it again")
        steps = [("scale", f"{scale[0]}:{scale[1]}:flags=lanczos+accurate_rnd")] if scale else []
        if box:
            steps.append(("crop", f"{box[2]}:{box[3]}:{box[0]}:{box[1]}"))
        graph = media.filter_graph(first[1], steps) if steps else None
        width, height = box[2:] if box else scale or (first[1].width, first[1].height)
        with media.VideoWriter(target, width, height, fps, like=first[1]) as writer:
            for number, frame in itertools.chain([first], frames):
                if number == wanted[writer.frames]:
                    if graph:
                        graph.push(frame)
                        frame = graph.pull()
                    frame = _gray(frame, colors == "inverted") if colors != "kept" else frame
                    while writer.frames < len(wanted) and wanted[writer.frames] == number:
                        writer.write(frame)
                tick()
                if writer.frames == len(wanted):
                    break


def _gray(frame: Any, invert: bool) -> Any:
    """Convert a yuv420p PyAV frame to gray. invert: swap black and white."""
    import av
    import numpy as np

    planes = frame.to_ndarray()
    planes[frame.height :] = 128
    if invert:  # black is 16, white 235
        planes[: frame.height] = np.clip(251 - planes[: frame.height].astype(np.int16), 16, 235)
    return av.VideoFrame.from_ndarray(planes, format="yuv420p")


# ---- companions ------------------------------------------------------------------------------------------------------

OWN_DB = 30.0  # PSNR from which a last frame counts as the clip's own


def companion_name(clip_id: str, kind: str, sha256: str, suffix: str = ".mp4", folder: str = "clips") -> str:
    """Return a companion's file name, relative to the dataset folder; its hash ties it to the content."""
    return f"{folder}/{clip_id}.{kind}-{sha256[:8]}{suffix}"


def keep_beside(dataset: Path, made: Path, clip_id: str, kind: str, folder: str = "clips") -> str:
    """Move a new companion to its final name, and return that. Raises CannotWrite."""
    name = companion_name(clip_id, kind, file_sha256(made), made.suffix, folder)
    with writing(dataset / name):
        (dataset / name).parent.mkdir(parents=True, exist_ok=True)
        disk.replace(made, dataset / name)
    return name


def scratch_file(dataset: Path, suffix: str) -> Path:
    """Return a path for a file in progress. Files that a killed process leaves there are deleted later."""
    (dataset / MASTERS).mkdir(parents=True, exist_ok=True)
    return dataset / MASTERS / f"{_temporary('companion')}{suffix}"


def _with_all(dataset: Path, clip: Clip, part: Clip, master: Master, cut: Cut, path: Path, tick: Tick) -> Clip:
    """Cut the clip's companions and painted masks for the part; return its record with them."""
    if clip.companions:
        part = part.changed(**_carried(dataset, clip, part, master, cut, path, tick))
    old = cut_of(clip, master)
    box = _inside(cut.crop, old.crop, master)  # None: the part shows more than was painted on
    if box and part.id != clip.id:
        _carry_painted(dataset, clip, part, master, old, cut, box, tick)
    return part


def _carry_painted(
    dataset: Path, clip: Clip, part: Clip, master: Master, old: Cut, cut: Cut, box: Box, tick: Tick
) -> None:
    """Copy a clip's painted frames, and the facts about its mask, to a part of it.

    Newer frames that were painted on the part itself stay. box: what the part shows of the clip's picture.
    """
    ours, wanted = (sampled_frames(one, one.fps or master.fps, master) for one in (old, cut))
    at, own = ({frame: number for number, frame in enumerate(of)} for of in (wanted, ours))
    share = (cut.fps or master.fps) / master.fps
    # Frame of the clip -> the same frame of the part, or that of its time slot if a lower rate drops it.
    frames = {
        number: at.get(frame, min(int((frame - cut.start) * share + 1e-6), len(wanted) - 1))
        for number, frame in enumerate(ours)
        if cut.start <= frame < cut.end
    }
    of_part = [own.get(frame) for frame in wanted]
    chosen: dict[int, Path] = {}
    for frame, picture in painted.painted_frames(dataset, clip).items():
        if (number := frames.get(frame)) is not None and (of_part[number] == frame or number not in chosen):
            chosen[number] = picture
    left, top, width, height = box
    for number, picture in chosen.items():
        target = painted.folder_of(dataset, part) / painted.PAINTED / f"{number}.png"
        if not target.exists() or target.stat().st_mtime_ns < picture.stat().st_mtime_ns:
            write_bytes(target, media.png(painted.read_painted(picture)[top : top + height, left : left + width]))
    info, numbers = painted.info_of(dataset, clip), [one for one in of_part if one is not None]
    if not (part.mask and info.confidence) or len(numbers) < len(of_part) or part.mask in painted.infos(dataset, part):
        return
    tracked = ""
    if (info.soften or info.invert) and (raw := painted.folder_of(dataset, clip) / info.tracked).is_file():
        made = painted.next_tracked(dataset, part)
        whole = box == (0, 0, clip.width, clip.height)
        write_frames(raw, numbers, made, part.fps, box=None if whole else box, tick=tick)
        tracked = made.name
    known = {
        "painted": sorted({frames[frame] for frame in info.painted if frame in frames}),
        "confidence": [info.confidence[frame] for frame in numbers],
        "tracked": tracked,
    }
    painted.keep_info(dataset, part, info.model_copy(update=known))


def _carried(dataset: Path, clip: Clip, part: Clip, master: Master, cut: Cut, path: Path, tick: Tick) -> dict[str, Any]:
    """Make the companions of a part; return the fields of its record that name them. path: the part's own file."""
    old, found = cut_of(clip, master), dict[str, Any](dict.fromkeys(COMPANIONS, ""))
    masters: dict[str, str] = {}
    for kind, name in clip.companions.items():
        file = _there(dataset, name)
        if kind in ("control", "mask"):
            whole = _whole_of(dataset, clip, kind, master)
            if whole and not part.master:
                found[kind] = _linked(dataset, dataset / whole, part, kind)
                continue
            wanted, box = sampled_frames(cut, cut.fps or master.fps, master), cut.crop
            if whole:
                file, masters[kind] = dataset / whole, whole
            else:  # made for this clip alone: only parts inside it can have it
                own = {frame: at for at, frame in enumerate(sampled_frames(old, old.fps or master.fps, master))}
                box = _inside(cut.crop, old.crop, master)
                if file is None or box is None or not own.keys() >= set(wanted) or not _fits(file, clip):
                    continue
                wanted = [own[frame] for frame in wanted]
                box = None if box[2:] == (clip.width, clip.height) else box
            made = scratch_file(dataset, ".mp4")
            write_frames(file, wanted, made, part.fps, box=box, tick=tick)
            found[kind] = keep_beside(dataset, made, part.id, kind)
        elif file is None:
            continue
        elif kind == "reference" or (cut.end, cut.crop) == (old.end, old.crop):
            found[kind] = _linked(dataset, file, part, kind)
        elif _is_own_end(dataset, clip, file):
            made = scratch_file(dataset, ".png")
            write_bytes(made, media.png(media.read_frames(path, [part.frames - 1])[0]))
            found[kind] = keep_beside(dataset, made, part.id, kind)
        elif cut.end == old.end and (box := _inside(cut.crop, old.crop, master)):
            from PIL import Image

            with Image.open(file, formats=["PNG"]) as picture:
                left, top, width, height = box
                made = scratch_file(dataset, ".png")
                picture.crop((left, top, left + width, top + height)).save(made, "PNG")
            found[kind] = keep_beside(dataset, made, part.id, kind)
    return {**found, "companion_masters": masters or None}


def _there(dataset: Path, name: str) -> Path | None:
    """Return where a companion's file is, None if it is lost."""
    return next((path for path in (clip_file(dataset, name), dataset / REMOVED / name) if path.is_file()), None)


def _whole_of(dataset: Path, clip: Clip, kind: str, master: Master) -> str:
    """Return the control clip or mask of the whole source video, linked next to the master; "" if there is none."""
    if clip.master:
        name = (clip.companion_masters or {}).get(kind, "")
        return name if name and clip_file(dataset, name).is_file() else ""
    if (file := _there(dataset, clip.companions[kind])) is None or not _fits(file, master):
        return ""
    name = companion_name(Path(master.name).stem, kind, file_sha256(file), folder=MASTERS)
    _link(file, dataset / name)
    return name


def _fits(file: Path, video: Clip | Master) -> bool:
    """Whether a control clip or mask has the length and size of its video."""
    about = media.probe(file)
    return (about.frames, about.width, about.height) == (video.frames, video.width, video.height)


def _linked(dataset: Path, file: Path, part: Clip, kind: str) -> str:
    """Link a companion to a part and return its name. If the part's file is in .removed, it is moved back later."""
    name = companion_name(part.id, kind, file_sha256(file), file.suffix)
    if not (dataset / REMOVED / name).exists():
        _link(file, dataset / name)
    return name


def _inside(box: Box | None, outer: Box | None, master: Master) -> Box | None:
    """Return a box relative to an outer one, None unless it lies inside. None as an argument is the whole picture."""
    left, top, width, height = box or (0, 0, master.width, master.height)
    at, down, wide, tall = outer or (0, 0, master.width, master.height)
    fits = at <= left and down <= top and left + width <= at + wide and top + height <= down + tall
    return (left - at, top - down, width, height) if fits else None


def _is_own_end(dataset: Path, clip: Clip, picture: Path) -> bool:
    """Whether a last frame is the clip's own, as opposed to a picture from elsewhere."""
    import numpy as np
    from PIL import Image

    own = media.read_frames(clip_file(dataset, clip.file_name), [clip.frames - 1])[0]
    with Image.open(picture, formats=["PNG"]) as image:
        given = np.asarray(image.convert("RGB"))
    return given.shape == own.shape and media.psnr(given, own) >= OWN_DB


def left_behind(clip: Clip, part: Clip) -> str:
    """Describe the companions that a part lost; "" if there are none."""
    lost = [COMPANION_NAMES[kind] for kind in clip.companions if kind not in part.companions]
    return f"without its {' and '.join(lost)}, which covered the previous part only" if lost else ""


# ---- changing clips --------------------------------------------------------------------------------------------------

Cuts = Sequence[tuple[Clip, Sequence[Cut]]]  # clips and the parts that replace them
# The fields of a record that a cut sets; the others are the clip's own.
FACTS = {"file_name", "fps", "frames", "width", "height", "sha256", "sound", "span", "crop", "master", "first_frame"}
FACTS |= {*COMPANIONS, "companion_masters"}


def trim(dataset: Path, clip: Clip, start_seconds: float, end_seconds: float) -> Clip:
    """Change a clip's span, to the nearest frames of its source video; crop and rate stay."""
    return trim_and_crop(dataset, clip, (start_seconds, end_seconds), False, None)


def trim_and_crop(dataset: Path, clip: Clip, span: tuple[float, float] | None, crops: bool, box: Box | None) -> Clip:
    """Change span and crop at once. span: None to keep it. crops: whether to apply `box`; None is the whole picture."""
    new = _spanning(dataset, clip, *span) if span else cut_of(clip, master_of(dataset, clip))
    new = dataclasses.replace(new, crop=box) if crops else new
    what = " and ".join(["span"] * bool(span) + ["crop"] * crops)
    return _recut_all(dataset, f"{what} of {clip.name}", [(clip, [new])])[0]


def split(dataset: Path, clip: Clip, spans: Sequence[tuple[float, float]]) -> list[Clip]:
    """Replace a clip with one per span, in seconds of its source video; crop and rate stay. Raises as `trim`."""
    if master_of(dataset, clip).frames == 1:
        raise ConfigError(f"{clip.name} is a picture: only videos can be split")
    new = [_spanning(dataset, clip, start, end) for start, end in spans]
    return _recut_all(dataset, f"{clip.name} split into {len(new)}", [(clip, new)])


def crop(dataset: Path, clips: Sequence[Clip], box: Box | None) -> list[Clip]:
    """Crop clips to a box (left, top, width, height in the source video's pixels); None is the whole picture."""
    new = [(clip, [dataclasses.replace(cut_of(clip, master_of(dataset, clip)), crop=box)]) for clip in clips]
    return _recut_all(dataset, f"crop of {named(clips)}", new)


def set_fps(dataset: Path, clips: Sequence[Clip], fps: float | None) -> list[Clip]:
    """Lower the frame rate of clips by dropping frames; None is the source video's own."""
    new = [(clip, [dataclasses.replace(cut_of(clip, master_of(dataset, clip)), fps=fps)]) for clip in clips]
    return _recut_all(dataset, f"frame rate of {named(clips)}", new)


def reset_cut(dataset: Path, clips: Sequence[Clip]) -> list[Clip]:
    """Restore the whole source videos. Of several parts of one video, the first becomes it; the others are removed."""
    parts: dict[str, list[Clip]] = {}
    seen: set[str] = set()
    for clip in clips:
        record = whole_clip(dataset, clip, master_of(dataset, clip))
        parts[clip.file_name] = [] if record.file_name in seen else [record]
        seen.add(record.file_name)
    return replace(dataset, f"{named(clips)} back to the whole source video", parts)


def named(clips: Sequence[Clip]) -> str:
    """Return a clip's name, or the number of clips."""
    return clips[0].name if len(clips) == 1 else f"{len(clips)} clips"


def _spanning(dataset: Path, clip: Clip, start: float, end: float) -> Cut:
    """Return a clip's cut with another span, in seconds."""
    master = master_of(dataset, clip)
    return dataclasses.replace(cut_of(clip, master), start=frame_at(start, master.fps), end=frame_at(end, master.fps))


def _recut_all(dataset: Path, what: str, cuts: Cuts) -> list[Clip]:
    """Replace clips with parts as one change, all or none. Raises as `make_part` and `replace`."""
    for clip, wanted in cuts:  # check all before making any
        for cut in wanted:
            checked(cut, master_of(dataset, clip))
    parts = {clip.file_name: [make_part(dataset, clip, cut) for cut in wanted] for clip, wanted in cuts}
    return replace(dataset, what, parts)


def replace(dataset: Path, what: str, parts: Mapping[str, Sequence[Clip]]) -> list[Clip]:
    """Replace clips with parts from `make_part` as one change; return the parts' records.

    Parts get the caption and tags that the clip has now. Raises ConfigError if a clip was removed or a part is already
    in the dataset, CannotWrite.
    """
    now = {clip.file_name: clip for clip in read_clips(dataset)}
    for name, new in parts.items():
        if twice := [one for one in new if one.file_name in now and one.file_name not in parts]:
            called = now[name].name if name in now else twice[0].name
            raise ConfigError(
                f"the part {twice[0].name} is already in the dataset: remove {called}, or choose another span"
            )
    fresh = {
        name: [now.get(name, one).changed(**{fact: getattr(one, fact) for fact in FACTS}) for one in new]
        for name, new in parts.items()  # history.change refuses a clip that was removed
    }
    changed = {name: new for name, new in fresh.items() if new != [now.get(name)]}
    lost = [left_behind(now[name], one) for name, new in changed.items() if name in now for one in new]
    if lost := list(dict.fromkeys(filter(None, lost))):
        what = f"{what}, {'; '.join(lost)}"
    if changed:
        history.change(dataset, what, changed)
    return [one for new in fresh.values() for one in new]


# ---- many clips ------------------------------------------------------------------------------------------------------


def recut(
    dataset: Path, cuts: Cuts, what: Callable[[int, int], str], on_progress: OnProgress = silent
) -> tuple[int, int, dict[str, str]]:
    """Replace many clips with parts as one change, encoding in parallel. what: (clips, parts) -> the change in words.

    A clip whose parts cannot be made stays unchanged. Parts that are already in the dataset are skipped; a clip with
    no other parts stays and is reported. Encoded parts survive an interruption, and the next call reuses them.

    Return how many clips were replaced, with how many parts, and why others failed (by file name).
    """
    failed: dict[str, str] = {}
    new: list[tuple[Clip, Cut]] = []
    taken = {clip.file_name for clip in read_clips(dataset)} - {clip.file_name for clip, _ in cuts}
    for clip, wanted in cuts:
        try:
            master = master_of(dataset, clip)
            by_name = {part_name(master, cut): cut for cut in (checked(cut, master) for cut in wanted)}
            fresh = {name: cut for name, cut in by_name.items() if name not in taken}
            if not fresh:
                raise ConfigError("its parts are already in the dataset: remove it")
        except (ConfigError, DataError) as error:
            failed[clip.file_name] = str(error)
        else:
            taken |= fresh.keys()
            new += [(clip, cut) for cut in fresh.values()]

    def make(item: tuple[Clip, Cut], tick: Tick) -> Clip | str:
        try:
            return make_part(dataset, *item, tick)
        except DataError as error:
            return str(error)

    parts = tasks.each("cutting", sum(cut.end - cut.start for _, cut in new), new, make, on_progress)
    records: dict[str, list[Clip]] = {}
    for (clip, _), part in zip(new, parts, strict=True):
        if isinstance(part, str):
            failed[clip.file_name] = part
        else:
            records.setdefault(clip.file_name, []).append(part)
    now = {clip.file_name for clip in read_clips(dataset)}  # some may have been removed in the meantime
    records = {name: made for name, made in records.items() if name not in failed and name in now}
    count = sum(map(len, records.values()))
    if records:
        replace(dataset, what(len(records), count), records)
    return len(records), count, failed
