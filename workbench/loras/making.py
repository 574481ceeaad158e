"""A new LoRA on the shelf: its file in diffusers' layout and what is said of it, there whole or not at all.

Not covered: what is in it (merging, extracting, importing).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.families.base import Family
from workbench.families.lora_files import DOWN, UP, LoraWeights, weights
from workbench.lora_names import FILE, LORAS, NOTES, folder
from workbench.loras.opened import Opened
from workbench.sampler.loras import sha256
from workbench.trainer.model.lora import with_metadata
from workbench.workspace import Workspace, fresh_folder, write_bytes, write_json, writing

if TYPE_CHECKING:
    import torch

Step = Callable[[int, int], None]
"""Called with (layers done, all layers); may raise to stop."""


@dataclass(frozen=True)
class Made:
    """What an operation made. name: of a LoRA on the shelf, or a path;  said: a sentence for people"""

    name: str
    said: str
    error: float | None = None


@dataclass(frozen=True)
class Story:
    """What lora.json says of a new LoRA.

    how: the operation in a word;  said: the same in a sentence;  error: what is lost of the change, relative
    """

    title: str
    how: str
    said: str
    model: str
    base_model: str
    made_of: Sequence[Mapping[str, Any]]
    trigger: str = ""
    steps: int | None = None
    error: float | None = None


def put(workspace: Workspace, family: Family, lora: LoraWeights, story: Story) -> Made:
    """Write a LoRA into a new folder of the shelf. Raises CannotWrite."""
    from safetensors.torch import save

    tensors, metadata = family.export_lora(lora, family.lora_formats[0].id)
    told = {"base_model": story.base_model, "trigger_word": story.trigger, "made": story.said}
    parent = folder(workspace)
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=parent, prefix=".new-"))
        scratch.chmod(0o755)
    try:
        write_bytes(scratch / FILE, with_metadata(save(tensors), {**metadata, **{k: v for k, v in told.items() if v}}))
        record = {
            "title": story.title, "how": story.how, "said": story.said, "made_of": list(story.made_of),
            "model": story.model, "base_model": story.base_model, "trigger": story.trigger, "steps": story.steps,
            "rank": lora.rank, "error": story.error, "sha256": sha256(scratch / FILE), "time": time.time(),
        }  # fmt: skip
        write_json(scratch / NOTES, record)
        target = fresh_folder(parent, story.title)
        with writing(target):
            os.rename(scratch, target)  # onto the empty folder that holds the name
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Made(f"{LORAS}/{target.name}", story.said, story.error)


def pair_of(up: torch.Tensor, down: torch.Tensor, shape: Sequence[int], dtype: torch.dtype) -> tuple[Any, Any]:
    """(up, down) of flat matrices as a layer of weights [outputs, inputs, ...] takes them; a convolution folds them."""
    rank, more = down.shape[0], len(shape) - 2
    folded = up.reshape(up.shape[0], rank, *[1] * more), down.reshape(rank, *shape[1:])
    return folded[0].to(dtype).contiguous(), folded[1].to(dtype).contiguous()


def of_layers(layers: Iterable[tuple[str, Any, Any, Any]], origin: str) -> LoraWeights:
    """A LoRA of (layer, up, down, bias or None), its scale 1 everywhere. Raises ConfigError when there are none."""
    tensors = {}
    for layer, up, down, bias in layers:
        tensors[f"{layer}.{DOWN}"], tensors[f"{layer}.{UP}"] = down, up
        if bias is not None:
            tensors[f"{layer}.lora_B.bias"] = bias
    if not tensors:
        raise ConfigError(f"{origin} changes no layer: there is nothing to make a LoRA of")
    return weights(tensors, {}, origin)


def title_from(given: str, loras: Sequence[Opened], end: str) -> str:
    """The name a person gave, or one made from what it was made of."""
    if given.strip():
        return given.strip()
    stems = [lora.title for lora in loras[:3]] + (["more"] if len(loras) > 3 else [])
    return f"{'-'.join(stems)}{end}"


def percent(error: float) -> str:
    """0.0123 -> "1.2 %"; what is nothing but rounding is "nothing"."""
    return "nothing" if error < 1e-6 else f"{error * 100:.2g} %"
