"""A LoRA file's contents by our names, whichever trainer wrote it; and what all families' formats have in common.

A layer's change of the model's weight is `scale_of(layer) * B @ A`. Not covered: names of other trainers (each family's
own module), whether a file is a sound one (sampler.loras).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.errors import ConfigError
from workbench.families import torch_checkpoints
from workbench.families.model import HIGH_NOISE, LOW_NOISE
from workbench.workspace import from_json

if TYPE_CHECKING:
    import torch

Value = TypeVar("Value")
PEFT_FILE, PEFT_NOTES = "adapter_model.safetensors", "adapter_config.json"  # peft's folder of a LoRA
PEFT_KEY = PEFT_NOTES  # under which `read_lora` gives what peft's notes say
NOTES_LIMIT = 1 << 20
# Ends of tensors' names in trainers' other kinds of small files (LyCORIS, and peft under the same names) -> the kind.
OTHER_KINDS = {
    r"\.lokr_\w+": "a LoKr (LyCORIS)",
    r"\.hada_\w+": "a LoHa (LyCORIS)",
    r"\.lora_mid\.weight": "a LoCon with a core tensor (LyCORIS)",
    r"\.(oft|boft)_\w+(\.weight)?": "an OFT",
    r"\.on_input": "an (IA)3",
    r"\.[ab][12]\.weight": "a GLoRA (LyCORIS)",
    r"\.(diff|diff_b)": "a file of whole weights' differences (LyCORIS full)",
    r"\.vera_lambda_\w+": "a VeRA",
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
DOWN, UP, UP_BIAS, LENGTHS = "lora_A.weight", "lora_B.weight", "lora_B.bias", "lora_magnitude_vector"


@dataclass(frozen=True)
class LoraFormat:
    """One way of writing a LoRA that some program reads.

    id: its name in settings;  title, help: for people;  suffix: of its files
    warning: where such a file loads without an error and changes nothing, "" where nothing is known of that
    both: whether one file may hold the LoRAs of both experts
    """

    id: str
    title: str
    help: str
    suffix: str = ".safetensors"
    warning: str = ""
    both: bool = False


@dataclass(frozen=True)
class LoraWeights:
    """A LoRA file of any known trainer, by the names of ours.

    tensors: by peft's names, without the family's `lora_prefix`, as `set_peft_model_state_dict` takes them
    rank:    of its matrices, the largest where layers differ
    alpha:   what makes alpha / rank the scale it was trained with (a rank-stabilised scale is included); None when the
             file does not say, then stock loaders take alpha = rank
    origin:  who wrote it, in words: "diffusers", "SAT" ...
    alphas:  layer -> its alpha, where it is another than `alpha`
    expert:  which of a model's two transformers it is for (families.model.Expert); "" where the file does not say
    left_out: what the file holds besides, and a LoRA cannot: the layer as the file names it -> why
    """

    tensors: Mapping[str, torch.Tensor]
    rank: int
    alpha: float | None
    origin: str
    alphas: Mapping[str, float] = field(default_factory=dict)
    expert: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)

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

    def rank_of(self, layer: str) -> int:
        return int(self.tensors[f"{layer}.{DOWN}"].shape[0])

    def alpha_of(self, layer: str) -> float:
        return self.alphas.get(layer, self.rank_of(layer) if self.alpha is None else self.alpha)

    def scale_of(self, layer: str) -> float:
        """What the layer's B @ A counts when the LoRA's own scale is 1."""
        return self.alpha_of(layer) / self.rank_of(layer)


EXPERT_KEY = "expert"  # of our files' metadata
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


def joined(parts: Mapping[str, Mapping[str, Value]]) -> dict[str, Value]:
    """A file for both experts of the files for each: what `by_expert` takes apart."""
    prefix = "diffusion_model."
    return {
        f"{prefix}transformer_{NUMBERS[expert]}.{name.removeprefix(prefix)}": tensor
        for expert, tensors in parts.items()
        for name, tensor in tensors.items()
    }


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


def adapter_notes(config: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """The same metadata of a LoRA that peft has configured: the keys of NOTED, and no other."""
    kept = {f"{prefix}.{key}": value for key, value in config.items() if key in NOTED}
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
    """Raises ConfigError, with its name, for a file that holds something else than pairs of LoRA matrices."""
    for name in names:
        kind = next((kind for end, kind in OTHER_KINDS.items() if re.search(f"{end}$", name)), None)
        if kind is not None:
            raise ConfigError(
                f"this is {kind}, no LoRA (it has {name[:80]!r}): use it in the program that trained it, or have that "
                f"program train a LoRA"
            )


def read_lora(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """(tensors, metadata) of a LoRA file; in peft's folder also what the folder's notes say. Raises ConfigError."""
    if path.suffix in torch_checkpoints.SUFFIXES:
        return torch_checkpoints.read_checkpoint(path), {}
    tensors, metadata = read_safetensors(path)
    notes = path.with_name(PEFT_NOTES)
    if path.name == PEFT_FILE and notes.is_file():
        if notes.stat().st_size > NOTES_LIMIT:
            raise ConfigError(f"{PEFT_NOTES} beside the LoRA is larger than {NOTES_LIMIT:,} bytes: it is damaged")
        text = notes.read_text(encoding="utf-8", errors="replace")
        metadata[PEFT_KEY] = text
    return tensors, metadata


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
    header = {"__metadata__": dict(sorted(metadata.items())), **json.loads(data[8 : 8 + length])}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    return len(encoded).to_bytes(8, "little") + encoded + data[8 + length :]
