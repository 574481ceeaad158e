"""Companions of a clip: a control clip, a reference, a mask, a last frame.

    clips/ID.control-1a2b3c4d.mp4       named by the clip and the start of the file's hash; it never changes
    clips/ID.reference-1a2b3c4d.mp4     or .png for a picture
    clips/ID.mask-1a2b3c4d.mp4          white is inside, gray is a weight
    clips/ID.last_frame-1a2b3c4d.png
    .masters/ID.mask-1a2b3c4d.mp4       for the whole source video; those of its parts are cut from it

The clip's record names them (`Clip.companions`). They are cut with the clip (cuts.cutting), removed and restored with
it (history), imported and exported. A new mask is a new file, so undo can bring the old one back. The task "make"
derives them from the clips themselves (clips.made).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from workbench import jobs
from workbench.clips import made as makers
from workbench.clips import media
from workbench.clips.records import COMPANION_NAMES, COMPANIONS, Clip, clip_file, clips_named, read_clips
from workbench.dataset_builder import history, tasks
from workbench.dataset_builder.cuts import cutting
from workbench.dataset_builder.cuts.cutting import named
from workbench.dataset_builder.ingest.canonical import CanonicalClip, convert
from workbench.dataset_builder.ingest.pictures import fitted_picture, read_picture, same_aspect
from workbench.dataset_builder.settings import MakeSettings
from workbench.dataset_builder.tasks import Tick, silent
from workbench.display.quantities import counted
from workbench.errors import CannotWrite, ConfigError, DataError
from workbench.jobs import queue
from workbench.jobs.devices import Device, gpus_of
from workbench.jobs.limited import ChildLost, LimitedChild
from workbench.workspace import Workspace, write_bytes
from workbench.workspace.records import read_once

WORKER = "workbench.dataset_builder.ingest.worker"
SECONDS_PER_FRAME = 60.0  # timeout for a new frame
RATE = 1e-3  # relative difference allowed between the frame rates of a clip and its mask


def companion_path(dataset: Path, clip: Clip, kind: str) -> Path | None:
    """Return the clip's companion of a kind, or None. Raises ConfigError for an unknown kind, DataError if lost."""
    name = clip.companions.get(_checked_kind(kind))
    if name is None:
        return None
    if not (path := clip_file(dataset, name)).is_file():
        raise DataError(f"{name}, the {COMPANION_NAMES[kind]} of {clip.name}, is missing: restore or detach it")
    return path


def attach(dataset: Path, clip: Clip, kind: str, path: Path, what: str = "", made: bool = False) -> Clip:
    """Attach a companion to a clip, replacing one of the same kind, as one history entry; return the clip's new record.

    path: a video or picture in any format that can be imported. It is conformed to the clip's frames, size and rate; a
        control clip or mask of the whole source video is cut like the clip.
    what: the change in words; "" for the default.
    made: whether we wrote the file, so that it needs no child process to be read safely.

    Raises ConfigError for an unknown kind or a removed clip, DataError if the file does not fit, CannotWrite.
    """
    return attach_all(dataset, [(clip, kind, path)], what, made)[0]


def attach_all(
    dataset: Path,
    wanted: Sequence[tuple[Clip, str, Path]],
    what: str = "",
    made: bool = False,
    tick: Tick = silent,
    **changes: bool,
) -> list[Clip]:
    """Attach companions to clips as one change, all or none; see `attach`.

    tick: called after each; may raise. changes: `fit` and `invert`, as for `conform`.
    """
    kinds = list(dict.fromkeys(COMPANION_NAMES[_checked_kind(kind)] for _, kind, _ in wanted))
    new: dict[str, dict[str, Any]] = {}
    child = LimitedChild(WORKER, dataset)
    try:
        for clip, kind, path in wanted:
            if made:
                answer = conform(dataset, clip, kind, path)
            else:
                answer = _foreign(dataset, clip, kind, path, child, changes)
            fields = new.setdefault(clip.file_name, {"companion_masters": {}})
            fields[kind] = answer["name"]
            if kind in ("control", "mask"):
                fields["companion_masters"][kind] = answer["whole"]
            tick()
    finally:
        child.close()
    clips = {clip.file_name: clip for clip, _, _ in wanted}
    _put(dataset, what or f"{' and '.join(kinds)} of {named(list(clips.values()))}", new)
    found = {clip.file_name: clip for clip in read_clips(dataset)}
    return [found[clip.file_name] for clip, _, _ in wanted]


def _checked_kind(kind: str) -> str:
    if kind not in COMPANIONS:
        raise ConfigError(f"kind is {kind!r}, must be one of {', '.join(COMPANIONS)}")
    return kind


def _foreign(
    dataset: Path, clip: Clip, kind: str, path: Path, child: LimitedChild, changes: Mapping[str, bool]
) -> dict[str, Any]:
    """Conform a file in the child process that reads foreign files. Raises DataError, CannotWrite."""
    try:
        media.check_file(path, path.name)
    except OSError as error:
        raise DataError(f"{path.name} cannot be read ({error.strerror}): check its path") from error
    task = {"companion": str(path), "kind": kind, "clip": clip.model_dump(mode="json"), **changes}
    try:
        answer: dict[str, Any] = json.loads(child.ask(task, SECONDS_PER_FRAME))
    except ChildLost as lost:
        if lost.code == CannotWrite.exit_code:
            raise CannotWrite(f"cannot write {dataset}: free some space, or choose another workspace") from None
        raise DataError(f"{path.name} crashed the decoder: it is damaged, copy it again") from None
    if why := answer.get("error"):
        raise DataError(f"{path.name} cannot be the {COMPANION_NAMES[kind]} of {clip.name}: {why}")
    return answer


def _put(dataset: Path, what: str, new: Mapping[str, Mapping[str, Any]]) -> int:
    """Change fields of clips; return how many changed. new: file name -> fields; a master of "" is dropped."""

    def make(found: Sequence[Clip]) -> Iterable[Clip]:
        here = {clip.file_name: clip for clip in found}
        if gone := [name for name in new if name not in here]:
            raise ConfigError(f"{gone[0]} is no longer in the dataset: check the list of clips")
        for name, fields in new.items():
            masters = {**(here[name].companion_masters or {}), **fields["companion_masters"]}
            masters = {kind: master for kind, master in masters.items() if master}
            yield here[name].changed(**{**fields, "companion_masters": masters or None})

    return history.edit(dataset, what, make)


def detach(dataset: Path, clips: Sequence[Clip], kind: str) -> int:
    """Detach a kind of companion from clips as one change; return from how many. The files stay for undo.

    Raises ConfigError, CannotWrite.
    """
    having = [clip for clip in clips if _checked_kind(kind) in clip.companions]
    if not having:
        return 0
    fields = {"companion_masters": {kind: ""}, kind: ""}
    what = f"{named(having)} without {COMPANION_NAMES[kind]}"
    return _put(dataset, what, {clip.file_name: fields for clip in having})


# ---- conforming a file to its clip ----------------------------------------------------------------------------------

CLOSE_RATE = 0.01  # relative difference of rates that count as equal when a file is conformed
NEUTRAL = 2  # levels by which the chroma of a gray picture may differ from neutral


def conform(
    dataset: Path,
    clip: Clip,
    kind: str,
    source: Path,
    on_frame: Callable[[], None] = lambda: None,
    *,
    fit: bool = False,
    invert: bool = False,
) -> dict[str, Any]:
    """Write a clip's companion file. Raises DataError if the file cannot be read or does not fit, CannotWrite.

    Return {name, whole, notes}: its path in the dataset, that for the whole source video or "", the changes in words.

    Control clips and masks get exactly the clip's frames, size and rate. If the clip is part of a source video and the
    file covers all of it, the file is cut like the clip and also kept whole. A picture used as a mask applies to every
    frame. Nothing is stretched or invented: files that are too short or have another aspect ratio are refused.

    clip: for latents, with the size and length they decode to.
    source: a checked file of any kind that can be imported.
    on_frame: called after each frame read, as a heartbeat.
    fit: use the first frames of a longer file, and crop one with another aspect ratio to its center.
    invert: swap black and white in a mask.
    """
    import numpy as np

    if kind == "last_frame" or (kind == "reference" and media.is_picture(source) and _is_still(source)):
        return _picture(dataset, clip, kind, source, on_frame)
    made = cutting.scratch_file(dataset, ".mp4")
    try:
        about = convert(source, made, None, on_frame, keep_sound=False)
        notes = list(about.changes)
        if kind == "reference":
            return {"name": cutting.keep_beside(dataset, made, clip.id, kind), "whole": "", "notes": notes}
        master = None if clip.is_latents or not clip.master else cutting.master_of(dataset, clip)
        cut = cutting.cut_of(clip, master) if master else cutting.Cut(0, clip.frames)
        wanted, scale, box, covers, placed = _placement(about, clip, kind, cut, master, fit)
        notes += placed
        video: Clip | cutting.Master = master if covers and master else clip
        invert = invert and kind == "mask"
        gray = kind == "mask" and any(
            np.abs(frame.to_ndarray()[frame.height :].astype(np.int16) - 128).max() > NEUTRAL
            for _, frame in media.raw_frames(made)
        )
        notes += ["colors removed"] * gray + ["inverted"] * invert
        fps = video.fps or about.fps
        unchanged = wanted == list(range(about.frames)) and abs(about.fps / fps - 1) < 1e-6
        if gray or invert or scale or box or not unchanged:
            other = cutting.scratch_file(dataset, ".fit.mp4")
            colors: Literal["kept", "gray", "inverted"] = "inverted" if invert else "gray" if gray else "kept"
            cutting.write_frames(made, wanted, other, fps, scale=scale, box=box, colors=colors, tick=on_frame)
            other.replace(made)
        whole = ""
        if covers and master:
            whole = cutting.keep_beside(dataset, made, Path(master.name).stem, kind, cutting.MASTERS)
            frames = cutting.sampled_frames(cut, cut.fps or master.fps, master)
            cutting.write_frames(dataset / whole, frames, made, clip.fps, box=cut.crop, tick=on_frame)
            notes.append("cut like the clip")
        return {"name": cutting.keep_beside(dataset, made, clip.id, kind), "whole": whole, "notes": notes}
    finally:
        made.unlink(missing_ok=True)


def _is_still(source: Path) -> bool:
    """Whether a picture file is a single still picture."""
    try:
        read_picture(source)
    except DataError:
        return False  # an animation, or a damaged picture, which the conversion will refuse
    return True


def _picture(dataset: Path, clip: Clip, kind: str, source: Path, on_frame: Callable[[], None]) -> dict[str, Any]:
    """Write a still reference, or a last frame at its clip's size, as a PNG."""
    import numpy as np
    from PIL import Image

    if media.is_picture(source):
        picture, _, notes = read_picture(source)
    else:  # the last frame of a video
        video = cutting.scratch_file(dataset, ".mp4")
        try:
            about = convert(source, video, None, on_frame, keep_sound=False)
            picture = Image.fromarray(media.read_frames(video, [about.frames - 1])[0])
        finally:
            video.unlink(missing_ok=True)
        notes = ["the last frame of a video"]
    if kind == "last_frame":
        picture, cut = fitted_picture(picture, clip.width, clip.height)
        notes = [*notes, *cut]
    made = cutting.scratch_file(dataset, ".png")
    write_bytes(made, media.png(np.asarray(picture)))
    return {"name": cutting.keep_beside(dataset, made, clip.id, kind), "whole": "", "notes": notes}


Placement = tuple[list[int], tuple[int, int] | None, cutting.Box | None, bool, list[str]]
"""The file's frames to use, a size to scale to, a box to crop, whether it covers the whole source video, and notes."""


def _placement(
    about: CanonicalClip, clip: Clip, kind: str, cut: cutting.Cut, master: cutting.Master | None, fit: bool
) -> Placement:
    """Match a control clip or mask to the clip or its source video. Raises DataError if it fits neither."""
    size, ours = (about.width, about.height), (clip.width, clip.height)
    theirs = (master.width, master.height) if master else ours
    of_part = _frames_for(about, clip.frames, clip.fps, kind)
    of_whole = _frames_for(about, master.frames, master.fps, kind) if master else None
    if fit and not of_part and not of_whole and about.frames > clip.frames:
        of_part = list(range(clip.frames)), [f"its first {clip.frames} of {about.frames} frames"]
    if not of_part and not of_whole:
        named = f"the clip {clip.frames} ({clip.seconds:.2f} s)"
        if master:
            named += f", its source video {master.frames} ({master.frames / master.fps:.2f} s)"
        raise DataError(
            f"it has {about.frames} frames ({about.frames / about.fps:.2f} s), {named}: use one of the same length"
        )
    for found, to, covers in ((of_whole, theirs, True), (of_part, ours, False)):
        if found and same_aspect(size, to):
            scaled = [f"scaled from {size[0]}x{size[1]} to {to[0]}x{to[1]}"] if size != to else []
            return found[0], to if scaled else None, None, covers, [*found[1], *scaled]
    if of_part and cut.crop and same_aspect(size, theirs):
        return of_part[0], None if size == theirs else theirs, cut.crop, False, [*of_part[1], "cropped like the clip"]
    if fit and of_part:
        share = max(clip.width / size[0], clip.height / size[1])
        width, height = (max(least, _even(side * share)) for side, least in zip(size, ours, strict=True))
        box = (_even((width - clip.width) / 2), _even((height - clip.height) / 2), *ours)
        return of_part[0], (width, height), box, False, [*of_part[1], f"the center of its {size[0]}x{size[1]}"]
    wide = ours if of_part else theirs
    raise DataError(
        f"it is {size[0]}x{size[1]} and the clip is {wide[0]}x{wide[1]}: use one with the same aspect ratio"
    )


def _even(length: float) -> int:
    return int(length / 2) * 2


def _frames_for(about: CanonicalClip, frames: int, fps: float, kind: str) -> tuple[list[int], list[str]] | None:
    """Choose a frame of the file for each frame of the video; return them and the changes in words.

    Return None if the file does not have the video's length.
    """
    if about.frames == frames:
        return list(range(frames)), []
    if about.frames == 1 and kind == "mask":
        return [0] * frames, ["one picture for all frames"]
    if not fps or abs(about.fps / fps - 1) < CLOSE_RATE or about.frames == 1:
        return None
    if abs(about.frames / about.fps - frames / fps) > 1 / min(about.fps, fps):
        return None
    step = about.fps / fps
    wanted = [min(about.frames - 1, int((number + 0.5) * step)) for number in range(frames)]
    return wanted, [f"{about.fps:.4g} fps converted to the clip's {fps:.4g}"]


# ---- problems --------------------------------------------------------------------------------------------------------


def problems(dataset: Path, clip: Clip) -> dict[str, str]:
    """Return why companions do not fit their clip, in a few words: kind -> reason. Reads only the files' headers."""
    found = {kind: _misfit(dataset, clip, kind) for kind in clip.companions}
    return {kind: reason for kind, reason in found.items() if reason}


def _misfit(dataset: Path, clip: Clip, kind: str) -> str:
    try:
        path = companion_path(dataset, clip, kind)
    except DataError:
        return "its file is missing"
    if path is None or path.suffix == ".png":
        return ""
    try:
        about = read_once(path, media.probe)
    except DataError:
        return "it cannot be read"
    if kind == "reference":
        return ""
    if clip.fps and abs(about.fps / clip.fps - 1) >= RATE:
        return f"{about.frames} frames at {about.fps:.4g} fps, the clip {clip.frames} at {clip.fps:.4g}"
    if about.frames != clip.frames:
        return f"{about.frames} frames, the clip {clip.frames}"
    same_size = (about.width, about.height) == (clip.width, clip.height)
    return "" if same_size else f"{about.width}x{about.height}, the clip {clip.width}x{clip.height}"


# ---- making them, as a job ------------------------------------------------------------------------------------------

MOST_FRAMES = 1000  # per clip with a model: depth maps stay in memory until the last frame, two gigabytes


def check(dataset: Path, settings: MakeSettings) -> list[Clip]:
    """Return the clips that get a companion. Raises ConfigError if none needs one, or for settings that cannot work."""
    kind = makers.kind_of(settings.maker, settings.kind)
    makers.amount_of(settings.maker, settings.amount)
    makers.check_model(settings.maker, settings.model, settings.detector)
    chosen = [clip for clip in clips_named(read_clips(dataset), settings.clips or None) if not clip.is_latents]
    wanted = [clip for clip in chosen if settings.again or kind not in clip.companions]
    if not wanted:
        why = f"all have a {COMPANION_NAMES[kind]} (set again to replace them)" if chosen else "none has pictures"
        raise ConfigError(f"no clip needs one: {why}")
    if makers.ABOUT[settings.maker].models and (long := [clip for clip in wanted if clip.frames > MOST_FRAMES]):
        most = f"but {settings.maker} takes at most {MOST_FRAMES:,}"
        raise ConfigError(f"{long[0].name} has {long[0].frames:,} frames, {most}: split it first")
    return wanted


def devices(config: Path) -> list[Device]:
    """Return the GPU that the maker's model needs. Raises ConfigError."""
    settings = MakeSettings.load(config)
    return gpus_of(settings.device)[:1] if makers.ABOUT[settings.maker].models else []


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Make companions of many clips, as one change; the maker's model is loaded once, after waiting for the GPU.

    The outcome: {clips, done (a sentence), failed (a sentence each)}. Raises ConfigError, DataError if every clip
    failed, CannotWrite, jobs.Stop; with a model also ModelUnavailable, OutOfMemory.
    """
    settings = MakeSettings.load(config)
    kind, about = makers.kind_of(settings.maker, settings.kind), makers.ABOUT[settings.maker]
    clips = check(dataset, settings)
    box = (settings.left, settings.top, settings.width, settings.height)

    with queue.acquired(Workspace.of(dataset), devices(config), job, f"make of {dataset.name}"):
        if about.models:
            words = makers.opening(settings.maker, settings.model, settings.detector)
            job.beat("loading", 0, len(clips), message=words)
        with makers.opened(settings.maker, settings.model, settings.detector, settings.device) as model:

            def make(clip: Clip, tick: Tick) -> Path | str:
                try:
                    return makers.make(
                        settings.maker,
                        kind,
                        clip_file(dataset, clip.file_name),
                        cutting.scratch_file(dataset, f".{clip.id}"),
                        fps=clip.fps,
                        amount=settings.amount,
                        box=box,
                        model=model,
                        tick=tick,
                    )
                except DataError as error:
                    return f"{clip.name}: {error}"

            frames, workers = sum(clip.frames for clip in clips), 1 if model else tasks.WORKERS
            found = tasks.each("making", frames, clips, make, tasks.job_progress(job), workers=workers)
    files = [(clip, kind, path) for clip, path in zip(clips, found, strict=True) if isinstance(path, Path)]
    failed = [sentence for sentence in found if isinstance(sentence, str)]
    if not files:
        raise DataError(failed[0])
    what = f"{about.title.lower()} of {named([clip for clip, _, _ in files])}"
    try:
        attach_all(dataset, files, what, made=True, tick=lambda: job.check_stop("stopped: start it again to resume"))
    finally:
        for _, _, path in files:
            path.unlink(missing_ok=True)
    done = f"{about.title}: made {counted(len(files), COMPANION_NAMES[kind])}."
    job.outcome = {"clips": len(files), "done": done, "failed": failed}
