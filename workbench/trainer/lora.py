"""The LoRA itself: attach it, get and set its tensors, write the file that diffusers loads, prove that file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch.nn import functional

from workbench.errors import ConfigError, DataError, WorkbenchError
from workbench.families import self_test
from workbench.families.base import Family
from workbench.families.facts import ALL_LINEAR
from workbench.families.lora_files import LOKR_NOTED, NOTED, adapter_notes, is_lokr, with_metadata
from workbench.families.self_test import SelfTestFacts
from workbench.runs.settings import TrainSettings, chosen_blocks
from workbench.workspace import write_bytes

ADAPTER = "default"


def attach(
    family: Family, transformer: Any, settings: TrainSettings, seed: int
) -> list[tuple[str, torch.nn.Parameter]]:
    """Add the LoRA and return its (name, parameter) pairs. Raises ConfigError."""
    from peft import LoKrConfig, LoraConfig

    # In peft's form: layer names or suffixes, or a regular expression.
    targets: list[str] | str = settings.targets
    if targets == ALL_LINEAR:
        targets = [name for name, module in transformer.named_modules() if isinstance(module, torch.nn.Linear)]
    elif targets in family.lora_targets:
        targets = list(family.lora_targets[targets])
    blocks = family.blocks(transformer)
    if (chosen := chosen_blocks(settings.blocks, len(blocks))) is not None:
        targets = _in_blocks(transformer, targets, [blocks[number] for number in sorted(chosen)])
    if unreached := family.unreached(settings.sound, len(blocks)):
        found = _in_blocks(transformer, targets, [transformer])
        targets = [name for name in found if not re.fullmatch(unreached, name)] or ["no layer"]
    config: Any
    if settings.method == "lokr":
        config = LoKrConfig(
            r=settings.rank, alpha=settings.alpha, target_modules=targets, decompose_factor=settings.lokr_factor
        )
    else:
        start: Any = True if settings.lora_init == "default" else settings.lora_init
        config = LoraConfig(
            r=settings.rank,
            lora_alpha=settings.alpha,
            lora_dropout=settings.lora_dropout,
            target_modules=targets,
            use_dora=settings.dora,
            exclude_modules=without_length(transformer) or None if settings.dora else None,
            use_rslora=settings.rslora,
            init_lora_weights=start,
        )
    torch.manual_seed(seed)
    try:
        transformer.add_adapter(config, adapter_name=ADAPTER)
    except ValueError as error:
        where = f"the blocks {settings.blocks}" if settings.blocks else "this model"
        where += " that a run with this sound trains" if unreached else ""
        presets = ", ".join((*family.lora_targets, ALL_LINEAR))
        raise ConfigError(
            f"targets is {settings.targets!r}, which names no layer of {where}: use {presets} "
            f"or a regular expression such as '.*attn1.to_[qv]'"
        ) from error
    if settings.method == "lokr":
        compute_by_factors(transformer)
    return [(name, parameter) for name, parameter in transformer.named_parameters() if parameter.requires_grad]


def _in_blocks(transformer: Any, targets: list[str] | str, blocks: Sequence[torch.nn.Module]) -> list[str]:
    """Return the full names of the layers in these blocks that match `targets` by peft's rules."""
    inside = {id(module) for block in blocks for module in block.modules()}
    ends = () if isinstance(targets, str) else tuple(f".{one}" for one in targets)
    return [
        name
        for name, module in transformer.named_modules()
        if id(module) in inside
        and (re.fullmatch(targets, name) if isinstance(targets, str) else f".{name}".endswith(ends))
    ] or ["no layer"]  # peft refuses this, with an error


def without_length(transformer: Any) -> list[str]:
    """Return linear layers with an all-zero weight row, such as the modulation of a text that is no longer used.

    DoRA divides each row by its norm, here and in every program that loads the file, so these layers get no LoRA.
    """
    return [
        name
        for name, module in transformer.named_modules()
        if isinstance(module, torch.nn.Linear)
        and module.weight.is_floating_point()
        and not module.weight.is_meta
        and not module.weight.detach().float().ne(0).any(dim=1).all()
    ]


def state(transformer: Any) -> dict[str, torch.Tensor]:
    """Return the LoRA's tensors by peft's names, on the CPU."""
    from peft.utils import get_peft_model_state_dict

    tensors = get_peft_model_state_dict(transformer, adapter_name=ADAPTER)
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def set_state(transformer: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    """Set an attached LoRA's tensors, by the names of `state`."""
    from peft.utils import set_peft_model_state_dict

    outcome = set_peft_model_state_dict(transformer, dict(tensors), adapter_name=ADAPTER)
    assert not outcome.unexpected_keys, f"the checkpoint has tensors this LoRA lacks: {outcome.unexpected_keys[:3]}"


def write(
    family: Family, transformer: Any, path: Path, notes: Mapping[str, str], about: SelfTestFacts | None = None
) -> None:
    """Write the file that the stock pipeline's `load_lora_weights` reads, with alpha and rank in its metadata.

    Raises DataError if a weight is not finite.

    about: what its test says besides its layers
    """
    tensors = {f"{family.lora_prefix}.{name}": tensor for name, tensor in state(transformer).items()}
    broken = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if broken:
        raise DataError(f"the LoRA holds values that are not numbers ({broken[0]}): lower the learning rate")
    # The stock loader adds layers in training mode, so a recorded dropout would be applied during inference.
    config = {**transformer.peft_config[ADAPTER].to_dict(), "lora_dropout": 0.0}
    of_adapter = adapter_notes(config, family.lora_prefix, LOKR_NOTED if is_lokr(tensors) else NOTED)
    test = self_test.noted(family, tensors, of_adapter, about or SelfTestFacts())
    write_bytes(path, with_metadata(save(tensors), {**of_adapter, **test, **notes}))


@contextmanager
def scaled(transformer: Any, factor: float) -> Iterator[None]:
    """Scale the LoRA by a factor, and restore its exact scale afterwards."""
    layers = [module for module in transformer.modules() if ADAPTER in getattr(module, "scaling", ())]
    before = [layer.scaling[ADAPTER] for layer in layers]
    try:
        for layer, own in zip(layers, before, strict=True):
            layer.scaling[ADAPTER] = own * factor
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            layer.scaling[ADAPTER] = own


def output(family: Family, transformer: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    """Return the model's output for fixed inputs, float32."""
    transformer.eval()
    with torch.no_grad():
        found = [one.float() for one in family.predictions(transformer, **inputs)]
        return found[0] if len(found) == 1 else torch.cat([one.flatten() for one in found])


def prove(family: Family, folder: Path, transformer: Any, path: Path, inputs: Mapping[str, Any]) -> float:
    """Load the exported file through the stock pipeline and return how much it changes the model's output.

    The file's LoRA replaces the transformer's own. Raises WorkbenchError if it is not the trained one or changes
    nothing.

    inputs: arguments of `family.predictions` for a fixed batch
    """
    trained, lokr = output(family, transformer, inputs), is_lokr(name for name, _ in transformer.named_parameters())
    transformer.delete_adapters(ADAPTER)
    base = output(family, transformer, inputs)
    if lokr:  # the pipeline's loader refuses it, the transformer's accepts it
        as_linear(transformer)
        transformer.load_lora_adapter(path.parent, weight_name=path.name, adapter_name="exported")
        loaded = list(transformer.peft_config)
    else:
        pipeline = family.load_pipeline(folder, transformer)
        pipeline.load_lora_weights(path.parent, weight_name=path.name, adapter_name="exported")
        loaded = pipeline.get_list_adapters().get(family.lora_prefix, [])
    if "exported" not in loaded:
        raise WorkbenchError(f"{path.name} was written, but the stock pipeline does not load it: please report this")
    return judged(trained, output(family, transformer, inputs), base, path.name, transformer.dtype)


def judged(
    trained: torch.Tensor, loaded: torch.Tensor, base: torch.Tensor, name: str, dtype: torch.dtype = torch.float32
) -> float:
    """Return how much an export changes the output, |with - without| / |without|. Raises WorkbenchError, see `prove`.

    dtype: the model's dtype, which limits the precision of the comparison
    """
    size = base.norm().clamp(min=1e-12)
    change, error = float((loaded - base).norm() / size), float((loaded - trained).norm() / size)
    if not change > 0.0:
        raise WorkbenchError(f"{name} changes nothing: train longer, or raise the learning rate")
    if error > max(0.1 * change, 1e-5, torch.finfo(dtype).eps):
        raise WorkbenchError(
            f"{name} gives a different result from the trained model (off by {error:.2e}): please report this"
        )
    return change


# ---- LoKr layers (LyCORIS), computed from their factors: peft builds every layer's full matrix in every step
#
# A layer's change is scale * kron(w1, w2), with w1 [l, m] and w2 [k, n] for m * n inputs and l * k outputs. For inputs
# folded to [m, n] that equals w1 @ inputs @ w2.T, up to rounding, and takes less memory and time.


def compute_by_factors(transformer: torch.nn.Module) -> None:
    """Replace the forward pass of every linear LoKr layer."""
    from peft.tuners.lokr.layer import Linear

    by_factors = type("LokrLinear", (Linear,), {"forward": _lokr_forward})
    for module in transformer.modules():
        if type(module) is Linear:
            module.__class__ = by_factors


def as_linear(transformer: torch.nn.Module) -> None:
    """Make every adapted base layer an instance of Linear, as peft requires for a LoKr.

    Families may have replaced linear layers with parts of a joined layer, which have all that a linear layer has.
    """
    for module in transformer.modules():
        base = getattr(module, "base_layer", None)
        if isinstance(base, torch.nn.Module) and not isinstance(base, torch.nn.Linear):
            base.__class__ = type("LinearPart", (type(base), torch.nn.Linear), {})


def _lokr_forward(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """Compute a layer with its active adapters. (peft's version also draws a random number, even without dropout.)"""
    result: torch.Tensor = layer.base_layer(x)
    if layer.disable_adapters:
        return result
    for name in layer.active_adapters:
        if name in layer._available_adapters:
            first = layer.lokr_w1[name] if name in layer.lokr_w1 else layer.lokr_w1_a[name] @ layer.lokr_w1_b[name]
            inputs = x if torch.is_autocast_enabled(x.device.type) else x.to(first.dtype)
            folded = inputs.unflatten(-1, (first.shape[1], -1))
            if name in layer.lokr_w2:
                folded = functional.linear(folded, layer.lokr_w2[name])
            else:
                folded = functional.linear(functional.linear(folded, layer.lokr_w2_b[name]), layer.lokr_w2_a[name])
            change = torch.matmul(first, folded).flatten(-2) * layer.scaling[name]
            result = result + change.to(result.dtype)
    return result
