"""Clips as files of latents and text embeddings computed elsewhere. No torch.

`read_facts` and `check_values` check a file on import; `Fit` says why a model cannot train on it. The format, that of
samples kept as latents, is in docs/given_latents.md.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ConfigError, DataError, ModelUnavailable
from workbench.families import families, find_model
from workbench.families.base import Family
from workbench.families.facts import ModelFacts, architecture
from workbench.families.model import Model
from workbench.families.model_files import own_file, part_folder
from workbench.workspace.records import read_once
from workbench.workspace.safetensors_header import BYTES, FLOATS, INTEGERS, Header, Stored, read_header

if TYPE_CHECKING:
    import numpy as np

READ = ("latents", "mean", "std", "codes", "embeddings", "mask")  # tensors that training reads
LAYOUTS = {"latents": "[channels, frames, height, width]", "codes": "[frames, height, width]"}
FASTEST = 240.0  # frames per second
DAMAGED = "it is not a complete safetensors file ({}): write or copy it again"


@dataclass(frozen=True)
class LatentsFacts:
    """What a file says about its latents."""

    model: str  # id of the model whose VAE made them, or only its family's name
    # fps, frames, height, width: of the video they decode to
    fps: float
    frames: int
    height: int
    width: int
    caption: str  # the file's caption, or ""
    embeddings: bool  # the file also holds the caption's embeddings
    notes: tuple[str, ...]  # remarks for the user


def _header(path: Path) -> Header:
    """Read a file's header: tensor shapes and metadata. Raises DataError."""
    try:
        header = read_header(path)
    except OSError as error:
        raise DataError(f"it cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(DAMAGED.format(error)) from error
    for one in header.tensors.values():
        if (size := BYTES.get(one.dtype)) and math.prod(one.shape) * size != one.end - one.start:
            raise DataError(DAMAGED.format("its header cannot be read"))
    if any(one.end > path.stat().st_size for one in header.tensors.values()):
        raise DataError(DAMAGED.format("it ends before its tensors do"))
    return header


# ---- a file's contents -----------------------------------------------------------------------------------------------


def read_facts(path: Path) -> LatentsFacts:
    """Read a file's header and check it against the model that it names. Raises DataError."""
    header = read_once(path, _header)
    name = header.metadata.get("model", "").strip()
    if not name:
        raise DataError(
            "its metadata has no model: write the id of the model whose VAE made the latents, such as cogvideox-2b, "
            "or its family, such as cogvideox"
        )
    if header.metadata.get("scaled", "true").lower() not in ("true", "1", "yes"):
        raise DataError("its metadata says that scaled is false: scale the latents as the model's pipeline does")
    family, model = _made_by(name, header)
    facts = family.facts(model)
    frames, height, width = _latents(header, family, model, facts)
    size = {
        "frames": (frames - 1) * facts.temporal + 1,
        "height": height * facts.spatial,
        "width": width * facts.spatial,
    }
    for side, pixels in size.items():
        if (noted := header.metadata.get(side, "")) and noted != str(pixels):
            raise DataError(
                f"its metadata says that {side} is {noted[:20]}, but its latents decode to {pixels}: correct it, or "
                f"leave it out"
            )
    # A family's name may mean any of its models: each run checks its own.
    meant = _with_channels(family, facts.channels) if name == family.name else [model]
    problems = [_embeddings_misfit(header, family, one, family.facts(one)) for one in meant]
    if all(problems):
        raise DataError(problems[0])
    fps, notes = _fps(header, model)
    if unread := sorted(header.tensors.keys() - {*READ, *family.more_text}):
        notes.append(f"training does not read these tensors: {', '.join(unread[:4])}")
    return LatentsFacts(
        model=name if name == family.name else model.id,
        fps=fps,
        caption=header.metadata.get("caption", "").strip(),
        embeddings="embeddings" in header.tensors,
        notes=tuple(notes),
        **size,
    )


def _made_by(name: str, header: Header) -> tuple[Family, Model]:
    """Return the model that a file names, or the first model of a family that matches the channels."""
    family = next((one for one in families() if one.name == name), None)
    try:
        if family is None:
            return find_model(name)
        if any(family.codes(model) for model in family.models):
            raise DataError(f"its metadata says that model is {name}, whose models have different codes: name one")
        shape = _stored_latents(header, "latents").shape
        if found := _with_channels(family, shape[0]):
            return family, found[0]
    except (ConfigError, ModelUnavailable) as error:
        raise DataError(f"its metadata names an unknown model: {error}") from error
    raise DataError(f"its metadata says that model is {name}, but none of its models has {shape[0]} channels: name one")


def _with_channels(family: Family, channels: int) -> list[Model]:
    """Return the family's models with that many latent channels, built-in ones last."""
    found = [model for model in family.models if family.facts(model).channels == channels]
    return sorted(found, key=lambda model: model.embedded)


def _stored_latents(header: Header, wanted: str) -> Stored:
    """Return the tensor of latents or codes; of mean and std, the mean. Raises DataError."""
    found = {name: header.tensors[name] for name in ("latents", "mean", "std", "codes") if name in header.tensors}
    legal = ({"codes"},) if wanted == "codes" else ({"latents"}, {"mean", "std"})
    if found.keys() not in legal:
        rule = "codes" if wanted == "codes" else "latents, or mean and std"
        held = ", ".join(found) or ", ".join(list(header.tensors)[:4]) or "no tensor"
        raise DataError(f"it holds {held}, must hold {rule}: write that tensor as {LAYOUTS[wanted]}")
    kinds = INTEGERS if wanted == "codes" else FLOATS
    for name, one in found.items():
        if one.dtype not in kinds:
            raise DataError(f"its tensor {name} is {one.dtype}, must be {' or '.join(kinds)}: convert it")
        if len(one.shape) != LAYOUTS[wanted].count(",") + 1 or not math.prod(one.shape):
            raise DataError(
                f"its tensor {name} is {list(one.shape)}, must be {LAYOUTS[wanted]}: write one clip per file"
            )
    if len({one.shape for one in found.values()}) > 1:
        raise DataError(f"its mean is {found['mean']}, its std {found['std']}: give both the same shape")
    return next(iter(found.values()))


def _latents(header: Header, family: Family, model: Model, facts: ModelFacts) -> tuple[int, int, int]:
    """Return (frames, height, width) of the latents. Raises DataError."""
    wanted = "codes" if family.codes(model) else "latents"
    shape, channels = _stored_latents(header, wanted).shape, facts.channels
    if wanted == "latents" and shape[0] != channels:
        raise DataError(
            f"its latents are {list(shape)}, those of {model.title} have {channels} channels: write them as "
            f"{LAYOUTS[wanted]}, or name the model that made them"
        )
    return shape[-3], shape[-2], shape[-1]


def _fps(header: Header, model: Model) -> tuple[float, list[str]]:
    noted = header.metadata.get("fps", "").strip()
    if not noted:
        return float(model.fps), [f"its metadata has no fps: using {model.fps:g}, as for {model.title}"]
    try:
        fps = float(noted)
    except ValueError:
        fps = 0.0
    if not 0 < fps <= FASTEST:
        raise DataError(
            f"its metadata says that fps is {noted[:20]}, must be above 0 and at most {FASTEST:g}: correct it"
        )
    return fps, []


def _embeddings_misfit(header: Header, family: Family, model: Model, facts: ModelFacts) -> str:
    """Say why the file's embeddings do not fit the model; "" if they do."""
    found = header.tensors.get("embeddings")
    if found is None:
        return ""
    wanted = [facts.text_tokens, facts.text_width]
    if found.dtype not in FLOATS:
        return f"its embeddings are {found.dtype}, must be {' or '.join(FLOATS)}: convert them"
    if list(found.shape) != wanted:
        return (
            f"its embeddings are {list(found.shape)}, {model.title} takes {wanted}: pad the caption as its pipeline "
            f"does, or leave them out"
        )
    mask = header.tensors.get("mask")
    if family.text_mask and (mask is None or mask.shape != found.shape[:1] or mask.dtype not in BYTES):
        held = "no mask" if mask is None else f"a mask of {mask}"
        return f"it holds embeddings and {held}, {model.title} needs a mask [{wanted[0]}]: 1 for tokens, 0 for padding"
    for name in family.more_text:
        one, shape = header.tensors.get(name), list(family.text_shapes(facts)[name])
        if one is None or list(one.shape) != shape or one.dtype not in BYTES:
            held = f"no {name}" if one is None else f"{name} {one}"
            return f"it holds embeddings and {held}, {model.title} needs {name} {shape}: add them, as its pipeline does"
    return ""


def check_values(path: Path) -> None:
    """Check the values of every tensor that training reads. Raises DataError."""
    import numpy as np

    header = read_once(path, _header)
    family, model = _made_by(header.metadata["model"].strip(), header)
    masked = "embeddings" in header.tensors and family.text_mask
    for name in (*(READ if masked else READ[:-1]), *family.more_text):
        if (stored := header.tensors.get(name)) is None:
            continue
        values = _values(path, stored)
        if not np.isfinite(values).all():
            count = int((~np.isfinite(values)).sum())
            raise DataError(f"its tensor {name} has {count:,} values that are NaN or infinite: compute it again")
        if name == "std" and values.min() < 0:
            raise DataError(f"its std has {values.min():g}, must not be negative: write deviations, not logarithms")
        if name == "mask" and not np.isin(values, (0, 1)).all():
            raise DataError(f"its mask has {values.min():g} to {values.max():g}, must be 1 for tokens, 0 for padding")
        if name == "codes" and not (values.min() >= 0 and values.max() < family.codes(model)):
            raise DataError(
                f"its codes are {values.min()} to {values.max()}, {model.title} has 0 to {family.codes(model) - 1}: "
                f"compute them with its tokenizer"
            )


def _values(path: Path, stored: Stored) -> np.ndarray:
    """Read a tensor's numbers, flat, those of bfloat16 as float32."""
    import numpy as np

    with path.open("rb") as file:
        file.seek(stored.start)
        data = file.read(stored.end - stored.start)
    if stored.dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    if stored.dtype == "BOOL":
        return np.frombuffer(data, np.uint8)
    return np.frombuffer(data, f"<{stored.dtype[0].lower()}{BYTES[stored.dtype]}")


# ---- whether a model can train on a file -----------------------------------------------------------------------------


class Fit:
    """Check whether one model can train on files of latents. Lookups are cached across files."""

    def __init__(self, family: Family, model: Model) -> None:
        self._family, self._model = family, model
        self._others = {family.name: ""}  # name of a model or family -> why its latents do not fit the model

    @cached_property
    def _facts(self) -> ModelFacts:
        return self._family.facts(self._model)

    def misfit(self, path: Path) -> str:
        """Say why the model cannot train on a file, size aside; "" if it can. Raises DataError."""
        header = read_once(path, _header)
        name = header.metadata.get("model", "").strip()
        if name not in self._others:
            self._others[name] = self._misfit_of(*_made_by(name, header))
        if reason := self._others[name]:
            return reason
        _latents(header, self._family, self._model, self._facts)
        return _embeddings_misfit(header, self._family, self._model, self._facts)

    def _misfit_of(self, family: Family, model: Model) -> str:
        if family is not self._family:
            mine = self._model.title
            return f"its latents are from {model.title}, the run trains {mine}: encode the clip with the run's VAE"
        if model.id == self._model.id or _same_vae(family, model, self._model):
            return ""
        return (
            f"its latents are from {model.title}, whose VAE or scale differs from that of {self._model.title}: encode "
            f"the clip with that one, or train {model.title}"
        )


def _same_vae(family: Family, one: Model, other: Model) -> bool:
    """Return whether two models share a VAE: the same config and, for models in folders, the same weights."""
    folders = [family.on_disk(model) for model in (one, other)]
    if one.local or other.local:
        return None not in folders and len({_weights(folder) for folder in folders if folder}) == 1
    try:
        parts = [architecture(model, folder, ("vae",)) for model, folder in zip((one, other), folders, strict=True)]
    except ModelUnavailable:
        return False
    first, second = (json.loads(json.dumps(dict(each.parts["vae"].config))) for each in parts)
    return all(first[key] == second[key] for key in first.keys() & second.keys() if not key.startswith("_"))


def _weights(folder: Path) -> tuple[str, ...]:
    """Return the digests of a VAE's files."""
    own = own_file(folder, "vae")
    files = sorted(part_folder(folder, "vae").glob("*.safetensors")) if own is None else [own]
    return tuple(read_once(file, _digest) for file in files)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
