"""LoRA adapters on transformers that stay loaded: load, activate at a scale, deactivate, keep for reuse.

Files in diffusers' layout go straight through its stock loader. Files of other trainers are first rewritten in that
layout, with alpha multiplied in. The adapters of one request do not affect the next.

The setting `train_also` trains full weights beside a LoRA, in also.safetensors. While a request uses them, a weight is
own + s * (trained - own) at scale s, summed over the request's LoRAs; afterwards the model's own weights are back.

A model has one transformer, or two experts, only one of which is on the device at a time. Each has its own LoRAs.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.clips.records import file_sha256
from workbench.errors import ConfigError
from workbench.families import families
from workbench.families.base import Family
from workbench.families.lora_files import (
    DIFFUSERS_KEY,
    DOWN,
    UP,
    LoraWeights,
    check_finite,
    experts_of,
    is_of_torch,
    of_expert,
    plain_name,
    read_lora,
    without_alpha,
    without_layers,
)
from workbench.families.lora_names import block_number, check_fit, match_report
from workbench.families.model import Expert, Model
from workbench.families.model_inputs import Tensors
from workbench.families.other_families import refuse_other_lora
from workbench.sampler.loras import BlockScales, Lora, read_header
from workbench.workspace import from_json, write_bytes
from workbench.workspace.lora_names import ALSO

if TYPE_CHECKING:
    import torch

KEY = re.compile(r"transformer\.(.+)\.(lora_A|lora_B|lora\.down|lora\.up|lora_magnitude_vector)(\.weight|\.bias)?")
MADE_FOR = ("base_model", "ss_base_model_version")  # metadata keys under which trainers name the model
READING = 2  # version of the converted files; raise it when files are read differently
KEPT = 8  # LoRAs that stay loaded; the least recently used is unloaded first
SAME = ("base_model", "step", "seed")  # metadata that a LoRA and its also.safetensors share
NOT_AS_TRAINED = (
    "the LoRA {lora} was trained together with the model's {weight}, but the loaded model has a different one: choose "
    "the LoRA's own model, and a speed other than low-memory"
)


class Adapters:
    """The LoRAs of one pipeline."""

    def __init__(self, family: Family, pipeline: Any, model: str, expert: str = "") -> None:
        """model: the model's title, for messages; expert: the name of the transformer's expert, if there are two"""
        self._expert = expert
        self._family, self._pipeline, self._model = family, pipeline, model
        self._also_trained = AlsoTrained(pipeline.transformer)
        # File -> (adapter's name in peft, what a sample's record says about it); least recently used first.
        self._loaded: dict[tuple[Any, ...], tuple[str, dict[str, Any]]] = {}
        self._count = 0

    def apply(self, loras: Sequence[Lora], cache: Path, force: bool = False) -> list[dict[str, Any]]:
        """Activate exactly these LoRAs, whose files are on disk, and return the record of each.

        Raises ConfigError if a LoRA cannot be used; then none is active.

        Args:
            cache: Where files of other trainers are rewritten in diffusers' layout.
            force: Use the fitting layers of a LoRA that was made for another model.
        """
        try:
            active = [(*self._load(lora, cache, force), lora.scale) for lora in loras]
            beside = self._also_trained.apply(loras)
        except BaseException:
            self._deactivate()
            raise
        # Leave out LoRAs at scale 0: a DoRA would still change the weights' magnitudes.
        names = [adapter for adapter, _, scale in active if scale]
        kept = {adapter for adapter, *_ in active}
        surplus = max(0, len(self._loaded) - max(KEPT, len(kept)))
        for key, (adapter, _) in list(self._loaded.items())[:surplus]:
            if adapter not in kept:
                self._pipeline.delete_adapters(adapter)
                del self._loaded[key]
        if names:
            self._pipeline.enable_lora()
            self._pipeline.set_adapters(names, [scale for *_, scale in active if scale])
            try:
                for lora, (adapter, *_) in zip(loras, active, strict=True):
                    if lora.blocks and lora.scale:
                        self._scale_blocks(lora, adapter)
            except BaseException:
                self._deactivate()
                raise
        else:
            self._deactivate()
        return [
            {"name": lora.name, **facts, "scale": lora.scale}
            | ({"blocks": str(lora.blocks)} if lora.blocks else {})
            | ({"also_trained_sha256": file_sha256(also)} if also is not None else {})
            for lora, (_, facts, _), also in zip(loras, active, beside, strict=True)
        ]

    # ---- loading

    def _load(self, lora: Lora, cache: Path, force: bool) -> tuple[str, dict[str, Any]]:
        status = lora.file.stat()
        key = (str(lora.file), status.st_mtime_ns, status.st_size, force)
        if (loaded := self._loaded.pop(key, None)) is None:
            loaded = self._read(lora, cache, force)
        self._loaded[key] = loaded
        return loaded

    def _read(self, lora: Lora, cache: Path, force: bool) -> tuple[str, dict[str, Any]]:
        tensors, metadata = self._family.lora_tensors(lora.file)
        refuse_other_lora(list(tensors), [family.title for family in families()])
        check_finite(lora.file, tensors)
        tensors, metadata = of_expert(tensors, self._expert), dict(metadata)
        weights, shapes = self._family.lora_weights(tensors, metadata), dict(shapes_of(self._pipeline.transformer))
        sizes = {name: (shape[0], math.prod(shape[1:])) for name, shape in shapes.items() if len(shape) > 1}
        try:
            made_for = next((metadata[key] for key in MADE_FOR if key in metadata), "")
            wrong = check_fit(f"the LoRA {lora.file.name}", weights, sizes, self._model, force, made_for)
        except ConfigError as error:
            raise ConfigError.of("loras", str(error)) from None
        fitted, path = shaped(weights, shapes), lora.file
        if wrong or fitted is not weights or not _loads_as_is(lora.file, tensors, metadata, weights):
            # The name has everything that determines the converted file.
            digest = hashlib.sha256("\n".join(sorted(wrong)).encode()).hexdigest()[:12]
            expert, without = self._expert.partition(" ")[0], f"-{digest}" if wrong else ""
            path = cache / f"{file_sha256(lora.file)}{expert}{without}-{READING}.safetensors"
        if path != lora.file and not path.exists():
            from safetensors.torch import save

            named = without_alpha(without_layers(fitted, wrong)).tensors
            prefix = self._family.lora_prefix
            write_bytes(path, save({f"{prefix}.{name}": tensor.contiguous() for name, tensor in named.items()}))
        self._count += 1
        adapter = f"lora_{self._count}"  # not the file's name: peft forbids dots
        with warnings.catch_warnings():
            # peft warns about each adapter after the first.
            warnings.filterwarnings("ignore", message="Already found a `peft_config`")
            self._pipeline.load_lora_weights(
                str(path), adapter_name=adapter, use_safetensors=True, local_files_only=True
            )
        # The stock loader only warns if it finds nothing to load.
        if not any(adapter in names for names in self._pipeline.get_list_adapters().values()):
            raise ConfigError(
                f"diffusers' loader found nothing to load in the LoRA {lora.file.name}: export it again as a diffusers "
                f"LoRA"
            )
        report = match_report(weights, sizes)
        kept = ("layers", "matched", "left_out", "converted", "lost", "nothing")
        facts = {
            "file": str(lora.file),
            "sha256": file_sha256(lora.file),
            **{name: report[name] for name in kept if name in report},
            "rank": weights.rank,
            "alpha": weights.alpha,
            "base_model": metadata.get("base_model", ""),
            "origin": weights.origin,
        }
        return adapter, facts

    def _scale_blocks(self, lora: Lora, adapter: str) -> None:
        """Apply a LoRA's factors of blocks to an adapter that was just activated at one scale. Raises ConfigError."""
        layers = [
            (block_number(f"{name}."), module)
            for name, module in self._pipeline.transformer.named_modules()
            if adapter in getattr(module, "scaling", ())
        ]
        if unused := lora.blocks.unused(block for block, _ in layers):
            raise ConfigError.of("loras", f"the LoRA {lora.name} has a factor for {unused}")
        for block, module in layers:
            if factor := lora.blocks.factor(block):
                module.scaling[adapter] *= factor
            else:  # a DoRA at scale 0 would still change the weights' magnitudes
                module.set_adapter([one for one in module.active_adapters if one != adapter])

    # ---- deactivating

    def _deactivate(self) -> None:
        self._also_trained.restore()
        if self._loaded:
            self._pipeline.disable_lora()


def shaped(weights: LoraWeights, shapes: Mapping[str, tuple[int, ...]]) -> LoraWeights:
    """Return the LoRA with its convolution matrices in the layers' shapes; some trainers write them flat."""
    folded = {}
    for layer in weights.layers:
        shape, up, down = shapes.get(layer, ()), weights.tensors[f"{layer}.{UP}"], weights.tensors[f"{layer}.{DOWN}"]
        if len(shape) > down.ndim and down[0].numel() == math.prod(shape[1:]):
            folded[f"{layer}.{DOWN}"] = down.reshape(-1, *shape[1:])
            folded[f"{layer}.{UP}"] = up.reshape(*up.shape[:2], *[1] * (len(shape) - 2))
    return replace(weights, tensors={**weights.tensors, **folded}) if folded else weights


def _loads_as_is(path: Path, tensors: Tensors, metadata: Mapping[str, str], weights: LoraWeights) -> bool:
    """Return whether the stock loader reads a file the same way we do."""
    named = {name: tensor for name, tensor in tensors.items() if KEY.fullmatch(name)}
    plain = all(tensor.is_floating_point() and tensor.itemsize > 1 for tensor in named.values())
    noted = DIFFUSERS_KEY not in metadata and weights.alpha is None
    if DIFFUSERS_KEY in metadata:  # whether the loader can build a peft config from these notes
        from peft import LoraConfig

        with contextlib.suppress(ValueError):
            notes = from_json(metadata[DIFFUSERS_KEY])
            names = {key.removeprefix("transformer.") for key in notes} if isinstance(notes, dict) else set[str]()
            noted = {"lora_alpha", "target_modules"} <= names <= set(LoraConfig.__dataclass_fields__)
    header = read_header(path).tensors if path.suffix == ".safetensors" else {}
    return plain and noted and header.keys() == tensors.keys() == named.keys() and not weights.left_out


def shapes_of(transformer: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the (name without any LoRA, weight shape) of each module that has a weight."""
    for name, module in transformer.named_modules():
        if hasattr(module, "in_features") and hasattr(module, "out_features"):
            yield name.removesuffix(".base_layer"), (module.out_features, module.in_features)
        elif (weight := getattr(module, "weight", None)) is not None and hasattr(weight, "shape"):
            yield name.removesuffix(".base_layer"), tuple(weight.shape)


# ---- full weights trained beside a LoRA


def file_beside(lora: Path) -> Path | None:
    """Return the also.safetensors that was written with a LoRA, or None. Raises ConfigError."""
    path = lora.with_name(ALSO)
    if lora.suffix != ".safetensors" or not path.is_file():
        return None
    own, other = read_header(lora).metadata, read_header(path).metadata
    return path if all(name in own and own[name] == other.get(name) for name in SAME) else None


class AlsoTrained:
    """Puts full weights trained beside LoRAs into one transformer that stays loaded."""

    def __init__(self, transformer: Any) -> None:
        self._transformer = transformer
        self._own: dict[str, torch.Tensor] = {}  # the model's own weights, while they are replaced
        self._active: list[tuple[Path, int, float, BlockScales]] = []

    def apply(self, loras: Sequence[Lora]) -> list[Path | None]:
        """Activate the weights beside exactly these LoRAs and return each LoRA's file or None. Raises ConfigError."""
        files = [file_beside(lora.file) if lora.scale else None for lora in loras]
        found = [(path, lora) for path, lora in zip(files, loras, strict=True) if path is not None]
        wanted = [(path, path.stat().st_mtime_ns, lora.scale, lora.blocks) for path, lora in found]
        if wanted != self._active:
            self.restore()
            parameters = self._parameters()
            for name, value in _sums(parameters, found).items():
                self._own[name] = parameters[name].data.clone()
                parameters[name].data.copy_(value)
            self._active = wanted
        return files

    def restore(self) -> None:
        """Put the model's own weights back."""
        parameters = self._parameters() if self._own else {}
        for name, own in self._own.items():
            parameters[name].data.copy_(own)
        self._own, self._active = {}, []

    def _parameters(self) -> dict[str, torch.nn.Parameter]:
        """Return the parameters by their names without any LoRA."""
        named = self._transformer.named_parameters()
        return {plain_name(name): one for name, one in named if ".lora_" not in name}


def _sums(
    parameters: Mapping[str, torch.nn.Parameter], found: Sequence[tuple[Path, Lora]]
) -> Mapping[str, torch.Tensor]:
    """Return the new value of each weight, in float32 if it is interpolated."""
    from safetensors.torch import load_file

    sums = dict[str, Any]()
    for path, lora in found:
        for name, trained in load_file(path).items():
            own = parameters[name].data if name in parameters else None
            if own is None or own.shape != trained.shape:
                raise ConfigError.of("loras", NOT_AS_TRAINED.format(lora=lora.name, weight=name))
            trained, scale = trained.to(own.device), lora.scale * lora.blocks.factor(block_number(name))
            if scale == 1 and name not in sums:
                sums[name] = trained
            else:
                sums[name] = sums.get(name, own).float() + scale * (trained.float() - own.float())
    return sums


# ---- experts


@dataclass
class LoadedExpert:
    """A transformer with its LoRAs. resting: closing it brings the frozen weights back to the device"""

    expert: Expert
    transformer: Any
    adapters: Adapters
    resting: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


class Experts:
    """All transformers of a model. If there are two, neither is on the device until `at` asks for it."""

    def __init__(self, family: Family, model: Model, folder: Path, load: Callable[[Expert], Any], on_gpu: bool) -> None:
        """Load all transformers. load: returns an expert's transformer, on the device"""
        self._pair, self._on_gpu = len(model.experts) > 1, on_gpu
        self.loaded: list[LoadedExpert] = []
        self._active: LoadedExpert | None = None
        for expert in model.experts:
            transformer = load(expert)
            # The stock pipeline serves as the LoRA loader.
            adapters = Adapters(family, family.load_pipeline(folder, transformer), model.title, expert.name)
            self.loaded.append(LoadedExpert(expert, transformer, adapters))
            self._rest(self.loaded[-1])

    def apply(self, loras: Sequence[Lora], cache: Path, force: bool) -> list[dict[str, Any]]:
        """Activate exactly these LoRAs, each on its experts, and return the record of each. Raises ConfigError."""
        wanted = [self._names(lora) for lora in loras]
        records: list[dict[str, Any]] = [{} for _ in loras]
        for one in self.loaded:
            mine = [index for index, names in enumerate(wanted) if one.expert.name in names]
            found = one.adapters.apply([loras[index] for index in mine], cache, force)
            for index, record in zip(mine, found, strict=True):
                records[index] = record | ({"experts": list(wanted[index])} if self._pair else {})
        return records

    def _names(self, lora: Lora) -> tuple[str, ...]:
        """Return the names of the experts that a LoRA is for: all, unless its file says otherwise."""
        known = tuple(one.expert.name for one in self.loaded)
        if not self._pair:
            return known
        if is_of_torch(lora.file):
            named = experts_of(*read_lora(lora.file), lora.file.name) or known
        else:
            header = read_header(lora.file)
            named = experts_of(header.tensors, header.metadata, lora.file.name) or known
        if not set(named) <= set(known):
            raise ConfigError.of(
                "loras", f"the LoRA {lora.file.name} is for the expert {', '.join(named)}: choose one for this model"
            )
        return named

    def at(self, timestep: float) -> Any:
        """Return the transformer for a timestep, on the device."""
        needed = next(one for one in self.loaded if one.expert.covers(timestep))
        if needed is not self._active:
            self.rest()
            needed.resting.close()
            self._active = needed
        return needed.transformer

    def rest(self) -> None:
        """Move the active one of two experts off the device."""
        if self._active is not None:
            self._rest(self._active)
            self._active = None

    def _rest(self, one: LoadedExpert) -> None:
        if self._pair and self._on_gpu:
            from workbench.memory.block_swap import parked

            one.resting.enter_context(parked(one.transformer))
