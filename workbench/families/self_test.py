"""Make the test that a LoRA file carries in its metadata: what `lora_check` compares a loaded LoRA with.

The numbers are computed from the tensors as they are written, by the code that later checks them. A copy in another
format keeps the test of the LoRA it was made from, so that a check of the copy is one of the conversion, too. Where the
base model's files are available, the test knows its weights, and after training also its output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.families import lora_check, model_files
from workbench.families.lora_check import BASES, KEY, Outputs, SelfTest
from workbench.families.model_inputs import CallInputs

if TYPE_CHECKING:
    import torch

    from workbench.families.base import Family
    from workbench.families.model import Model

TIMESTEP = 600.0
LARGEST_WEIGHT = 1 << 26  # values of a base weight that is projected; larger ones are passed over


@dataclass(frozen=True)
class SelfTestFacts:
    """What a test says besides the LoRA's layers."""

    base_model: str = ""  # the model's name in the file
    model: Model | None = None  # None if unknown
    folder: Path | None = None  # of the model's files; None if they are not available
    expert: str = ""  # "" for a model with one transformer
    shift: float | None = None  # of the noise levels in samples; None for the model's own
    outputs: Outputs | None = None


def noted(
    family: Family, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str], about: SelfTestFacts
) -> dict[str, str]:
    """Return the metadata that carries the test of a LoRA file's tensors."""
    import numpy as np

    found: dict[str, Any] = {}
    for name, change in lora_check.changes(arrays(tensors), metadata).items():
        layer = family.layer_names.layer_of(name) or name.removeprefix(f"{family.lora_prefix}.")
        found[layer] = change.numbers(layer)
    layers = tuple(sorted(found))
    shift = about.shift
    if shift is None and about.model is not None:
        shift = about.model.flow_shift_at(about.model.height, about.model.width)
    test = SelfTest(
        layers=layers,
        authors=tuple(family.layer_names.authors_name(layer) or "" for layer in layers),
        numbers=np.array([found[layer] for layer in layers], np.float32).reshape(-1, lora_check.COLUMNS),
        base_model=about.base_model,
        family=family.name,
        expert=about.expert,
        shift=shift,
        base={} if about.model is None or about.folder is None else _base(about.model, about.folder, layers),
        outputs=about.outputs,
    )
    return {KEY: test.dumps()}


def kept(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str], text: str) -> dict[str, str]:
    """Return the metadata for a copy of a LoRA with the test `text`; {} if the copy has other layer names.

    This is so in formats that join layers. Files without a test have none to keep.
    """
    try:
        names = SelfTest.loads(text).by_name if text else {}
        written = lora_check.changes(arrays(tensors), metadata)
    except lora_check.Damaged:
        return {}
    return {KEY: text} if names and all(lora_check.plain(name) in names for name in written) else {}


def anonymous(text: str, base_model: str) -> str:
    """Return a test that names its base model as a published file does; "" for one that cannot be read."""
    try:
        return replace(SelfTest.loads(text), base_model=base_model).dumps()
    except lora_check.Damaged:
        return ""


def arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return tensors as numpy arrays, float32."""
    return {name: tensor.detach().float().cpu().numpy() for name, tensor in tensors.items()}


def _base(model: Model, folder: Path, layers: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return, for each expert whose weights are available, the numbers of up to BASES layers' base weights."""
    chosen = tuple(
        layers[index] for index in sorted({round(number * (len(layers) - 1) / (BASES - 1)) for number in range(BASES)})
    )
    found = {one.name: _weights(folder, one.part, chosen) for one in model.experts}
    return {expert: numbers for expert, numbers in found.items() if numbers}


@lru_cache(maxsize=8)
def _weights(folder: Path, part: str, layers: tuple[str, ...]) -> dict[str, Any]:
    """Return the numbers of a part's weights of these layers, reading no other tensor."""
    from safetensors import safe_open

    wanted, found = {f"{layer}.weight": layer for layer in layers}, dict[str, Any]()
    homes = model_files.part_homes(folder, part)
    for path in (path for home in homes for path in sorted(home.glob("*.safetensors"))):
        with safe_open(path, framework="pt") as file:
            for name in set(file.keys()) & set(wanted):
                layer = wanted[name]
                if layer not in found and math.prod(file.get_slice(name).get_shape()) <= LARGEST_WEIGHT:
                    found[layer] = lora_check.base_numbers(layer, file.get_tensor(name).float().numpy())
    return {layer: found[layer] for layer in layers if layer in found}


def run(family: Family, model: Model, folder: Path, transformer: Any, device: torch.device) -> Outputs | None:
    """Run the model on a device, without and with its attached LoRA, on the test's small inputs.

    Returns None for families and models whose inputs the test does not know: those that take more than text.
    """
    if not family.tests_output or model.task != "text-to-video" or model.fixed_size or family.joins_conditioning(model):
        return None
    import torch

    frames, side = model.frame_counts[0], 2 * model.size_multiple
    shapes = family.text_shapes(family.facts_of(model, folder))
    given = Outputs(
        timestep=TIMESTEP,
        shape=(1, *family.latents_shape(folder, frames, side, side)),
        text={name: (1, *shape) for name, shape in shapes.items()},
        rounding=float(torch.finfo(transformer.dtype).eps),
    )
    dtype = transformer.dtype
    inputs = CallInputs(
        latents=torch.from_numpy(given.latents()).to(device, dtype),
        text={name: torch.from_numpy(given.embeddings(name)).to(device, dtype) for name in given.text},
        timesteps=torch.tensor([given.timestep], device=device),
        fps=model.fps,
    )

    def projected() -> Any:
        with torch.no_grad():
            return Outputs.projected(family.call(transformer, inputs).float().cpu().numpy())

    training = transformer.training
    transformer.eval()
    with_lora = projected()
    transformer.disable_adapters()
    try:
        without = projected()
    finally:
        transformer.enable_adapters()
        transformer.train(training)
    return replace(given, without=without, with_lora=with_lora)
