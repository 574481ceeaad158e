"""LoRA weights under our names, whichever trainer wrote the file, and helpers shared by all families' formats.

A LoRA adds `scale_of(layer) * B @ A` to a layer's weight.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.errors import ConfigError
from workbench.families.model import HIGH_NOISE, LOW_NOISE
from workbench.workspace import from_json
from workbench.workspace.lora_names import ALSO

if TYPE_CHECKING:
    import torch

Value = TypeVar("Value")
DIFFUSERS_FILE = "pytorch_lora_weights.safetensors"  # diffusers' name for the LoRA of a folder or repository
PEFT_FILE, PEFT_NOTES = "adapter_model.safetensors", "adapter_config.json"  # peft's names in a LoRA's folder
PEFT_FILES = (PEFT_FILE, "adapter_model.bin")
TORCH_FILES = (".pt", ".pth", ".bin", ".ckpt")
FILES = (".safetensors", ".sft", *TORCH_FILES)  # suffixes of LoRA files
# Name parts that PyTorch's wrappers add (torch.compile, activation checkpointing, FSDP, DeepSpeed, DDP).
WRAPPERS = {"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_fpw_module", "_forward_module"}
WRAPPERS |= {"module"}
FLAT_WRAPPERS = re.compile(r"_(orig_mod|fsdp_wrapped_module|checkpoint_wrapped_module)_")
# Tensors next to a quantized matrix: its scale, and markers without weights.
SCALES = re.compile(r"(?P<stem>.+)\.(?:scale_weight|(?:weight[._])?(?:weight_)?scale(?:_inv)?)")
MATRIX = re.compile(r"[._](lora|lokr|hada|matrix)_|\.lora\.")
MARKERS = re.compile(r"(.+\.)?(scaled_fp8|comfy_quant|input_scale|scale_input|num_batches_tracked)")
TEXT_ENCODER = re.compile(
    r"((base_model\.model|model|module|lora_unet)\.)*(lora_te\d?_|te\d?[._]|text_encoders?(_\d)?[._]|cond_stage_model\.|t5\w*\.|"
    r"umt5\w*\.|clip_?\w*\.)"
)
PEFT_KEY = PEFT_NOTES  # key under which `read_lora` returns adapter_config.json
# A LoRA's file -> the file beside it with peft's notes on rank and alpha. The last is how Kandinsky's authors publish:
# what they pass to peft, whose own alpha is 8.
NOTES_BESIDE = {**dict.fromkeys(PEFT_FILES, PEFT_NOTES), "lora.safetensors": "config_lora.json"}
PEFT_ALPHA = 8
NOTES_LIMIT = 1 << 20
# Ending of tensor names in other kinds of adapters (LyCORIS, and peft under the same names) -> the kind.
OTHER_KINDS = {
    r"\.oft_\w+(\.\w+)*": "an OFT",
    r"\.boft_\w+(\.\w+)*": "a BOFT",
    r"\.lora_E(\.\w+)*": "an AdaLoRA",
    r"\.ia3_\w+(\.\w+)*": "an (IA)3",
    r"\.hra_\w+(\.\w+)*": "an HRA",
    r"\.(bone|miss)_\w+(\.\w+)*": "a Bone",
    r"\.fourierft_\w+(\.\w+)*": "a FourierFT",
    r"\.(vblora|vb_lora)_\w+(\.\w+)*": "a VB-LoRA",
    r"\.lora_embedding_[AB](\.\w+)*": "a LoRA of an embedding table",
    r"\.on_input": "an (IA)3",
    r"\.[ab][12]\.weight": "a GLoRA (LyCORIS)",
    r"\.vera_\w+(\.\w+)*": "a VeRA",
}
DIFFUSERS_KEY = "lora_adapter_metadata"  # diffusers' key in a file's metadata: peft's config as JSON
# Keys of a LoRA's config that a loader needs and every supported peft knows: it refuses files with other keys.
NOTED = (
    "r",
    "lora_alpha",
    "rank_pattern",
    "alpha_pattern",
    "target_modules",
    "use_dora",
    "use_rslora",
    "lora_bias",
    "lora_dropout",
)
# The same for a LoKr.
LOKR_NOTED = ("peft_type", "r", "alpha", "rank_pattern", "alpha_pattern", "target_modules", "decompose_factor")
DOWN, UP, UP_BIAS, LENGTHS = "lora_A.weight", "lora_B.weight", "lora_B.bias", "lora_magnitude_vector"


@dataclass(frozen=True)
class Factors:
    """A LoKr's original factors."""

    # Layer -> LyCORIS' name -> factor, the first with the layer's strength multiplied in
    layers: Mapping[str, Mapping[str, torch.Tensor]]
    # The LoRA matrices made from them. A LoRA with other tensors is no longer this LoKr.
    pairs: Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class LoraWeights:
    """A LoRA from any known trainer, under our names."""

    # Under peft's names, without the family's `lora_prefix`, as for `set_peft_model_state_dict`
    tensors: Mapping[str, torch.Tensor]
    rank: int  # of its matrices, the largest if layers differ
    # Trained scale times rank, also for rank-stabilized LoRAs; None if the file does not say: stock loaders then use
    # the rank
    alpha: float | None
    origin: str  # the program that wrote it: "diffusers", "SAT" ...
    alphas: Mapping[str, float] = field(default_factory=dict)  # layer -> its alpha, if it differs from `alpha`
    expert: str = ""  # the expert it is for (families.model.Expert); "" if the file does not say
    # Layer, as the file names it -> why its tensors are not used
    left_out: Mapping[str, str] = field(default_factory=dict)
    alpha_from: str = ""  # where the file says alpha, in words; "" if it does not
    converted: str = ""  # what it was before its conversion to a LoRA ("a LoKr"); "" for a LoRA
    lost: float = 0.0  # relative error of the conversion
    # Input layer -> number of inputs of its whole weights in the file (a control LoRA)
    wide: Mapping[str, int] = field(default_factory=dict)
    factors: Factors | None = None  # the original factors, if every layer is a LoKr

    @property
    def lokr(self) -> Mapping[str, Mapping[str, torch.Tensor]]:
        """The factors of an unchanged LoKr by layer, with its strength multiplied in; {} for anything else."""
        whole = self.factors is not None and self.factors.pairs is self.tensors
        return self.factors.layers if self.factors is not None and whole else {}

    @property
    def dora(self) -> bool:
        """Whether it also holds the lengths of weight rows (DoRA magnitudes)."""
        return any(LENGTHS in name for name in self.tensors)

    @property
    def biased(self) -> bool:
        """Whether it also changes biases."""
        return any(name.endswith(UP_BIAS) for name in self.tensors)

    @property
    def layers(self) -> list[str]:
        """Names of the layers it changes, sorted."""
        return sorted(name.removesuffix(f".{DOWN}") for name in self.tensors if name.endswith(f".{DOWN}"))

    @property
    def mixed(self) -> bool:
        """Whether its layers differ in rank or in alpha."""
        return bool(self.alphas) or len({self.rank_of(layer) for layer in self.layers}) > 1

    @property
    def nothing(self) -> str:
        """Why it changes nothing, in words; "" if it changes something."""
        if self.dora or any(name.endswith(UP_BIAS) and bool(one.any()) for name, one in self.tensors.items()):
            return ""
        if all(self.scale_of(layer) == 0 for layer in self.layers):
            return "its alpha is 0"
        for layer in self.layers:
            up, down = self.tensors[f"{layer}.{UP}"], self.tensors[f"{layer}.{DOWN}"]
            if self.scale_of(layer) and up.any() and down.any():
                return ""
        zero = "B" if not any(bool(self.tensors[f"{layer}.{UP}"].any()) for layer in self.layers) else "A or B"
        return f"the matrix {zero} of every layer is zero, as before the first training step"

    def rank_of(self, layer: str) -> int:
        return int(self.tensors[f"{layer}.{DOWN}"].shape[0])

    def alpha_of(self, layer: str) -> float:
        return self.alphas.get(layer, self.rank_of(layer) if self.alpha is None else self.alpha)

    def scale_of(self, layer: str) -> float:
        """Return the factor of a layer's B @ A when the LoRA is applied at scale 1."""
        return self.alpha_of(layer) / self.rank_of(layer)


# Keys of our files' metadata.
EXPERT_KEY = "expert"
DROPPED_KEY = "dropped_caption"  # "zeros" if dropped captions had zero embeddings in training
# How many times smaller than the video an in-context LoRA's reference is, as LTX-2's trainer writes and
# ComfyUI-LTXVideo reads it.
REFERENCE_KEY = "reference_downscale_factor"
TRAINING_KEYS = (DROPPED_KEY, REFERENCE_KEY)  # sampling must follow these, so every copy keeps them
# How files with both experts' LoRAs number the transformers, and words in the names of files for one.
NUMBERS = {HIGH_NOISE: "1", LOW_NOISE: "2"}
NUMBERED = re.compile(r"(?P<before>(?:\w+\.)*?)transformer_(?P<number>[12])\.(?P<after>.+)")
IN_FILE_NAMES = {HIGH_NOISE: r"(?<![a-z])high(?![a-z])|highnoise", LOW_NOISE: r"(?<![a-z])low(?![a-z])|lownoise"}


def experts_of(names: Iterable[str], metadata: Mapping[str, str], file: str = "") -> tuple[str, ...]:
    """Return the experts a LoRA file is for, by its metadata, tensor names or file name; () if nothing says."""
    if expert := metadata.get(EXPERT_KEY):
        return (expert,)
    if found := tuple(by_expert(dict.fromkeys(names))):
        return found
    found = tuple(expert for expert, words in IN_FILE_NAMES.items() if re.search(words, file.lower()))
    return found if len(found) == 1 else ()


def by_expert(tensors: Mapping[str, Value]) -> dict[str, dict[str, Value]]:
    """Split a file's tensors by expert, named as in a file for one; {} if no name has an expert's number.

    ai-toolkit numbers both (transformer_1, transformer_2). If only the second is numbered, the rest is the first's.
    """
    found: dict[str, dict[str, Value]] = {expert: {} for expert in NUMBERS}
    numbered = False
    for name, tensor in tensors.items():
        match = NUMBERED.fullmatch(name)
        numbered |= match is not None
        low = match is not None and match["number"] == NUMBERS[LOW_NOISE]
        found[LOW_NOISE if low else HIGH_NOISE][match["before"] + match["after"] if match else name] = tensor
    return {expert: part for expert, part in found.items() if part} if numbered else {}


def of_expert(tensors: Mapping[str, Value], expert: str) -> Mapping[str, Value]:
    """Return one expert's tensors, named as in a file for one; all tensors of a file that is not for both."""
    parts = by_expert(tensors)
    return parts.get(expert, {}) if parts else tensors


def plain_names(tensors: Mapping[str, Value]) -> dict[str, Value]:
    """Strip what PyTorch's wrappers add to tensor names. Raises ConfigError if two names become the same."""
    found = {unwrapped(name): tensor for name, tensor in tensors.items()}
    if len(found) < len(tensors):
        raise ConfigError(
            "the LoRA holds some layers twice, with and without a PyTorch wrapper's name (such as _orig_mod): save it "
            "again from the unwrapped model"
        )
    return found


def unwrapped(name: str) -> str:
    """Strip what PyTorch's wrappers add to a tensor's name."""
    parts = [part for part in name.split(".") if part not in WRAPPERS]
    return ".".join([FLAT_WRAPPERS.sub("", parts[0]), *parts[1:]]) if parts else name


def weights(
    tensors: Mapping[str, torch.Tensor], alphas: Mapping[str, float], origin: str, alpha_known: bool = True
) -> LoraWeights:
    """Check tensors under our names, and make a LoRA of them. Raises ConfigError.

    `alphas` has the alpha of layers where it is not the rank. `alpha_known` says whether the file has any alpha.
    """
    downs = {name.removesuffix(f".{DOWN}"): tensor for name, tensor in tensors.items() if name.endswith(f".{DOWN}")}
    if not downs:
        raise ConfigError("the LoRA holds no lora_A matrix: it is damaged, or not a LoRA")
    for name, tensor in tensors.items():
        layer = name.rpartition(".lora_")[0]
        if layer not in downs or f"{layer}.{UP}" not in tensors:
            raise ConfigError(f"the LoRA has only one of the two matrices of {layer[:80]}: download or export it again")
        if name.endswith(UP) and tensor.shape[1] != downs[layer].shape[0]:
            raise ConfigError(f"the two matrices of {layer[:80]} have different ranks: download or export it again")
    ranks = {layer: int(down.shape[0]) for layer, down in downs.items()}
    rank = max(ranks.values())
    if not alpha_known:
        return LoraWeights(tensors, rank, None, origin)
    found = {layer: float(alphas.get(layer, one)) for layer, one in ranks.items()}
    alpha = Counter(found.values()).most_common(1)[0][0]
    return LoraWeights(tensors, rank, alpha, origin, {k: one for k, one in found.items() if one != alpha})


def without_layers(lora: LoraWeights, layers: Container[str]) -> LoraWeights:
    """Return a LoRA without some layers."""
    kept = {name: tensor for name, tensor in lora.tensors.items() if name.rpartition(".lora_")[0] not in layers}
    return replace(lora, tensors=kept, alphas={layer: one for layer, one in lora.alphas.items() if layer not in layers})


def without_alpha(lora: LoraWeights) -> LoraWeights:
    """Multiply a LoRA's scale into B, for loaders that ignore alpha."""
    scaled = {}
    for name, tensor in lora.tensors.items():
        scale = lora.scale_of(name.rpartition(".lora_")[0])
        wants = scale != 1 and name.endswith((UP, UP_BIAS))
        scaled[name] = (tensor.float() * scale).to(tensor.dtype) if wants else tensor
    return LoraWeights(scaled, lora.rank, None, lora.origin)


def even(lora: LoraWeights) -> LoraWeights:
    """Return a LoRA with one rank and alpha for all layers, padding smaller ones with zeros."""
    import torch

    if not lora.mixed:
        return lora
    folded = without_alpha(lora)
    padded = dict(folded.tensors)
    for layer in folded.layers:
        down, up = padded[f"{layer}.{DOWN}"], padded[f"{layer}.{UP}"]
        if (missing := lora.rank - down.shape[0]) > 0:
            padded[f"{layer}.{DOWN}"] = torch.cat([down, down.new_zeros(missing, *down.shape[1:])])
            padded[f"{layer}.{UP}"] = torch.cat([up, up.new_zeros(up.shape[0], missing, *up.shape[2:])], dim=1)
    return replace(folded, tensors=padded)


Pair = tuple["torch.Tensor", "torch.Tensor"]  # lora_A [rank, inputs] and lora_B [outputs, rank]


def stacked(pairs: Mapping[int, Pair], count: int) -> Pair:
    """Join the pairs of layers that another program stacks into one layer: its B is block-diagonal.

    Args:
        pairs: A layer's place in the stack -> its pair. All have as many outputs.
        count: Number of layers in the stack.
    """
    import torch

    ups = [up for _, up in pairs.values()]
    rows, at = ups[0].shape[0], 0
    whole = ups[0].new_zeros(count * rows, sum(up.shape[1] for up in ups))
    for place, up in zip(pairs, ups, strict=True):
        whole[place * rows : (place + 1) * rows, at : at + up.shape[1]] = up
        at += up.shape[1]
    return torch.cat([down for down, _ in pairs.values()]), whole


def unstacked(down: torch.Tensor, up: torch.Tensor, count: int) -> dict[int, Pair]:
    """Split a pair into those of its layers, by place, each without the ranks of the others.

    Layers that the pair does not change are left out, unless it changes none.
    """
    import torch

    found = {}
    for place, part in enumerate(up.chunk(count)):
        used = part.any(dim=0)  # the others' columns are zero here
        if not used.any() and up.any():
            continue
        used = used if used.any() else torch.ones_like(used)
        found[place] = down[used].contiguous(), part[:, used].contiguous()
    return found


def refuse_more_than_matrices(lora: LoraWeights, target: str) -> None:
    """Refuse a DoRA and biases, which the target's programs read differently or not at all. Raises ConfigError."""
    if lora.dora:
        raise ConfigError(
            f"this is a DoRA, which {target} computes differently or not at all: resize it first, to make it a plain "
            f"LoRA"
        )
    if lora.biased:
        raise ConfigError(f"this LoRA also changes biases, which {target} does not support: choose diffusers")


def diffusers_notes(lora: LoraWeights, prefix: str) -> dict[str, str]:
    """Return the metadata that tells diffusers' loader ranks and alphas."""
    ranks = {layer: lora.rank_of(layer) for layer in lora.layers}
    alphas = {layer: lora.alpha_of(layer) for layer in lora.layers}
    rank, alpha = Counter(ranks.values()).most_common(1)[0][0], Counter(alphas.values()).most_common(1)[0][0]
    config: dict[str, Any] = {
        "r": rank,
        "lora_alpha": _short(alpha),
        "rank_pattern": {f"^{layer}": one for layer, one in ranks.items() if one != rank},
        "alpha_pattern": {f"^{layer}": _short(one) for layer, one in alphas.items() if one != alpha},
        "target_modules": sorted(ranks),
        "use_dora": lora.dora,
        "lora_bias": lora.biased,
        "lora_dropout": 0.0,
    }
    return adapter_notes(config, prefix)


def is_lokr(names: Iterable[str]) -> bool:
    return any(".lokr_w" in name for name in names)


def adapter_notes(config: Mapping[str, Any], prefix: str, noted: Container[str] = NOTED) -> dict[str, str]:
    """Return that metadata for a peft config, with only the keys in `noted`."""
    kept = {f"{prefix}.{key}": value for key, value in config.items() if key in noted}
    return {"format": "pt", DIFFUSERS_KEY: json.dumps(kept, indent=2, sort_keys=True, default=sorted)}


def shortened(notes: str) -> str:
    """Drop the keys that an older peft refuses from the JSON under DIFFUSERS_KEY. Raises ValueError."""
    found = from_json(notes)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    kept = {key: value for key, value in found.items() if key.rpartition(".")[2] in NOTED}
    return json.dumps(kept, indent=2, sort_keys=True)


def _short(number: float) -> float | int:
    return int(number) if number == int(number) else number


def refuse_other_kinds(names: Iterable[str]) -> None:
    """Refuse a file with another kind of adapter, which cannot be converted to a LoRA. Raises ConfigError."""
    for name in names:
        kind = next((kind for end, kind in OTHER_KINDS.items() if re.search(f"{end}$", name)), None)
        if kind is not None:
            raise ConfigError(
                f"this is {kind}, not a LoRA (it has {name[:80]!r}): use it in the program that trained it, or train a "
                f"LoRA there"
            )


def is_lora_file(name: str) -> bool:
    return name.lower().endswith(FILES)


def is_of_torch(path: Path) -> bool:
    return path.suffix.lower() in TORCH_FILES


def file_in(folder: Path) -> Path:
    """Find the LoRA in a folder of diffusers or peft, or the only file that can be one. Raises ConfigError."""
    for name in (DIFFUSERS_FILE, *PEFT_FILES, DIFFUSERS_FILE.replace(".safetensors", ".bin")):
        if (path := folder / name).is_file():
            return path
    if (folder / "model_index.json").is_file() or any(folder.glob("diffusion_pytorch_model*")):
        raise ConfigError(f"{folder} holds a whole model, not a LoRA: {WHOLE_MODEL}")
    found = [path for path in sorted(folder.iterdir()) if is_lora_file(path.name) and path.name != ALSO]
    if len(found) != 1:
        inside = sorted(path for name in (DIFFUSERS_FILE, *PEFT_FILES) for path in folder.glob(f"*/{name}"))
        if not found and len(inside) == 1:  # an output folder with one checkpoint in it
            return inside[0]
        which = ", ".join([path.name for path in found[:10]] or [f"{path.parent.name}/" for path in inside[:10]])
        raise ConfigError(
            f"{folder} holds {len(found) or len(inside)} files that can be a LoRA: name one of them ({which})"
            if found or inside
            else f"{folder} holds no LoRA ({DIFFUSERS_FILE}, {PEFT_FILE} or another .safetensors file): check the name"
        )
    return found[0]


WHOLE_MODEL = (
    "to use it, give its folder in diffusers' layout as the model (--model FOLDER); to make a LoRA of a fine-tune, run "
    "`workbench loras extract FOLDER --model BASE`"
)


def read_lora(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Read (tensors, metadata) of a LoRA file. Raises ConfigError.

    8-bit tensors become float32, and names lose the parts that PyTorch's wrappers add. If peft's notes are beside the
    file (NOTES_BESIDE), the metadata includes them.
    """
    if is_of_torch(path):
        tensors, metadata = read_checkpoint(path), dict[str, str]()
    else:
        tensors, metadata = read_safetensors(path)
    notes = path.with_name(NOTES_BESIDE.get(path.name, PEFT_NOTES))
    if path.name in NOTES_BESIDE and notes.is_file():
        if notes.stat().st_size > NOTES_LIMIT:
            raise ConfigError(f"{notes.name} beside the LoRA is larger than {NOTES_LIMIT:,} bytes: it is damaged")
        text = notes.read_text(encoding="utf-8", errors="replace")
        if notes.name != PEFT_NOTES:
            with contextlib.suppress(ValueError, TypeError):  # damaged notes are refused where they are used
                text = json.dumps({"lora_alpha": PEFT_ALPHA, **json.loads(text)})
        metadata[PEFT_KEY] = text
    return _as_floats(plain_names(tensors)), metadata


def _as_floats(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Convert 8-bit matrices to float32, times their scales. Raises ConfigError for formats that cannot be read."""
    scales: dict[str, torch.Tensor] = {}
    found: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        match = SCALES.fullmatch(name)
        stems = () if match is None else (match["stem"], f"{match['stem']}.weight")
        if stem := next((one for one in stems if one in tensors), ""):
            scales[stem] = tensor
        elif not MARKERS.fullmatch(name):
            found[name] = tensor
    return {name: _as_float(name, tensor, scales.get(name)) for name, tensor in found.items()}


def _as_float(name: str, tensor: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """Convert a tensor to float32 if it is quantized or has a scale. Raises ConfigError."""
    ordinary = tensor.is_floating_point() and tensor.itemsize > 1
    if scale is None and (ordinary or (not tensor.is_floating_point() and not MATRIX.search(name))):
        return tensor
    kind, problem = str(tensor.dtype).removeprefix("torch."), ""
    if scale is None and not tensor.is_floating_point():
        problem = "without a scale, so its values are unknown"
    elif scale is not None and scale.numel() not in (1, tensor.shape[0]):
        problem = "with a scale for each block, which is not supported"
    try:
        whole = tensor.float()
    except (RuntimeError, NotImplementedError, TypeError):  # torch cannot convert 4-bit floats
        problem = "which is not supported"
    if problem:
        raise ConfigError(f"the LoRA holds {name[:80]!r} as {kind}, {problem}: get it in float16, bfloat16 or float32")
    return whole if scale is None else whole * scale.float().reshape(-1, *[1] * (tensor.ndim - 1))


def check_finite(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Refuse a LoRA with NaN or infinite values. Raises ConfigError."""
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ConfigError(
                f"the LoRA {path.name} holds NaN or infinite numbers (in {name[:80]!r}): its training failed, use an "
                f"earlier checkpoint"
            )


def read_safetensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Read (tensors, metadata) of a safetensors file. Raises ConfigError."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path.name} cannot be read ({error}): download or export it again") from error


def plain_name(name: str) -> str:
    """Return a parameter's name as it was before peft wrapped its layer."""
    return name.replace(".base_layer.", ".")


def with_metadata(data: bytes, metadata: Mapping[str, str]) -> bytes:
    """Write metadata into a safetensors file in sorted order; the library's order differs between processes."""
    length = int.from_bytes(data[:8], "little")
    entries = json.loads(data[8 : 8 + length])
    entries.pop("__metadata__", None)
    header = {"__metadata__": dict(sorted(metadata.items())), **entries}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    return len(encoded).to_bytes(8, "little") + encoded + data[8 + length :]


# ---- checkpoints written by torch, of which only tensors are read

INSIDE = ("model", "module", "state_dict")  # keys under which trainers keep the weights


def read_checkpoint(path: Path) -> dict[str, torch.Tensor]:
    """Return a checkpoint's tensors, memory-mapped. Raises ConfigError.

    Only tensors and plain values are read: a pickle of anything else could run code.
    """
    import numpy as np
    import torch

    plain = [np.ndarray, np.dtype, type(np.dtype(np.uint32)), np.array(0).__reduce__()[0]]  # in generator states
    try:
        with torch.serialization.safe_globals(plain):
            found: Any = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except pickle.UnpicklingError as error:
        raise ConfigError(
            f"{path.name} holds more than weights, which could run code: save only its weights with torch.save"
        ) from error
    except (RuntimeError, OSError, EOFError) as error:
        raise ConfigError(
            f"torch cannot read {path.name} ({str(error).splitlines()[0][:120]}): copy it again"
        ) from error
    for key in INSIDE:
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    tensors = max(_weights(found), key=len, default={})
    if not tensors:
        raise ConfigError(f"{path.name} holds no weights: give another file")
    return tensors


def _weights(value: Any) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the tensors of a dictionary and, separately, of every dictionary nested in it."""
    import torch

    if isinstance(value, dict):
        yield {name: one for name, one in value.items() if isinstance(name, str) and torch.is_tensor(one)}
        for one in value.values():
            yield from _weights(one)
