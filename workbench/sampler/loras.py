"""LoRA files: which ones are there, whether a file is sound and fits the model, and putting them on a pipeline.

A LoRA is named in settings as NAME_OR_FILE=SCALE: a run's name (its exported LoRA) or a .safetensors file, scale 1 when
not given. `available_loras`, `resolve` and `read_header` need no torch; `apply` does. Not covered: training and export
(trainer), formats other than diffusers' (kohya, ComfyUI).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.workspace import SLUG, Workspace

EXPORT = "lora.safetensors"
HEADER_LIMIT = 16 * 1024**2
TENSOR_LIMIT = 20_000
FIT_LIMIT = 0.95
KEY = re.compile(r"transformer\.(.+)\.(lora_A|lora_B|lora\.down|lora\.up|lora_magnitude_vector)(\.weight|\.bias)?")
# What other things that get renamed to .safetensors begin with.
IMPOSTORS = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the weights: download the real file (git lfs pull)"),
    (b"<", "is a web page, not weights: the download needs a login or another address"),
    (b"PK\x03\x04", "is a pickle in a zip (a .pt or .bin file renamed), which may run code: get it as safetensors"),
    (b"\x80", "is a Python pickle renamed, which may run code: get it as safetensors"),
)


@dataclass(frozen=True)
class Lora:
    """One LoRA of a request."""

    name: str
    path: Path
    scale: float


@dataclass(frozen=True)
class Header:
    """What a safetensors file says of itself: tensor name -> shape, and its metadata."""

    tensors: Mapping[str, tuple[int, ...]]
    metadata: Mapping[str, str]


# ---- naming: no torch -----------------------------------------------------------------------------------------------


def available_loras(workspace: Workspace) -> list[str]:
    """Names of the runs that have exported a LoRA, newest first."""
    exports = sorted(workspace.runs.glob(f"*/{EXPORT}"), key=lambda path: path.stat().st_mtime, reverse=True)
    return [path.parent.name for path in exports]


def resolve(workspace: Workspace, texts: Sequence[str]) -> list[Lora]:
    """Find the files behind NAME_OR_FILE=SCALE texts and check that each is sound. Raises ConfigError."""
    found = []
    for text in texts:
        name, scale = split_scale(text)
        path = _file(workspace, name)
        read_header(path)
        found.append(Lora(name, path, scale))
    return found


def absolute(texts: Sequence[str]) -> tuple[str, ...]:
    """The same texts with files as absolute paths, so that a process with another working folder finds them."""
    kept = []
    for text in texts:
        name, scale = split_scale(text)
        kept.append(f"{Path(name).expanduser().resolve()}={scale:g}" if name.endswith(".safetensors") else text)
    return tuple(kept)


def split_scale(text: str) -> tuple[str, float]:
    """ "ring=0.8" -> ("ring", 0.8); scale 1 when there is none. Raises ConfigError."""
    name, equals, tail = text.strip().rpartition("=")
    if not equals or tail.endswith(".safetensors"):
        name, tail = text.strip(), "1"
    try:
        scale = float(tail)
    except ValueError:
        scale = math.nan
    if not name or not math.isfinite(scale):
        raise _refusal(
            f"loras has {text[:120]!r}: write a run's name or a .safetensors file, then =SCALE, as in ring=0.8"
        )
    return name, scale


def _file(workspace: Workspace, name: str) -> Path:
    if name.endswith(".safetensors"):
        return Path(name).expanduser().resolve()
    if SLUG.fullmatch(name) and workspace.run(name).is_dir():
        path = workspace.run(name) / EXPORT
        if path.exists():
            return path
        raise _refusal(f"loras has {name!r}, a run that has exported no LoRA yet: wait until it has finished")
    known = ", ".join(available_loras(workspace)[:10]) or "none yet"
    raise _refusal(f"loras has {name[:120]!r}, which is no run here and no .safetensors file: choose one of {known}")


def _refusal(sentence: str) -> ConfigError:
    return ConfigError(sentence, {"loras": sentence})


# ---- is the file sound? no torch ------------------------------------------------------------------------------------


def read_header(path: Path) -> Header:
    """Names and shapes in a safetensors file, without its weights. Raises ConfigError saying what is wrong with it."""
    length, raw = _header_bytes(path)
    try:
        header = json.loads(raw)
        metadata = header.pop("__metadata__", {})
        ends = [int(entry["data_offsets"][1]) for entry in header.values()]
        tensors = {str(name): tuple(int(n) for n in entry["shape"]) for name, entry in header.items()}
        notes = {str(key): str(value) for key, value in metadata.items()}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise _damaged(path, "has a damaged header: download or export it again") from None
    if not tensors:
        raise _damaged(path, "holds no tensors: export it again")
    if len(tensors) > TENSOR_LIMIT:
        raise _damaged(path, f"holds {len(tensors):,} tensors, a LoRA has at most {TENSOR_LIMIT:,}: choose another")
    if max(ends) != path.stat().st_size - 8 - length:
        raise _damaged(path, "is cut short or has bytes that belong to nothing: download or copy it again")
    return Header(tensors, notes)


def _header_bytes(path: Path) -> tuple[int, bytes]:
    if not path.is_file():
        raise _damaged(path, f"is not there ({path}): check the name")
    size = path.stat().st_size
    if size == 0:
        raise _damaged(path, "is an empty file: download or export it again")
    with path.open("rb") as file:
        start = file.read(64)
        for magic, reason in IMPOSTORS:
            # A safetensors file may begin with any byte (its header's length), but has a brace at byte 8.
            if start.startswith(magic) and start[8:9] != b"{":
                raise _damaged(path, reason)
        length = int.from_bytes(start[:8], "little")
        if size < 10 or start[8:9] != b"{":
            raise _damaged(path, "is no safetensors file: choose another")
        if length > HEADER_LIMIT:
            raise _damaged(
                path, f"claims a header of {length:,} bytes, at most {HEADER_LIMIT:,} are read: it is damaged"
            )
        if length > size - 8:
            raise _damaged(path, "is cut short: download or copy it again")
        file.seek(8)
        return length, file.read(length)


def _damaged(path: Path, reason: str) -> ConfigError:
    return _refusal(f"the LoRA {path.name} {reason}")


def check_fit(lora: Lora, header: Header, weights: Mapping[str, tuple[int, ...]], model: str) -> None:
    """Refuse a LoRA that was made for another model: module names or sizes differ. Raises ConfigError.

    `weights` are the shapes of the modules of the model's transformer.
    """
    fitting = [key for key, shape in header.tensors.items() if _fits(key, shape, weights)]
    other_sizes = [key for key in header.tensors if key not in set(fitting) and _module(key) in weights]
    if len(fitting) >= FIT_LIMIT * len(header.tensors) and not other_sizes:
        return
    origin = next(
        (header.metadata[key] for key in ("base_model", "ss_base_model_version") if key in header.metadata), ""
    )
    first = next(key for key in header.tensors if key not in set(fitting))
    made_for = f"it was made for {origin[:80]}" if origin else f"it may be made for another (it has {first[:80]!r})"
    raise _refusal(
        f"the LoRA {lora.path.name} does not fit {model}: {len(fitting)} of its {len(header.tensors)} tensors match, "
        f"{FIT_LIMIT:.0%} are needed, and {made_for}: choose the model it was made for, or another LoRA"
    )


def _module(key: str) -> str:
    match = KEY.fullmatch(key)
    return match[1] if match else ""


def _fits(key: str, shape: tuple[int, ...], weights: Mapping[str, tuple[int, ...]]) -> bool:
    match = KEY.fullmatch(key)
    if match is None or match[1] not in weights:
        return False
    base, kind = weights[match[1]], match[2]
    if match[3] != ".weight" or len(base) < 2:
        return True
    if kind in ("lora_A", "lora.down"):
        return len(shape) >= 2 and shape[1] == base[1]
    return len(shape) >= 2 and shape[0] == base[0]


# ---- on a pipeline --------------------------------------------------------------------------------------------------


def apply(pipeline: Any, loras: Sequence[Lora], model: str) -> list[dict[str, Any]]:
    """Make the pipeline carry exactly these LoRAs, through its stock loader. Returns what a record says of each.

    Whatever it carried before is taken off first, so nothing leaks from one request into the next.
    Raises ConfigError; the pipeline then carries none.
    """
    pipeline.unload_lora_weights()
    weights = {name: tuple(weight.shape) for name, weight in _weights(pipeline.transformer)}
    for lora in loras:
        check_fit(lora, read_header(lora.path), weights, model)
        _check_finite(lora)
    names = [f"lora_{number}" for number in range(len(loras))]  # peft forbids dots, file names have them
    try:
        with warnings.catch_warnings():
            # Several adapters are what we want; peft warns of each after the first.
            warnings.filterwarnings("ignore", message="Already found a `peft_config`")
            for name, lora in zip(names, loras, strict=True):
                pipeline.load_lora_weights(
                    str(lora.path), adapter_name=name, use_safetensors=True, local_files_only=True
                )
        # The stock loader only warns when it finds nothing to load.
        carried = [name for part in pipeline.get_list_adapters().values() for name in part]
        missing = [lora.path.name for name, lora in zip(names, loras, strict=True) if name not in carried]
        if missing:
            raise _refusal(
                f"the LoRA {missing[0]} was not taken by diffusers' loader: export it again as a diffusers LoRA"
            )
        if names:
            pipeline.set_adapters(names, [lora.scale for lora in loras])
    except BaseException:
        pipeline.unload_lora_weights()
        raise
    return [
        {"name": lora.name, "file": str(lora.path), "sha256": sha256(lora.path), "scale": lora.scale} for lora in loras
    ]


def _weights(transformer: Any) -> Iterator[tuple[str, Any]]:
    for name, module in transformer.named_modules():
        weight = getattr(module, "weight", None)
        if weight is not None:
            yield name, weight


def _check_finite(lora: Lora) -> None:
    import torch
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(lora.path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 (no mapping: it cannot be iterated)
                if not torch.isfinite(file.get_tensor(key)).all():
                    raise _refusal(
                        f"the LoRA {lora.path.name} holds NaN or infinite numbers (in {key[:80]!r}): its training went "
                        f"wrong, use an earlier checkpoint"
                    )
    except SafetensorError as error:
        raise _refusal(f"the LoRA {lora.path.name} is damaged ({error}): download or export it again") from None


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
