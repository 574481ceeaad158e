"""A LoRA file's contents by our names, whichever trainer wrote it; and what all families' formats have in common.

A layer's change of the model's weight is `scale_of(layer) * B @ A`.
"""

from __future__ import annotations

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
DIFFUSERS_FILE = "pytorch_lora_weights.safetensors"  # what diffusers calls the LoRA of a folder or a repository
PEFT_FILE, PEFT_NOTES = "adapter_model.safetensors", "adapter_config.json"  # peft's folder of a LoRA
PEFT_FILES = (PEFT_FILE, "adapter_model.bin")
TORCH_FILES = (".pt", ".pth", ".bin", ".ckpt")
FILES = (".safetensors", ".sft", *TORCH_FILES)  # endings of LoRA files
# What PyTorch's wrappers (torch.compile, activation checkpointing, FSDP, DeepSpeed, DDP) put into names.
WRAPPERS = {"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_fpw_module", "_forward_module"}
WRAPPERS |= {"module"}
FLAT_WRAPPERS = re.compile(r"_(orig_mod|fsdp_wrapped_module|checkpoint_wrapped_module)_")
# A number beside a matrix in fewer bits: times it, the matrix is what was trained. The others say nothing of weights.
SCALES = re.compile(r"(?P<stem>.+)\.(?:scale_weight|(?:weight[._])?(?:weight_)?scale(?:_inv)?)")
MATRIX = re.compile(r"[._](lora|lokr|hada|matrix)_|\.lora\.")
MARKERS = re.compile(r"(.+\.)?(scaled_fp8|comfy_quant|input_scale|scale_input|num_batches_tracked)")
TEXT_ENCODER = re.compile(
    r"((base_model\.model|model|module|lora_unet)\.)*(lora_te\d?_|te\d?[._]|text_encoders?(_\d)?[._]|cond_stage_model\.|t5\w*\.|"
    r"umt5\w*\.|clip_?\w*\.)"
)
PEFT_KEY = PEFT_NOTES  # under which `read_lora` gives what peft's notes say
NOTES_LIMIT = 1 << 20
# Ends of tensors' names in trainers' other kinds of small files (LyCORIS, and peft under the same names) -> the kind.
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
DIFFUSERS_KEY = "lora_adapter_metadata"  # diffusers' key in a file's metadata: peft's settings as JSON
# What every supported peft knows of a LoRA, and a loader needs; peft refuses a file whose notes have another key.
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
# The same of a LoKr.
LOKR_NOTED = ("peft_type", "r", "alpha", "rank_pattern", "alpha_pattern", "target_modules", "decompose_factor")
DOWN, UP, UP_BIAS, LENGTHS = "lora_A.weight", "lora_B.weight", "lora_B.bias", "lora_magnitude_vector"


@dataclass(frozen=True)
class Factors:
    """A LoKr's factors by layer and LyCORIS' names, the layer's strength multiplied into the first.

    pairs: the matrices made of them: a LoRA whose tensors are others is no longer this LoKr
    """

    layers: Mapping[str, Mapping[str, torch.Tensor]]
    pairs: Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class LoraWeights:
    """A LoRA file of any known trainer, by the names of ours.

    tensors: by peft's names, without the family's `lora_prefix`, as `set_peft_model_state_dict` takes them
    rank:    of its matrices, the largest where layers differ
    alpha:   what makes alpha / rank the scale it was trained with (a rank-stabilized scale is included); None when the
             file does not say, then stock loaders take alpha = rank
    origin:  who wrote it, in words: "diffusers", "SAT" ...
    alphas:  layer -> its alpha, where it is another than `alpha`
    expert:  which of a model's two transformers it is for (families.model.Expert); "" where the file does not say
    left_out: what the file holds besides, and a LoRA cannot: the layer as the file names it -> why
    alpha_from: where the file says alpha, "" where it does not
    converted: what it was before it became a LoRA ("a LoKr"), "" for a LoRA;  lost: of its change on the way, relative
    wide:     input layer -> the inputs that whole weights in the file have for it (a control LoRA)
    factors:  of a file that is a LoKr in every layer, what its tensors were made from
    """

    tensors: Mapping[str, torch.Tensor]
    rank: int
    alpha: float | None
    origin: str
    alphas: Mapping[str, float] = field(default_factory=dict)
    expert: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    alpha_from: str = ""
    converted: str = ""
    lost: float = 0.0
    wide: Mapping[str, int] = field(default_factory=dict)
    factors: Factors | None = None

    @property
    def lokr(self) -> Mapping[str, Mapping[str, torch.Tensor]]:
        """The factors of its layers where it is a LoKr as it was read, its strength multiplied in; {} of any other."""
        whole = self.factors is not None and self.factors.pairs is self.tensors
        return self.factors.layers if self.factors is not None and whole else {}

    @property
    def dora(self) -> bool:
        """Whether it also holds the lengths of weight rows (DoRA)."""
        return any(LENGTHS in name for name in self.tensors)

    @property
    def biased(self) -> bool:
        """Whether it also changes biases."""
        return any(name.endswith(UP_BIAS) for name in self.tensors)

    @property
    def layers(self) -> list[str]:
        """Names of the layers it changes, in order."""
        return sorted(name.removesuffix(f".{DOWN}") for name in self.tensors if name.endswith(f".{DOWN}"))

    @property
    def mixed(self) -> bool:
        """Whether its layers differ in rank or in alpha."""
        return bool(self.alphas) or len({self.rank_of(layer) for layer in self.layers}) > 1

    @property
    def nothing(self) -> str:
        """Why it changes nothing, in words; "" where it changes something."""
        if self.dora or any(name.endswith(UP_BIAS) and bool(one.any()) for name, one in self.tensors.items()):
            return ""
        if all(self.scale_of(layer) == 0 for layer in self.layers):
            return "its alpha is 0"
        for layer in self.layers:
            up, down = self.tensors[f"{layer}.{UP}"], self.tensors[f"{layer}.{DOWN}"]
            if self.scale_of(layer) and up.any() and down.any():
                return ""
        zero = "B" if not any(bool(self.tensors[f"{layer}.{UP}"].any()) for layer in self.layers) else "A or B"
        return f"in every layer the matrix {zero} is zero, as before the first step of training"

    def rank_of(self, layer: str) -> int:
        return int(self.tensors[f"{layer}.{DOWN}"].shape[0])

    def alpha_of(self, layer: str) -> float:
        return self.alphas.get(layer, self.rank_of(layer) if self.alpha is None else self.alpha)

    def scale_of(self, layer: str) -> float:
        """What the layer's B @ A counts when the LoRA's own scale is 1."""
        return self.alpha_of(layer) / self.rank_of(layer)


EXPERT_KEY = "expert"  # of our files' metadata
DROPPED_KEY = "dropped_caption"  # likewise: "zeros" where a dropped caption had no embedding when it was trained
# Likewise, of an in-context LoRA, as LTX-2's trainer writes and ComfyUI-LTXVideo reads it: how many times smaller than
# the video its reference was.
REFERENCE_KEY = "reference_downscale_factor"
TRAINING_KEYS = (DROPPED_KEY, REFERENCE_KEY)  # how it was trained, which sampling has to follow: every copy keeps them
# What a file with both experts' LoRAs calls each transformer, and by which words people name files of one.
NUMBERS = {HIGH_NOISE: "1", LOW_NOISE: "2"}
NUMBERED = re.compile(r"(?P<before>(?:\w+\.)*?)transformer_(?P<number>[12])\.(?P<after>.+)")
IN_FILE_NAMES = {HIGH_NOISE: r"(?<![a-z])high(?![a-z])|highnoise", LOW_NOISE: r"(?<![a-z])low(?![a-z])|lownoise"}


def experts_of(names: Iterable[str], metadata: Mapping[str, str], file: str = "") -> tuple[str, ...]:
    """The experts that a LoRA file is for: by its metadata, its tensors' names, its own name; () where nothing says."""
    if expert := metadata.get(EXPERT_KEY):
        return (expert,)
    if found := tuple(by_expert(dict.fromkeys(names))):
        return found
    found = tuple(expert for expert, words in IN_FILE_NAMES.items() if re.search(words, file.lower()))
    return found if len(found) == 1 else ()


def by_expert(tensors: Mapping[str, Value]) -> dict[str, dict[str, Value]]:
    """The tensors for each expert that a file's names tell apart, named as in a file for one; {} where none is named.

    ai-toolkit names both (transformer_1, transformer_2); where the second alone is named, the others are the first's.
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
    """The tensors for one expert of a file for both, named as in a file for one; all of another file."""
    parts = by_expert(tensors)
    return parts.get(expert, {}) if parts else tensors


def plain_names(tensors: Mapping[str, Value]) -> dict[str, Value]:
    """The tensors by names without what PyTorch's wrappers put into them. Raises ConfigError where two become one."""
    found = {unwrapped(name): tensor for name, tensor in tensors.items()}
    if len(found) < len(tensors):
        raise ConfigError(
            "the LoRA holds some layers twice, with and without a wrapper of PyTorch (as _orig_mod) in the name: save "
            "it once more from the unwrapped model"
        )
    return found


def unwrapped(name: str) -> str:
    """A tensor's name without what PyTorch's wrappers put into it."""
    parts = [part for part in name.split(".") if part not in WRAPPERS]
    return ".".join([FLAT_WRAPPERS.sub("", parts[0]), *parts[1:]]) if parts else name


def weights(
    tensors: Mapping[str, torch.Tensor], alphas: Mapping[str, float], origin: str, alpha_known: bool = True
) -> LoraWeights:
    """Put tensors by our names together; layers without an entry in `alphas` have alpha = rank. Raises ConfigError.

    alpha_known: whether the file says anything about alpha
    """
    downs = {name.removesuffix(f".{DOWN}"): tensor for name, tensor in tensors.items() if name.endswith(f".{DOWN}")}
    if not downs:
        raise ConfigError("the LoRA holds no lora_A matrix: it is damaged, or no LoRA")
    for name, tensor in tensors.items():
        layer = name.rpartition(".lora_")[0]
        if layer not in downs or f"{layer}.{UP}" not in tensors:
            raise ConfigError(
                f"the LoRA has one matrix of {layer[:80]} and lacks the other: download or export it again"
            )
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
    """The same LoRA without some layers."""
    kept = {name: tensor for name, tensor in lora.tensors.items() if name.rpartition(".lora_")[0] not in layers}
    return replace(lora, tensors=kept, alphas={layer: one for layer, one in lora.alphas.items() if layer not in layers})


def without_alpha(lora: LoraWeights) -> LoraWeights:
    """The same LoRA with its scale multiplied into B, so that every loader that knows nothing of alpha is right."""
    scales = {layer: lora.scale_of(layer) for layer in lora.layers}
    scaled = {}
    for name, tensor in lora.tensors.items():
        scale = scales[name.rpartition(".lora_")[0]]
        wants = scale != 1 and name.endswith((UP, UP_BIAS))
        scaled[name] = (tensor.float() * scale).to(tensor.dtype) if wants else tensor
    return LoraWeights(scaled, lora.rank, None, lora.origin)


def even(lora: LoraWeights) -> LoraWeights:
    """The same LoRA with one rank and one alpha for all layers: smaller layers get rows and columns of zeros."""
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


def refuse_more_than_matrices(lora: LoraWeights, target: str) -> None:
    """Raises ConfigError when the LoRA holds what the target's programs cannot read, or read otherwise."""
    if lora.dora:
        raise ConfigError(
            f"this is a DoRA, and {target} computes a DoRA otherwise or not at all: resize it first, which makes a "
            f"plain LoRA of it"
        )
    if lora.biased:
        raise ConfigError(f"this LoRA also changes biases, which {target} has no place for: choose diffusers")


def diffusers_notes(lora: LoraWeights, prefix: str) -> dict[str, str]:
    """The metadata from which diffusers' loader knows ranks and alphas."""
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
    """Whether a file with tensors of these names holds a LoKr."""
    return any(".lokr_w" in name for name in names)


def adapter_notes(config: Mapping[str, Any], prefix: str, noted: Container[str] = NOTED) -> dict[str, str]:
    """The same metadata of a LoRA that peft has configured: the keys of `noted`, and no other."""
    kept = {f"{prefix}.{key}": value for key, value in config.items() if key in noted}
    return {"format": "pt", DIFFUSERS_KEY: json.dumps(kept, indent=2, sort_keys=True, default=sorted)}


def shortened(notes: str) -> str:
    """What a file has under DIFFUSERS_KEY, without keys that an older peft refuses. Raises ValueError."""
    found = from_json(notes)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    kept = {key: value for key, value in found.items() if key.rpartition(".")[2] in NOTED}
    return json.dumps(kept, indent=2, sort_keys=True)


def _short(number: float) -> float | int:
    return int(number) if number == int(number) else number


def refuse_other_kinds(names: Iterable[str]) -> None:
    """Raises ConfigError, with its name, for a file that holds something that cannot be made a LoRA."""
    for name in names:
        kind = next((kind for end, kind in OTHER_KINDS.items() if re.search(f"{end}$", name)), None)
        if kind is not None:
            raise ConfigError(
                f"this is {kind}, no LoRA (it has {name[:80]!r}): use it in the program that trained it, or have that "
                f"program train a LoRA"
            )


def is_lora_file(name: str) -> bool:
    """Whether a file of this name can be a LoRA."""
    return name.lower().endswith(FILES)


def is_of_torch(path: Path) -> bool:
    """Whether torch wrote the file, by its name."""
    return path.suffix.lower() in TORCH_FILES


def file_in(folder: Path) -> Path:
    """The LoRA in a folder of diffusers or peft, or the only file that can be one. Raises ConfigError."""
    for name in (DIFFUSERS_FILE, *PEFT_FILES, DIFFUSERS_FILE.replace(".safetensors", ".bin")):
        if (path := folder / name).is_file():
            return path
    if (folder / "model_index.json").is_file() or any(folder.glob("diffusion_pytorch_model*")):
        raise ConfigError(f"{folder} holds a whole model, no LoRA: {WHOLE_MODEL}")
    found = [path for path in sorted(folder.iterdir()) if is_lora_file(path.name) and path.name != ALSO]
    if len(found) != 1:
        inside = sorted(path for name in (DIFFUSERS_FILE, *PEFT_FILES) for path in folder.glob(f"*/{name}"))
        if not found and len(inside) == 1:  # an output folder with one checkpoint in it
            return inside[0]
        which = ", ".join([path.name for path in found[:10]] or [f"{path.parent.name}/" for path in inside[:10]])
        raise ConfigError(
            f"{folder} holds {len(found) or len(inside)} files that can be a LoRA: name one of those in it ({which})"
            if found or inside
            else f"{folder} holds no LoRA ({DIFFUSERS_FILE}, {PEFT_FILE} or another .safetensors file): check the name"
        )
    return found[0]


WHOLE_MODEL = (
    "to use it, give its folder in diffusers' layout as the model (--model FOLDER); to make a LoRA of a fine-tune, run "
    "`workbench loras extract FOLDER --model BASE`"
)


def read_lora(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """(tensors, metadata) of a LoRA file, numbers of 8 bits as float32, names without wrappers of PyTorch.

    In peft's folder also what the folder's notes say. Raises ConfigError.
    """
    if is_of_torch(path):
        tensors, metadata = read_checkpoint(path), dict[str, str]()
    else:
        tensors, metadata = read_safetensors(path)
    notes = path.with_name(PEFT_NOTES)
    if path.name in PEFT_FILES and notes.is_file():
        if notes.stat().st_size > NOTES_LIMIT:
            raise ConfigError(f"{PEFT_NOTES} beside the LoRA is larger than {NOTES_LIMIT:,} bytes: it is damaged")
        text = notes.read_text(encoding="utf-8", errors="replace")
        metadata[PEFT_KEY] = text
    return _as_floats(plain_names(tensors)), metadata


def _as_floats(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Matrices in 8 bits as float32, times their scales. Raises ConfigError for numbers that are no weights."""
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
    """A tensor as it is, or as float32 where it is no ordinary number or has a scale. Raises ConfigError."""
    ordinary = tensor.is_floating_point() and tensor.itemsize > 1
    if scale is None and (ordinary or (not tensor.is_floating_point() and not MATRIX.search(name))):
        return tensor
    kind, problem = str(tensor.dtype).removeprefix("torch."), ""
    if scale is None and not tensor.is_floating_point():
        problem = "without a scale, so its numbers are unknown"
    elif scale is not None and scale.numel() not in (1, tensor.shape[0]):
        problem = "with a scale for each block, which is not read here"
    try:
        whole = tensor.float()
    except (RuntimeError, NotImplementedError, TypeError):  # torch cannot convert 4-bit floats
        problem = "which is not read here"
    if problem:
        raise ConfigError(f"the LoRA holds {name[:80]!r} as {kind}, {problem}: get it in float16, bfloat16 or float32")
    return whole if scale is None else whole * scale.float().reshape(-1, *[1] * (tensor.ndim - 1))


def check_finite(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Raises ConfigError for a LoRA with a number that is none."""
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ConfigError(
                f"the LoRA {path.name} holds NaN or infinite numbers (in {name[:80]!r}): its training went wrong, use "
                f"an earlier checkpoint"
            )


def read_safetensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """(tensors, metadata) of a safetensors file. Raises ConfigError."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path.name} cannot be read ({error}): download or export it again") from error


def plain_name(name: str) -> str:
    """A parameter's name as it is without a LoRA beside it."""
    return name.replace(".base_layer.", ".")


def with_metadata(data: bytes, metadata: Mapping[str, str]) -> bytes:
    """A safetensors file with metadata in sorted order; the library's own order changes from process to process."""
    length = int.from_bytes(data[:8], "little")
    entries = json.loads(data[8 : 8 + length])
    entries.pop("__metadata__", None)
    header = {"__metadata__": dict(sorted(metadata.items())), **entries}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    return len(encoded).to_bytes(8, "little") + encoded + data[8 + length :]


# ---- checkpoints that torch wrote: read as tensors and nothing else

INSIDE = ("model", "module", "state_dict")  # under which trainers keep the weights


def read_checkpoint(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint, from the disk as they are used. Raises ConfigError.

    Nothing but tensors and plain values is read: a pickle that wants more could run code.
    """
    import numpy as np
    import torch

    plain = [np.ndarray, np.dtype, type(np.dtype(np.uint32)), np.array(0).__reduce__()[0]]  # states of generators
    try:
        with torch.serialization.safe_globals(plain):
            found: Any = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except pickle.UnpicklingError as error:
        raise ConfigError(
            f"{path.name} holds more than weights, which could run code: save its weights alone with torch.save"
        ) from error
    except (RuntimeError, OSError, EOFError) as error:
        raise ConfigError(
            f"{path.name} is no checkpoint that torch can read ({str(error).splitlines()[0][:120]}): copy it again"
        ) from error
    for key in INSIDE:
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    tensors = max(_weights(found), key=len, default={})
    if not tensors:
        raise ConfigError(f"{path.name} holds no weights: give another file")
    return tensors


def _weights(value: Any) -> Iterator[dict[str, torch.Tensor]]:
    """The tensors with names of a dictionary and of those in it, under whatever name a trainer keeps them."""
    import torch

    if isinstance(value, dict):
        yield {name: one for name, one in value.items() if isinstance(name, str) and torch.is_tensor(one)}
        for one in value.values():
            yield from _weights(one)
