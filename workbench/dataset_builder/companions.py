"""Companions of a clip: a control clip, a reference, a mask, a last frame.

    clips/ID.control-1a2b3c4d.mp4       named by the clip and the start of the file's hash; it never changes
    clips/ID.reference-1a2b3c4d.mp4     or .png for a picture
    clips/ID.mask-1a2b3c4d.mp4          white is inside, gray is a weight
    clips/ID.last_frame-1a2b3c4d.png
    .masters/ID.mask-1a2b3c4d.mp4       for the whole source video; those of its parts are cut from it

The clip's record names them (`Clip.companions`). They are cut with the clip (cuts.cutting), removed and restored with
it (history), imported and exported. A new mask is a new file, so undo can bring the old one back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from workbench.clips import media
from workbench.clips.records import COMPANION_NAMES, COMPANIONS, Clip, clip_file, read_clips
from workbench.dataset_builder import history
from workbench.dataset_builder.cuts.cutting import named
from workbench.dataset_builder.tasks import Tick, silent
from workbench.errors import CannotWrite, ConfigError, DataError
from workbench.jobs.limited import ChildLost, LimitedChild

WORKER = "workbench.dataset_builder.ingest.worker"
SECONDS_PER_FRAME = 60.0  # timeout for a new frame
RATE = 1e-3  # relative difference allowed between the frame rates of a clip and its mask


class Changes(NamedTuple):
    """Extra changes to a file when it is conformed to its clip.

    fit: use the first frames of a longer file, and the middle of one with other proportions.
    invert: invert a mask.
    """

    fit: bool = False
    invert: bool = False


AS_IT_IS = Changes()


def companion_path(dataset: Path, clip: Clip, kind: str) -> Path | None:
    """Return the clip's companion of a kind, or None.

    Raises:
        ConfigError: There is no such kind.
        DataError: The file is missing, or is a link out of the dataset.
    """
    name = clip.companions.get(_checked_kind(kind))
    if name is None:
        return None
    if not (path := clip_file(dataset, name)).is_file():
        raise DataError(f"{name}, the {COMPANION_NAMES[kind]} of {clip.name}, is missing: restore or detach it")
    return path


def attach(dataset: Path, clip: Clip, kind: str, path: Path, what: str = "", made: bool = False) -> Clip:
    """Attach a companion to a clip, replacing one of the same kind, as one history entry.

    Args:
        clip: A clip of the dataset.
        kind: One of COMPANIONS.
        path: A video or picture in any format that can be imported. It is conformed to the clip's frames, size and
            rate; a control clip or mask of the whole source video is cut like the clip.
        what: The change in words; "" for the default.
        made: Whether we wrote the file, so that it needs no child process to be read safely.

    Returns:
        The clip's new record.

    Raises:
        ConfigError: There is no such kind, or the clip was removed.
        DataError: The file cannot be read, or does not fit the clip.
        CannotWrite: The disk is full.
    """
    return attach_all(dataset, [(clip, kind, path)], what, made)[0]


def attach_all(
    dataset: Path,
    wanted: Sequence[tuple[Clip, str, Path]],
    what: str = "",
    made: bool = False,
    changes: Changes = AS_IT_IS,
    tick: Tick = silent,
) -> list[Clip]:
    """Attach companions to clips as one change, all or none; see `attach`. tick: called after each; may raise."""
    from workbench.dataset_builder.ingest.conforming import conform

    kinds = list(dict.fromkeys(COMPANION_NAMES[_checked_kind(kind)] for _, kind, _ in wanted))
    new: dict[str, dict[str, Any]] = {}
    child = LimitedChild(WORKER, dataset)
    try:
        for clip, kind, path in wanted:
            if made:
                conformed = conform(dataset, clip, kind, path)
                name, whole = conformed.name, conformed.whole
            else:
                answer = _foreign(dataset, clip, kind, path, child, changes)
                name, whole = answer["name"], answer["whole"]
            fields = new.setdefault(clip.file_name, {"companion_masters": {}})
            fields[kind] = name
            if kind in ("control", "mask"):
                fields["companion_masters"][kind] = whole
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
    dataset: Path, clip: Clip, kind: str, path: Path, child: LimitedChild, changes: Changes
) -> Mapping[str, Any]:
    """Conform a file in the child process that reads foreign files. Raises DataError, CannotWrite."""
    try:
        media.check_file(path, path.name)
    except OSError as error:
        raise DataError(f"{path.name} cannot be read ({error.strerror}): check its path") from error
    task: dict[str, object] = {"companion": str(path), "kind": kind, "clip": clip.model_dump(mode="json")}
    task |= changes._asdict()
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


# ---- problems --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompanionProblem:
    """Why a companion does not fit its clip. short: for display next to the picture. frames: 0 if unknown."""

    kind: str
    what: Literal["missing", "damaged", "length", "size"]
    sentence: str
    short: str
    frames: int = 0


@lru_cache(maxsize=16384)
def _probed(path: Path, changed: int) -> media.VideoFacts:
    """Probe a file, cached until its modification time (`changed`) changes."""
    return media.probe(path)


def problems(dataset: Path, clip: Clip) -> list[CompanionProblem]:
    """Find problems of a clip's companions from the files' headers."""
    found = []
    for kind in clip.companions:
        name = COMPANION_NAMES[kind]
        try:
            path = companion_path(dataset, clip, kind)
        except DataError:
            sentence = f"{clip.name} has a {name} whose file is missing."
            found.append(CompanionProblem(kind, "missing", sentence, "its file is missing"))
            continue
        if path is None or path.suffix == ".png":
            continue
        try:
            about = _probed(path, path.stat().st_mtime_ns)
        except DataError as error:
            sentence = f"The {name} of {clip.name} cannot be read: {error}."
            found.append(CompanionProblem(kind, "damaged", sentence, "it cannot be read"))
            continue
        if kind == "reference":
            continue
        same_rate = not clip.fps or abs(about.fps / clip.fps - 1) < RATE
        if about.frames != clip.frames or not same_rate:
            length = f"{about.frames} frames at {about.fps:.4g} fps, the clip {clip.frames} at {clip.fps:.4g}"
            sentence = f"The {name} of {clip.name} has {length}."
            short = f"{about.frames} frames, the clip {clip.frames}" if same_rate else length
            found.append(CompanionProblem(kind, "length", sentence, short, about.frames))
        if (about.width, about.height) != (clip.width, clip.height):
            size = f"{about.width}x{about.height}, the clip {clip.width}x{clip.height}"
            sentence = f"The {name} of {clip.name} is {size}."
            found.append(CompanionProblem(kind, "size", sentence, size, about.frames))
    return found
