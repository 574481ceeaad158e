"""LoRAs opened for an operation: weights, the model they are for, where they come from, and what they change.

A plain LoRA's change of a layer is scale * B @ A. A DoRA's also stretches each row of the weight to a length of its
own, so it is known only beside the weight. A change is [outputs, inputs]; a convolution's is flattened. All is computed
in float64, so that the stated errors are the errors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.clips.records import file_sha256
from workbench.errors import ConfigError
from workbench.families import families, find_model, model_files, models
from workbench.families.base import Family, ResolvedModel
from workbench.families.lora_files import (
    DIFFUSERS_FILE,
    DOWN,
    LENGTHS,
    PEFT_FILES,
    TRAINING_KEYS,
    UP,
    UP_BIAS,
    LoraWeights,
    by_expert,
    check_finite,
    is_of_torch,
    read_lora,
    unwrapped,
)
from workbench.families.lora_names import FIT_LIMIT, FORCE, UNKNOWN, Sizes, misfits, unknown_names, unread
from workbench.families.other_families import refuse_other_lora
from workbench.loras.library import LibraryLora, find
from workbench.sampler.loras import HUB, Lora, fetched, read_header, resolve
from workbench.workspace import Workspace, lora_names

if TYPE_CHECKING:
    import torch

Report = Callable[[str], None]


@dataclass(frozen=True)
class Opened:
    """One LoRA with its weights.

    name:  as given;  title: for people, and for names made from it;  scale: as given, 1 by default
    model: what `find_model` takes, "" when nothing says it;  base_model: the same as its file says it
    expert: of a file that holds two, which it is
    training: how it was trained, as its file says it and every copy has to (TRAINING_KEYS)
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
    expert: str = ""
    training: Mapping[str, str] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Its entry in the `made_of` of another LoRA's lora.json."""
        return {"name": self.name, "file": self.path.name, "sha256": file_sha256(self.path), "weight": self.scale}


def opened(workspace: Workspace, texts: Sequence[str], report: Report = print) -> list[Opened]:
    """Open what WHAT=SCALE texts name, downloading what is on the Hub. Raises ConfigError, ModelUnavailable."""
    found = [_open(workspace, lora) for lora in _fetched(workspace, texts, report)]
    for one in found:
        strange, layers = unread(one.weights), one.weights.layers
        if len(strange) > (1 - FIT_LIMIT) * (len(strange) + len(layers)):
            raise unknown_names(strange, f"one trainer, or import it with {FORCE}")
    return found


def opened_parts(workspace: Workspace, text: str, model: str, report: Report = print) -> list[Opened]:
    """The LoRA of a file, or the two of one that holds both experts'. Raises ConfigError, ModelUnavailable.

    model: what it is for, "" when nobody says
    """
    found = []
    for lora in _fetched(workspace, [text], report):
        names = read_lora(lora.file)[0] if is_of_torch(lora.file) else read_header(lora.file).tensors
        both = list(by_expert(dict.fromkeys(map(unwrapped, names))))
        found += [_open(workspace, lora, model, expert) for expert in (both if len(both) > 1 else [""])]
    return found


def _fetched(workspace: Workspace, texts: Sequence[str], report: Report) -> list[Lora]:
    if not any(text.strip() for text in texts):
        raise ConfigError("loras is empty: name at least one LoRA", {"loras": "name at least one"})
    return fetched(resolve(workspace, texts), report)


def _open(workspace: Workspace, lora: Lora, model: str = "", expert: str = "") -> Opened:
    full = lora.name if "/" in lora.name else f"{lora_names.RUNS}/{lora.name}"
    ours = lora_names.is_name(full) and lora_names.path_of(workspace, full) == lora.path
    known: LibraryLora | None = find(workspace, full) if ours else None
    family, weights, metadata = _read(lora.file, model or ("" if known is None else known.model), expert)
    hub = HUB.fullmatch(lora.name) if not lora.name.endswith(lora.file.name) or ":" in lora.name else None
    stem = lora.file.stem if hub is None or hub["file"] else hub["repo"].rpartition("/")[2]
    if hub is None and lora.file.name in (DIFFUSERS_FILE, *PEFT_FILES):
        stem = lora.file.parent.name
    base = metadata.get("base_model", "") if known is None else known.base_model
    return Opened(
        name=lora.name if known is None else known.name,
        title=known.title if known is not None else f"{stem} {expert}".rstrip(),
        path=lora.file,
        scale=lora.scale,
        family=family,
        weights=weights,
        model=(known.model if known is not None else "") or model_named(base),
        base_model=base,
        trigger=metadata.get("trigger_word", "") if known is None else known.trigger,
        steps=None if known is None else known.steps,
        expert=expert,
        training={name: metadata[name] for name in TRAINING_KEYS if name in metadata},
    )


def _read(path: Path, model: str, expert: str) -> tuple[Family, LoraWeights, dict[str, str]]:
    """By the family of its model, else by the one whose models have most of its layers; every number finite.

    model: "" when only the file may say it;  expert: of a file that holds two. Raises ConfigError.
    """
    tensors, metadata = read_lora(path)
    named = model or model_named(metadata.get("base_model", ""))
    candidates: list[tuple[Family, LoraWeights, dict[str, str]]] = []
    refused: list[ConfigError] = []
    refuse_other_lora(list(tensors), [family.title for family in families()])
    for family in (find_model(named).family,) if named else families():
        try:
            weights = family.lora_weights(by_expert(tensors)[expert] if expert else tensors, metadata)
            weights = replace(weights, expert=expert or weights.expert)
        except ConfigError as error:
            refused.append(error)
        else:
            candidates.append((family, weights, metadata))
    if not candidates:
        raise next((error for error in refused if UNKNOWN not in str(error)), refused[0])
    best = max(candidates, key=lambda one: _similarity(one[0], one[1])) if len(candidates) > 1 else candidates[0]
    check_finite(path, best[1].tensors)
    return best


def _similarity(family: Family, lora: LoraWeights) -> tuple[int, int]:
    """Of the family's known model that a LoRA fits best: how many layers it has in the LoRA's size, and has at all."""
    found, strange = [], len(unread(lora))
    for model in family.models:
        sizes = sizes_of(ResolvedModel(family, model))
        found.append((-len(misfits(lora, sizes)) - strange, sum(layer in sizes for layer in lora.layers)))
    return max(found, default=(-len(lora.layers) - strange - 1, 0))  # a family may have no known model


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


def common_expert(loras: Sequence[Opened]) -> str:
    """The one expert that LoRAs are for, "" where none is named. Raises ConfigError when they are for several."""
    named = {one.weights.expert for one in loras} - {""}
    if len(named) > 1:
        raise ConfigError("these LoRAs are for different experts of the model: choose some of one")
    return next(iter(named), "")


def sizes_of(model: ResolvedModel) -> Sizes:
    """(outputs, inputs) of each layer of a model that a LoRA can change."""
    return {name: (linear.outputs, linear.inputs) for name, linear in model.facts.named()}


# ---- what it changes ------------------------------------------------------------------------------------------------


class ModelWeights:
    """The weights of a folder of safetensors files, read one at a time."""

    def __init__(self, folder: Path) -> None:
        from safetensors import SafetensorError, safe_open

        self._files: dict[str, Path] = {}
        for path in sorted(folder.glob("*.safetensors")):
            try:
                with safe_open(path, framework="pt") as file:
                    self._files |= dict.fromkeys(file.keys(), path)
            except (SafetensorError, OSError) as error:
                raise ConfigError(f"{path} cannot be read ({error}): download or export it again") from error
        if not self._files:
            raise ConfigError(f"{folder} holds no .safetensors weights: name a folder of a transformer")

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __getitem__(self, name: str) -> torch.Tensor:
        from safetensors import safe_open

        with safe_open(self._files[name], framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
            return tensor


def base_weights_of(model: ResolvedModel, report: Report) -> ModelWeights:
    """The transformer's weights of a model, downloaded if need be. Raises ModelUnavailable."""
    return ModelWeights(model_files.whole(model.fetch(report)) / model.family.lora_prefix)


def base_for(loras: list[Opened], model: str, report: Report) -> ModelWeights | None:
    """The weights that these LoRAs' changes depend on, None where they depend on none. Raises ConfigError."""
    stretching = [lora for lora in loras if lora.weights.dora]
    if not stretching:
        return None
    if not model:
        raise ConfigError(
            f"{stretching[0].title} is a DoRA and does not say for which model, whose weights are needed: import it "
            f"with its model first"
        )
    return base_weights_of(find_model(model), report)


@dataclass(frozen=True)
class WeightChange:
    """One layer's change: up [outputs, rank] @ down [rank, inputs], or a matrix where it is no product."""

    up: torch.Tensor | None = None
    down: torch.Tensor | None = None
    whole: torch.Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)."""
        if self.whole is not None:
            return self.whole.shape[0], self.whole.shape[1]
        assert self.up is not None
        assert self.down is not None
        return self.up.shape[0], self.down.shape[1]

    def matrix(self) -> torch.Tensor:
        """[outputs, inputs], float64."""
        if self.whole is not None:
            return self.whole
        assert self.up is not None
        assert self.down is not None
        return self.up.double() @ self.down.double()


def change(lora: LoraWeights, layer: str, scale: float, base: ModelWeights | None) -> WeightChange:
    """What the LoRA at a scale changes of a layer's weight, flat. base: needed for a DoRA."""
    up = lora.tensors[f"{layer}.{UP}"].double().flatten(1) * (scale * lora.scale_of(layer))
    down = lora.tensors[f"{layer}.{DOWN}"].double().flatten(1)
    lengths = lora.tensors.get(f"{layer}.{LENGTHS}")
    if lengths is None or scale == 0:
        return WeightChange(up, down)
    assert base is not None
    weight = base[f"{layer}.weight"].double().flatten(1)
    moved = weight + up @ down
    return WeightChange(whole=moved * (lengths.double() / moved.norm(dim=1))[:, None] - weight)


def bias_change(lora: LoraWeights, layer: str, scale: float) -> torch.Tensor | None:
    """What the LoRA at a scale adds to a layer's bias; None where it leaves it alone."""
    bias = lora.tensors.get(f"{layer}.{UP_BIAS}")
    return None if bias is None else bias.double() * (scale * lora.scale_of(layer))
