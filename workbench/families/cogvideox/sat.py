"""Convert models and LoRAs between SAT, the authors' own code, and diffusers.

    SAT                                             diffusers
    transformer/latest, transformer/1/mp_rank_00_   transformer/ and vae/; parts that SAT lacks (text_encoder/,
      model_states.pt and vae/3d-vae.pt               tokenizer/, scheduler/) come from a model in diffusers' layout
    a checkpoint with a LoRA (.pt)                  a .safetensors file

The source may also be a single .pt file of SAT's transformer or VAE, or a transformer in the pieces of a model-parallel
run (mp_rank_00_, mp_rank_01_ ...).

SAT names the same modules differently, keeps query, key and value in one matrix and the modulations of a block's norms
in one layer, and counts the decoder's levels in reverse. Nothing is computed, so every bit is kept. Names are those of
`model.state_dict()`; in SAT, a transformer's start with `model.diffusion_model.`. `_slot` locates a diffusers tensor in
SAT, and both directions follow from it.
"""

from __future__ import annotations

import math
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.families import lora_writing
from workbench.families.base import Report
from workbench.families.lora_files import (
    LoraWeights,
    even,
    read_checkpoint,
    read_lora,
    refuse_more_than_matrices,
    weights,
)
from workbench.families.lora_names import LayerNames, ranks, read
from workbench.families.model_files import config, empty_part, tensors
from workbench.families.model_inputs import Tensors
from workbench.workspace import disk, link_or_copy, writing

if TYPE_CHECKING:
    import torch

Shapes = Mapping[str, tuple[int, ...]]
Slot = tuple[str, tuple[int, ...], int]  # (SAT's tensor, indices of parts along the first axis, number of parts)
TRANSFORMER = "model.diffusion_model."
QKV = "transformer.layers.{}.attention.query_key_value"
MODULATIONS = "mixins.adaln_layer.adaLN_modulations.{}.1"
# diffusers' module within a block -> its slot; {} is the block's number.
IN_BLOCK: dict[str, Slot] = {
    "attn1.to_q": (QKV, (0,), 3),
    "attn1.to_k": (QKV, (1,), 3),
    "attn1.to_v": (QKV, (2,), 3),
    "attn1.to_out.0": ("transformer.layers.{}.attention.dense", (0,), 1),
    "attn1.norm_q": ("mixins.adaln_layer.query_layernorm_list.{}", (0,), 1),
    "attn1.norm_k": ("mixins.adaln_layer.key_layernorm_list.{}", (0,), 1),
    "norm1.norm": ("transformer.layers.{}.input_layernorm", (0,), 1),
    "norm1.linear": (MODULATIONS, (0, 1, 2, 6, 7, 8), 12),
    "norm2.norm": ("transformer.layers.{}.post_attention_layernorm", (0,), 1),
    "norm2.linear": (MODULATIONS, (3, 4, 5, 9, 10, 11), 12),
    "ff.net.0.proj": ("transformer.layers.{}.mlp.dense_h_to_4h", (0,), 1),
    "ff.net.2": ("transformer.layers.{}.mlp.dense_4h_to_h", (0,), 1),
}
OUTSIDE = {
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "ofs_embedding.linear_1": "ofs_embed.0",
    "ofs_embedding.linear_2": "ofs_embed.2",
    "patch_embed.proj": "mixins.patch_embed.proj",
    "patch_embed.text_proj": "mixins.patch_embed.text_proj",
    "norm_final": "transformer.final_layernorm",
    "norm_out.norm": "mixins.final_layer.norm_final",
    "norm_out.linear": "mixins.final_layer.adaLN_modulation.1",
    "proj_out": "mixins.final_layer.linear",
}
POSITIONS, SAT_POSITIONS = "patch_embed.pos_embedding", "mixins.pos_embed.pos_embedding"
COMPUTED = re.compile(r".*(freqs_sin|freqs_cos|word_embeddings|position_embeddings|embed_tokens).*")


def _slot(name: str) -> Slot | None:
    """Locate a tensor of diffusers' transformer in SAT's; None if SAT does not have it."""
    if name == POSITIONS:
        return SAT_POSITIONS, (0,), 1
    module, _, kind = name.rpartition(".")
    if module in OUTSIDE:
        return f"{OUTSIDE[module]}.{kind}", (0,), 1
    match = re.fullmatch(r"transformer_blocks\.(\d+)\.(.+)", module)
    if match is None or match[2] not in IN_BLOCK:
        return None
    sat, parts, count = IN_BLOCK[match[2]]
    return f"{sat.format(match[1])}.{kind}", parts, count


def transformer_to_diffusers(tensors: Tensors, shapes: Shapes) -> dict[str, torch.Tensor]:
    """Convert a SAT transformer to diffusers' names and `shapes`. Raises ConfigError if it does not fit.

    Other parts of a training checkpoint (VAE, text encoder) are dropped.
    """
    theirs = {
        name.removeprefix(TRANSFORMER): tensor
        for name, tensor in tensors.items()
        if name.startswith(TRANSFORMER) and not COMPUTED.fullmatch(name)
    }
    if any(".matrix_" in name or ".original." in name for name in theirs):
        raise ConfigError("this SAT checkpoint holds a LoRA next to the weights: choose a .safetensors file as target")
    if POSITIONS not in shapes:  # models other than 5B-I2V compute them
        theirs.pop(SAT_POSITIONS, None)
    return _taken(theirs, {name: _slot(name) for name in shapes}, shapes)


def transformer_to_sat(tensors: Tensors, positions: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
    """Convert a diffusers transformer to SAT's names. Raises ConfigError for tensors that SAT does not have.

    SAT since November 2024 holds the patches of 1.0 models, once a convolution, as rows of a matrix.

    Args:
        positions: Position embeddings of a 2B model, which diffusers computes and SAT keeps as a weight.
    """
    import torch

    given = tensors if positions is None else {POSITIONS: positions, **tensors}
    pieces: dict[str, dict[int, torch.Tensor]] = {}
    for name, tensor in given.items():
        if (slot := _slot(name)) is None:
            raise ConfigError(f"SAT has no {name[:80]!r}: only its CogVideoX transformer can be written")
        sat, parts, _ = slot
        pieces.setdefault(sat, {}).update(zip(parts, tensor.chunk(len(parts)), strict=True))
    found = {sat: torch.cat([several[part] for part in sorted(several)]) for sat, several in pieces.items()}
    patches = f"{OUTSIDE['patch_embed.proj']}.weight"
    return {f"{TRANSFORMER}{sat}": tensor.flatten(1) if sat == patches else tensor for sat, tensor in found.items()}


def _taken(theirs: Tensors, slots: Mapping[str, Slot | None], shapes: Shapes) -> dict[str, torch.Tensor]:
    """Take tensors from their slots in SAT, with diffusers' names and shapes. Raises ConfigError."""
    import torch

    if not theirs:
        raise ConfigError("these are not SAT weights of CogVideoX: choose another file")
    found, left = {}, set(theirs)
    for name, slot in slots.items():
        if slot is None or slot[0] not in theirs:
            raise ConfigError(f"the SAT weights do not fit: they lack {name[:80]!r}: choose the model they belong to")
        sat, parts, count = slot
        left.discard(sat)
        tensor = theirs[sat]
        if count > 1:
            tensor = torch.cat([tensor.chunk(count)[part] for part in parts])
        # Patches of 1.0 models may be rows of a matrix, the same numbers in the same order.
        if tensor.numel() != math.prod(shapes[name]):
            raise ConfigError(
                f"the SAT weights do not fit: {name[:80]!r} is {tuple(tensor.shape)}, the model's is {shapes[name]}: "
                f"choose the model they belong to"
            )
        found[name] = tensor.reshape(shapes[name])
    if left:
        raise ConfigError(
            f"the SAT weights do not fit: they have {min(left)[:80]!r}, which the model lacks: choose the model they "
            f"belong to"
        )
    return found


# ---- a checkpoint in pieces, one per process of a model-parallel run

# SwissArmyTransformer (sat/mpu/layers.py) splits some layers by outputs, each of the given number of parts (query, key,
# value) on its own, and others by inputs, except for the bias. Everything else is the same in every piece.
CUT_BY_OUTPUTS = {"attention.query_key_value": 3, "mlp.dense_h_to_4h": 1}
CUT_BY_INPUTS = ("attention.dense.weight", "mlp.dense_4h_to_h.weight")


def joined(pieces: Sequence[Tensors]) -> dict[str, torch.Tensor]:
    """Join a checkpoint's pieces, sorted by rank. Raises ConfigError."""
    import torch

    names = set(pieces[0])
    if any(set(piece) != names for piece in pieces):
        raise ConfigError("the pieces of this SAT checkpoint hold different tensors: use the pieces of one run")
    if is_lora(pieces[0]):
        raise ConfigError("this SAT checkpoint holds a LoRA in pieces: save it in SAT with model_parallel_size 1")
    found = {}
    for name in names:
        several = [piece[name] for piece in pieces]
        if parts := next((parts for layer, parts in CUT_BY_OUTPUTS.items() if f".{layer}." in name), 0):
            cut = [tensor.chunk(parts) for tensor in several]
            found[name] = torch.cat([piece[part] for part in range(parts) for piece in cut])
        elif name.endswith(CUT_BY_INPUTS):
            found[name] = torch.cat(several, dim=1)
        elif COMPUTED.fullmatch(name) or all(torch.equal(several[0], other) for other in several[1:]):
            found[name] = several[0]
        else:
            raise ConfigError(f"{name[:80]!r} differs between the pieces of this SAT checkpoint: use those of one run")
    return found


# ---- the video autoencoder


def vae_to_sat(tensors: Tensors) -> dict[str, torch.Tensor]:
    """Convert a diffusers video autoencoder to SAT's names."""
    return {sat: tensors[name] for name, sat in _vae_names(tensors).items()}


def vae_to_diffusers(tensors: Tensors, shapes: Shapes) -> dict[str, torch.Tensor]:
    """Convert SAT's video autoencoder to diffusers' names and `shapes`. Raises ConfigError if it does not fit.

    Its losses and discriminator are dropped.
    """
    theirs = {name: one for name, one in tensors.items() if name.startswith(("encoder.", "decoder."))}
    return _taken(theirs, {name: (sat, (0,), 1) for name, sat in _vae_names(shapes).items()}, shapes)


def _vae_names(names: Mapping[str, object]) -> dict[str, str]:
    """Return diffusers' name of each tensor -> SAT's."""
    levels = len({match[1] for name in names if (match := re.match(r"decoder\.up_blocks\.(\d+)\.", name))})
    found = {}
    for name in names:
        sat = re.sub(r"\.up_blocks\.(\d+)\.", lambda match: f".up.{levels - 1 - int(match[1])}.", name)
        sat = re.sub(r"\.mid_block\.resnets\.(\d)\.", lambda match: f".mid.block_{int(match[1]) + 1}.", sat)
        for ours, theirs in ((".down_blocks.", ".down."), (".resnets.", ".block."), ("samplers.0.", "sample.")):
            sat = sat.replace(ours, theirs)
        found[name] = sat.replace(".conv_shortcut.", ".nin_shortcut.")
    return found


# ---- LoRAs: one pair of matrices per part of a layer

ALPHA = 1.0  # SAT's default, which none of its configs changes
LORA = re.compile(r"(?:.*\.)?transformer\.layers\.(\d+)\.attention\.(\w+)\.matrix_([AB])\.(\d)")
TARGETS = {"attn1.to_q": ("query_key_value", 0), "attn1.to_k": ("query_key_value", 1)}
TARGETS |= {"attn1.to_v": ("query_key_value", 2), "attn1.to_out.0": ("dense", 0)}


def is_lora(tensors: Tensors) -> bool:
    """Return whether a SAT checkpoint holds a LoRA."""
    return any(".matrix_" in name for name in tensors)


def lora_to_diffusers(tensors: Tensors) -> LoraWeights:
    """Convert the LoRA in a SAT checkpoint, which may also hold the model's weights. Raises ConfigError."""
    named, ours = {}, {part: name for name, part in TARGETS.items()}
    for name, tensor in tensors.items():
        if ".matrix_" not in name:
            continue
        match = LORA.fullmatch(name)
        target = match and ours.get((match[2], int(match[4])))
        if match is None or target is None:
            raise ConfigError(f"the LoRA holds {name[:80]!r}, which SAT's CogVideoX does not have: use another file")
        named[f"transformer_blocks.{match[1]}.{target}.lora_{match[3]}.weight"] = tensor
    return weights(named, dict.fromkeys(ranks(named), ALPHA), "SAT")


def lora_to_sat(lora: LoraWeights) -> dict[str, torch.Tensor]:
    """Convert a LoRA to SAT's names, its scale multiplied into B for SAT's default alpha of 1. Raises ConfigError.

    Of query, key and value, SAT needs all or none, so missing ones get zeros.
    """
    refuse_more_than_matrices(lora, "SAT")
    one = even(lora)
    scale = (one.rank if one.alpha is None else one.alpha) / ALPHA
    found: dict[str, torch.Tensor] = {}
    for name, tensor in one.tensors.items():
        match = re.fullmatch(r"transformer_blocks\.(\d+)\.(.+)\.lora_([AB])\.weight", name)
        if match is None or match[2] not in TARGETS:
            raise ConfigError(
                f"the LoRA holds {name[:80]!r}, SAT's change only attention projections: train one on attention"
            )
        module, part = TARGETS[match[2]]
        stem = f"{TRANSFORMER}transformer.layers.{match[1]}.attention.{module}.matrix_{match[3]}"
        for other in range(3 if module == "query_key_value" else 1):
            found.setdefault(f"{stem}.{other}", tensor.new_zeros(tensor.shape))
        found[f"{stem}.{part}"] = tensor * scale if match[3] == "B" else tensor
    return dict(sorted(found.items()))


# ---- files and folders

STATES = "mp_rank_00_model_states.pt"
PIECE = re.compile(r"mp_rank_(\d+)_model_states\.pt")


def convert(source: Path, target: Path, folder: Path, names: LayerNames, report: Report) -> str:
    """Convert `source` to `target`: see Family.convert. Raises ConfigError, CannotWrite."""
    import torch
    from safetensors.torch import save_file

    if target.exists():
        raise ConfigError(f"{target} already exists: choose a new name")
    checkpoints: list[Tensors] = []
    if not (from_model := (source / "model_index.json").is_file()) and source.suffix != ".safetensors":
        pieces = [[read_checkpoint(path) for path in paths] for paths in _sat_files(source)]
        checkpoints = [joined(several) if len(several) > 1 else several[0] for several in pieces]
    of_lora = next(filter(is_lora, checkpoints), None)
    if of_lora is not None and target.suffix != ".safetensors":
        raise ConfigError(f"{source.name} holds a LoRA, but {target.name} is not a LoRA file: end it in .safetensors")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        # Write to a new path next to the target and rename it at the end, so that the target is complete or missing.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
            new = Path(scratch) / "new"
            if from_model:
                summary = _model_to_sat(source, new, report)
            elif of_lora is not None:
                lora = lora_to_diffusers(of_lora)
                found, metadata = lora_writing.diffusers(lora, names)
                save_file({name: tensor.contiguous() for name, tensor in found.items()}, new, metadata)
                summary = f"a LoRA of rank {lora.rank} from SAT, with SAT's alpha of {ALPHA:g}"
            elif checkpoints:
                summary = _model_to_diffusers(checkpoints, folder, new, report)
            else:
                lora = read(names, *read_lora(source))
                torch.save({"module": lora_to_sat(lora)}, new)
                summary = f"a LoRA for SAT: r {lora.rank}, lora_alpha 1 in its lora_config"
            disk.replace(new, target)
    return f"{summary}: {target}"


def _sat_files(source: Path) -> list[list[Path]]:
    """Find the .pt files of a SAT file or folder, each with the other pieces of its checkpoint. Raises ConfigError."""
    if source.is_file():
        return [_pieces(source)]
    found = []
    for folder in (source, source / "transformer"):
        if (folder / "latest").is_file():
            states = folder / (folder / "latest").read_text(encoding="utf-8").strip()
            found.append(states / STATES)
    found += [path for path in (source / "3d-vae.pt", source / "vae" / "3d-vae.pt") if path.is_file()]
    if not found or not all(path.is_file() for path in found):
        raise ConfigError(
            f"{source} is neither a diffusers model (model_index.json) nor a SAT model (latest, 3d-vae.pt), nor a "
            f"file: check the name"
        )
    return [_pieces(path) for path in found]


def _pieces(path: Path) -> list[Path]:
    """Return a checkpoint's files, sorted by rank. Raises ConfigError if one is missing."""
    if not PIECE.fullmatch(path.name):
        return [path]
    ranks = {int(match[1]): other for other in path.parent.iterdir() if (match := PIECE.fullmatch(other.name))}
    if missing := sorted(set(range(max(ranks) + 1)) - ranks.keys()):
        raise ConfigError(f"{path.parent} lacks the piece mp_rank_{missing[0]:02d}_model_states.pt: copy it, too")
    return [ranks[rank] for rank in sorted(ranks)]


def _model_to_diffusers(checkpoints: Sequence[Tensors], folder: Path, new: Path, report: Report) -> str:
    made = set()
    for checkpoint in checkpoints:
        part = "transformer" if any(name.startswith(TRANSFORMER) for name in checkpoint) else "vae"
        report(f"Converting the {part} ...")
        model = empty_part(folder, part)
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        to_diffusers = transformer_to_diffusers if part == "transformer" else vae_to_diffusers
        model.load_state_dict(to_diffusers(checkpoint, shapes), assign=True)
        model.save_pretrained(new / part, max_shard_size="5GB")
        made.add(part)
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name not in made and not path.name.startswith("."):
            shutil.copytree(path, new / path.name, copy_function=link_or_copy)
    shutil.copy2(folder / "model_index.json", new / "model_index.json")
    return f"{' and '.join(sorted(made))} from SAT, the rest from {folder.name}"


def _model_to_sat(folder: Path, new: Path, report: Report) -> str:
    import torch

    report("Converting the transformer ...")
    found, positions = config(folder, "transformer"), None
    if not found["use_rotary_positional_embeddings"]:  # 2B, whose positions SAT keeps as a weight
        embed = empty_part(folder, "transformer").patch_embed
        size = (found["sample_height"], found["sample_width"], found["sample_frames"])
        positions = embed._get_positional_embeddings(*size, device=torch.device("cpu"))
    states = new / "transformer" / "1" / STATES
    states.parent.mkdir(parents=True)
    torch.save({"module": transformer_to_sat(tensors(folder, "transformer"), positions)}, states)
    (new / "transformer" / "latest").write_text("1", encoding="utf-8")
    report("Converting the vae ...")
    (new / "vae").mkdir()
    torch.save({"state_dict": vae_to_sat(tensors(folder, "vae"))}, new / "vae" / "3d-vae.pt")
    return "transformer and vae for SAT"
