"""Read and write a dataset's records: metadata.jsonl (one line per clip, the Hub's VideoFolder layout), dataset.json.

Unknown columns and unreadable lines are preserved. `damage` reports unreadable lines; everything else skips them.
"""

from __future__ import annotations

import difflib
import hashlib
import math
import os
import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from workbench.display.quantities import shortened, time_range
from workbench.errors import CannotWrite, ConfigError, DataError, Unknown
from workbench.workspace import confined, read_json, write_bytes, write_json
from workbench.workspace.records import LATEST, broken_rule

METADATA = "metadata.jsonl"
INFO = "dataset.json"
# Files that can accompany a clip: the fields of its record that name them.
COMPANIONS = ("control", "reference", "mask", "last_frame")
COMPANION_NAMES = {"control": "control clip", "reference": "reference", "mask": "mask", "last_frame": "last frame"}
BESIDE_NAMES = {"first_frame": "first frame", **COMPANION_NAMES}  # all that can come with a clip
LATENTS = ".safetensors"  # suffix of clips stored as latents
REMOVED = ".removed"  # folder of removed clips, in the dataset's own layout
MOST_NAMED = 3  # damaged lines that are listed individually per file

FilePath = Annotated[str, Field(pattern=r"^([^\x00-\x1f/]{1,255}(/|$))+$")]  # valid for the file system
Whole = Annotated[int, Field(ge=0, le=10**9)]
Number = Annotated[float, Field(ge=0, le=LATEST, allow_inf_nan=False)]


class Sound(BaseModel):
    """The sound track of a clip's file. rate: samples a second."""

    model_config = ConfigDict(frozen=True)

    seconds: Number
    rate: Whole
    channels: Whole


class Clip(BaseModel):
    """A canonical clip of a dataset: constant fps, upright, square pixels, even size, 8-bit, H.264 yuv420p.

    A clip can also be latents that were computed elsewhere (docs/given_latents.md). Its size and length are then those
    of the decoded video.

    file_name: path relative to the dataset folder: "clips/1a2b3c4d5e6f7a8b.mp4", or "latents/ID.safetensors".
    text: the caption, without the dataset's trigger word.
    sha256: hash of the canonical file.
    source: the original file's name, for display.
    span: start and end in the source, in seconds; None for the whole source.
    crop: left, top, width, height in the source's picture, in pixels; None for the whole picture.
    master: the canonical clip of the whole source (".masters/ID.mp4") that `span` and `crop` refer to; "" if this clip
        is the whole source.
    caption_by: who wrote the text: "hand", "file" (it came with the video) or a captioner's name; "" if unknown.
    first_frame: a picture of the first frame that came with the clip ("first_frames/ID.png"), or "".
    control, mask: videos with the clip's frames, size and rate ("clips/ID.control-1a2b3c4d.mp4": the clip's ID, then
        the start of the file's hash), or "".
    reference: a video or picture with its own length and size, or "".
    last_frame: a picture of the last frame ("clips/ID.last_frame-1a2b3c4d.png"), or "".
    companion_masters: for "control" and "mask", the file for the whole source video (".masters/ID.mask-1a2b3c4d.mp4")
        that this clip's was cut from. Files made for this clip alone are not in it. None instead of {}, because tables
        have no type for an empty record.
    latents_model: for latents, the model or family whose VAE encoded them; "" for a video.
    embeddings: the caption whose embeddings are stored with the latents, None if there are none. Training uses them
        while `text` still equals that caption.
    tags: free-form tags.
    sound: the sound track in the clip's file; None without one. Earlier versions imported every clip without.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    file_name: FilePath
    text: str = ""
    fps: Number = 0.0
    frames: Whole = 0
    width: Whole = 0
    height: Whole = 0
    sha256: str = ""
    source: str = ""
    span: tuple[Number, Number] | None = None
    crop: tuple[Whole, Whole, Whole, Whole] | None = None
    master: FilePath | Literal[""] = ""
    caption_by: str = ""
    first_frame: FilePath | Literal[""] = ""
    control: FilePath | Literal[""] = ""
    reference: FilePath | Literal[""] = ""
    mask: FilePath | Literal[""] = ""
    last_frame: FilePath | Literal[""] = ""
    companion_masters: dict[str, FilePath] | None = None
    latents_model: str = ""
    embeddings: str | None = None
    tags: tuple[str, ...] = ()
    sound: Sound | None = None

    @field_validator("file_name", "master", "first_frame", *COMPANIONS)
    @classmethod
    def _below_the_dataset(cls, name: str) -> str:
        if os.path.isabs(name) or "\0" in name or ".." in re.split(r"[/\\]", name):
            raise ValueError(f"{name[:120]!r} is not a path inside the dataset's folder")
        return name

    @field_validator("companion_masters")
    @classmethod
    def _masters_below_the_dataset(cls, names: dict[str, str] | None) -> dict[str, str] | None:
        return {kind: cls._below_the_dataset(name) for kind, name in (names or {}).items()} or None

    def __hash__(self) -> int:
        return hash((self.file_name, self.sha256, self.mask))  # other fields can hold a dict

    @property
    def seconds(self) -> float:
        return self.frames / self.fps if self.fps else 0.0

    @property
    def id(self) -> str:
        """The file name without folder and suffix."""
        return Path(self.file_name).stem

    @property
    def source_id(self) -> str:
        return Path(self.master or self.file_name).stem

    @property
    def name(self) -> str:
        """The display name: "walk.mp4", or "walk.mp4 0:12-0:15" for a part. Without a source, the file's own name."""
        return f"{Path(self.source).name or self.source_id} {self.times}".strip()

    @property
    def times(self) -> str:
        """The time range of a part, such as "0:12-0:15"; "" for a whole source."""
        return time_range(*self.span) if self.span else ""

    @property
    def companions(self) -> dict[str, str]:
        """The clip's companions: kind -> file name relative to the dataset folder."""
        return {kind: name for kind in COMPANIONS if (name := getattr(self, kind))}

    @property
    def is_image(self) -> bool:
        """Whether the clip is an image: a single frame."""
        return self.frames == 1

    @property
    def is_latents(self) -> bool:
        return self.file_name.lower().endswith(LATENTS)

    @property
    def given_text(self) -> bool:
        """Whether the embeddings of the current caption came with the latents."""
        return self.is_latents and self.embeddings is not None and self.text == self.embeddings

    def changed(self, **values: Any) -> Clip:
        """Return a copy with some fields replaced."""
        return self.model_copy(update=values)


class _Lines(NamedTuple):
    """A parsed metadata.jsonl.

    damaged: (number, content, reason) of each line that is not a valid record.
    unreadable: why the file as a whole cannot be read, else "".
    """

    clips: tuple[Clip, ...] = ()
    damaged: tuple[tuple[int, bytes, str], ...] = ()
    unreadable: str = ""


def read_clips(dataset: Path) -> list[Clip]:
    """Read the clips of a dataset folder, skipping unreadable lines (`damage` reports them)."""
    return list(_read(dataset / METADATA).clips)


def damage(dataset: Path) -> list[str]:
    """Report which records of a dataset cannot be read, why, and what to do about it, one sentence each."""
    found = []
    for path in (dataset / METADATA, dataset / REMOVED / METADATA):
        name, lines = path.relative_to(dataset.parent).as_posix(), _read(path)
        if lines.unreadable:
            found.append(f"{name} cannot be read ({lines.unreadable}), so its clips are left out: fix or remove it.")
        for number, _, reason in lines.damaged[:MOST_NAMED]:
            found.append(f"{name}, line {number} is left out ({reason}): fix or remove the line.")
        if (more := len(lines.damaged) - MOST_NAMED) > 0:
            found.append(f"{more:,} more lines of {name} are left out: fix or remove them.")
    try:
        read_info(dataset)
    except ConfigError as error:
        found.append(f"{error}.")
    return found


def _read(path: Path) -> _Lines:
    try:
        about = path.stat()
        return _read_lines(path, about.st_ino, about.st_mtime_ns, about.st_size)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError) and not path.is_symlink()
        return _Lines(unreadable="" if missing else error.strerror or str(error))


@lru_cache(maxsize=8)
def _read_lines(path: Path, *version: int) -> _Lines:
    """Parse the file once per version: ten thousand records take 0.2 s."""
    clips, damaged = dict[str, Clip](), []
    # Not splitlines(), which also splits at U+2028.
    for number, line in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            clip = Clip.model_validate_json(line)
        except ValidationError as error:
            damaged.append((number, line, broken_rule(error)))
            continue
        if clip.file_name in clips:
            damaged.append((number, line, f"{clip.file_name} already has a line"))
        else:
            clips[clip.file_name] = clip
    return _Lines(tuple(clips.values()), tuple(damaged))


def clip_file(dataset: Path, name: str) -> Path:
    """Return the path of a file that a record names. Raises DataError for a link out of the dataset, never followed."""
    try:
        return confined(dataset, name)
    except ConfigError:
        raise DataError(f"{name} is a link out of {dataset.name}: import the file that it points to") from None


def find_clip(clips: Sequence[Clip], name: str) -> Clip:
    """Find a clip by file name, id or display name. Raises Unknown for no match, ConfigError for several."""
    for clip in clips:
        if name in (clip.file_name, clip.id):
            return clip
    found = [clip for clip in clips if clip.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        ids = shortened([clip.id for clip in found], 6)
        raise ConfigError(f"{len(found)} clips are named {name!r}: choose one by its id, {ids}")
    near = difflib.get_close_matches(name, [clip.name for clip in clips], n=1, cutoff=0.3)
    hint = f"did you mean {near[0]!r}?" if near else "check the list of clips"
    raise Unknown(f"there is no clip {name[:120]!r} in this dataset: {hint}")


def clips_named(clips: Sequence[Clip], names: Collection[str] | None) -> list[Clip]:
    """Return the clips with these file names, ids or display names, in dataset order; all for None. Raises as
    `find_clip`."""
    if names is None:
        return list(clips)
    known = {key: clip.file_name for clip in clips for key in (clip.id, clip.file_name)}
    wanted = {known[name] if name in known else find_clip(clips, name).file_name for name in names}
    return [clip for clip in clips if clip.file_name in wanted]


def write_clips(dataset: Path, clips: list[Clip]) -> None:
    """Replace the records in metadata.jsonl atomically; unreadable lines move to the end.

    Raises CannotWrite, also if the current file cannot be read, because its content would be lost.
    """
    path = dataset / METADATA
    current = _read(path)
    if current.unreadable:
        raise CannotWrite(
            f"cannot write {path}: the current file cannot be read ({current.unreadable}): fix or remove it"
        )
    # A clip without sound has the line that it had before there was sound.
    records = (clip.model_dump_json(exclude=None if clip.sound else {"sound"}).encode() for clip in clips)
    lines = [*records, *(line for _, line, _ in current.damaged)]
    write_bytes(path, b"".join(line + b"\n" for line in lines))


class DatasetInfo(BaseModel):
    """Facts about a dataset as a whole (dataset.json). created: Unix time; None for a plain VideoFolder."""

    model_config = ConfigDict(frozen=True, extra="allow")

    title: str = ""
    trigger_word: str = ""
    created: Number | None = None

    def caption(self, clip: Clip) -> str:
        """Return the caption to train on: the clip's text, with the trigger word first unless the text contains it."""
        trigger, text = self.trigger_word.strip(), clip.text.strip()
        if not trigger or re.search(rf"(?<!\w){re.escape(trigger)}(?!\w)", text, re.IGNORECASE):
            return text
        return f"{trigger} {text}".strip()


def read_info(dataset: Path) -> DatasetInfo:
    """Read dataset.json, or return defaults if it is missing (a plain VideoFolder). Raises ConfigError if invalid."""
    path = dataset / INFO
    if not path.exists() and not path.is_symlink():
        return DatasetInfo(title=dataset.name)
    value = read_json(path)
    try:
        return DatasetInfo.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"{path} does not describe a dataset ({broken_rule(error)}): fix or remove it") from error


def known_info(dataset: Path) -> DatasetInfo:
    """Read dataset.json, with defaults also for an invalid file (`damage` reports that)."""
    try:
        return read_info(dataset)
    except ConfigError:
        return DatasetInfo(title=dataset.name)


def write_info(dataset: Path, info: DatasetInfo) -> None:
    """Replace dataset.json atomically. Raises CannotWrite."""
    write_json(dataset / INFO, info.model_dump(mode="json"))


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def frame_at(seconds: float, fps: float) -> int:
    """Return the frame nearest to a time. Raises ConfigError if the time is not finite."""
    if not math.isfinite(seconds * fps):
        raise ConfigError(f"the time {seconds} is not a number of seconds: give one within the source video")
    return round(seconds * fps)
