"""The trained part of the transformer (a LoRA, some weights beside it, or everything), and frozen LoRAs beside it.

    checkpoint                  method lora: lora.safetensors, and also.safetensors for the weights of `train_also`
                                method full: weights.safetensors
    export in the run's folder  method lora: the same files
                                method full: transformer/ (or transformer_2/, for that expert) as diffusers saves it;
                                the export then completes the model

Trained values are float32, whatever the base model's dtype. After that, the memory levels are applied to the
transformer. They work together only in this order:

    host -> attention -> LoRA -> joined projections -> quantization -> device or shards -> block swap -> checkpointing
    -> compiling

Every level computes the same as the plain model: bit for bit on a CPU without quantization, within rounding elsewhere
(benchmarks/memory_levels.py). `fit` decides which levels a GPU needs; `memory` implements them.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch.nn import functional

from workbench.errors import ConfigError, DataError, WorkbenchError
from workbench.families.base import Family
from workbench.families.lora_files import (
    DOWN,
    UP,
    UP_BIAS,
    check_finite,
    of_expert,
    plain_name,
    with_metadata,
    without_layers,
)
from workbench.families.lora_names import check_fit
from workbench.families.self_test import SelfTestFacts
from workbench.memory import compiling
from workbench.memory.checkpointing import recomputing
from workbench.runs.frozen_loras import IN_PREVIEWS, IN_TRAINING, FrozenLora
from workbench.runs.settings import TrainSettings
from workbench.sampler.adapters import shaped, shapes_of
from workbench.trainer import lora
from workbench.trainer.ranks import shard, shard_like, whole
from workbench.workspace import write_bytes, writing
from workbench.workspace.lora_names import ALSO

Named = list[tuple[str, torch.nn.Parameter]]
LORA, WEIGHTS = "lora.safetensors", "weights.safetensors"
WEIGHTS_PATTERN = "diffusion_pytorch_model{suffix}.safetensors"  # file names in the part's folder


class Trainable:
    """The trained part of a transformer. `names` and `parameters` go together, LoRA first."""

    def __init__(
        self, family: Family, transformer: Any, settings: TrainSettings, seed: int, part: str = "transformer"
    ) -> None:
        """Attach the trained part. Raises ConfigError if a setting matches no layer.

        part: the transformer's name in the pipeline
        """
        self.family, self.transformer, self.full = family, transformer, settings.method == "full"
        self.part = part
        found: Named = []
        if self.full:
            unreached = family.unreached(settings.sound, len(family.blocks(transformer)))
            found = [one for one in transformer.named_parameters() if not re.fullmatch(unreached, one[0])]
        else:
            found = lora.attach(family, transformer, settings, seed)
            found += _also(transformer, settings.train_also)
        for _, parameter in found:
            parameter.requires_grad_(True)
            parameter.data = parameter.data.float()
        self.names = [name for name, _ in found]
        self.parameters = [parameter for _, parameter in found]
        self._beside = [] if self.full else [name for name in self.names if not _of_lora(name)]

    def follow(self) -> None:
        """Pick up the parameters again, because sharding replaces them with new objects of the same names."""
        present = dict(self.transformer.named_parameters())
        self.parameters = [present[name] for name in self.names]

    @property
    def named(self) -> Named:
        return list(zip(self.names, self.parameters, strict=True))

    @property
    def summary(self) -> str:
        """The trained part in words, with the number of values."""
        count = sum(parameter.numel() for parameter in self.parameters)
        kind = "a LoKr" if any(".lokr_" in name for name in self.names) else "a LoRA"
        what = "the whole transformer" if self.full else kind
        beside = f" and {len(self._beside)} weights beside it" if self._beside else ""
        return f"{what}{beside}, {count:,} values"

    # ---- checkpoints

    def plain(self, keep: bool = True) -> dict[str, torch.Tensor]:
        """Return the trained values other than the LoRA, by plain name, on the CPU; {} without `keep`.

        Every rank must call this, because shards are gathered. Raises DataError if a value is not finite.
        """
        wanted = set(self.names if self.full else self._beside)
        found = dict[str, Any]()
        for name, parameter in self.named:
            if name in wanted:
                value = whole(parameter.detach())
                _refuse_broken(name, value)
                found |= {plain_name(name): value.cpu().contiguous()} if keep else {}
        return found

    def write(
        self,
        folder: Path,
        notes: Mapping[str, str],
        plain: Mapping[str, torch.Tensor] | None = None,
        about: SelfTestFacts | None = None,
    ) -> list[Path]:
        """Write the trained values and return the files. Raises DataError if a value is not finite, CannotWrite.

        plain: the result of `plain()`, if it was already called
        about: what a LoRA's test says beside its layers
        """
        plain = self.plain() if plain is None else plain
        if self.full:
            return [_write_plain(folder / WEIGHTS, plain, notes)]
        lora.write(self.family, self.transformer, folder / LORA, notes, about)
        return [folder / LORA, *([_write_plain(folder / ALSO, plain, notes)] if plain else [])]

    def load(self, folder: Path) -> None:
        """Load what `write` wrote."""
        if self.full:
            self._load_plain(folder / WEIGHTS)
            return
        prefix = f"{self.family.lora_prefix}."
        tensors = {name.removeprefix(prefix): tensor for name, tensor in load_file(folder / LORA).items()}
        lora.set_state(self.transformer, tensors)
        if self._beside:
            self._load_plain(folder / ALSO)

    def _load_plain(self, path: Path) -> None:
        tensors = load_file(path)
        for name, parameter in self.named:
            if (tensor := tensors.get(plain_name(name))) is not None:
                parameter.data.copy_(shard_like(tensor, parameter.data))

    # ---- the export

    def export(
        self, run: Path, notes: Mapping[str, str], first: bool = True, about: SelfTestFacts | None = None
    ) -> Path:
        """Write the final weights into the run's folder and return their path. Raises DataError, CannotWrite.

        first: whether this rank writes; the others contribute their shards
        about: what a LoRA's test says beside its layers
        """
        if not self.full:
            plain = self.plain(first)
            return self.write(run, notes, plain, about)[0] if first else run / LORA
        from huggingface_hub import save_torch_state_dict

        tensors = dict[str, Any]()
        for name, value in self.transformer.state_dict().items():  # with buffers, as diffusers saves it
            value = whole(value)
            _refuse_broken(name, value)
            tensors |= {name: value.cpu()} if first else {}
        if first:
            self.transformer.save_config(run / self.part)
            with writing(run / self.part):
                save_torch_state_dict(tensors, run / self.part, filename_pattern=WEIGHTS_PATTERN)
        return run / self.part

    def prove(self, folder: Path, exported: Path, inputs: dict[str, Any]) -> float:
        """Load the export as its users will and return how much it changes the model's output (see `lora.judged`).

        The transformer cannot be used afterwards. Raises WorkbenchError if the export is not the trained model or
        changes nothing.

        inputs: arguments of `family.predictions` for a fixed batch
        """
        if not self.full:
            return lora.prove(self.family, folder, self.transformer, exported, inputs)
        trained = lora.output(self.family, self.transformer, inputs)
        loaded = lora.output(self.family, self._filled_from(exported), inputs)
        base = lora.output(self.family, self._filled_from(folder / self.part), inputs)
        return lora.judged(trained, loaded, base, exported.name)

    def _filled_from(self, source: Path) -> Any:
        """Fill the transformer with the weights of a folder, so that no second model has to fit in memory."""
        tensors = {
            name: tensor for file in sorted(source.glob("*.safetensors")) for name, tensor in load_file(file).items()
        }
        present = self.transformer.state_dict()
        if differing := sorted(set(present) ^ set(tensors)):
            raise WorkbenchError(f"{source.name} is missing {differing[0]} or should not have it: please report this")
        for name, value in present.items():
            value.copy_(shard_like(tensors[name], value))
        return self.transformer


def continue_from(family: Family, transformer: Any, settings: TrainSettings, path: Path) -> str:
    """Start the attached LoRA from a file of any known trainer and return a sentence that says so.

    The file's strength is kept: its matrices are scaled to have the same effect with this run's alpha. Raises
    ConfigError if rank or layers differ.
    """
    own = lora.state(transformer)
    if settings.method == "lokr":
        prefix, stored = f"{family.lora_prefix}.", family.lora_tensors(path)[0]
        tensors = {name.removeprefix(prefix): one for name, one in stored.items()}
        if {name: one.shape for name, one in tensors.items()} != {name: one.shape for name, one in own.items()}:
            remedy = "set method, rank, lokr_factor and targets as they were for it"
            raise _misfit(path, f"is not a LoKr with the same factors on the same layers: {remedy}")
        lora.set_state(transformer, tensors)
        return f"starting from {path.name} (a LoKr)"
    found = family.lora_weights(*family.lora_tensors(path))
    if found.mixed and len({found.rank_of(layer) for layer in found.layers}) > 1:
        remedy = "resize it first (workbench loras resize)"
        raise _misfit(path, f"has layers of different ranks, but a run trains a single rank: {remedy}")
    if found.rank != settings.rank:
        raise _misfit(path, f"has rank {found.rank}, rank is {settings.rank}: set rank to {found.rank}")
    if set(found.tensors) != set(own):
        first = sorted(set(found.tensors) ^ set(own))[0]
        remedy = "set targets and dora as they were for it"
        raise _misfit(path, f"has different layers from the ones this run trains ({first}): {remedy}")
    wrong = [name for name, tensor in found.tensors.items() if tensor.shape != own[name].shape]
    if wrong:
        raise _misfit(path, f"was made for another model ({wrong[0]} has a different size): choose its model")
    ours = settings.alpha / (settings.rank**0.5 if settings.rslora else settings.rank)
    factors = {layer: found.scale_of(layer) / ours for layer in found.layers}
    tensors = {
        name: tensor.float() * (factors[name.rpartition(".lora_")[0]] if "lora_B" in name else 1)
        for name, tensor in found.tensors.items()
    }
    lora.set_state(transformer, tensors)
    times = " to ".join(f"{factor:g}" for factor in sorted({min(factors.values()), max(factors.values())}))
    scaled = "" if set(factors.values()) == {1.0} else f", scaled {times} times to keep its strength"
    return f"starting from {path.name} ({found.origin}, rank {found.rank}{scaled})"


def _misfit(path: Path, reason: str) -> ConfigError:
    return ConfigError.of("start_from", f"the LoRA {path.name} {reason}")


def _refuse_broken(name: str, value: torch.Tensor) -> None:
    if not value.isfinite().all():
        raise DataError(f"{name} holds values that are not numbers: lower the learning rate")


def _write_plain(path: Path, tensors: Mapping[str, torch.Tensor], notes: Mapping[str, str]) -> Path:
    write_bytes(path, with_metadata(save(dict(tensors)), {"format": "pt", **notes}))
    return path


def _of_lora(name: str) -> bool:
    return ".lora_" in name or ".lokr_" in name


def _also(transformer: Any, prefixes: Sequence[str]) -> Named:
    """Return the weights that `train_also` names. Raises ConfigError."""
    pairs = [(name, parameter) for name, parameter in transformer.named_parameters() if not _of_lora(name)]
    chosen: Named = []
    for prefix in (text.strip() for text in prefixes if text.strip()):
        fitting = [(name, parameter) for name, parameter in pairs if plain_name(name).startswith(prefix)]
        if not fitting:
            known = ", ".join(dict.fromkeys(name.split(".")[0] for name, _ in pairs))
            raise ConfigError.of(
                "train_also",
                f"train_also has {prefix!r}, but no weight's name begins with it: use a prefix such as {known}",
            )
        chosen += [pair for pair in fitting if pair[0] not in {name for name, _ in chosen}]
    return chosen


# ---- frozen LoRAs, switched on for training, for previews, or off


@dataclass
class FrozenLoras:
    """The frozen LoRAs of one run, beside the base model's layers. on: the settings whose LoRAs are switched on

    Each adds `scale * B(A(x))` to a base layer's output. Nothing is merged into stored weights, so switching them off
    gives exactly the base model, and quantized, swapped or sharded layers stay as they are.
    """

    loras: Sequence[FrozenLora] = ()
    on: frozenset[str] = frozenset(IN_TRAINING)
    _held: list[torch.Tensor] = field(default_factory=list)

    def attach(self, family: Family, transformer: Any, title: str, expert: str = "", trained: bool = True) -> None:
        """Add them to a transformer for good, after its memory levels are applied.

        Args:
            title: The model's title, for messages.
            expert: Which of the model's two transformers this is; "" if it has one.
            trained: Whether this transformer is in training. The other one is used in previews only.

        Raises:
            ConfigError: A file cannot be read, is a DoRA or does not fit.
        """
        for one in self.loras:
            if trained or one.setting in IN_PREVIEWS:
                self._add(family, transformer, one, title, expert)

    @contextlib.contextmanager
    def only(self, settings: Collection[str]) -> Iterator[None]:
        """Switch on the LoRAs of these settings and no others."""
        before, self.on = self.on, frozenset(settings)
        try:
            yield
        finally:
            self.on = before

    def previewing(self) -> contextlib.AbstractContextManager[None]:
        return self.only(IN_PREVIEWS)

    def off(self) -> contextlib.AbstractContextManager[None]:
        return self.only(())

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield their matrices, which are on the device."""
        return iter(self._held)

    def _add(self, family: Family, transformer: Any, frozen: FrozenLora, title: str, expert: str) -> None:
        tensors, metadata = family.lora_tensors(frozen.path)
        check_finite(frozen.path, tensors)
        weights = family.lora_weights(of_expert(tensors, expert), metadata)
        if weights.expert and expert and weights.expert != expert:
            return  # it belongs to the other transformer
        if weights.dora:
            raise ConfigError.of(
                frozen.setting,
                f"{frozen.setting} is {frozen.name}, a DoRA, whose scale depends on the base model's weights: convert "
                f"it to a plain LoRA first (workbench loras resize)",
            )
        shapes = dict(shapes_of(transformer))
        sizes = {name: (shape[0], math.prod(shape[1:])) for name, shape in shapes.items() if len(shape) > 1}
        try:
            wrong = check_fit(f"the LoRA {frozen.path.name}", weights, sizes, title)
        except ConfigError as error:
            raise ConfigError.of(frozen.setting, f"{frozen.setting} is {frozen.name}: {error}") from None
        fitting = without_layers(shaped(weights, shapes), wrong)
        modules = {name.removesuffix(".base_layer"): module for name, module in transformer.named_modules()}
        like = next(parameter for parameter in transformer.parameters())
        for layer in fitting.layers:
            down, up = fitting.tensors[f"{layer}.{DOWN}"], fitting.tensors[f"{layer}.{UP}"]
            bias = fitting.tensors.get(f"{layer}.{UP_BIAS}")
            scale = frozen.scale * fitting.scale_of(layer)
            moved = [one.to(like.device, transformer.dtype) for one in (down, up.float() * scale)]
            moved += [] if bias is None else [(bias.float() * scale).to(like.device, transformer.dtype)]
            self._held += moved
            self._hook(modules[layer], frozen.setting, *moved)

    def _hook(
        self,
        layer: torch.nn.Module,
        setting: str,
        down: torch.Tensor,
        up: torch.Tensor,
        bias: torch.Tensor | None = None,
    ) -> None:
        """Add a LoRA to the layer's output while its setting is on."""

        def added(layer: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
            if setting not in self.on:
                return output
            (x,) = inputs
            matrices, more = (down.to(x.dtype), up.to(x.dtype)), None if bias is None else bias.to(x.dtype)
            if down.ndim == 2:
                inner = functional.linear(x, matrices[0])
                return output + functional.linear(inner, matrices[1], more).to(output.dtype)
            convolve = getattr(functional, f"conv{down.ndim - 2}d")
            inner = convolve(x, matrices[0], None, layer.stride, layer.padding, layer.dilation)
            return output + convolve(inner, matrices[1], more).to(output.dtype)

        base: Any = getattr(layer, "base_layer", layer)  # inside peft's layer, if a LoRA is trained here
        base.register_forward_hook(added)


# ---- memory levels


def begins_on_host(settings: TrainSettings, sharded: bool = False) -> bool:
    """Return whether to load the model on the host first, because as stored it may not fit on the device."""
    return sharded or settings.base_model_precision != "as stored" or settings.blocks_to_swap > 0


def apply_memory_levels(
    family: Family, transformer: Any, settings: TrainSettings, device: torch.device, sharded: bool = False
) -> None:
    """Apply the memory levels to a transformer with its LoRA and attention in place, and move it to the device.

    Raises ConfigError.
    """
    blocks = family.all_blocks(transformer)
    if settings.method != "full" and settings.attention != "stock":
        family.join_projections(transformer)
    if settings.base_model_precision != "as stored":
        from workbench.memory.low_bit import shrink

        for block in blocks:  # quantize on the device, which is fast, with at most one full block there at a time
            shrink([block.to(device)], settings.base_model_precision)
            if settings.blocks_to_swap:
                block.to("cpu")
    if settings.blocks_to_swap:
        from workbench.memory.block_swap import BlockSwap

        BlockSwap(blocks, settings.blocks_to_swap, device)
    if sharded:
        shard(blocks, transformer, device)
    else:
        transformer.to(device)
    level, random = settings.gradient_checkpointing, settings.lora_dropout > 0
    recompute = recomputing(level, random) if level != "none" else None
    # Inside a compiled block the compiler plans the recomputation. Swapping and offloading must stay outside.
    inside = settings.compile and not settings.blocks_to_swap and level in ("keep attention", "full")
    if recompute is not None and not inside:
        transformer.enable_gradient_checkpointing(recompute)
    if settings.compile:
        compiling.check_compiler()
        compiling.compile_blocks(blocks, recompute if inside else None, shapes_differ=family.caption_lengths_differ)
