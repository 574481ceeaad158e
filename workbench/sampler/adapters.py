"""LoRA adapters on a transformer that stays loaded: loaded, activated with a scale each, deactivated, kept for reuse.

Files in diffusers' layout go through its stock loader as they are; those of other trainers are first written in that
layout, with their alpha multiplied in. Adapters of one request have no effect on the next. Not covered: which files
there are (loras), other trainers' names (the family).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.families.base import Family
from workbench.families.lora_files import LoraWeights, without_alpha
from workbench.sampler.loras import KEY, Header, Lora, check_fit, read_header, sha256
from workbench.workspace import write_bytes

KEPT = 8  # LoRAs that stay loaded; the least recently used is unloaded first


@dataclass(frozen=True)
class _Loaded:
    """A loaded LoRA: its adapter name in peft, and its facts for a sample's record."""

    adapter: str
    facts: dict[str, Any]


class Adapters:
    """The LoRAs of one pipeline."""

    def __init__(self, family: Family, pipeline: Any, model: str) -> None:
        """model: its title, for people"""
        self._family, self._pipeline, self._model = family, pipeline, model
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
            for lora, (loaded, _) in zip(loras, active, strict=True)
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
        header, tensors = read_header(lora.file), _tensors(lora)
        path, weights = lora.file, None
        if not any(KEY.fullmatch(name) for name in header.tensors):
            weights = self._family.lora_weights(tensors, header.metadata)
            named = without_alpha(weights).tensors
            tensors = {f"{self._family.lora_prefix}.{name}": tensor for name, tensor in named.items()}
            header = Header({name: tuple(value.shape) for name, value in tensors.items()}, header.metadata)
            path = cache / f"{sha256(lora.file)}.safetensors"
        fitting = check_fit(lora, header, dict(_shapes(self._pipeline.transformer)), self._model, force)
        if len(fitting) < len(header.tensors) and force:
            tensors = {name: tensors[name] for name in fitting}
            path = cache / f"{sha256(lora.file)}-part.safetensors"
        if path != lora.file:
            _write(path, tensors, header.metadata if weights is None else {})
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
        if weights is None and path == lora.file:
            weights = self._family.lora_weights(tensors, header.metadata)
        return _Loaded(adapter, _facts(lora, header, len(fitting), weights))

    # ---- deactivating

    def _deactivate(self) -> None:
        """Make no LoRA active."""
        if self._loaded:
            self._pipeline.disable_lora()

    def _unload_oldest(self, active: set[str]) -> None:
        """Unload the least recently used, where more are loaded than are kept."""
        for key, loaded in list(self._loaded.items()):
            if len(self._loaded) <= max(KEPT, len(active)):
                return
            if loaded.adapter not in active:
                self._pipeline.delete_adapters(loaded.adapter)
                del self._loaded[key]


def _facts(lora: Lora, header: Header, matched: int, weights: LoraWeights | None) -> dict[str, Any]:
    return {
        "file": str(lora.file),
        "sha256": sha256(lora.file),
        "matched": matched,
        "tensors": len(header.tensors),
        "rank": weights.rank if weights else None,
        "alpha": weights.alpha if weights else None,
        "base_model": header.metadata.get("base_model", ""),
        "origin": weights.origin if weights else "",
    }


def _shapes(transformer: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Modules that have weights, by the names they have without any LoRA."""
    for name, module in transformer.named_modules():
        if hasattr(module, "in_features") and hasattr(module, "out_features"):
            yield name.removesuffix(".base_layer"), (module.out_features, module.in_features)
        elif (weight := getattr(module, "weight", None)) is not None and hasattr(weight, "shape"):
            yield name.removesuffix(".base_layer"), tuple(weight.shape)


def _tensors(lora: Lora) -> dict[str, Any]:
    """A LoRA's tensors, all of them numbers. Raises ConfigError."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(lora.file)
    except SafetensorError as error:
        raise _refusal(f"the LoRA {lora.file.name} is damaged ({error}): download or export it again") from None
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise _refusal(
                f"the LoRA {lora.file.name} holds NaN or infinite numbers (in {name[:80]!r}): its training went "
                f"wrong, use an earlier checkpoint"
            )
    return tensors


def _write(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    from safetensors.torch import save

    if not path.exists():
        write_bytes(path, save({name: value.contiguous() for name, value in tensors.items()}, dict(metadata)))


def _refusal(sentence: str) -> ConfigError:
    return ConfigError(sentence, {"loras": sentence})
