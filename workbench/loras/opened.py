"""LoRAs opened for an operation: weights, the model they are for, and where they come from.

Not covered: what the operations do (merging, resizing ...), how a name is resolved (sampler.loras).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import lora_names, policy
from workbench.errors import ConfigError
from workbench.families import families, find_model, models
from workbench.families.base import Family
from workbench.families.facts import BLOCK
from workbench.families.lora_files import DOWN, PEFT_FILE, UP, LoraWeights
from workbench.loras.library import LibraryLora, find
from workbench.sampler.loras import Lora, fetched, resolve, sha256, split_scale
from workbench.workspace import Workspace

Report = Callable[[str], None]
TORCH_FILES = (".pt", ".pth", ".bin")


@dataclass(frozen=True)
class Opened:
    """One LoRA with its weights.

    name:  as given;  title: for people, and for names made from it;  scale: as given, 1 by default
    model: what `find_model` takes, "" when nothing says it;  base_model: the same as its file says it
    """

    name: str
    title: str
    path: Path
    scale: float
    family: Family
    weights: LoraWeights
    model: str
    base_model: str
    trigger: str
    steps: int | None

    def record(self) -> dict[str, Any]:
        """What lora.json says of it as something that another was made of."""
        return {"name": self.name, "file": self.path.name, "sha256": sha256(self.path), "weight": self.scale}


def opened(workspace: Workspace, texts: Sequence[str], report: Report = print) -> list[Opened]:
    """Open what WHAT=SCALE texts name, downloading what is on the Hub. Raises ConfigError, ModelUnavailable."""
    if not any(text.strip() for text in texts):
        raise ConfigError("loras is empty: name at least one LoRA", {"loras": "name at least one"})
    found = []
    for text in texts:
        for lora in fetched(_resolved(workspace, text), report):
            found.append(_open(workspace, lora))
    return found


def _resolved(workspace: Workspace, text: str) -> list[Lora]:
    if text.endswith(TORCH_FILES) and (path := policy.resolve(text, "loras")).is_file():
        return [Lora(text, path, 1.0)]
    if text.startswith(("/", "~", ".")) and not text.endswith(".safetensors"):
        folder = policy.resolve(split_scale(text)[0], "loras")
        if (folder / PEFT_FILE).is_file():
            return resolve(workspace, [f"{folder / PEFT_FILE}={split_scale(text)[1]:g}"])
    return resolve(workspace, [text])


def _open(workspace: Workspace, lora: Lora) -> Opened:
    full = lora.name if "/" in lora.name else f"{lora_names.RUNS}/{lora.name}"
    known: LibraryLora | None = find(workspace, full) if lora_names.is_name(full) else None
    family, weights, metadata = _read(lora.file)
    stem = lora.file.stem if ":" in lora.name or "/" not in lora.name else lora.name.rpartition("/")[2]
    if lora.file.name == PEFT_FILE and lora.name.endswith(PEFT_FILE):
        stem = lora.file.parent.name
    base = metadata.get("base_model", "") if known is None else known.base_model
    return Opened(
        name=lora.name if known is None else known.name,
        title=known.title if known is not None else stem.removesuffix(".safetensors"),
        path=lora.file,
        scale=lora.scale,
        family=family,
        weights=weights,
        model=(known.model if known is not None else "") or model_named(base),
        base_model=base,
        trigger=metadata.get("trigger_word", "") if known is None else known.trigger,
        steps=None if known is None else known.steps,
    )


def _read(path: Path) -> tuple[Family, LoraWeights, dict[str, str]]:
    """By the first family that knows its names; every number finite. Raises ConfigError."""
    refused: ConfigError | None = None
    for family in families():
        tensors, metadata = family.lora_tensors(path)
        try:
            weights = family.lora_weights(tensors, metadata)
        except ConfigError as error:
            refused = refused or error
            continue
        broken = next((name for name, tensor in weights.tensors.items() if not tensor.isfinite().all()), None)
        if broken is not None:
            raise ConfigError(
                f"the LoRA {path.name} holds NaN or infinite numbers (in {broken[:80]!r}): its training went wrong, "
                f"use an earlier checkpoint"
            )
        return family, weights, dict(metadata)
    assert refused is not None
    raise refused


def model_named(text: str) -> str:
    """The id of the known model, or the folder of one, that a file's base model names; "" for neither."""
    for model in models():  # a repository may have moved to another owner
        if text == model.id or (text and _last(text) == _last(model.source) and not model.local):
            return model.id
    return text if os.path.isfile(os.path.join(text, "model_index.json")) else ""


def _last(text: str) -> str:
    return text.rstrip("/").rpartition("/")[2].lower()


def common_model(loras: Sequence[Opened]) -> str:
    """The one model that LoRAs are for, "" when no file names it. Raises ConfigError when they are for several."""
    named = {lora.model or lora.base_model: lora for lora in loras if lora.model or lora.base_model}
    if len(named) > 1:
        made = "; ".join(f"{lora.title} for {model}" for model, lora in named.items())
        raise ConfigError(f"these LoRAs are for different models ({made}): choose some of one model")
    return next(iter(named), "")


# ---- does it fit a model? -------------------------------------------------------------------------------------------


def misfits(lora: LoraWeights, model: str) -> list[str]:
    """Layers that the model has not, or has in another size. Raises ConfigError for an unknown model."""
    family, known = find_model(model)
    facts = family.facts(known)
    sizes = {}
    for linear in facts.linears:
        for number in range(facts.blocks if linear.in_blocks else 1):
            sizes[linear.name.replace(BLOCK, str(number))] = (linear.outputs, linear.inputs)
    return [layer for layer in lora.layers if sizes.get(layer) != _size(lora, layer)]


def _size(lora: LoraWeights, layer: str) -> tuple[int, int]:
    """(outputs, inputs) of the layer that these matrices are for."""
    return int(lora.tensors[f"{layer}.{UP}"].shape[0]), int(lora.tensors[f"{layer}.{DOWN}"][0].numel())
