"""Sizes of a pipeline's parts, by their weights' names: from the heads of its files, or of a published model from
assets/architectures.json.

That file is written by scripts/write_architectures.py, which builds the published configs on the meta device. Of
another repository whose configs alone are on the disk a child process does the same, so that this one loads no torch.
Not covered: what the sizes mean (each family's `facts`).
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from workbench.errors import ModelUnavailable
from workbench.families import model_files
from workbench.families.facts import BLOCK
from workbench.families.model import Model
from workbench.operating_system import bare_environment
from workbench.paths import ASSETS, CODE
from workbench.workspace import read_json

FILE = ASSETS / "architectures.json"
IN_BLOCK = re.compile(r"((?:\w+_)?blocks)\.(\d+)\.(.+)")
PATIENCE = 300.0


@dataclass(frozen=True)
class Part:
    """One part of a pipeline, such as the transformer.

    config: as diffusers or transformers writes it;  values: numbers in all its weights
    blocks: how many equal blocks it has, 0 where it has none
    layers: linear layers and convolutions, name -> (inputs, outputs); a block's number is written as BLOCK
    """

    config: Mapping[str, Any]
    values: int
    blocks: int
    layers: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Architecture:
    """The parts of a pipeline that hold weights. stored: the transformer's format on disk"""

    parts: Mapping[str, Part]
    stored: str


def architecture(model: Model, folder: Path | None, parts: Iterable[str]) -> Architecture:
    """Of a model's files, or as published where it is not on the disk. Raises ModelUnavailable."""
    if folder is not None:
        found = {name: part(model_files.config(folder, name), model_files.shapes(folder, name)) for name in parts}
        return Architecture(found, model_files.stored_dtype(folder))
    stored = {"fp16": "float16", "bf16": "bfloat16"}.get(model.variant)
    if (known := published().get(model.source)) is not None:
        return Architecture(known.parts, stored or known.stored)
    configs = model_files.find_configs(model.source, model.revision)
    if configs is None:
        raise ModelUnavailable(f"the configs of {model.id} are no longer on the disk: name the model anew")
    return Architecture(_built_by_a_child(configs, tuple(parts)), stored or "bfloat16")


def part(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Part:
    """Of a part's config and the shapes of its weights."""
    found: dict[str, tuple[int, int]] = {}
    in_blocks: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for name, shape in sorted(shapes.items()):
        if len(shape) < 2 or not name.endswith(".weight"):
            continue
        layer, sizes = name.removesuffix(".weight"), (math.prod(shape[1:]), shape[0])
        if match := IN_BLOCK.fullmatch(layer):
            in_blocks[f"{match[1]}.{BLOCK}.{match[3]}"][match[2]] = sizes
        else:
            found[layer] = sizes
    blocks = max((len(numbers) for numbers in in_blocks.values()), default=0)
    for layer, numbers in in_blocks.items():
        if len(numbers) == blocks and len(set(numbers.values())) == 1:
            found[layer] = next(iter(numbers.values()))
        else:  # blocks that differ, as those of a VAE
            found |= {layer.replace(BLOCK, number): sizes for number, sizes in numbers.items()}
    return Part(dict(config), sum(math.prod(shape) for shape in shapes.values()), blocks, found)


@cache
def published() -> dict[str, Architecture]:
    """Hub repository -> its architecture."""
    found: dict[str, Architecture] = {}
    for entry in read_json(FILE)["pipelines"]:
        parts = {name: _read(one) for name, one in entry["parts"].items()}
        found |= {source: Architecture(parts, entry["stored"]) for source in entry["sources"]}
    return found


def _read(part: Mapping[str, Any]) -> Part:
    layers = {name: (inputs, outputs) for name, (inputs, outputs) in part["layers"].items()}
    return Part(part["config"], part["values"], part["blocks"], layers)


# ---- from configs alone


def built(library: str, kind: str, config: Mapping[str, Any]) -> Part:
    """Of a class of diffusers or transformers, built on the meta device from a config. Raises ModelUnavailable."""
    import torch

    made = model_files.class_named(library, kind)
    if library == "diffusers":
        module = model_files.empty(made, config)
        config = {name: value for name, value in module.config.items() if not name.startswith("_")}
    else:
        with torch.device("meta"):
            module = made(made.config_class(**config))
    # A tensor that two names share is stored once.
    tensors = {id(tensor): (name, tuple(tensor.shape)) for name, tensor in module.state_dict(keep_vars=True).items()}
    return part(config, dict(tensors.values()))


def built_from(folder: Path, parts: Iterable[str]) -> dict[str, Part]:
    """The parts of a pipeline folder that holds configs alone."""
    kinds = {name: model_files.index(folder)[name] for name in parts}
    return {name: built(library, kind, model_files.config(folder, name)) for name, (library, kind) in kinds.items()}


@lru_cache(maxsize=32)
def _built_by_a_child(configs: Path, parts: tuple[str, ...]) -> dict[str, Part]:
    """Raises ModelUnavailable for configs that cannot be built."""
    # Never a module of that name from the current folder (-P).
    command = [sys.executable, "-P", "-m", __name__, str(configs), *parts]
    path = os.pathsep.join(filter(None, [str(CODE), os.environ.get("PYTHONPATH")]))
    environment = {**bare_environment(), "PYTHONPATH": path}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True, env=environment)
    except (OSError, subprocess.SubprocessError) as error:
        last = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
        raise ModelUnavailable(f"the configs in {configs} cannot be read ({''.join(last)[:200]})") from error
    return {name: _read(one) for name, one in json.loads(done.stdout).items()}


if __name__ == "__main__":
    sizes = {name: asdict(one) for name, one in built_from(Path(sys.argv[1]), sys.argv[2:]).items()}
    sys.stdout.write(json.dumps(sizes))
