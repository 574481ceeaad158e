"""Samples on disk: each is a video with a JSON record of how it was made, beside it and inside it. No torch.

    samples/<YYYY-MM-DD>/<id>.mp4       H.264; its comment tag has the same JSON, without paths of this machine
    samples/<YYYY-MM-DD>/<id>.json      written last: a video without it is not shown
    samples/<YYYY-MM-DD>/<id>.safetensors   latents, in place of the mp4 until they are decoded, then beside it
    samples/<YYYY-MM-DD>/<id>.star      an empty file: the sample is starred
    samples/.removed/                   the bin: files of samples that were removed from the history

A record is a JSON object. Its "settings" are the `SampleSettings` of the request; the other keys are the values that
were used (model, frames, fps, seed, loras ...). In the record inside the video, files of the workspace have paths
relative to it (`samples/inputs/...`, `runs/ring/...`), and other files only their names.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import tempfile
import time
from calendar import timegm
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from workbench.clips import media
from workbench.clips.records import Number, Whole
from workbench.errors import ConfigError, DataError, Unknown
from workbench.families.sound import Sound
from workbench.sampler.settings import INPUT_FILES, SampleSettings
from workbench.settings import parse
from workbench.workspace import (
    Workspace,
    disk,
    lora_names,
    read_json,
    read_object,
    replacing,
    slugify,
    write_bytes,
    write_json,
    writing,
)
from workbench.workspace.records import sound
from workbench.workspace.zip_stream import write_zip

if TYPE_CHECKING:
    import numpy as np
    import torch

LAYOUT = "C f h w"  # axes of latents in a file; codes have no channels
STAMP = "%Y%m%d-%H%M%S"
ID = re.compile(r"\d{8}-\d{6}-\d{6}-[0-9a-f]{4}")
REMOVED, STAR, LATENTS = ".removed", ".star", ".safetensors"
CAUSES = ".causes.json"  # answers about which clips caused what it shows (trainer.causes)
SOUND = "sound"  # tensor in a latents file: the latents of the sound, [tokens, channels]
NOISE = "noise_state"  # tensor in a latents file: the noise generator's state, for decoders that draw from it
MOST_SAMPLES = 8  # shown in a notebook
PREVIEWS = 3  # videos that a LoRA without a run keeps as previews
WHOLE = re.compile(r"[/\\~]|[A-Za-z]:[/\\]")
NUMBERED = re.compile(r"\.safetensors=|\.\w{3,4}=\d+$")
TEXTS = ("prompt", "negative_prompt")  # the user's texts are never paths, whatever they begin with
INPUTS = tuple(INPUT_FILES)
PATHS = (*INPUTS, "keyframes", "loras")
SUFFIXES = (".zip", ".gif", ".png")
MOST_TILES = 36  # videos in a GIF or PNG
NAME_LETTERS = 60  # of the prompt, in file names
DOWNLOADS = ".downloads"
KEPT_SECONDS = 3600.0  # how long a file for the page is kept


def new_id() -> str:
    """Return a new sample id. Ids sort by time in UTC."""
    now = time.time()
    return f"{_stamp(now)}-{int(now % 1 * 1e6):06d}-{secrets.token_hex(2)}"


def _stamp(seconds: float) -> str:
    """Return the beginning of the ids from that second (Unix time)."""
    return time.strftime(STAMP, time.gmtime(seconds))


def checked_id(text: str) -> str:
    """Return the id if it has the form of one, and so cannot be a path. Raises Unknown."""
    if not ID.fullmatch(text):
        raise Unknown(f"the sample {text[:60]!r} does not exist: choose one from the history")
    return text


def video_path(workspace: Workspace, sample_id: str) -> Path:
    """Return the path of a sample's video, whether it exists or not. Raises ConfigError for anything but an id."""
    day = checked_id(sample_id)[:8]
    return workspace.samples / f"{day[:4]}-{day[4:6]}-{day[6:]}" / f"{sample_id}.mp4"


def write_sample(
    video: Path,
    frames: np.ndarray,
    fps: float,
    record: dict[str, Any],
    root: Path | None = None,
    heard: Sound | None = None,
) -> None:
    """Write frames [F, H, W, 3] (uint8, or floats in [0, 1]) as mp4 with the record inside and beside it.

    The record beside the video is written last, so it exists only for a complete sample. Raises CannotWrite.

    root: the workspace's folder; the record inside the video names its files relative to it
    heard: its sound
    """
    import numpy as np

    from workbench.clips import media
    from workbench.clips.sound import write_sound

    if frames.dtype != np.uint8:
        frames = (frames.clip(0.0, 1.0) * 255).round().astype(np.uint8)
    video.with_suffix(".json").unlink(missing_ok=True)  # that of latents, which hold their own, too
    media.encode(frames, video, fps, comment=json.dumps(shareable(record, root), ensure_ascii=False))
    if heard is not None:
        write_sound(video, *heard)
    write_json(video.with_suffix(".json"), record)


def write_latents(
    video: Path, tensors: Mapping[str, torch.Tensor], record: dict[str, Any], root: Path | None = None
) -> None:
    """Write latents (see docs/file_formats.md) next to the video's path, then the record. Raises CannotWrite."""
    from safetensors.torch import save

    names = ("model", "frames", "width", "height", "fps", "prompt")
    facts = {name.replace("prompt", "caption"): str(record[name]) for name in names}
    about = {
        **facts,
        "scaled": "true",
        "layout": LAYOUT,
        "record": json.dumps(shareable(record, root), ensure_ascii=False),
    }
    write_bytes(video.with_suffix(LATENTS), save(dict(tensors), about))
    write_json(video.with_suffix(".json"), record)


def read_latents(video: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read the tensors and the record of a sample kept as latents. Raises ConfigError for damaged or missing files."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    path = video.with_suffix(LATENTS)
    try:
        tensors = load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path.name} cannot be read ({error}): generate this sample again") from error
    return tensors, read_json(video.with_suffix(".json"))


def keep_as_preview(workspace: Workspace, video: Path, record: dict[str, Any]) -> None:
    """Copy a video made with a single LoRA at scale 1 to that LoRA's previews, if it has no run and few previews.

    A failure to write the copy is ignored: the video itself is safe.
    """
    loras = record["loras"]
    name = str(loras[0]["name"]) if len(loras) == 1 and loras[0]["scale"] == 1 else ""
    if not lora_names.is_name(name) or not name.startswith(f"{lora_names.LORAS}/"):
        return
    folder = lora_names.path_of(workspace, name).parent / "previews"
    if len(list(folder.glob("*.mp4"))) < PREVIEWS:
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
            for path in (video.with_suffix(".json"), video):
                shutil.copy2(path, folder / path.name)


def shareable(value: Any, root: Path | None) -> Any:
    """Remove this machine's paths from a record or a part of it. root: the workspace's folder"""
    if isinstance(value, Mapping):
        return {name: one if name in TEXTS else shareable(one, root) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [shareable(one, root) for one in value]
    if not isinstance(value, str) or not WHOLE.match(value):
        return value
    if root is not None and Path(value).is_relative_to(root):
        return Path(value).relative_to(root).as_posix()
    return PurePath(value.replace("\\", "/")).name or "a folder"


def localised(settings: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Make the paths of a shareable record's settings absolute, for files that are in this workspace."""
    found = dict(settings)
    for name in PATHS:
        value = found.get(name)
        if isinstance(value, str):
            found[name] = _localised(value, root)
        elif isinstance(value, list):
            found[name] = [_localised(one, root) if isinstance(one, str) else one for one in value]
    return found


def _localised(text: str, root: Path) -> str:
    """Make one path absolute, which may end with =SCALE or a keyframe's =FRAME."""
    name, equals, number = text.rpartition("=") if NUMBERED.search(text) else (text, "", "")
    if not name or "\0" in name or WHOLE.match(name) or ".." in PurePath(name).parts or not (root / name).is_file():
        return text
    return f"{root / name}{equals}{number}"


def settings_of(path: Path, workspace: Workspace | None = None) -> SampleSettings:
    """Read the settings in a video, in the record beside one, or in a JSON file of plain settings. Raises ConfigError.

    workspace: where the files that a video names are; for a video in it, the record beside it is used, which has
    absolute paths
    """
    record = _record(path)
    if path.suffix.lower() == ".json" and "settings" not in record:
        return parse(SampleSettings, record)  # the user's own file, which may name files anywhere
    if workspace is not None and path.suffix.lower() != ".json":
        with contextlib.suppress(ConfigError):  # if it is damaged, use the record in the video
            beside = _record(path.with_suffix(".json"))
            record = beside if shareable(beside, workspace.root) == record else record
    settings = _settings(record, path)
    if workspace is not None:
        settings = localised(settings, workspace.root)
        for name in INPUTS:
            if file := str(settings.get(name) or ""):
                try:  # the video may come from anyone
                    workspace.inside(file)
                except ConfigError as error:
                    raise ConfigError.of(
                        name,
                        f"{path.name} names the {name} {file[:120]!r}, which is outside this workspace: provide that "
                        "file yourself, or choose another sample",
                    ) from error
    return parse(SampleSettings, settings)


def joins_scenes(path: Path) -> bool:
    """Return whether a video or record joins scenes, each a line of its prompt. Raises ConfigError."""
    return "scenes" in _record(path)


def _record(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    from workbench.clips import media

    value: Any = None
    try:
        if path.suffix.lower() == ".json":
            value = read_json(path)
        elif path.suffix == LATENTS:
            with safe_open(path, "np") as file:
                value = json.loads((file.metadata() or {}).get("record", ""))
        else:
            value = json.loads(media.read_comment(path) or "")
    except (DataError, RecursionError, SafetensorError, OSError) as error:
        raise ConfigError(f"{path.name} cannot be read ({str(error)[:200]}): choose another file") from error
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"{path.name} has no settings: choose a video or a JSON file made by the workbench")
    return sound(value, _Known)


def _settings(record: dict[str, Any], path: Path) -> dict[str, Any]:
    settings = record.get("settings")
    if not isinstance(settings, dict):
        raise ConfigError(f"{path.name} has no sample settings: choose a sample made by the workbench")
    return settings


def created(sample_id: str) -> float:
    """Return the Unix time at which a sample was requested."""
    return float(timegm(time.strptime(sample_id[:15], STAMP)))


@dataclass(frozen=True)
class Sample:
    """One finished sample.

    problem: why its record can be read neither beside the video nor in it; its settings are then defaults
    """

    id: str
    path: Path
    settings: SampleSettings
    record: dict[str, Any]
    problem: str = ""

    @property
    def created(self) -> float:
        """Unix time at which it was requested."""
        return created(self.id)

    @property
    def starred(self) -> bool:
        return self.path.with_suffix(STAR).exists()

    @property
    def latents_only(self) -> bool:
        """Whether `path` is a file of latents, to be decoded by `queue.decode`."""
        return self.path.suffix == LATENTS

    @property
    def video(self) -> Path:
        """The video's file. Raises ConfigError if there are only latents."""
        if self.latents_only:
            raise ConfigError(f"{self.id} is latents only: decode it first, workbench samples decode {self.id}")
        return self.path

    def _repr_html_(self) -> str:
        from workbench.sampler.view import samples_html

        return samples_html([self])


class _AppliedLora(BaseModel):
    name: str = ""
    file: str = ""
    sha256: str | None = ""
    layers: int | None = None
    matched: int | None = None
    left_out: list[Any] | dict[str, Any] = []


class _Scene(BaseModel):
    id: str
    prompt: str = ""
    frames: int = 0


class _Known(BaseModel):
    """The fields that readers of a sample's record rely on, each of which may be missing."""

    seconds: Number | None = 0.0
    fps: Number | None = 0.0
    frames: Whole | None = 0
    steps: Whole | None = 0
    width: Whole | None = 0
    height: Whole | None = 0
    scale: float | None = 1.0
    loras: list[_AppliedLora] | None = []
    scenes: list[_Scene] | None = []
    run: str = ""
    step: Whole = 0


def read_sample_record(path: Path) -> dict[str, Any]:
    """Read the record beside a video, without damaged fields; {} if there is none."""
    return sound(read_object(path), _Known)


class SampleQuery(BaseModel):
    """A choice of samples. search: words that all occur in prompt, model, LoRAs or seed; since, until: Unix time"""

    model_config = ConfigDict(extra="forbid", frozen=True)

    search: str = Field(default="", max_length=1000)
    show: Literal["all", "starred", "removed"] = "all"
    since: float | None = Field(default=None, ge=0, le=1e11)
    until: float | None = Field(default=None, ge=0, le=1e11)

    def has(self, sample: Sample) -> bool:
        """Return whether a sample has every word."""
        if sample.problem:
            return False
        settings = sample.settings
        text = f"{settings.prompt} {settings.model} {' '.join(settings.loras)} seed {settings.seed}".casefold()
        return all(word in text for word in self.search.casefold().split())


@dataclass(frozen=True)
class Listing:
    """The ids of all samples in the history and in the bin, newest first, and the number of videos."""

    ids: list[str]
    removed: list[str]
    starred: frozenset[str]
    videos: int


class Samples:
    """The samples of a workspace. Folders are listed at every call, but each record is read only once."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._known: dict[tuple[str, bool], Sample] = {}

    def listing(self) -> Listing:
        """List all samples without reading their records."""
        names = [path.name for path in self.workspace.samples.glob("[0-9]*/*")]
        binned = [path.name for path in (self.workspace.samples / REMOVED).glob("*.json")]
        stars = frozenset(name.removesuffix(STAR) for name in names if name.endswith(STAR))
        videos = sum(name.endswith(".mp4") for name in names)
        return Listing(_ids(names), _ids(binned), stars, videos)

    def find(self, query: SampleQuery, listing: Listing) -> list[str]:
        """Return the ids of matching samples, newest first. Records are read only for a search by words."""
        removed = query.show == "removed"
        since, until = (None if one is None else _stamp(one) for one in (query.since, query.until))
        found = [
            name  # begins with the time
            for name in (listing.removed if removed else listing.ids)
            if (since is None or name >= since)
            and (until is None or name < until)
            and (query.show != "starred" or name in listing.starred)
        ]
        if query.search.strip():
            found = [name for name in found if (one := self.read(name, removed)) and query.has(one)]
        return found

    def history(self, limit: int = 50, query: SampleQuery | None = None) -> list[Sample]:
        """Return finished samples, newest first."""
        query = query or SampleQuery()
        every = (self.read(name, query.show == "removed") for name in self.find(query, self.listing()))
        return list(islice(filter(None, every), limit))

    def _repr_html_(self) -> str:
        from workbench.sampler.view import samples_html

        return samples_html(self.history(MOST_SAMPLES))

    def get(self, sample_id: str, removed: bool = False) -> Sample:
        """Return one finished sample, from the history or the bin. Raises Unknown if it does not exist."""
        sample = self._read(checked_id(sample_id), removed)
        if sample is None:
            raise Unknown(f"the sample {sample_id!r} does not exist: choose one from the history")
        return sample

    def read(self, sample_id: str, removed: bool) -> Sample | None:
        """Return a listed sample, or None if it is gone. Entries are immutable, so each is read once."""
        known = self._known.get((sample_id, removed))
        if known is None or known.latents_only or known.problem:  # these may have changed
            known = self._read(checked_id(sample_id), removed)
            if known is not None:
                self._known[sample_id, removed] = known
        return known

    def star(self, sample_id: str, starred: bool = True) -> None:
        """Star or unstar a sample. Raises ConfigError, CannotWrite."""
        star = self.get(sample_id).path.with_suffix(STAR)
        with writing(star):
            if starred:
                star.touch()
            else:
                star.unlink(missing_ok=True)

    def remove(self, sample_id: str) -> None:
        """Move a sample to the bin. Raises ConfigError, CannotWrite."""
        self._move(video_path(self.workspace, sample_id), self.workspace.samples / REMOVED)

    def restore(self, sample_id: str) -> Sample:
        """Move a sample from the bin back into the history. Raises ConfigError, CannotWrite."""
        video = self._video(checked_id(sample_id), True)
        if not video.with_suffix(".json").exists():
            raise Unknown(f"the sample {sample_id!r} is not in the bin: it was restored, or is in another workspace")
        # The record last, because a sample exists exactly as long as its record.
        self._move(video, video_path(self.workspace, sample_id).parent, (".mp4", LATENTS, STAR, CAUSES, ".json"))
        return self.get(sample_id)

    @staticmethod
    def _move(video: Path, folder: Path, suffixes: Iterable[str] = (".json", ".mp4", LATENTS, STAR, CAUSES)) -> None:
        """Move a sample's files, by default the record first, because a sample exists exactly as long as its record."""
        with writing(folder):
            folder.mkdir(exist_ok=True)
            for path in map(video.with_suffix, suffixes):
                if path.exists():
                    disk.replace(path, folder / path.name)

    def _read(self, sample_id: str, removed: bool) -> Sample | None:
        """Read a sample, or return None without video or latents. A damaged record is replaced by the one inside."""
        made = self._video(sample_id, removed)
        if not made.exists() and not (made := made.with_suffix(LATENTS)).exists():
            return None
        for path in (made.with_suffix(".json"), made):
            try:
                record = _record(path)
                if path == made:
                    settings = settings_of(made, self.workspace)
                else:
                    settings = parse(SampleSettings, _settings(record, path), given=())
                return Sample(sample_id, made, settings, record)
            except ConfigError:
                continue
        problem = f"{sample_id}.json is damaged, and {made.name} has no record either: fix it, or remove the sample"
        return Sample(sample_id, made, SampleSettings(), {}, problem)

    def _video(self, sample_id: str, removed: bool) -> Path:
        if removed:
            return self.workspace.samples / REMOVED / f"{sample_id}.mp4"
        return video_path(self.workspace, sample_id)


def _ids(names: Iterable[str]) -> list[str]:
    """Return the ids of the records among file names, newest first."""
    found = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return sorted(filter(ID.fullmatch, found), reverse=True)


# ---- export


def zip_contents(samples: Iterable[Sample], root: Path) -> Iterator[tuple[str, Path | bytes]]:
    """Yield the (name, content) of a zip's files, without paths of this machine. root: the workspace's folder"""
    for sample in samples:
        name = f"{sample.id[:15]}-{slugify(sample.settings.prompt)[:NAME_LETTERS].strip('-')}-{sample.id[-4:]}"
        yield f"{name}{sample.path.suffix}", sample.path
        if not sample.problem:
            yield f"{name}.json", json.dumps(shareable(sample.record, root), ensure_ascii=False, indent=1).encode()


def write_samples(samples: Sequence[Sample], target: Path, root: Path) -> None:
    """Write samples to `target`, whole or not at all.

    The suffix decides: .zip for a zip file, .gif for a GIF with a row per prompt, .png for the same from pictures.
    Without a suffix, `target` becomes a folder with one GIF or PNG per prompt.

    Raises ConfigError (too many samples for one GIF or PNG, videos for a PNG), DataError, CannotWrite.

    root: the workspace's folder
    """
    if target.suffix == ".zip":
        with replacing(target) as part:
            write_zip(part, zip_contents(samples, root))
        return
    by_prompt = groupby(sorted(samples, key=lambda one: one.settings.prompt), lambda one: one.settings.prompt)
    rows = [list(row) for _, row in by_prompt]
    if target.suffix:
        _write_tiles(rows, target)
        return
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as temporary, writing(target):
        part = Path(temporary) / target.name
        for number, row in enumerate(rows, 1):
            name = f"{number:03d}-{slugify(row[0].settings.prompt)[:NAME_LETTERS].strip('-')}"
            _write_tiles([row], part / f"{name}{'.png' if all(map(_is_picture, row)) else '.gif'}")
        disk.replace(part, target)


def _write_tiles(rows: Sequence[Sequence[Sample]], target: Path) -> None:
    every = [one for row in rows for one in row]
    format = target.suffix.removeprefix(".").upper()
    if len(every) > MOST_TILES:
        raise ConfigError(f"{len(every)} samples are too many for one {format}, which shows {MOST_TILES}: export a zip")
    if format == "PNG" and (videos := [one for one in every if not _is_picture(one)]):
        raise ConfigError(
            f"{videos[0].id} is a video of {videos[0].record['frames']} frames, but a PNG shows pictures: export a GIF"
        )
    paths = [[one.video for one in row] for row in rows]
    with replacing(target) as part:
        (media.write_png if format == "PNG" else media.write_gif)(paths, part)


def _is_picture(sample: Sample) -> bool:
    return sample.record.get("frames") == 1


def write_download(samples: Sequence[Sample], workspace: Workspace, suffix: str) -> Path:
    """Write a file for the page to send, and delete files older than an hour. Raises what `write_samples` raises.

    suffix: one of SUFFIXES
    """
    folder = workspace.samples / DOWNLOADS
    for old in folder.glob("samples-*"):
        if old.stat().st_mtime < time.time() - KEPT_SECONDS:
            old.unlink(missing_ok=True)
    folder.mkdir(exist_ok=True)
    target = folder / f"samples-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}{suffix}"
    write_samples(samples, target, workspace.root)
    return target
