"""Samples on disk: a video, and beside and inside it the JSON of everything that made it. No torch.

    samples/<YYYY-MM-DD>/<id>.mp4       H.264; its comment tag holds the same JSON, without paths of this machine
    samples/<YYYY-MM-DD>/<id>.json      written last: a video without it is not shown
    samples/.removed/                   what was deleted from the history

A record is a JSON object. Its "settings" are the `SampleSettings` that were requested; the other keys are the
values used (model, frames, fps, seed, loras ...). Not covered: generating (generate), active requests (queue).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import inline_html, lora_names
from workbench.errors import ConfigError, DataError
from workbench.sampler.embedded import localised, shareable
from workbench.sampler.settings import SampleSettings
from workbench.settings import parse
from workbench.workspace import Workspace, read_json, write_json, writing

if TYPE_CHECKING:
    import numpy as np

ID = re.compile(r"\d{8}-\d{6}-\d{6}-[0-9a-f]{4}")
REMOVED = ".removed"
MOST_SAMPLES = 8  # in a notebook
DISPLAY = "workbench.sampler.display:samples_html"
PREVIEWS = 3  # videos that a LoRA without a run keeps as its previews


def new_id() -> str:
    """A fresh sample id; ids sort by time, whatever the clock's zone."""
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return f"{stamp}-{int(now % 1 * 1e6):06d}-{secrets.token_hex(2)}"


def checked_id(text: str) -> str:
    """The id itself, if it is one (and so no path). Raises ConfigError."""
    if not ID.fullmatch(text):
        raise ConfigError(f"the sample {text[:60]!r} does not exist: choose one from the history")
    return text


def video_path(workspace: Workspace, sample_id: str) -> Path:
    """Where the video of a sample is, or will be. Raises ConfigError for what is no id."""
    day = checked_id(sample_id)[:8]
    return workspace.samples / f"{day[:4]}-{day[4:6]}-{day[6:]}" / f"{sample_id}.mp4"


def write_sample(video: Path, frames: np.ndarray, fps: float, record: dict[str, Any], root: Path | None = None) -> None:
    """Write frames [F, H, W, 3] (uint8, or floats in [0, 1]) as mp4 with the record inside and beside it.

    root: the workspace's folder, whose files keep their place in it where the record inside names them; see embedded.
    The record beside the video is written last, so whoever sees it sees a whole sample. Raises CannotWrite.
    """
    import numpy as np

    from workbench.clips import media

    if frames.dtype != np.uint8:
        frames = (frames.clip(0.0, 1.0) * 255).round().astype(np.uint8)
    temporary = video.with_name(f".{video.stem}.{os.getpid()}{video.suffix}")
    with writing(video):
        video.parent.mkdir(parents=True, exist_ok=True)
        try:
            comment = json.dumps(shareable(record, root), ensure_ascii=False)
            media.encode(frames, temporary, fps, comment=comment)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, video)
        finally:
            temporary.unlink(missing_ok=True)
    write_json(video.with_suffix(".json"), record)


def keep_as_preview(workspace: Workspace, video: Path, record: dict[str, Any]) -> None:
    """Copy a video made with one LoRA alone, at scale 1, to that LoRA's previews, if it is of no run and has few.

    A copy that cannot be written is left out: the video itself is safe.
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


def settings_of(path: Path, workspace: Workspace | None = None) -> SampleSettings:
    """The settings in a video, in the record beside one, or in a JSON file of settings alone.

    workspace: where the files lie that a video names; of a video that lies in it, the record beside it counts, which
    has whole paths. Raises ConfigError when there are none.
    """
    record = _record(path)
    if path.suffix.lower() == ".json" and "settings" not in record:
        return parse(SampleSettings, record)
    if workspace is not None and path.suffix.lower() != ".json":
        beside = path.with_suffix(".json")
        known = _record(beside) if beside.is_file() else {}
        if shareable(known, workspace.root) == record:
            record = known
    settings = _settings(record, path)
    return parse(SampleSettings, settings if workspace is None else localised(settings, workspace.root))


def _record(path: Path) -> dict[str, Any]:
    from workbench.clips import media

    value: Any = None
    try:
        if path.suffix.lower() == ".json":
            value = read_json(path)
        else:
            value = json.loads(media.read_comment(path) or "")
    except (DataError, RecursionError) as error:
        raise ConfigError(f"{path.name} cannot be read ({str(error)[:200]}): choose another file") from error
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"{path.name} holds no settings: choose a video or a JSON file that this workbench made")
    return value


def _settings(record: dict[str, Any], path: Path) -> dict[str, Any]:
    settings = record.get("settings")
    if not isinstance(settings, dict):
        raise ConfigError(f"{path.name} holds no sample settings: choose a sample of this workbench")
    return settings


@dataclass(frozen=True)
class Sample:
    """One finished sample."""

    id: str
    path: Path
    settings: SampleSettings
    record: dict[str, Any]

    def _repr_html_(self) -> str:
        return inline_html.rendered(DISPLAY, [self])


class Samples:
    """The samples of a workspace, read afresh from disk at every call."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def history(self, limit: int = 50) -> list[Sample]:
        """Finished samples, newest first. What cannot be read is left out."""
        records = [path for path in self.workspace.samples.glob("[0-9]*/*.json") if ID.fullmatch(path.stem)]
        found: list[Sample] = []
        for path in sorted(records, key=lambda record: record.stem, reverse=True):
            if len(found) == limit:
                break
            sample = _read(path)
            if sample is not None:
                found.append(sample)
        return found

    def _repr_html_(self) -> str:
        return inline_html.rendered(DISPLAY, self.history(MOST_SAMPLES))

    def get(self, sample_id: str) -> Sample:
        """One finished sample. Raises ConfigError when there is none of that id."""
        sample = _read(video_path(self.workspace, sample_id).with_suffix(".json"))
        if sample is None:
            raise ConfigError(f"the sample {sample_id!r} is not there: choose one from the history")
        return sample

    def delete(self, sample_id: str) -> None:
        """Take a sample out of the history; its files move to samples/.removed. Raises ConfigError, CannotWrite."""
        video = video_path(self.workspace, sample_id)
        removed = self.workspace.samples / REMOVED
        with writing(removed):
            removed.mkdir(exist_ok=True)
            # The record first: a sample is there exactly when its record is.
            for path in (video.with_suffix(".json"), video):
                if path.exists():
                    os.replace(path, removed / path.name)


def _read(record: Path) -> Sample | None:
    video = record.with_suffix(".mp4")
    if not video.exists():
        return None
    try:
        values = _record(record)
        made = parse(SampleSettings, _settings(values, record), given=())
        return Sample(record.stem, video, made, values)
    except ConfigError:
        return None
