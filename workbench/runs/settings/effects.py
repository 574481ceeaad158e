"""When a run's setting has an effect, so that forms can hide it elsewhere. Every rule here is one of the trainer, which
does not read what is hidden.

Not covered: settings that a model does not have (families.own_settings), that exclude one another (runs.checks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.errors import ConfigError
from workbench.families import find_model

Values = Mapping[str, Any]


def _image(values: Values) -> bool:
    """Whether an image is part of the model's input; true for an unknown model."""
    try:
        return find_model(str(values["model"]))[1].task == "image-to-video"
    except ConfigError:
        return True


def _first_frame(values: Values) -> bool:
    return _image(values) and values["condition"] == "first frame"


def _lora(values: Values) -> bool:
    return bool(values["method"] == "lora")


# Setting -> whether it has an effect; those that are not here always have.
NEEDED: dict[str, Callable[[Values], bool]] = {
    **dict.fromkeys(("condition", "image_dropout"), _image),
    **dict.fromkeys(("condition_frames", "image_latent_scale", "preview_images"), _first_frame),
    "low_resolution_scale": lambda values: _image(values) and not _first_frame(values),
    **dict.fromkeys(
        ("start_from", "rank", "alpha", "targets", "lora_dropout", "dora", "rslora", "lora_init", "train_also"), _lora
    ),
    "preservation_weight": _lora,
    **dict.fromkeys(
        ("regularization_share", "regularization_weight"), lambda values: bool(values["regularization_dataset"])
    ),
    "regularization_target": lambda values: _lora(values) and bool(values["regularization_dataset"]),
    **dict.fromkeys(
        ("tokenizer_batch_size", "tokenizer_learning_rate"), lambda values: bool(values["tokenizer_steps"])
    ),
    "dataset_weights": lambda values: bool(values["more_datasets"]),
    "validation_dataset": lambda values: bool(values["held_out"]),
    "dropped_caption": lambda values: bool(values["caption_dropout"]),
    "lr_cycles": lambda values: values["lr_schedule"] == "cosine_with_restarts",
    "lr_power": lambda values: values["lr_schedule"] == "polynomial",
    "picture_share": lambda values: bool(values["buckets"]) or values["bucket_limit"] != 1,
    "snr_gamma": lambda values: values["loss_weighting"] == "min-snr",
    "repository": lambda values: bool(values["push_to_hub"]),
    "tracker_project": lambda values: values["tracker"] != "none",
}
