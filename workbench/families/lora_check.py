"""Check a LoRA file against the test that it carries. One file: it needs numpy, and nothing else of this project.

    python lora_check.py FILE [--test FILE] [--expert EXPERT]    in a shell, wherever the file is
    ComfyUI/custom_nodes/lora_check.py                           in ComfyUI: the node "Check LoRA"
    workbench loras check FILE                                   here, as in the page

A LoRA file that the workbench writes holds a test in its safetensors metadata, under "self_test": for each layer, a few
random projections of the change that was trained; for some layers, the same of the base model's weights; and, if the
model was available, projections of its output for seeded noise with and without the LoRA. The random numbers need no
torch: they are the raw words of numpy's Philox generator, keyed with the SHA-256 of a text (`words`). A reader that
gets other numbers holds another LoRA, and the way in which they differ says what went wrong.

docs/proved_in_comfyui.md describes the format, and what the check can and cannot tell.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any


class _Numpy:
    """numpy, imported when first used: the page imports this module when it starts."""

    def __getattr__(self, name: str) -> Any:
        import numpy

        return getattr(numpy, name)


np: Any = _Numpy()

KEY, VERSION = "self_test", 1
PROBES = 4  # projections of a layer's change
# Columns of a layer's numbers: rank, alpha, the change's Frobenius norm, PROBES projections; and norm and projection of
# the row lengths of a DoRA and of a bias, 0 without.
RANK, ALPHA, NORM, FIRST = 0, 1, 2, 3
LENGTHS, BIAS = FIRST + PROBES, FIRST + PROBES + 2
COLUMNS = BIAS + 2
BASES = 8  # layers whose base weights are projected
OUTPUTS = 64  # projections of the model's output
SAME = 0.02  # difference of a layer's projections, relative to its norm, below which only rounding differs
SAME_BASE = 0.08  # likewise for base weights, which people store in 8 bits
SAME_OUTPUT = 0.05  # relative difference of the LoRA's effect on the model's output
Array = Any  # an np.ndarray

# ---- random numbers that every program can reproduce


def words(text: str, count: int) -> Array:
    """Return 64-bit words: Philox4x64-10, its key the first 16 bytes of the text's SHA-256, little-endian."""
    key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")
    return np.random.Philox(key=key).random_raw(count)


def signs(text: str, count: int) -> Array:
    """Return numbers -1 and 1, float32: the bits of the words, lowest first, with a 0 bit as -1."""
    raw = words(text, -(-count // 64)).astype("<u8").view(np.uint8)
    return np.unpackbits(raw, bitorder="little")[:count].astype(np.float32) * 2 - 1


def normals(text: str, shape: Sequence[int]) -> Array:
    """Return standard normal numbers, float32: Box-Muller of pairs of words, cosines first, then sines."""
    count = math.prod(shape)
    half = -(-count // 2)
    first, second = ((words(text, 2 * half) >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(2, half)
    length = np.sqrt(-2 * np.log(1 - first))
    found = np.concatenate([length * np.cos(2 * np.pi * second), length * np.sin(2 * np.pi * second)])
    return found[:count].reshape(tuple(shape)).astype(np.float32)


# ---- files


class Damaged(ValueError):
    """A file that cannot be read as a LoRA; the message says why."""


# What reading strange bytes may raise.
BROKEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, re.error)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """Return (tensors, metadata) of a safetensors file, bfloat16 as float32. Raises Damaged, OSError."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= size - 8:
            raise Damaged("it does not begin as a safetensors file, or it is cut off within its header")
        try:
            header = json.loads(file.read(length))
            metadata = {str(name): str(text) for name, text in (header.pop("__metadata__", None) or {}).items()}
            end = max((int(one["data_offsets"][1]) for one in header.values()), default=0)
        except BROKEN as error:
            raise Damaged("its header cannot be read") from error
        if size < 8 + length + end:
            raise Damaged(f"it is cut off: {size:,} of {8 + length + end:,} bytes are there")
        content = np.memmap(path, np.uint8, "r", 8 + length, (end,)) if end else np.zeros(0, np.uint8)
    return {name: _tensor(name, one, content) for name, one in header.items()}, metadata


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the metadata of a safetensors file; {} if it has none or is not one."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= os.path.getsize(path) - 8:
            return {}
        try:
            return {str(name): str(text) for name, text in (json.loads(file.read(length))["__metadata__"]).items()}
        except BROKEN:
            return {}


NUMBERS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}


def _tensor(name: str, entry: Mapping[str, Any], content: Array) -> Array:
    try:
        first, last = entry["data_offsets"]
        shape, kind = tuple(int(size) for size in entry["shape"]), str(entry["dtype"])
        if kind == "BF16":
            wide = content[first:last].view("<u2").astype(np.uint32) << 16
            return wide.view(np.float32).reshape(shape)
        return content[first:last].view(NUMBERS[kind]).reshape(shape)
    except KeyError:
        raise Damaged(f"{name[:80]} is stored as {entry.get('dtype')}, which this check cannot read") from None
    except BROKEN as error:
        raise Damaged(f"{name[:80]} does not fit its place in the file") from error


# ---- a file's layers, by whichever program's names

PART = re.compile(
    r"(?P<layer>.+?)[._](?P<part>lora_A|lora_B|lora_down|lora_up|lora\.down|lora\.up|lora_linear_layer\.down|"
    r"lora_linear_layer\.up|lora_magnitude_vector|lokr_w[12](?:_[ab])?|lokr_t2|dora_scale|alpha|diff_b|diff)"
    r"(?:\.(?!weight|bias)\w+)?(?:\.(?P<kind>weight|bias))?"
)
DOWN = ("lora_A", "lora_down", "lora.down", "lora_linear_layer.down")
UP = ("lora_B", "lora_up", "lora.up", "lora_linear_layer.up")
PREFIX = re.compile(
    r"(?:base_model[._]model[._]|model[._]|diffusion_model[._]|transformer_[12][._]|transformer[._]|unet[._]|"
    r"lora_unet_+|lora_transformer_|lycoris_|pipe[._]|dit[._])+(?=.)"
)


@dataclass(frozen=True)
class Change:
    """What a file adds to one layer's weight."""

    outputs: int
    inputs: int
    rank: int
    alpha: float
    norm: float
    project: Callable[[Array, Array], float]  # returns u @ change @ v for sign vectors u [outputs] and v [inputs]
    # lengths, bias: of a DoRA's rows and of the added bias; None without
    lengths: Array = None
    bias: Array = None

    def numbers(self, layer: str) -> Array:
        """Return the layer's numbers, float32 [COLUMNS], with vectors that depend on its name."""
        found = [float(self.rank), self.alpha, self.norm]
        for one in range(PROBES):
            found.append(
                self.project(signs(f"out {one} {layer}", self.outputs), signs(f"in {one} {layer}", self.inputs))
            )
        for name, vector in (("lengths", self.lengths), ("bias", self.bias)):
            flat = np.zeros(0) if vector is None else vector.astype(np.float64).ravel()
            found += [float(np.linalg.norm(flat)), float(signs(f"{name} {layer}", flat.size) @ flat)]
        return np.array(found, np.float32)


def plain(name: str) -> str:
    """Return a layer's name without prefixes and punctuation, so that all programs' spellings compare equal."""
    match = PREFIX.match(name)
    return re.sub(r"[._]", "", name[match.end() :] if match else name)


def changes(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> dict[str, Change]:
    """Return what a LoRA file adds to each layer, by the file's names. Raises Damaged."""
    layers: dict[str, dict[str, Array]] = {}
    for name, tensor in tensors.items():
        match = PART.fullmatch(name)
        if match is not None:
            part = match["part"]
            part = "down" if part in DOWN else "up" if part in UP else part
            layers.setdefault(match["layer"], {})[f"{part} bias" if match["kind"] == "bias" else part] = tensor
    alpha_of = alphas(metadata)
    found = {}
    for name, parts in layers.items():
        try:
            if (change := _change(parts, alpha_of(name))) is not None:
                found[name] = change
        except BROKEN as error:
            raise Damaged(f"rank, alpha or the matrices of {name[:80]} do not belong together") from error
    return found


def _change(parts: Mapping[str, Array], noted: float | None) -> Change | None:
    """Return a layer's change; None for a bias alone. noted: alpha by the file's metadata."""
    alpha = float(parts["alpha"].reshape(-1)[0]) if "alpha" in parts else noted
    lengths = parts.get("lora_magnitude_vector", parts.get("dora_scale"))
    if "down" in parts or "up" in parts:
        down, up = (_flat(parts[name]) for name in ("down", "up"))
        rank = down.shape[0]
        scale = 1.0 if alpha is None else alpha / rank
        squared = ((up.T @ up) * (down @ down.T)).sum()
        bias = parts["up bias"].astype(np.float64) * scale if "up bias" in parts else parts.get("diff_b")
        return Change(
            outputs=up.shape[0],
            inputs=down.shape[1],
            rank=rank,
            alpha=scale * rank,
            norm=abs(scale) * math.sqrt(max(0.0, float(squared))),
            project=lambda u, v: scale * float((u @ up) @ (down @ v)),
            lengths=lengths,
            bias=bias,
        )
    if "diff" in parts and parts["diff"].ndim > 1:
        return _whole(_flat(parts["diff"]), bias=parts.get("diff_b"))
    if not any(name.startswith("lokr_w1") for name in parts):
        return None
    if "lokr_t2" in parts:
        raise ValueError("a LoKr of a convolution")
    first, second = _side(parts, "lokr_w1"), _side(parts, "lokr_w2")
    dim = next((one.shape[0] for name, one in parts.items() if name.endswith("_b")), None)
    scale = 1.0 if alpha is None or dim is None else alpha / dim

    def project(u: Array, v: Array) -> float:
        folded = first @ v.reshape(first.shape[1], second.shape[1]) @ second.T
        return scale * float((u.reshape(first.shape[0], second.shape[0]) * folded).sum())

    return Change(
        outputs=first.shape[0] * second.shape[0],
        inputs=first.shape[1] * second.shape[1],
        rank=dim or 1,
        alpha=scale * (dim or 1),
        norm=abs(scale) * float(np.linalg.norm(first) * np.linalg.norm(second)),
        project=project,
    )


def _whole(change: Array, bias: Array = None) -> Change:
    """Return a change that is given as a matrix [outputs, inputs]."""
    size = min(change.shape)
    return Change(
        outputs=change.shape[0],
        inputs=change.shape[1],
        rank=size,
        alpha=float(size),
        norm=float(np.linalg.norm(change)),
        project=lambda u, v: float(u @ change @ v),
        bias=bias,
    )


def _flat(tensor: Array) -> Array:
    return tensor.reshape(tensor.shape[0], -1).astype(np.float64)


def _side(parts: Mapping[str, Array], name: str) -> Array:
    if name in parts:
        return _flat(parts[name])
    return _flat(parts[f"{name}_a"]) @ _flat(parts[f"{name}_b"])


def alphas(metadata: Mapping[str, str]) -> Callable[[str], float | None]:
    """Return a function from a layer's name to its alpha in the file's metadata; None if that has none."""
    notes: dict[str, Any] = {}
    for key in ("lora_adapter_metadata", "lora_config"):
        if metadata.get(key):
            try:
                read = json.loads(metadata[key])
                notes = {str(name).rpartition(".")[2]: value for name, value in read.items()}
            except BROKEN:
                raise Damaged("its notes on rank and alpha are damaged") from None
            break
    alpha = notes.get("lora_alpha", notes.get("alpha"))
    if alpha is None and metadata.get("ss_network_alpha") not in (None, "", "None"):
        alpha = metadata["ss_network_alpha"]
    patterns, ranks = notes.get("alpha_pattern") or {}, notes.get("rank_pattern") or {}

    def of(values: Mapping[str, Any], layer: str, otherwise: Any) -> Any:
        fitting = (one for pattern, one in values.items() if re.match(rf"(.*\.)?({pattern})$", layer))
        return next(fitting, otherwise)

    def alpha_of(layer: str) -> float | None:
        found = of(patterns, layer, alpha)
        if found is None:
            return None
        rank = of(ranks, layer, notes.get("r"))
        return float(found) * (math.sqrt(float(rank)) if notes.get("use_rslora") and rank else 1.0)

    return alpha_of


# ---- the test in a file's metadata


def packed(numbers: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers, "<f4").tobytes()).decode()


def _unpacked(text: str, *shape: int) -> Array:
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(shape).astype(np.float64)


@dataclass(frozen=True)
class Outputs:
    """The model's output for seeded inputs, projected to OUTPUTS numbers without and with the LoRA."""

    timestep: float  # 0 to 1000
    shape: tuple[int, ...]  # of the noisy latents [1, ...]
    text: Mapping[str, tuple[int, ...]]  # name of each text input -> its shape [1, ...]
    without: Array = None
    with_lora: Array = None
    rounding: float = 2.0**-23  # the smallest relative step of the numbers that the model computes with

    def latents(self) -> Array:
        return normals("latents", self.shape)

    def embeddings(self, name: str) -> Array:
        """Return a text input: ones for a mask, else noise."""
        return np.ones(self.text[name], np.float32) if "mask" in name else normals(f"text {name}", self.text[name])

    @staticmethod
    def projected(output: Array) -> Array:
        """Return float32 [OUTPUTS]: sums of the output with random signs, divided by the root of its size."""
        flat = output.astype(np.float64).ravel()
        found = [signs(f"output {one}", flat.size) @ flat for one in range(OUTPUTS)]
        return np.array(found, np.float32) / np.float32(math.sqrt(flat.size))

    def effect_against(self, other: Outputs) -> tuple[float, float]:
        """Return the relative differences of (the output without the LoRA, the LoRA's effect on it)."""
        effect, seen = self.with_lora - self.without, other.with_lora - other.without
        size = max(float(np.linalg.norm(effect)), 1e-12)
        base = float(np.linalg.norm(other.without - self.without)) / max(float(np.linalg.norm(self.without)), 1e-12)
        return base, float(np.linalg.norm(seen - effect)) / size

    def rounding_against(self, other: Outputs) -> float:
        """Return how much of the effect rounding may change: a small effect on a bfloat16 model is mostly rounding."""
        size = max(float(np.linalg.norm(self.with_lora - self.without)), 1e-12)
        return (self.rounding + other.rounding) * float(np.linalg.norm(self.without)) / size


@dataclass(frozen=True)
class SelfTest:
    """What a LoRA's file says about the LoRA that was trained."""

    layers: tuple[str, ...]  # diffusers' names
    authors: tuple[str, ...]  # the authors' names, which ComfyUI keeps; "" where there is none
    numbers: Array  # [layers, COLUMNS], see Change.numbers
    # base_model, family: what it was made for
    base_model: str = ""
    family: str = ""
    expert: str = ""  # for which transformer of two; "" for one
    shift: float | None = None  # of the noise levels, with which it is sampled; None if its scheduler says
    # Expert -> layer -> numbers of the base weights [PROBES + 1]
    base: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)
    outputs: Outputs | None = None  # None if the model was not available

    @property
    def by_name(self) -> dict[str, str]:
        """Every spelling of a layer, without punctuation -> its name here."""
        names = {plain(own): layer for layer, own in zip(self.layers, self.authors, strict=True) if own}
        return names | {plain(layer): layer for layer in self.layers}

    def dumps(self) -> str:
        """Return it as the text in the metadata."""
        values: dict[str, Any] = {
            "version": VERSION,
            "base_model": self.base_model,
            "family": self.family,
            "expert": self.expert,
            "shift": self.shift,
            "layers": list(self.layers),
            "authors": list(self.authors),
            "numbers": packed(self.numbers),
            "base": {
                expert: {layer: packed(numbers) for layer, numbers in found.items()}
                for expert, found in self.base.items()
            },
        }
        if (out := self.outputs) is not None:
            values["outputs"] = {
                "timestep": out.timestep,
                "shape": list(out.shape),
                "text": {name: list(shape) for name, shape in out.text.items()},
                "without": packed(out.without),
                "with": packed(out.with_lora),
                "rounding": out.rounding,
            }
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> SelfTest:
        """Read it from the metadata. Raises Damaged."""
        try:
            values = json.loads(text)
            if values["version"] != VERSION:
                raise Damaged(f"its test has version {values['version']}: get a newer lora_check.py")
            layers, out = tuple(map(str, values["layers"])), values.get("outputs")
            authors = tuple(map(str, values["authors"]))
            if len(authors) != len(layers):
                raise ValueError("as many of the authors' names as layers")
            return cls(
                layers=layers,
                authors=authors,
                numbers=_unpacked(values["numbers"], len(layers), COLUMNS),
                base_model=str(values["base_model"]),
                family=str(values["family"]),
                expert=str(values["expert"]),
                shift=None if values["shift"] is None else float(values["shift"]),
                base={
                    expert: {layer: _unpacked(numbers, PROBES + 1) for layer, numbers in found.items()}
                    for expert, found in values["base"].items()
                },
                outputs=out
                and Outputs(
                    timestep=float(out["timestep"]),
                    shape=tuple(out["shape"]),
                    text={name: tuple(shape) for name, shape in out["text"].items()},
                    without=_unpacked(out["without"], OUTPUTS),
                    with_lora=_unpacked(out["with"], OUTPUTS),
                    rounding=float(out["rounding"]),
                ),
            )
        except Damaged:
            raise
        except BROKEN as error:
            raise Damaged("the test in its metadata is damaged") from error


def base_numbers(layer: str, weight: Array) -> Array:
    """Return the numbers of a base weight, float32 [PROBES + 1]: its norm, and its projections."""
    whole = weight.reshape(weight.shape[0], -1).astype(np.float32, copy=False)
    found = [float(np.linalg.norm(whole))]
    for one in range(PROBES):
        left, right = signs(f"out {one} {layer}", whole.shape[0]), signs(f"in {one} {layer}", whole.shape[1])
        found.append(float(left @ whole @ right))
    return np.array(found, np.float32)


# ---- the verdict


@dataclass(frozen=True)
class Seen:
    """What a program loaded from a LoRA file, to be compared with the file's test."""

    numbers: Mapping[str, Array]  # layer -> numbers, by the test's names
    unknown: Sequence[str] = ()  # layers of the file that the test does not name
    expert: str = ""  # the transformer that it is used for; "" if unknown
    # Layer -> numbers of the base weights; {} if they are not available
    base: Mapping[str, Array] = field(default_factory=dict)
    shift: float | None = None  # of the noise levels; None if unknown
    strength: float = 1.0  # what a person set
    outputs: Outputs | None = None  # None if the model did not run


@dataclass(frozen=True)
class Verdict:
    """What the check found."""

    # "whole", "other shift", "other strength", "changed", "alpha lost", "layers missing", "wrong base", "wrong expert",
    # "not loaded", "damaged" or "no test"
    code: str
    sentence: str  # for people, without a period
    details: tuple[str, ...] = ()  # more sentences: what else was found, and what was not compared

    @property
    def good(self) -> bool:
        return self.code == "whole"

    def __str__(self) -> str:
        return "\n".join([f"{self.sentence[:1].upper()}{self.sentence[1:]}.", *(f"  {one}." for one in self.details)])


def judge(test: SelfTest, seen: Seen) -> Verdict:
    """Compare what a program loaded with the LoRA that was trained."""
    total = len(test.layers)
    if not any(layer in seen.numbers for layer in test.layers):
        why = f"its {total} layers have names that this program doesn't know" if total else "it has no layers"
        remedy = "Write it in another format: for ComfyUI, `workbench loras convert LORA comfyui`"
        return Verdict("not loaded", f"none of it is loaded: {why}", (remedy,))
    found, compared = _problems(test, seen), ["each layer's change"]
    if seen.base:
        compared.append("the base weights")
    if test.outputs is not None and seen.outputs is not None:
        base, effect = test.outputs.effect_against(seen.outputs)
        rounding = test.outputs.rounding_against(seen.outputs)
        compared.append(f"the model's output, whose change differs by {effect:.2%}")
        if not found and base > SAME_OUTPUT:
            found.append(
                ("wrong base", f"without the LoRA, the model's output differs by {base:.1%}: another base model")
            )
        elif not found and effect > SAME_OUTPUT + rounding:
            found.append(("changed", f"its effect on the model's output differs by {effect:.1%}"))
    if test.shift is not None and seen.shift is not None and abs(seen.shift - test.shift) > 0.01 * test.shift:
        sentence = f"the noise levels are shifted by {seen.shift:g}, but the LoRA was sampled with {test.shift:g}"
        found.append(("other shift", f"all its layers are loaded, but {sentence}" if not found else sentence))
    notes = [f"Compared: {', '.join(compared)}", *_not_compared(test, seen)]
    if seen.strength != 1:
        notes.append(f"It is loaded at a strength of {seen.strength:g}")
    if seen.unknown:
        notes.append(f"The file has {len(seen.unknown)} more layers than were trained ({seen.unknown[0]})")
    if not found:
        return Verdict("whole", f"loaded completely, as trained: all {total} layers", tuple(notes))
    (code, sentence), *others = found
    return Verdict(code, sentence, (*(f"{text[:1].upper()}{text[1:]}" for _, text in others), *notes))


def _problems(test: SelfTest, seen: Seen) -> list[tuple[str, str]]:
    """Return (code, sentence) of what is wrong with the layers and the model, the most serious first."""
    total, trained = len(test.layers), dict(zip(test.layers, test.numbers, strict=True))
    missing = [layer for layer in test.layers if layer not in seen.numbers]
    problem, differing = _strength(trained, seen)
    found = []
    if (other := _expert_or_base(test, seen)) is not None:
        found.append(other)
    if missing:
        names = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        found.append(("layers missing", f"{len(missing)} of {total} layers are missing ({names})"))
    if problem is not None:
        found.append(problem)
    if differing:
        sentence = f"{len(differing)} of {total} layers have different values than were trained ({differing[0]})"
        found.append(("changed", sentence))
    return found


def _strength(trained: Mapping[str, Array], seen: Seen) -> tuple[tuple[str, str] | None, list[str]]:
    """Find the strength at which most layers are loaded, of those that have a cause.

    Returns:
        ((code, sentence) if it is not what a person set; layers that have other values even so).
    """
    there = [layer for layer in trained if layer in seen.numbers]
    own = np.array([trained[layer] for layer in there], np.float64)
    other = np.array([seen.numbers[layer] for layer in there], np.float64)
    probes, loaded = own[:, FIRST:LENGTHS], other[:, FIRST:LENGTHS]
    squares = np.square(probes).sum(1)
    changing = squares > 0
    ratio = np.where(own[:, ALPHA] > 0, own[:, ALPHA] / np.maximum(own[:, RANK], 1), 1.0)
    measured = (probes * loaded).sum(1)[changing] / squares[changing]
    uniform = float(np.median(measured)) if measured.size else seen.strength
    causes = [
        ("", np.ones(len(there)) * seen.strength),
        ("alpha lost", seen.strength / ratio),
        ("alpha twice", seen.strength * ratio),
        ("other strength", np.ones(len(there)) * uniform),
    ]
    size = np.maximum(own[:, NORM] * math.sqrt(PROBES), 1e-30)

    def fits(factors: Array) -> Array:
        error = np.linalg.norm(loaded - factors[:, None] * probes, axis=1)
        fine = error <= SAME * size * np.maximum(np.abs(factors), 1e-3)
        # Lengths and biases change in other ways with the strength, and are then not compared.
        tolerance = np.where(np.abs(factors - 1) > SAME, 10.0, SAME)
        for column in (LENGTHS, BIAS):
            fine &= np.abs(other[:, column + 1] - own[:, column + 1]) <= tolerance * own[:, column] + 1e-6
        return fine

    with np.errstate(invalid="ignore"):
        fitting = [fits(factors) for _, factors in causes]
    best = max(range(len(causes)), key=lambda index: int(fitting[index].sum()))
    code, factors = causes[best]
    differing = [layer for layer, fine in zip(there, fitting[best], strict=True) if not fine]
    if not code or len(differing) == len(there):
        return None, differing
    span = sorted({f"{one / (seen.strength or 1.0):.3g}" for one in (factors.min(), factors.max())}, key=float)
    times = f"{' to '.join(span)} times as strong as trained"
    if code == "alpha lost":
        return (code, f"alpha is lost: the LoRA is {times}"), differing
    if code == "alpha twice":
        return ("alpha lost", f"alpha is applied twice: the LoRA is {times}"), differing
    return (code, f"its layers are {times}"), differing


def _expert_or_base(test: SelfTest, seen: Seen) -> tuple[str, str] | None:
    """Return (code, sentence) if the LoRA is used with a transformer other than the one it was trained on."""
    expert = seen.expert
    own = test.base.get(test.expert, {})
    common = [layer for layer in own if layer in seen.base]
    if common and not _same_base(own, seen.base):
        matching = [name for name, known in test.base.items() if name != test.expert and _same_base(known, seen.base)]
        if not matching:
            model = f": it was trained on {test.base_model}" if test.base_model else ""
            return "wrong base", f"the base model is a different one{model}"
        expert = matching[0]
    if test.expert and expert and expert != test.expert:
        return "wrong expert", f"it is for the {test.expert} expert but is used for the {expert} one"
    return None


def _same_base(known: Mapping[str, Array], seen: Mapping[str, Array]) -> bool:
    common = [layer for layer in known if layer in seen]
    error = sum(float(np.square(np.asarray(seen[layer]) - known[layer])[1:].sum()) for layer in common)
    size = sum(float(np.square(known[layer])[1:].sum()) for layer in common)
    return bool(common) and math.sqrt(error / max(size, 1e-30)) <= SAME_BASE


def _not_compared(test: SelfTest, seen: Seen) -> list[str]:
    found = []
    if not test.base:
        found.append("The base model was not available when the file was written, so it cannot be compared")
    elif not seen.base:
        found.append("The base model is not loaded here, so whether it is the right one was not compared")
    if seen.outputs is None:
        found.append("The model did not run, so its output was not compared")
    return found


# ---- a file


def expert_in(name: str) -> str:
    """Return the expert named in a file's name; "" if none is."""
    found = [
        expert
        for expert, pattern in (
            ("high noise", r"(?<![a-z])high(?![a-z])|highnoise"),
            ("low noise", r"(?<![a-z])low(?![a-z])|lownoise"),
        )
        if re.search(pattern, name.lower())
    ]
    return found[0] if len(found) == 1 else ""


def check(path: str | os.PathLike[str], test_in: str | os.PathLike[str] | None = None, expert: str = "") -> Verdict:
    """Check a LoRA file.

    Args:
        test_in: A file with the test, if it is not the LoRA's own: the one that it was converted from.
        expert: The expert that it is used for; "" for what the file or its name says.
    """
    try:
        tensors, metadata = read(path)
        found = changes(tensors, metadata)
        text = (metadata if test_in is None else read_metadata(test_in)).get(KEY, "")
        if not text:
            return _without_test(found, tensors, metadata, test_in is not None)
        test = SelfTest.loads(text)
    except Damaged as error:
        return Verdict("damaged", f"the file is damaged: {error}")
    names = test.by_name
    numbers = {
        names[plain(name)]: one.numbers(names[plain(name)]) for name, one in found.items() if plain(name) in names
    }
    unknown = [name for name in found if plain(name) not in names]
    noted = "" if test_in is None else metadata.get("expert", "")
    verdict = judge(test, Seen(numbers, unknown, expert or noted or expert_in(Path(path).name)))
    if verdict.code == "not loaded":
        return Verdict("wrong base", "its layers are not those of the test: it is another LoRA", verdict.details)
    return verdict


def _without_test(
    found: Mapping[str, Change], tensors: Mapping[str, Array], metadata: Mapping[str, str], other: bool
) -> Verdict:
    """Report what can be checked in a file without a test."""
    if not found:
        return Verdict("no test", "it has no test, and holds no LoRA layer with a name known here")
    broken = [name for name, tensor in tensors.items() if not np.isfinite(tensor).all()]
    if broken:
        return Verdict("damaged", f"the file is damaged: {broken[0][:80]} holds numbers that are not finite")
    zero = sum(one.norm == 0 for one in found.values())
    known = any(name.endswith(".alpha") for name in tensors) or alphas(metadata)(next(iter(found))) is not None
    layers = "1 layer" if len(found) == 1 else f"{len(found)} layers"
    notes = [
        f"It holds {layers} of rank {_span(one.rank for one in found.values())}",
        f"Alpha is in the file: {_span(one.alpha for one in found.values())}" if known else "It has no alpha",
    ]
    notes += [f"{zero} of {len(found)} layers change nothing"] if zero else []
    where = "the other file" if other else "it"
    return Verdict("no test", f"{where} has no test, so it cannot be compared with what was trained", tuple(notes))


def _span(values: Iterable[float]) -> str:
    found = sorted(set(values))
    return f"{found[0]:g}" if len(found) == 1 else f"{found[0]:g} to {found[-1]:g}"


def main(arguments: Sequence[str]) -> int:
    """Check the file named in the shell; 0 if it is intact, 1 if it is not, 2 if there is no way to tell."""
    import argparse

    parser = argparse.ArgumentParser(description="Check a LoRA file against the test that it carries.")
    parser.add_argument("file", help="the LoRA, a .safetensors file")
    parser.add_argument("--test", help="a file with the test, if it is not in the LoRA: what it was converted from")
    parser.add_argument("--expert", default="", help='the expert that it is used for: "high noise" or "low noise"')
    given = parser.parse_args(arguments)
    try:
        verdict = check(given.file, given.test, given.expert)
    except OSError as error:
        parser.error(str(error))
    sys.stdout.write(f"{verdict}\n")
    return 0 if verdict.good else 2 if verdict.code == "no test" else 1


# ---- ComfyUI: what it made of the file is read from the loaded model


def in_comfyui(model: Any, path: str | os.PathLike[str], run: bool = True) -> Verdict:
    """Check a LoRA that is loaded into a model of ComfyUI.

    Args:
        model: ComfyUI's MODEL with the LoRA loaded, and no other.
        path: The LoRA's file.
        run: Also compare the model's output, which takes two calls of the model.
    """
    try:
        text = read_metadata(path).get(KEY, "")
        if not text:
            return _untested_in_comfyui(model, path)
        test = SelfTest.loads(text)
    except Damaged as error:
        return Verdict("damaged", f"the file is damaged: {error}")
    numbers, strength = _loaded(model, test)
    base = {}
    for layer, own in zip(test.layers, test.authors, strict=True):
        key = f"diffusion_model.{own or layer}.weight"
        if layer in next(iter(test.base.values()), {}) and (weight := _weight(model, key)) is not None:
            base[layer] = base_numbers(layer, weight)
    shift = getattr(model.get_model_object("model_sampling"), "shift", None)
    return judge(
        test,
        Seen(
            numbers=numbers,
            base=base,
            shift=None if shift is None else float(shift),
            strength=strength,
            outputs=_run_comfyui(model, test) if run and base and len(numbers) == len(test.layers) else None,
        ),
    )


def _untested_in_comfyui(model: Any, path: str | os.PathLike[str]) -> Verdict:
    """Report how much of a file without a test, such as another trainer's, ComfyUI loads correctly."""
    tensors, metadata = read(path)
    found = changes(tensors, metadata)
    verdict = _without_test(found, tensors, metadata, False)
    if verdict.code != "no test" or not found:
        return verdict
    layers = tuple(sorted(found))
    test = SelfTest(layers, layers, np.array([found[layer].numbers(layer) for layer in layers]))
    numbers, strength = _loaded(model, test)
    problem, differing = _strength(dict(zip(layers, test.numbers, strict=True)), Seen(numbers, strength=strength))
    same = 0 if problem else len(numbers) - len(differing)
    loaded = f"ComfyUI loads {len(numbers)} of its {len(layers)} layers by their names in the file, {same} as it says"
    return Verdict(verdict.code, verdict.sentence, (loaded, *verdict.details))


def _loaded(model: Any, test: SelfTest) -> tuple[dict[str, Array], float]:
    """Return (layer -> numbers of what ComfyUI will add to it, the strength that a person set)."""
    names, numbers, strengths = test.by_name, {}, set()
    for key, patches in model.patches.items():
        key = key if isinstance(key, str) else key[0]
        layer = names.get(plain(key.removesuffix(".weight")))
        if key.endswith(".weight") and layer is not None:
            strengths |= {float(one[0]) for one in patches}
            numbers[layer] = _of_patches(layer, key, patches, model, test)
    return numbers, strengths.pop() if len(strengths) == 1 else 1.0


def _weight(model: Any, key: str) -> Array | None:
    """Return a base weight of ComfyUI's model as it was before LoRAs; None if it has none, or one in 8 bits."""
    found = model.backup.get(key)
    weight = getattr(found, "weight", found)
    if weight is None:
        weight = model.model
        for name in key.split("."):
            weight = getattr(weight, name, None)
    if weight is None or weight.element_size() == 1:
        return None
    whole: Array = weight.detach().float().cpu().numpy()
    return whole


def _of_patches(layer: str, key: str, patches: Any, model: Any, test: SelfTest) -> Array:
    """Return the numbers of what ComfyUI will add to a layer: its own code applies the patches to zeros."""
    import comfy.lora
    import torch

    weight = model.model
    for name in key.split("."):
        weight = getattr(weight, name)
    zeros = torch.zeros(weight.shape, dtype=torch.float32, device=model.load_device)
    change = comfy.lora.calculate_weight(patches, zeros, key).flatten(1).cpu().numpy().astype(np.float64)
    numbers = _whole(change).numbers(layer)
    numbers[LENGTHS:] = test.numbers[test.layers.index(layer)][LENGTHS:]  # lengths and biases are patched elsewhere
    return numbers


def _run_comfyui(model: Any, test: SelfTest) -> Outputs | None:
    """Return the model's projected output without and with the LoRA; None for models whose inputs are not known."""
    if test.outputs is None or test.family != "wan":
        return None
    import comfy.model_management
    import torch

    bare = model.clone()
    bare.patches = {}
    bare.patches_uuid = object()
    found = []
    for one in (bare, model):
        comfy.model_management.load_models_gpu([one])
        device, dtype = one.load_device, one.model.get_dtype()
        text = torch.from_numpy(test.outputs.embeddings("prompt_embeds"))
        wanted = one.model.diffusion_model.text_embedding[0].weight.shape[1]
        text = torch.nn.functional.pad(text, (0, wanted - text.shape[-1]))  # of models made narrower
        with torch.no_grad():
            output = one.model.diffusion_model(
                torch.from_numpy(test.outputs.latents()).to(device, dtype),
                torch.tensor([test.outputs.timestep], device=device),
                text.to(device, dtype),
            )
        found.append(Outputs.projected(output.float().cpu().numpy()).astype(np.float64))
    rounding = float(torch.finfo(model.model.get_dtype()).eps)
    return replace(test.outputs, without=found[0], with_lora=found[1], rounding=rounding)


class CheckLora:
    """ComfyUI's node: connect the model after the LoRA's loader, and choose the same file."""

    CATEGORY, FUNCTION, OUTPUT_NODE = "loaders", "check", True
    RETURN_TYPES, RETURN_NAMES = ("MODEL", "STRING"), ("model", "verdict")
    DESCRIPTION = "Says whether a LoRA is loaded completely, as it was trained, from the test in its file."

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        import folder_paths

        return {"required": {"model": ("MODEL",), "lora_name": (folder_paths.get_filename_list("loras"),)}}

    def check(self, model: Any, lora_name: str) -> dict[str, Any]:
        import folder_paths

        text = str(in_comfyui(model, folder_paths.get_full_path("loras", lora_name)))
        return {"ui": {"text": [text]}, "result": (model, text)}


NODE_CLASS_MAPPINGS = {"CheckLora": CheckLora}
NODE_DISPLAY_NAME_MAPPINGS = {"CheckLora": "Check LoRA"}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
