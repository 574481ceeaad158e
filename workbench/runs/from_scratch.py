"""Training from scratch: create a model with random weights in `models/NAME` of the workspace.

The run trains all of its weights, after its tokenizer if `tokenizer_steps` is set.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.families import families, find_model
from workbench.families.base import Family
from workbench.families.model_files import INDEX
from workbench.runs.data import seed_for
from workbench.runs.settings import TrainSettings
from workbench.settings import Settings
from workbench.workspace import Workspace, fresh_folder

MODELS = "models"
BASE_MODEL = "base_model"  # in a run's folder: the model it trains, with the tokenizer it trained first
SHAPE = {"frames": 17, "height": 64, "width": 64, "fps": 8}  # unless set otherwise
# Defaults from scratch; those of TrainSettings are for LoRAs.
DEFAULTS: dict[str, Any] = {
    "steps": 2000,
    "tokenizer_steps": 2000,
    "batch_size": 16,
    "learning_rate": 1e-3,
    "lr_schedule": "cosine",
    "warmup_steps": 100,
    "ema_decay": 0.995,
    "save_every": 250,
    "preview_every": 500,
}


def base_model(run: Path, model: str) -> str:
    """Return the model that a run trains: the one in its settings, or its own copy with the new tokenizer."""
    own = run / BASE_MODEL
    return str(own) if (own / INDEX).is_file() else model


def families_from_scratch() -> dict[str, Family]:
    """List the families that can be trained from scratch, by name."""
    return {family.name: family for family in families() if family.new_model is not None}


@contextlib.contextmanager
def new_model(
    workspace: Workspace,
    settings: TrainSettings,
    new: Settings | None = None,
    name: str | None = None,
    given: Collection[str] = (),
) -> Iterator[TrainSettings]:
    """Create a model with random weights, and yield the settings of a run that trains it.

        with new_model(workspace, TrainSettings(model="phenaki", dataset="cats")) as settings:
            run = Run.create(workspace, settings)

    The model is removed if the block raises.

    Args:
        settings: The run's settings; `model` names the family.
        new: The model's sizes, an instance of the family's `new_model`; None for its defaults.
        name: The model's name; None for the dataset's name.
        given: Settings to leave alone. Others that have their default value get the one in `DEFAULTS`.

    Raises ConfigError, ModelUnavailable, CannotWrite.
    """
    known = families_from_scratch()
    if (family := known.get(settings.model)) is None:
        raise ConfigError.about(
            f"model is {settings.model}: to train from scratch, name a family, {' or '.join(known)}"
        )
    assert family.new_model is not None
    new = family.new_model() if new is None else new
    plain = TrainSettings()
    usual = {
        setting: value
        for setting, value in DEFAULTS.items()
        if setting not in given and getattr(settings, setting) == getattr(plain, setting)
    }
    made_for = {setting: int(getattr(settings, setting) or usual_size) for setting, usual_size in SHAPE.items()}
    try:
        encoder = find_model(str(new.model_dump()["text_encoder"]))
    except ConfigError as error:
        raise ConfigError.about(f"text_encoder does not name a model: {error}") from error
    text = encoder.fetch()
    folder = fresh_folder(workspace.root / MODELS, name or settings.dataset or family.name)
    try:
        family.create(folder, new, text, made_for, seed_for(settings.seed, "from scratch"))
        yield settings.changed(**usual, model=str(folder), method="full")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
