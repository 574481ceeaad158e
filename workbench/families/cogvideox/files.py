"""The files of a CogVideoX model: fetch them, read their configs, load tokenizer and scheduler.

Not covered: the weights (family), files of other layouts (sat, convert).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench.errors import ModelUnavailable
from workbench.families import hub_files
from workbench.families.base import Model, Report
from workbench.workspace import read_json

WEIGHTED = ("text_encoder", "transformer", "vae")  # the parts that have weights


def fetch(model: Model, report: Report) -> Path:
    """The folder with the model's files, downloaded at its revision if need be.

    Raises ConfigError, ModelUnavailable, CannotWrite.
    """
    if not model.local:
        return hub_files.fetch(model, WEIGHTED, report)
    folder = Path(model.source)
    if not (folder / hub_files.INDEX).is_file():
        raise ModelUnavailable(f"model is {model.id}, but {folder} has no model_index.json: restore the folder")
    return folder


def on_disk(model: Model) -> Path | None:
    """The folder with the model's files where nothing needs to be downloaded, else None."""
    return Path(model.source) if model.local else hub_files.find(model, WEIGHTED)


def index(folder: Path) -> dict[str, Any]:
    """Which classes the parts of a pipeline folder are of."""
    found: dict[str, Any] = read_json(folder / "model_index.json")
    return found


@lru_cache(maxsize=32)
def config(folder: Path, part: str) -> dict[str, Any]:
    """The config of one part: "transformer", "vae" ..."""
    found: dict[str, Any] = read_json(folder / part / "config.json")
    return found


def stored_dtype(folder: Path) -> str:
    """The transformer's dtype on disk: "float32", "float16" or "bfloat16". Raises ModelUnavailable."""
    # The file's order is by size of number, so that a few fp64 positions may stand in front of everything.
    formats = Counter(entry["dtype"] for entry in _entries(_weights(folder, "transformer")[0]))
    return {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[formats.most_common(1)[0][0]]


@lru_cache(maxsize=64)
def values(folder: Path, part: str) -> int:
    """How many numbers the weights of a part hold, from the heads of its files. Raises ModelUnavailable."""
    return sum(math.prod(entry["shape"]) for file in _weights(folder, part) for entry in _entries(file))


def _weights(folder: Path, part: str) -> list[Path]:
    found = sorted((folder / part).glob("*.safetensors"))
    if not found:
        raise ModelUnavailable(f"{folder / part} holds no .safetensors file: download the model again")
    return found


def _entries(path: Path) -> list[dict[str, Any]]:
    """Format and shape of every tensor of a file."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return [entry for name, entry in header.items() if name != "__metadata__"]


def scheduler_class(name: str) -> Any:
    import diffusers

    return {"DDIM": diffusers.CogVideoXDDIMScheduler, "DPM": diffusers.CogVideoXDPMScheduler}[name]


def load_scheduler(folder: Path, name: str = "model") -> Any:
    """The scheduler of that name, with the model's noise levels; "model": the one that it was published with."""
    found = read_json(folder / "scheduler" / "scheduler_config.json")
    own = "DPM" if "DPM" in found["_class_name"] else "DDIM"
    return scheduler_class(own if name == "model" else name).from_config(found)


def load_tokenizer(folder: Path) -> Any:
    """The T5 tokenizer; the published repositories hold it as `spiece.model` alone. Raises ModelUnavailable.

    transformers answers a missing or unreadable file with an all-<unk> tokenizer or a misleading error, so the result
    is checked here rather than found out in a run that learned nothing.
    """
    from transformers import T5Tokenizer

    source = folder / "tokenizer"
    if not any((source / name).is_file() for name in ("tokenizer.json", "spiece.model")):
        raise ModelUnavailable(f"{source} holds neither tokenizer.json nor spiece.model: download the model again")
    try:
        tokenizer = T5Tokenizer.from_pretrained(source)
    except (ImportError, ValueError) as error:
        raise ModelUnavailable(
            f"{source} cannot be read: pip install 'sentencepiece>=0.2.0,<0.2.2' 'protobuf>=5' ({str(error)[:120]})"
        ) from error
    ids = tokenizer("a video", add_special_tokens=False).input_ids
    if not ids or all(token == tokenizer.unk_token_id for token in ids):
        raise ModelUnavailable(f"{source} knows no plain words, so it did not load rightly: download the model again")
    return tokenizer
