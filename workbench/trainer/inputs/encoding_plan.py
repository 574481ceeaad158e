"""What a run has to encode before its first step: which captions, which views of which clips. No torch.

Not covered: encoding it (encode), sharing the work among processes (encoding).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from workbench.families import find_model
from workbench.families.base import Family, Model
from workbench.runs.data import RunClip, TrainingData, load_data
from workbench.runs.settings import TrainSettings
from workbench.trainer.inputs.cache import Cache
from workbench.trainer.inputs.encoder import Encoder, View, view_of
from workbench.workspace import Workspace

DRIFT_INPUTS = 3  # captions, or clips, on each side of the measure of prior drift
PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
TORCH_NAMES = {short: f"torch.{long}" for long, short in PRECISIONS.items()}


@dataclass(frozen=True)
class Piece:
    """One view of one clip."""

    item: RunClip
    view: View
    flipped: bool


@dataclass(frozen=True)
class EncodingWork:
    """All of it; reduction: how many times smaller a low-resolution view is."""

    captions: tuple[str, ...]
    pieces: tuple[Piece, ...]
    reduction: float


def preservation_prompts(family: Family, model: Model, settings: TrainSettings) -> list[str]:
    """Prompts on which prior drift is measured."""
    known = settings.preservation_prompts or model.preservation_prompts or family.preservation_prompts
    return [prompt for prompt in known if prompt.strip()][:DRIFT_INPUTS]


def encoding_work(settings: TrainSettings, data: TrainingData) -> EncodingWork:
    """The work of a run with these clips. Raises ConfigError for a model that is not known."""
    family, model = find_model(settings.model)
    captions = [item.caption for item in data.items]
    captions += [*settings.preview_prompts, *preservation_prompts(family, model, settings), ""]
    views: list[View] = ["clip"]
    views += [view] if (view := view_of(model, settings)) != "clip" else []
    return EncodingWork(
        captions=tuple(dict.fromkeys(captions)),
        pieces=tuple(_pieces(settings, data, views)),
        reduction=settings.low_resolution_scale,
    )


def _pieces(settings: TrainSettings, data: TrainingData, views: list[View]) -> Iterator[Piece]:
    for items, both in (((*data.train, *data.regularization), settings.horizontal_flip > 0), (data.held_out, False)):
        for item in items:
            for view in views:
                for flipped in (False, True) if both else (False,):
                    yield Piece(item, view, flipped)


def portable_keys(workspace: Workspace, settings: TrainSettings) -> list[str]:
    """Keys of the tensors that are in the cache already and mean the same on any machine.

    Those of a model that is a folder do not: they are known by the folder's own path and times. Raises what load_data
    raises.
    """
    family, model = find_model(settings.model)
    folder = family.on_disk(model)
    if not model.revision or folder is None:
        return []
    work = encoding_work(settings, load_data(workspace, settings))
    found = []
    stored = PRECISIONS[family.stored_dtype(folder)]
    chosen = {"fp32", stored} if settings.precision == "auto" else {settings.precision}
    for short in sorted(chosen):
        dtype: Any = TORCH_NAMES[short]  # its name is all that a key needs
        encoder = Encoder(family, model, folder, Cache(workspace.cache), "cpu", dtype)
        keys = [encoder.caption_key(caption) for caption in work.captions]
        keys += [encoder.clip_key(one.item, one.view, one.flipped, work.reduction) for one in work.pieces]
        found += [key for key in keys if (workspace.cache / f"{key}.safetensors").is_file()]
    return sorted(set(found))
