"""Open LoRAs for an operation: their weights, model and origin, and the change they make to each layer.

A LoRA changes a layer's weight by scale * B @ A. A DoRA also rescales each row of the weight to a learned length, so
its change depends on the weight. A change is [outputs, inputs], flattened for convolutions. Everything is computed in
float64, so that the reported errors are exact.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from workbench.clips.records import file_sha256
from workbench.errors import ConfigError
from workbench.families import families, find_model, models
from workbench.families.base import Family, ResolvedModel
from workbench.families.lora_check import KEY
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
from workbench.families.lora_names import (
    FIT_LIMIT,
    FORCE,
    UNKNOWN,
    Sizes,
    block_number,
    misfits,
    unknown_names,
    unread,
)
from workbench.families.other_families import refuse_other_lora
from workbench.loras.library import LibraryLora, find
from workbench.sampler.loras import HUB, BlockScales, Lora, fetched, read_header, resolve
from workbench.workspace import Workspace, lora_names

if TYPE_CHECKING:
    import torch

    # Of a layer's weight, flattened: up [outputs, rank] and down [rank, inputs], or a whole matrix.
    WeightChange: TypeAlias = tuple[torch.Tensor, torch.Tensor] | torch.Tensor

Report = Callable[[str], None]


@dataclass(frozen=True)
class Opened:
    """One LoRA with its weights.

    name, scale, blocks: as given.
    title: for people, and for names derived from it.
    model: for `find_model`; "" if unknown.
    base_model: the model as the file names it.
    expert: which one it is, if the file holds LoRAs for two.
    training: how it was trained, from its file's metadata; copies must keep it (TRAINING_KEYS).
    test: the test in its file (families.self_test); "" without one.
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
    test: str = ""
    blocks: BlockScales = BlockScales()

    @property
    def terms(self) -> str:
        """The LoRA with its scale in a formula: "0.8 x ring", with factors of blocks behind."""
        return f"{self.scale:g} x {self.title}{self.blocks}"

    def scale_of(self, layer: str) -> float:
        """Return the scale of one layer."""
        return self.scale * self.blocks.factor(block_number(f"{layer}."))

    def record(self) -> dict[str, Any]:
        """Return its entry for `made_of` in another LoRA's lora.json."""
        scaled = {"blocks": str(self.blocks)} if self.blocks else {}
        file = {"file": self.path.name, "sha256": file_sha256(self.path)}
        return {"name": self.name, **file, "weight": self.scale, **scaled}


def opened(workspace: Workspace, texts: Sequence[str], report: Report = print) -> list[Opened]:
    """Open the LoRAs that LORA=SCALE texts name, downloading from the Hub. Raises ConfigError, ModelUnavailable."""
    found = [_open(workspace, lora) for lora in _fetched(workspace, texts, report)]
    for one in found:
        if unused := one.blocks.unused(block_number(f"{layer}.") for layer in one.weights.layers):
            raise ConfigError.of("loras", f"the LoRA {one.name} has a factor for {unused}")
        strange, layers = unread(one.weights), one.weights.layers
        if len(strange) > (1 - FIT_LIMIT) * (len(strange) + len(layers)):
            raise unknown_names(strange, f"one trainer, or import it with {FORCE}")
    return found


def opened_parts(workspace: Workspace, text: str, model: str, report: Report = print) -> list[Opened]:
    """Open the LoRA of a file, or both if it holds those of two experts. Raises ConfigError, ModelUnavailable.

    model: the model it is for; "" if unknown.
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
        blocks=lora.blocks,
        family=family,
        weights=weights,
        model=(known.model if known is not None else "") or model_named(base),
        base_model=base,
        trigger=metadata.get("trigger_word", "") if known is None else known.trigger,
        steps=None if known is None else known.steps,
        expert=expert,
        training={name: metadata[name] for name in TRAINING_KEYS if name in metadata},
        test=metadata.get(KEY, ""),
    )


def _read(path: Path, model: str, expert: str) -> tuple[Family, LoraWeights, dict[str, str]]:
    """Read a file with the family of `model`, else of the model that it names, else with the family that it fits best.

    expert: which LoRA to read from a file that holds two. Raises ConfigError if no family can read it.
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
    """Score how well a LoRA fits the best of a family's models: (minus the misfits, layers that the model has)."""
    found, strange = [], len(unread(lora))
    for model in family.models:
        sizes = sizes_of(ResolvedModel(family, model))
        found.append((-len(misfits(lora, sizes)) - strange, sum(layer in sizes for layer in lora.layers)))
    return max(found, default=(-len(lora.layers) - strange - 1, 0))  # a family may have no known model


def model_named(text: str) -> str:
    """Return the known model's id or the model folder that a file's base model names; "" for neither."""
    for model in models():  # compare without the owner: repositories move
        if text == model.id or (text and _last(text) == _last(model.source) and not model.local):
            return model.id
    return text if os.path.isfile(os.path.join(text, "model_index.json")) else ""


def _last(text: str) -> str:
    return text.rstrip("/").rpartition("/")[2].lower()


def common_model(loras: Sequence[Opened]) -> str:
    """Return the one model that LoRAs are for; "" if no file names one. Raises ConfigError if they differ."""
    named = {lora.model or lora.base_model: lora for lora in loras if lora.model or lora.base_model}
    if len(named) > 1:
        made = "; ".join(f"{lora.title} for {model}" for model, lora in named.items())
        raise ConfigError(f"these LoRAs are for different models ({made}): choose LoRAs for one model")
    return next(iter(named), "")


def common_expert(loras: Sequence[Opened]) -> str:
    """Return the one expert that LoRAs are for; "" if none is named. Raises ConfigError if they differ."""
    named = {one.weights.expert for one in loras} - {""}
    if len(named) > 1:
        raise ConfigError("these LoRAs are for different experts of the model: choose LoRAs for one expert")
    return next(iter(named), "")


def sizes_of(model: ResolvedModel) -> Sizes:
    """Return (outputs, inputs) of each layer that a LoRA can change."""
    return {name: (linear.outputs, linear.inputs) for name, linear in model.facts.named()}


# ---- changes of weights ---------------------------------------------------------------------------------------------


class ModelWeights:
    """The weights in a folder of safetensors files, loaded one at a time."""

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

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, name: str) -> torch.Tensor:
        from safetensors import safe_open

        with safe_open(self._files[name], framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
            return tensor


def base_weights_of(model: ResolvedModel, report: Report) -> ModelWeights:
    """Return the weights of a model's transformer, downloaded if needed. Raises ModelUnavailable."""
    return ModelWeights(model.whole_folder(report) / model.family.lora_prefix)


def base_for(loras: list[Opened], model: str, report: Report) -> ModelWeights | None:
    """Return the base weights that DoRAs among these LoRAs need; None if there are none. Raises ConfigError."""
    doras = [lora for lora in loras if lora.weights.dora]
    if not doras:
        return None
    if not model:
        raise ConfigError(
            f"{doras[0].title} is a DoRA, which needs its model's weights, but does not name its model: import it with "
            "its model first"
        )
    return base_weights_of(find_model(model), report)


def change(lora: LoraWeights, layer: str, scale: float, base: ModelWeights | None) -> WeightChange:
    """Return how a LoRA at a scale changes a layer's weight. base: needed for a DoRA."""
    up = lora.tensors[f"{layer}.{UP}"].double().flatten(1) * (scale * lora.scale_of(layer))
    down = lora.tensors[f"{layer}.{DOWN}"].double().flatten(1)
    lengths = lora.tensors.get(f"{layer}.{LENGTHS}")
    if lengths is None or scale == 0:
        return up, down
    assert base is not None
    weight = base[f"{layer}.weight"].double().flatten(1)
    moved = weight + up @ down
    whole: torch.Tensor = moved * (lengths.double() / moved.norm(dim=1))[:, None] - weight
    return whole


def matrix(change: WeightChange) -> torch.Tensor:
    """Return a change as [outputs, inputs]."""
    return change[0] @ change[1] if isinstance(change, tuple) else change


def bias_change(lora: LoraWeights, layer: str, scale: float) -> torch.Tensor | None:
    """Return what a LoRA at a scale adds to a layer's bias, or None."""
    bias = lora.tensors.get(f"{layer}.{UP_BIAS}")
    return None if bias is None else bias.double() * (scale * lora.scale_of(layer))
