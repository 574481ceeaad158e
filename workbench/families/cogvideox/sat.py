"""Weights of SAT (the authors' own code) by diffusers' names and back, tensor by tensor; no file is touched here.

The same modules have other names there; query, key and value lie in one matrix; the modulations of both norms of a
block lie in one layer; the decoder's levels are counted the other way. Nothing is computed, so every bit is kept. Names
in and out are those of `model.state_dict()`: a transformer's start with `model.diffusion_model.` in SAT.
Not covered: LoRAs (loras), files and folders (convert).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.families.model_inputs import Tensors

if TYPE_CHECKING:
    import torch

Shapes = Mapping[str, tuple[int, ...]]
TRANSFORMER = "model.diffusion_model."
# SAT's module, diffusers' module; {} is the block's number.
MODULES = (
    ("time_embed.0", "time_embedding.linear_1"),
    ("time_embed.2", "time_embedding.linear_2"),
    ("ofs_embed.0", "ofs_embedding.linear_1"),
    ("ofs_embed.2", "ofs_embedding.linear_2"),
    ("mixins.patch_embed.proj", "patch_embed.proj"),
    ("mixins.patch_embed.text_proj", "patch_embed.text_proj"),
    ("transformer.layers.{}.input_layernorm", "transformer_blocks.{}.norm1.norm"),
    ("transformer.layers.{}.attention.dense", "transformer_blocks.{}.attn1.to_out.0"),
    ("transformer.layers.{}.post_attention_layernorm", "transformer_blocks.{}.norm2.norm"),
    ("transformer.layers.{}.mlp.dense_h_to_4h", "transformer_blocks.{}.ff.net.0.proj"),
    ("transformer.layers.{}.mlp.dense_4h_to_h", "transformer_blocks.{}.ff.net.2"),
    ("mixins.adaln_layer.query_layernorm_list.{}", "transformer_blocks.{}.attn1.norm_q"),
    ("mixins.adaln_layer.key_layernorm_list.{}", "transformer_blocks.{}.attn1.norm_k"),
    ("transformer.final_layernorm", "norm_final"),
    ("mixins.final_layer.norm_final", "norm_out.norm"),
    ("mixins.final_layer.adaLN_modulation.1", "norm_out.linear"),
    ("mixins.final_layer.linear", "proj_out"),
)
# SAT's module, diffusers' modules, and which of how many equal parts of the first go into each of the others.
JOINED = (
    (
        "transformer.layers.{}.attention.query_key_value",
        tuple(f"transformer_blocks.{{}}.attn1.to_{letter}" for letter in "qkv"),
        ((0,), (1,), (2,)),
    ),
    (
        "mixins.adaln_layer.adaLN_modulations.{}.1",
        ("transformer_blocks.{}.norm1.linear", "transformer_blocks.{}.norm2.linear"),
        ((0, 1, 2, 6, 7, 8), (3, 4, 5, 9, 10, 11)),
    ),
)
PATCHES = "mixins.patch_embed.proj.weight"
POSITIONS = ("mixins.pos_embed.pos_embedding", "patch_embed.pos_embedding")
COMPUTED = re.compile(r".*(freqs_sin|freqs_cos|word_embeddings|position_embeddings|embed_tokens).*")


def transformer_to_diffusers(tensors: Tensors, shapes: Shapes) -> dict[str, torch.Tensor]:
    """A SAT transformer by the names and in the `shapes` of diffusers' model. Raises ConfigError where it does not fit.

    Other parts of a training checkpoint (VAE, text encoder) are left out.
    """
    found: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if not name.startswith(TRANSFORMER) or COMPUTED.fullmatch(name):
            continue
        plain = name.removeprefix(TRANSFORMER)
        if ".matrix_" in plain or ".original." in plain:
            raise ConfigError("this SAT checkpoint holds a LoRA beside the weights: give a .safetensors file as target")
        if plain == POSITIONS[0]:
            if POSITIONS[1] in shapes:  # others than 5B-I2V compute them
                found[POSITIONS[1]] = tensor
        else:
            found.update(_to_diffusers(plain, tensor))
    return _fitted(found, shapes)


def _to_diffusers(name: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    import torch

    module, _, kind = name.rpartition(".")
    for sat, ours in MODULES:
        if number := _number(sat, module):
            return {f"{ours.format(*number)}.{kind}": tensor}
    for sat, several, parts in JOINED:
        if number := _number(sat, module):
            pieces = tensor.chunk(sum(len(part) for part in parts), dim=0)
            return {
                f"{ours.format(*number)}.{kind}": torch.cat([pieces[index] for index in part])
                for ours, part in zip(several, parts, strict=True)
            }
    raise ConfigError(f"{name[:80]!r} is no tensor of a SAT CogVideoX transformer: give another file")


def _number(pattern: str, module: str) -> list[str] | None:
    """["3"] where the module is the pattern with 3 in it, [""] for a pattern without a number, else None."""
    match = re.fullmatch(re.escape(pattern).replace(r"\{\}", r"(\d+)"), module)
    return None if match is None else list(match.groups()) or [""]


def transformer_to_sat(tensors: Tensors, positions: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
    """A diffusers transformer by SAT's names, as its code since November 2024 reads it: the patches of 1.0 models,
    which were a convolution before, are rows of a matrix. Raises ConfigError for tensors that SAT has no place for.

    positions: those that diffusers computes for a 2B model and SAT keeps as a weight
    """
    import torch

    left, found = dict(tensors), {}
    if POSITIONS[1] in left:
        positions = left.pop(POSITIONS[1])
    if positions is not None:
        found[f"{TRANSFORMER}{POSITIONS[0]}"] = positions
    for name in tensors:
        module, _, kind = name.rpartition(".")
        if name not in left:
            continue
        for sat, ours in MODULES:
            if number := _number(ours, module):
                found[f"{TRANSFORMER}{sat.format(*number)}.{kind}"] = left.pop(name)
        for sat, several, parts in JOINED:
            if number := _number(several[0], module):
                pieces: dict[int, torch.Tensor] = {}
                for one, part in zip(several, parts, strict=True):
                    tensor = left.pop(f"{one.format(*number)}.{kind}")
                    pieces.update(zip(part, tensor.chunk(len(part), dim=0), strict=True))
                joined = torch.cat([pieces[index] for index in sorted(pieces)])
                found[f"{TRANSFORMER}{sat.format(*number)}.{kind}"] = joined
    patches = f"{TRANSFORMER}{PATCHES}"
    if patches in found:
        found[patches] = found[patches].flatten(1)
    if left:
        raise ConfigError(f"{next(iter(left))[:80]!r} has no place in SAT: only its CogVideoX transformer is written")
    return found


# ---- a checkpoint in pieces, one for each process of a model-parallel run

# What is cut (SwissArmyTransformer, sat/mpu/layers.py): layers by their outputs, each of so many parts of which is cut
# by itself (query, key, value); layers by their inputs, whose bias is whole. All else is the same in every piece.
CUT_BY_OUTPUTS = {"attention.query_key_value": 3, "mlp.dense_h_to_4h": 1}
CUT_BY_INPUTS = ("attention.dense.weight", "mlp.dense_4h_to_h.weight")


def joined(pieces: Sequence[Tensors]) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint from its pieces, in the order of their ranks. Raises ConfigError."""
    import torch

    names = set(pieces[0])
    if any(set(piece) != names for piece in pieces):
        raise ConfigError("the pieces of this SAT checkpoint hold different tensors: give the pieces of one run")
    if any(".matrix_" in name for name in names):
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
            raise ConfigError(f"{name[:80]!r} differs between the pieces of this SAT checkpoint: give those of one run")
    return found


# ---- the video autoencoder


def vae_to_diffusers(tensors: Tensors, shapes: Shapes) -> dict[str, torch.Tensor]:
    """A SAT video autoencoder by diffusers' names; its losses and discriminator are left out. Raises ConfigError."""
    levels = _levels(shapes)
    found = {
        _renamed(name, VAE_TO_DIFFUSERS, levels): tensor
        for name, tensor in tensors.items()
        if name.startswith(("encoder.", "decoder."))
    }
    return _fitted(found, shapes)


def vae_to_sat(tensors: Tensors) -> dict[str, torch.Tensor]:
    """A diffusers video autoencoder by SAT's names."""
    levels = _levels(tensors)
    return {_renamed(name, VAE_TO_SAT, levels): tensor for name, tensor in tensors.items()}


Replace = Callable[[re.Match[str], int], str]
VAE_TO_DIFFUSERS: tuple[tuple[str, Replace], ...] = (
    (r"\.mid\.block_(\d)\.", lambda m, _: f".mid_block.resnets.{int(m[1]) - 1}."),
    (r"\.down\.(\d+)\.", lambda m, _: f".down_blocks.{m[1]}."),
    (r"\.up\.(\d+)\.", lambda m, levels: f".up_blocks.{levels - 1 - int(m[1])}."),
    (r"\.block\.(\d+)\.", lambda m, _: f".resnets.{m[1]}."),
    (r"\.(down|up)sample\.", lambda m, _: f".{m[1]}samplers.0."),
    (r"\.nin_shortcut\.", lambda m, _: ".conv_shortcut."),
)
VAE_TO_SAT: tuple[tuple[str, Replace], ...] = (
    (r"\.mid_block\.resnets\.(\d)\.", lambda m, _: f".mid.block_{int(m[1]) + 1}."),
    (r"\.down_blocks\.(\d+)\.", lambda m, _: f".down.{m[1]}."),
    (r"\.up_blocks\.(\d+)\.", lambda m, levels: f".up.{levels - 1 - int(m[1])}."),
    (r"\.resnets\.(\d+)\.", lambda m, _: f".block.{m[1]}."),
    (r"\.(down|up)samplers\.0\.", lambda m, _: f".{m[1]}sample."),
    (r"\.conv_shortcut\.", lambda m, _: ".nin_shortcut."),
)


def _renamed(name: str, rules: tuple[tuple[str, Replace], ...], levels: int) -> str:
    for pattern, replace in rules:
        name = re.sub(pattern, lambda match, rule=replace: rule(match, levels), name)  # type: ignore[misc]
    return name


def _levels(names: Mapping[str, object]) -> int:
    numbers = [int(match[1]) for name in names if (match := re.match(r"decoder\.up_blocks\.(\d+)\.", name))]
    return max(numbers, default=-1) + 1


def _fitted(found: dict[str, torch.Tensor], shapes: Shapes) -> dict[str, torch.Tensor]:
    """The same, checked against the names and shapes of diffusers' model. Raises ConfigError."""
    if not found:
        raise ConfigError("these are no SAT weights of CogVideoX: give another file")
    for name in (*(shapes.keys() - found.keys()), *(found.keys() - shapes.keys())):
        which = "lacks" if name in shapes else "has, which the model lacks,"
        raise ConfigError(f"the SAT weights do not fit: it {which} {name[:80]!r}: choose the model they belong to")
    for name, tensor in found.items():
        # SAT since November 2024 holds the 1.0 models' patches as rows of a matrix: the same numbers in the same order.
        if tensor.numel() != math.prod(shapes[name]):
            raise ConfigError(
                f"the SAT weights do not fit: {name[:80]!r} is {tuple(tensor.shape)}, the model's is {shapes[name]}: "
                f"choose the model they belong to"
            )
        found[name] = tensor.reshape(shapes[name])
    return found
