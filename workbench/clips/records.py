"""What a dataset folder says of its clips: metadata.jsonl (a line a clip, the Hub's VideoFolder layout), dataset.json.

Columns of a metadata.jsonl that this project does not know are kept as they are, and so are lines that cannot be read:
`damage` names them, everything else goes on without them.
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

from workbench.display.quantities import time_range
from workbench.errors import CannotWrite, ConfigError, DataError, Unknown
from workbench.workspace import confined, read_json, write_bytes, write_json
from workbench.workspace.records import LATEST, broken_rule

METADATA = "metadata.jsonl"
INFO = "dataset.json"
# What may lie beside a clip, linked to it: the record's fields that name its files.
COMPANIONS = ("control", "reference", "mask", "last_frame")
COMPANION_NAMES = {"control": "control clip", "reference": "reference", "mask": "mask", "last_frame": "last frame"}
LATENTS = ".safetensors"  # the ending of clips that are latents
REMOVED = ".removed"  # clips that are not in the dataset at present, in the dataset's own layout
MOST_NAMED = 3  # damaged lines of a file that are named one by one

FilePath = Annotated[str, Field(pattern=r"^([^\x00-\x1f/]{1,255}(/|$))+$")]  # that the system takes
Whole = Annotated[int, Field(ge=0, le=10**9)]
Number = Annotated[float, Field(ge=0, le=LATEST, allow_inf_nan=False)]


class Clip(BaseModel):
    """One canonical clip of a dataset: constant fps, upright, square pixels, even size, 8-bit, H.264 yuv420p.

    Or latents that were computed elsewhere (docs/given_latents.md), with the size and length that they decode to.

    file_name: path below the dataset folder ("clips/1a2b3c4d5e6f7a8b.mp4", of latents "latents/ID.safetensors")
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
    control, reference, mask: videos that belong to the clip ("clips/ID.control-1a2b3c4d.mp4", ID of the clip, then the
               start of the file's hash): control and mask have the clip's frames, size and rate, a reference its own
    last_frame: a picture to end with ("clips/ID.last_frame-1a2b3c4d.png"); "" when there is none, as of the others
    companion_masters: "control" or "mask" -> the one of the whole source video (".masters/ID.mask-1a2b3c4d.mp4") from
               which this part's was cut; empty of a whole clip, and without what was made for the part alone
    latents_model: of latents the model whose VAE made them, or its family; "" of a video
    embeddings: the caption whose embeddings are in the file of latents; they are trained on as long as `text` is that
               one. None when there are none
    tags:      free marks
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
    companion_masters: dict[str, FilePath] = {}
    latents_model: str = ""
    embeddings: str | None = None
    tags: tuple[str, ...] = ()

    @field_validator("file_name", "master", "first_frame", *COMPANIONS)
    @classmethod
    def _below_the_dataset(cls, name: str) -> str:
        if os.path.isabs(name) or "\0" in name or ".." in re.split(r"[/\\]", name):
            raise ValueError(f"{name[:120]!r} is no path below the dataset's folder")
        return name

    @field_validator("companion_masters")
    @classmethod
    def _masters_below_the_dataset(cls, names: dict[str, str]) -> dict[str, str]:
        return {kind: cls._below_the_dataset(name) for kind, name in names.items()}

    @property
    def seconds(self) -> float:
        return self.frames / self.fps if self.fps else 0.0

    @property
    def id(self) -> str:
        """The name of its file without folder and ending."""
        return Path(self.file_name).stem

    @property
    def source_id(self) -> str:
        return Path(self.master or self.file_name).stem

    @property
    def name(self) -> str:
        """What people know it by, on page, shell, notebook and in messages: "walk.mp4", "walk.mp4 0:12-0:15" of a part.

        A clip without a source is called by its file, as a folder of another tool has it.
        """
        return f"{Path(self.source).name or self.source_id} {self.times}".strip()

    @property
    def times(self) -> str:
        """ "0:12-0:15" of a part, else ""."""
        return time_range(*self.span) if self.span else ""

    @property
    def companions(self) -> dict[str, str]:
        """Kind -> file below the dataset folder, of those that the clip has."""
        return {kind: name for kind in COMPANIONS if (name := getattr(self, kind))}

    @property
    def is_image(self) -> bool:
        """Whether it is a picture: a clip of one frame."""
        return self.frames == 1

    @property
    def is_latents(self) -> bool:
        return self.file_name.lower().endswith(LATENTS)

    @property
    def given_text(self) -> bool:
        """Whether its caption's embeddings came with its latents."""
        return self.is_latents and self.embeddings is not None and self.text == self.embeddings

    def changed(self, **values: Any) -> Clip:
        """A copy with some values replaced."""
        return self.model_copy(update=values)


class DamagedLine(NamedTuple):
    """A line that is no clip record, as it stands in the file. reason: why, in a few words."""

    number: int
    data: bytes
    reason: str


class _Lines(NamedTuple):
    """A metadata.jsonl. unreadable: why nothing of the file can be read, else ""."""

    clips: tuple[Clip, ...] = ()
    damaged: tuple[DamagedLine, ...] = ()
    unreadable: str = ""


def read_clips(dataset: Path) -> list[Clip]:
    """Read the clips of a dataset folder. Lines that cannot be read are left out; `damage` names them."""
    return list(_read(dataset / METADATA).clips)


def damage(dataset: Path) -> list[str]:
    """Say what of a dataset's records cannot be read, why, and what to do about it, one sentence each."""
    found = []
    for path in (dataset / METADATA, dataset / REMOVED / METADATA):
        name, lines = path.relative_to(dataset.parent).as_posix(), _read(path)
        if lines.unreadable:
            found.append(f"{name} cannot be read ({lines.unreadable}), so its clips are left out: fix or remove it.")
        for line in lines.damaged[:MOST_NAMED]:
            found.append(f"{name}, line {line.number} is left out ({line.reason}): fix or remove the line.")
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
    """The file's records, parsed once for each version of it: ten thousand of them take a fifth of a second."""
    clips, damaged = dict[str, Clip](), []
    # Not splitlines: U+2028 ends no line.
    for number, line in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            clip = Clip.model_validate_json(line)
        except ValidationError as error:
            damaged.append(DamagedLine(number, line, broken_rule(error)))
            continue
        if clip.file_name in clips:
            damaged.append(DamagedLine(number, line, f"{clip.file_name} has a line already"))
        else:
            clips[clip.file_name] = clip
    return _Lines(tuple(clips.values()), tuple(damaged))


def clip_file(dataset: Path, name: str) -> Path:
    """The file of a clip, of its master or of what lies beside it, by the name in the record.

    Raises DataError for one that lies elsewhere: links that lead out of the dataset are not followed.
    """
    try:
        return confined(dataset, name)
    except ConfigError:
        raise DataError(f"{name} is a link that leads out of {dataset.name}: import the file it leads to") from None


def find_clip(clips: Sequence[Clip], name: str) -> Clip:
    """The clip of that file name, id or name. Raises Unknown when there is none, ConfigError when several have it."""
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
    raise Unknown(f"there is no clip {name[:120]!r} in this dataset: {hint}")


def clips_named(clips: Sequence[Clip], names: Collection[str] | None) -> list[Clip]:
    """The clips of those file names, ids or names, all of them for None. Raises ConfigError as `find_clip`."""
    if names is None:
        return list(clips)
    known = {key: clip.file_name for clip in clips for key in (clip.id, clip.file_name)}
    wanted = {known[name] if name in known else find_clip(clips, name).file_name for name in names}
    return [clip for clip in clips if clip.file_name in wanted]


def write_clips(dataset: Path, clips: list[Clip]) -> None:
    """Replace the records in metadata.jsonl, atomically. Lines that cannot be read stay, at its end.

    Raises CannotWrite, also where the present file cannot be read: what it holds would be lost.
    """
    path = dataset / METADATA
    present = _read(path)
    if present.unreadable:
        raise CannotWrite(
            f"cannot write {path}: the present file cannot be read ({present.unreadable}): fix or remove it"
        )
    lines = [*(clip.model_dump_json().encode() for clip in clips), *(line.data for line in present.damaged)]
    write_bytes(path, b"".join(line + b"\n" for line in lines))


class DatasetInfo(BaseModel):
    """What holds for a whole dataset (dataset.json). created: Unix time, None of a plain VideoFolder"""

    model_config = ConfigDict(frozen=True, extra="allow")

    title: str = ""
    trigger_word: str = ""
    created: Number | None = None

    def caption(self, clip: Clip) -> str:
        """The clip's text as the model is taught it: the trigger word in front, unless the text already has it."""
        trigger, text = self.trigger_word.strip(), clip.text.strip()
        if not trigger or re.search(rf"(?<!\w){re.escape(trigger)}(?!\w)", text, re.IGNORECASE):
            return text
        return f"{trigger} {text}".strip()


def read_info(dataset: Path) -> DatasetInfo:
    """Read dataset.json, or its defaults when it is missing (a plain VideoFolder). Raises ConfigError when broken."""
    path = dataset / INFO
    if not path.exists() and not path.is_symlink():
        return DatasetInfo(title=dataset.name)
    value = read_json(path)
    try:
        return DatasetInfo.model_validate(value)
    except ValidationError as error:
        raise ConfigError(f"{path} does not describe a dataset ({broken_rule(error)}): fix or remove it") from error


def known_info(dataset: Path) -> DatasetInfo:
    """Read dataset.json for a list: its defaults also when it is broken, which `damage` then says."""
    try:
        return read_info(dataset)
    except ConfigError:
        return DatasetInfo(title=dataset.name)


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
