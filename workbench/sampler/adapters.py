"""LoRA adapters on a transformer that stays loaded: loaded, activated with a scale each, deactivated, kept for reuse.

Files in diffusers' layout go through its stock loader as they are; those of other trainers are first written in that
layout, with their alpha multiplied in. Adapters of one request have no effect on the next. Not covered: which files
there are (loras), other trainers' names (the family).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.clips.records import file_sha256
from workbench.errors import ConfigError
from workbench.families import families
from workbench.families.base import Family
from workbench.families.lora_files import LoraWeights, check_finite, of_expert, without_alpha
from workbench.families.lora_match import match_report
from workbench.families.lora_names import FINETRAINERS_KEY
from workbench.families.other_families import refuse_other_lora
from workbench.sampler.also_trained import AlsoTrained
from workbench.sampler.loras import KEY, Header, Lora, check_fit, read_header
from workbench.workspace import write_bytes

KEPT = 8  # LoRAs that stay loaded; the least recently used is unloaded first


@dataclass(frozen=True)
class _Loaded:
    """A loaded LoRA: its adapter name in peft, and its facts for a sample's record."""

    adapter: str
    facts: dict[str, Any]


class Adapters:
    """The LoRAs of one pipeline."""

    def __init__(self, family: Family, pipeline: Any, model: str, expert: str = "") -> None:
        """model: its title, for people;  expert: of the pipeline's transformer, where the model has two"""
        self._expert = expert
        self._family, self._pipeline, self._model = family, pipeline, model
        self._also_trained = AlsoTrained(pipeline.transformer)
        self._loaded: dict[tuple[Any, ...], _Loaded] = {}  # least recently used first
        self._count = 0

    def apply(self, loras: Sequence[Lora], cache: Path, force: bool = False) -> list[dict[str, Any]]:
        """Make exactly these LoRAs, whose files are here, the active ones. Returns the record of each.

        cache: where files of other trainers are written in diffusers' layout
        force: take what fits of a LoRA that was made for another model

        Raises ConfigError; then none is active.
        """
        try:
            active = [(self._load(lora, cache, force), lora.scale) for lora in loras]
            beside = self._also_trained.apply(loras)
        except BaseException:
            self._deactivate()
            raise
        # A scale of 0 is the model alone; DoRA would still stretch its weights.
        names = [loaded.adapter for loaded, scale in active if scale]
        self._unload_oldest({loaded.adapter for loaded, _ in active})
        if names:
            self._pipeline.enable_lora()
            self._pipeline.set_adapters(names, [scale for _, scale in active if scale])
        else:
            self._deactivate()
        return [
            {"name": lora.name, **loaded.facts, "scale": lora.scale}
            | ({"also_trained_sha256": file_sha256(also)} if also is not None else {})
            for lora, (loaded, _), also in zip(loras, active, beside, strict=True)
        ]

    # ---- loading

    def _load(self, lora: Lora, cache: Path, force: bool) -> _Loaded:
        status = lora.file.stat()
        key = (str(lora.file), status.st_mtime_ns, status.st_size, force)
        if (loaded := self._loaded.pop(key, None)) is None:
            loaded = self._read(lora, cache, force)
        self._loaded[key] = loaded
        return loaded

    def _read(self, lora: Lora, cache: Path, force: bool) -> _Loaded:
        header, (tensors, metadata) = read_header(lora.file), self._family.lora_tensors(lora.file)
        refuse_other_lora(list(tensors), [family.title for family in families()])
        check_finite(lora.file, tensors)
        tensors = of_expert(tensors, self._expert)
        path, weights, whole_file = lora.file, None, tensors
        # finetrainers' alpha is where the stock loader does not look.
        if FINETRAINERS_KEY in metadata or not any(KEY.fullmatch(name) for name in header.tensors):
            weights = self._family.lora_weights(tensors, metadata)
            named = without_alpha(weights).tensors
            tensors = {f"{self._family.lora_prefix}.{name}": tensor for name, tensor in named.items()}
            header = Header({name: tuple(value.shape) for name, value in tensors.items()}, header.metadata)
            whose = self._expert.partition(" ")[0]
            path = cache / f"{file_sha256(lora.file)}{whose}.safetensors"
        shapes = dict(_shapes(self._pipeline.transformer))
        fitting = check_fit(lora, header, shapes, self._model, force)
        if len(fitting) < len(header.tensors) and force:
            tensors = {name: tensors[name] for name in fitting}
            path = cache / f"{file_sha256(lora.file)}-part.safetensors"
        if path != lora.file and not path.exists():
            from safetensors.torch import save

            whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
            write_bytes(path, save(whole, dict(header.metadata) if weights is None else {}))
        self._count += 1
        adapter = f"lora_{self._count}"  # peft forbids dots, file names have them
        with warnings.catch_warnings():
            # Several adapters are what we want; peft warns of each after the first.
            warnings.filterwarnings("ignore", message="Already found a `peft_config`")
            self._pipeline.load_lora_weights(
                str(path), adapter_name=adapter, use_safetensors=True, local_files_only=True
            )
        # The stock loader only warns when it finds nothing to load.
        if not any(adapter in names for names in self._pipeline.get_list_adapters().values()):
            raise ConfigError(
                f"the LoRA {lora.file.name} was not taken by diffusers' loader: export it again as a diffusers LoRA"
            )
        if weights is None:
            weights = self._family.lora_weights(whole_file, metadata)
        return _Loaded(adapter, _facts(lora, header, shapes, weights))

    # ---- deactivating

    def _deactivate(self) -> None:
        self._also_trained.restore()
        if self._loaded:
            self._pipeline.disable_lora()

    def _unload_oldest(self, active: set[str]) -> None:
        for key, loaded in list(self._loaded.items()):
            if len(self._loaded) <= max(KEPT, len(active)):
                return
            if loaded.adapter not in active:
                self._pipeline.delete_adapters(loaded.adapter)
                del self._loaded[key]


def _facts(lora: Lora, header: Header, shapes: Mapping[str, tuple[int, ...]], weights: LoraWeights) -> dict[str, Any]:
    sizes = {name: (shape[0], math.prod(shape[1:])) for name, shape in shapes.items() if len(shape) > 1}
    report = match_report(weights, sizes)
    return {
        "file": str(lora.file),
        "sha256": file_sha256(lora.file),
        **{name: report[name] for name in ("layers", "matched", "left_out")},
        "rank": weights.rank,
        "alpha": weights.alpha,
        "base_model": header.metadata.get("base_model", ""),
        "origin": weights.origin,
    }


def _shapes(transformer: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Modules that have weights, by the names they have without any LoRA."""
    for name, module in transformer.named_modules():
        if hasattr(module, "in_features") and hasattr(module, "out_features"):
            yield name.removesuffix(".base_layer"), (module.out_features, module.in_features)
        elif (weight := getattr(module, "weight", None)) is not None and hasattr(weight, "shape"):
            yield name.removesuffix(".base_layer"), tuple(weight.shape)
