"""Adding a new LoRA to the library: its file in diffusers' layout and its lora.json, complete or not at all.

Not covered: what is in it (merging, extracting, importing).
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.clips.records import file_sha256
from workbench.errors import ConfigError
from workbench.families.base import Family
from workbench.families.lora_files import DOWN, UP, LoraWeights, weights, with_metadata
from workbench.loras.opened import Opened
from workbench.workspace import Workspace, disk, fresh_folder, write_bytes, write_json, writing
from workbench.workspace.lora_names import FILE, LORAS, NOTES, folder

if TYPE_CHECKING:
    import torch

Step = Callable[[int, int], None]
"""Called with (layers done, all layers); may raise to stop."""


@dataclass(frozen=True)
class OperationResult:
    """What an operation made. name: of a LoRA in the library, or a path;  message: one sentence for people

    reports: how what was read matched (families.lora_names), for each LoRA;  files: that a conversion wrote
    """

    name: str
    message: str
    error: float | None = None
    reports: Sequence[Mapping[str, Any]] = ()
    files: Sequence[str] = ()


@dataclass(frozen=True)
class Provenance:
    """Where a new LoRA comes from, as lora.json records it.

    how: the operation in a word;  summary: the same in a sentence;  error: what is lost of the change, relative
    match: of an imported file, how it fitted the model (families.lora_names)
    """

    title: str
    how: str
    summary: str
    model: str
    base_model: str
    made_of: Sequence[Mapping[str, Any]]
    trigger: str = ""
    steps: int | None = None
    error: float | None = None
    match: Mapping[str, Any] = field(default_factory=dict)


def add_to_library(workspace: Workspace, family: Family, lora: LoraWeights, provenance: Provenance) -> OperationResult:
    """Write a LoRA into a new folder of the library. Raises CannotWrite."""
    from safetensors.torch import save

    if lora.nothing:
        provenance = replace(provenance, summary=f"{provenance.summary}; it changes nothing: {lora.nothing}")
    tensors, metadata = family.export_lora(lora, family.lora_formats[0].id)
    labels = {"base_model": provenance.base_model, "trigger_word": provenance.trigger, "made": provenance.summary}
    metadata |= {name: label for name, label in labels.items() if label}

    def fill(new: Path) -> None:
        write_bytes(new / FILE, with_metadata(save(tensors), metadata))
        facts = {"rank": lora.rank, "sha256": file_sha256(new / FILE), "time": time.time()}
        write_json(new / NOTES, {**asdict(provenance), **facts})

    target = new_folder(folder(workspace), provenance.title, fill)
    return OperationResult(f"{LORAS}/{target.name}", provenance.summary, provenance.error)


def new_folder(parent: Path, title: str, fill: Callable[[Path], None]) -> Path:
    """A folder named after a title, there once it is filled or not at all. Raises CannotWrite and what `fill` does."""
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=parent, prefix=".new-"))
        scratch.chmod(0o755)
    try:
        fill(scratch)
        target = fresh_folder(parent, title)
        with writing(target):
            disk.replace(scratch, target)  # onto the empty folder that holds the name
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def pair_of(up: torch.Tensor, down: torch.Tensor, shape: Sequence[int], dtype: torch.dtype) -> tuple[Any, Any]:
    """(up, down) of flat matrices as a layer of weights [outputs, inputs, ...] takes them; a convolution folds them."""
    rank, more = down.shape[0], len(shape) - 2
    folded = up.reshape(up.shape[0], rank, *[1] * more), down.reshape(rank, *shape[1:])
    return folded[0].to(dtype).contiguous(), folded[1].to(dtype).contiguous()


def lora_of_layers(layers: Iterable[tuple[str, Any, Any, Any]], origin: str) -> LoraWeights:
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
