"""What a run trains on: which clips in which role, their order, and the batch of every step. All pure functions of the
dataset, the settings and the step, so a resumed run sees what an uninterrupted one would have seen.

Not covered: decoding and encoding (encode), buckets of several shapes.
"""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.clips import Clip, file_sha256, read_clips, read_info
from workbench.errors import DataError
from workbench.frame_plan import FramePlan, Shape, plan
from workbench.trainer.settings import TrainSettings
from workbench.workspace import Workspace

Role = Literal["train", "known", "held_out"]


@dataclass(frozen=True)
class Item:
    """One clip in a run: where it is, what it is called, which frames of it are taken."""

    path: Path
    sha256: str
    caption: str
    plan: FramePlan
    role: Role

    def record(self) -> dict[str, Any]:
        """What dataset.lock.json keeps of it."""
        return {
            "file_name": self.plan.clip.file_name,
            "sha256": self.sha256,
            "caption": self.caption,
            "role": self.role,
            "indices": list(self.plan.indices),
            "crop": list(self.plan.crop),
        }


@dataclass(frozen=True)
class TrainingData:
    """The clips of a run by role. `dropped` holds a sentence per clip that could not be used."""

    train: tuple[Item, ...]
    known: tuple[Item, ...]
    held_out: tuple[Item, ...]
    dropped: tuple[str, ...]

    @property
    def items(self) -> tuple[Item, ...]:
        return (*self.train, *self.known, *self.held_out)

    def lock(self) -> list[dict[str, Any]]:
        return [item.record() for item in self.items]


def load_data(workspace: Workspace, settings: TrainSettings, shape: Shape) -> TrainingData:
    """Read the datasets, plan every clip, and set some aside for measuring. Raises DataError when none can be used."""
    items, dropped = _usable(workspace.dataset(settings.dataset), shape, "train")
    known: list[Item] = []
    if settings.regularization_dataset:
        known, also_dropped = _usable(workspace.dataset(settings.regularization_dataset), shape, "known")
        dropped += also_dropped
    if settings.held_out >= len(items):
        raise DataError(
            f"held_out is {settings.held_out}, dataset {settings.dataset} has {len(items)} usable clips: "
            f"use at most {len(items) - 1}, or add clips"
        )
    # By content, not by place in the file: adding a clip moves none of the others between the roles.
    by_chance = sorted(items, key=lambda item: hashlib.sha256(f"{settings.seed}:{item.sha256}".encode()).digest())
    aside = {item.path for item in by_chance[: settings.held_out]}
    return TrainingData(
        train=tuple(item for item in items if item.path not in aside),
        known=tuple(known),
        held_out=tuple(Item(i.path, i.sha256, i.caption, i.plan, "held_out") for i in items if i.path in aside),
        dropped=tuple(dropped),
    )


def _usable(dataset: Path, shape: Shape, role: Role) -> tuple[list[Item], list[str]]:
    info, items, dropped = read_info(dataset), [], []
    clips: list[Clip] = read_clips(dataset)
    for clip in clips:
        path, planned = dataset / clip.file_name, plan(clip, shape)
        if not path.is_file():
            dropped.append(f"{clip.file_name}: the file is missing")
        elif planned.dropped:
            dropped.append(f"{clip.file_name}: {planned.dropped}")
        else:
            items.append(Item(path, file_sha256(path), info.caption(clip), planned, role))
    if not items:
        reasons = "; ".join(dropped[:3]) or "it has no clips"
        raise DataError(f"dataset {dataset.name} has no clip that can be used ({reasons})")
    return items, dropped


def seed_for(run_seed: int, purpose: str, *place: int) -> int:
    """A generator's seed for one purpose at one place of a run (step, micro-batch): no state to carry or lose."""
    text = ":".join(map(str, (run_seed, purpose, *place)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


class Batches:
    """Which clips are in which batch. Every clip comes once before any comes again, in a new order each time."""

    def __init__(self, data: TrainingData, settings: TrainSettings) -> None:
        self._data = data
        self._size = settings.batch_size
        self._seed = settings.seed
        self._share = settings.regularization_share if data.known else 0.0

    def batch(self, number: int) -> list[Item]:
        """The clips of the batch with this number, counted from 0 over the whole run."""
        return [self._item(place) for place in range(number * self._size, (number + 1) * self._size)]

    def _item(self, place: int) -> Item:
        known_before = math.floor(place * self._share + 1e-9)
        if math.floor((place + 1) * self._share + 1e-9) > known_before:
            return self._shuffled(self._data.known, "known", known_before)
        return self._shuffled(self._data.train, "train", place - known_before)

    def _shuffled(self, items: tuple[Item, ...], purpose: str, count: int) -> Item:
        epoch, index = divmod(count, len(items))
        order = list(range(len(items)))
        random.Random(seed_for(self._seed, f"order of {purpose}", epoch)).shuffle(order)
        return items[order[index]]
