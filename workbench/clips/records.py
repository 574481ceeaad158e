"""What a dataset folder says of its clips: metadata.jsonl (a line a clip, the Hub's VideoFolder layout), dataset.json.

Columns of a metadata.jsonl that this project does not know are kept as they are. Not covered: the video itself (media),
what happened to the source files (dataset_builder's sources.jsonl).
"""

from __future__ import annotations

import difflib
import hashlib
import math
import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from workbench.errors import ConfigError, DataError
from workbench.quantities import time_range
from workbench.workspace import read_json, write_json, write_text

METADATA = "metadata.jsonl"
INFO = "dataset.json"


class Clip(BaseModel):
    """One canonical clip of a dataset: constant fps, upright, square pixels, even size, 8-bit, H.264 yuv420p.

    file_name: path below the dataset folder ("clips/1a2b3c4d5e6f7a8b.mp4")
    text:      the caption, without the dataset's trigger word
    fps:       frames per second; frames: how many; width, height: pixels
    sha256:    of the canonical file's bytes
    source:    the original file's name, for people
    span:      start and end in the source, seconds; None when the whole source was taken
    crop:      left, top, width, height in the source's picture, pixels; None when the whole picture was taken
    master:    the canonical clip of the whole source (".masters/ID.mp4") from which `span` and `crop` were cut; "" when
               this clip is that whole
    caption_by: who wrote the text: "hand", "file" (it came with the video) or a captioner's name; "" when unknown
    first_frame: a picture that came with the clip as its first frame ("first_frames/ID.png"); "" when there is none
    tags:      free marks
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    file_name: str
    text: str = ""
    fps: float = 0.0
    frames: int = 0
    width: int = 0
    height: int = 0
    sha256: str = ""
    source: str = ""
    span: tuple[float, float] | None = None
    crop: tuple[int, int, int, int] | None = None
    master: str = ""
    caption_by: str = ""
    first_frame: str = ""
    tags: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return self.frames / self.fps if self.fps else 0.0

    @property
    def id(self) -> str:
        """The name of its file without folder and ending."""
        return Path(self.file_name).stem

    @property
    def source_id(self) -> str:
        """The same for all parts of a source video."""
        return Path(self.master or self.file_name).stem

    @property
    def name(self) -> str:
        """What people know it by, on page, shell, notebook and in messages: "walk.mp4", "walk.mp4 0:12-0:15" of a part.

        A clip without a source is called by its file, as a folder of another tool has it.
        """
        return f"{self.source_name} {self.times}".strip()

    @property
    def source_name(self) -> str:
        """The source video's name."""
        return Path(self.source).name or self.source_id

    @property
    def times(self) -> str:
        """ "0:12-0:15" of a part, else ""."""
        return time_range(*self.span) if self.span else ""

    @property
    def is_image(self) -> bool:
        """Whether it is a picture: a clip of one frame."""
        return self.frames == 1

    def changed(self, **values: Any) -> Clip:
        """A copy with some values replaced."""
        return self.model_copy(update=values)


def read_clips(dataset: Path) -> list[Clip]:
    """All clips of a dataset folder; none when it has no metadata.jsonl. Raises DataError on a broken line."""
    path = dataset / METADATA
    try:
        about = path.stat()
    except FileNotFoundError:
        return []
    return list(_read_clips(path, about.st_ino, about.st_mtime_ns, about.st_size))


@lru_cache(maxsize=4)
def _read_clips(path: Path, *version: int) -> tuple[Clip, ...]:
    """The file's records, parsed once for each version of it: ten thousand of them take a fifth of a second."""
    clips = []
    for number, line in enumerate(
        path.read_text(encoding="utf-8-sig").split("\n"), 1
    ):  # not splitlines: U+2028 ends no line
        if line.strip():
            try:
                clips.append(Clip.model_validate_json(line))
            except ValueError as error:
                raise DataError(
                    f"{path}, line {number}, is not a clip record ({error}): fix or remove the line"
                ) from error
    return tuple(clips)


def find_clip(clips: Sequence[Clip], name: str) -> Clip:
    """The clip of that file name, id or name. Raises ConfigError when there is none, or several have the name."""
    for clip in clips:
        if name in (clip.file_name, clip.id):
            return clip
    found = [clip for clip in clips if clip.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(clip.id for clip in found[:6]) + (" ..." if len(found) > 6 else "")
        raise ConfigError(f"{len(found)} clips are called {name!r}: name one by its id, {ids}")
    near = difflib.get_close_matches(name, [clip.name for clip in clips], n=1, cutoff=0.3)
    hint = f"did you mean {near[0]!r}?" if near else "look at the list of clips"
    raise ConfigError(f"there is no clip {name[:120]!r} in this dataset: {hint}")


def clips_named(clips: Sequence[Clip], names: Collection[str] | None) -> list[Clip]:
    """The clips of those file names, ids or names, all of them for None. Raises ConfigError as `find_clip`."""
    if names is None:
        return list(clips)
    known = {key: clip.file_name for clip in clips for key in (clip.id, clip.file_name)}
    wanted = {known[name] if name in known else find_clip(clips, name).file_name for name in names}
    return [clip for clip in clips if clip.file_name in wanted]


def write_clips(dataset: Path, clips: list[Clip]) -> None:
    """Replace metadata.jsonl, atomically. Raises CannotWrite."""
    lines = [clip.model_dump_json() for clip in clips]
    write_text(dataset / METADATA, "".join(f"{line}\n" for line in lines))


class DatasetInfo(BaseModel):
    """What holds for a whole dataset (dataset.json). created: Unix time, None of a plain VideoFolder"""

    model_config = ConfigDict(frozen=True, extra="allow")

    title: str = ""
    trigger_word: str = ""
    created: float | None = None

    def caption(self, clip: Clip) -> str:
        """The clip's text as the model is taught it: the trigger word in front, unless the text already has it."""
        trigger, text = self.trigger_word.strip(), clip.text.strip()
        if not trigger or re.search(rf"(?<!\w){re.escape(trigger)}(?!\w)", text, re.IGNORECASE):
            return text
        return f"{trigger} {text}".strip()


def read_info(dataset: Path) -> DatasetInfo:
    """dataset.json, or its defaults when it is missing (a plain VideoFolder). Raises ConfigError when it is broken."""
    path = dataset / INFO
    if not path.exists():
        return DatasetInfo(title=dataset.name)
    return DatasetInfo.model_validate(read_json(path))


def write_info(dataset: Path, info: DatasetInfo) -> None:
    """Replace dataset.json, atomically. Raises CannotWrite."""
    write_json(dataset / INFO, info.model_dump(mode="json"))


def file_sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def frame_at(seconds: float, fps: float) -> int:
    """The frame that is nearest to a moment of a video. Raises ConfigError for what is no number of seconds."""
    if not math.isfinite(seconds * fps):
        raise ConfigError(f"the time {seconds} is no number of seconds: give one within the source video")
    return round(seconds * fps)
