"""How near a video is to the clips that a LoRA was trained on: has it memorized a clip?

A video's signature is that of near-duplicate clips (clips.frame_metrics): four frames at 8x8 pixels, in colour. Of
a clip those frames are taken that training took.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.clips import frame_metrics, media
from workbench.errors import ConfigError, DataError
from workbench.runs.data import read_lock
from workbench.runs.run import Run
from workbench.workspace import Workspace, confined, read_object, write_json

if TYPE_CHECKING:
    from workbench.clips.frame_metrics import Pixels

LONGEST = 128  # pixels of the pictures that signatures are made of, as in the dataset check
# Differences as `frame_metrics.alike` measures them. Of 3,828 pairs of different demo clips, which have the plainest
# scenes, the least is 0.47, half are above 1.5; of real footage 1.9 and more; a clip encoded again has up to
# 0.14. So below COPY a video is a clip again, and below NEAR it resembles one more than by chance.
COPY, NEAR = 0.25, 0.45
SAME = 0.06  # clips that differ by less are copies of one another
MOST_COMPARED = 500  # clips
APART = 0.5  # of what the clips differ among themselves: clips that all look alike make every video look like one


@dataclass(frozen=True)
class TrainingClip:
    """A clip that a run was trained on."""

    name: str
    signature: bytes


@dataclass(frozen=True)
class Nearest:
    """The clip that a video is nearest to. difference: 0 for equal pictures; usual: the clips' among themselves."""

    clip: str
    difference: float
    usual: float | None

    @property
    def copied(self) -> bool:
        """Whether it looks like a memorized clip."""
        return self.difference < COPY and (self.usual is None or self.difference < APART * self.usual)


def signature(pictures: Sequence[Pixels]) -> bytes:
    """Of the frames of a video, BGR [H, W, 3] each."""
    return frame_metrics.fingerprint([pictures[index] for index in signature_frames(len(pictures))])


def signature_frames(count: int) -> list[int]:
    """Which of so many frames a signature is made of."""
    return [int((part + 0.5) * count / frame_metrics.PRINT_FRAMES) for part in range(frame_metrics.PRINT_FRAMES)]


def trained_on(workspace: Workspace, run: Run, kept: Path) -> list[TrainingClip]:
    """The clips of a run with their signatures; kept: a file that remembers them. Those that are gone are left out."""
    known, found = read_object(kept), []
    prints = dict(known)
    for clip in read_lock(run.folder):
        path = _file(workspace, run, clip)
        if path is None or clip.get("role") == "held_out":
            continue
        mark = f"{clip.get('sha256')} {clip.get('indices')} {clip.get('crop')} {clip.get('resize')}"
        if mark not in prints:
            with contextlib.suppress(DataError, OSError):
                prints[mark] = base64.b64encode(_print(path, clip)).decode()
        if mark in prints:
            found.append(TrainingClip(clip["name"], base64.b64decode(prints[mark])))
    if prints != known:
        write_json(kept, prints)
    return found


def _file(workspace: Workspace, run: Run, clip: dict[str, Any]) -> Path | None:
    for name in _datasets(run):
        with contextlib.suppress(ConfigError):
            path = confined(workspace.dataset(name), str(clip.get("file_name", "")))
            if path.is_file():
                return path
    return None


def _datasets(run: Run) -> Iterator[str]:
    settings = run.settings
    yield settings.dataset
    for text in settings.more_datasets:
        yield text.partition("=")[0].partition("@")[0]
    if settings.regularization_dataset:
        yield settings.regularization_dataset


def _print(path: Path, clip: dict[str, Any]) -> bytes:
    """The signature of the frames and the part of the picture that training took. Raises DataError."""
    indices = list(clip["indices"])
    wanted = [indices[index] for index in signature_frames(len(indices))]
    height, width = clip["resize"]
    unique = sorted(set(wanted))
    frames = media.read_frames(path, unique, (height, width), tuple(clip["crop"]))
    by_number = dict(zip(unique, frames, strict=True))
    return frame_metrics.fingerprint([by_number[number][..., ::-1] for number in wanted])


def differences(one: bytes, others: Sequence[bytes]) -> list[float]:
    """How much a signature differs from others: the root of the mean square in levels over the lesser contrast."""
    import numpy as np

    table = np.frombuffer(b"".join([one, *others]), np.uint8).reshape(len(others) + 1, -1).astype(np.float32)
    contrast = np.maximum(table.reshape(len(table), -1, 3).var(1).mean(1) ** 0.5, 8.0)
    apart = ((table[1:] - table[0]) ** 2).mean(1) ** 0.5
    found: list[float] = (apart / np.minimum(contrast[1:], contrast[0])).tolist()
    return found


def usual(clips: Sequence[TrainingClip]) -> float | None:
    """How much a clip typically differs from the one nearest to it, copies left out; None for less than three clips."""
    import numpy as np

    some = [clip.signature for clip in clips[:MOST_COMPARED]]
    nearest = []
    for index, one in enumerate(some):
        apart = [value for value in differences(one, some[:index] + some[index + 1 :]) if value > SAME]
        nearest += [min(apart)] if apart else []
    return float(np.median(nearest)) if len(nearest) > 2 else None


def nearest(signature: bytes, clips: Sequence[TrainingClip], usually: float | None) -> Nearest | None:
    """The clip that a video is nearest to, None where there are none."""
    if not clips:
        return None
    apart = differences(signature, [clip.signature for clip in clips])
    index = min(range(len(clips)), key=apart.__getitem__)
    return Nearest(clips[index].name, round(apart[index], 3), usually)
