"""Files and folders of SAT from those of diffusers and back: models whole, or a LoRA.

    SAT                                             diffusers
    transformer/latest, transformer/1/mp_rank_00_   transformer/, beside the parts that SAT lacks: text_encoder/,
      model_states.pt and vae/3d-vae.pt               tokenizer/, scheduler/, taken from a model in diffusers' layout
    a checkpoint with a LoRA (.pt)                  a .safetensors file

A single .pt file of SAT's transformer or VAE is taken, too, and a transformer in the pieces of a model-parallel run
(mp_rank_00_, mp_rank_01_ ...). Not covered: the tensors' names (sat), pieces of ZeRO stage 3.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.families import lora_names, lora_writing
from workbench.families.base import Report
from workbench.families.cogvideox import loras, sat
from workbench.families.lora_files import read_lora
from workbench.families.model_files import config, empty_part, tensors
from workbench.families.model_inputs import Tensors
from workbench.families.torch_checkpoints import read_checkpoint
from workbench.operating_system import system
from workbench.workspace import link_or_copy, writing

if TYPE_CHECKING:
    import torch

STATES = "mp_rank_00_model_states.pt"
PIECE = re.compile(r"mp_rank_(\d+)_model_states\.pt")
SHARD = "5GB"


def convert(source: Path, target: Path, folder: Path, report: Report) -> str:
    """Write `target` from `source`; see Family.convert. Raises ConfigError, CannotWrite."""
    if target.exists():
        raise ConfigError(f"{target} is there already: give a new name")
    if (source / "model_index.json").is_file():
        return _new(target, lambda new: _model_to_sat(source, new, report))
    if source.suffix == ".safetensors":
        return _new(target, lambda new: _lora_to_sat(source, new))
    pieces = [[read_checkpoint(path) for path in paths] for paths in _sat_files(source)]
    checkpoints = [sat.joined(several) if len(several) > 1 else several[0] for several in pieces]
    if (lora := next(filter(sat.is_lora, checkpoints), None)) is None:
        return _new(target, lambda new: _model_to_diffusers(checkpoints, folder, new, report))
    if target.suffix != ".safetensors":
        raise ConfigError(f"{source.name} holds a LoRA and {target.name} is no file for one: end it in .safetensors")
    return _new(target, lambda new: _lora_to_diffusers(lora, new))


def _new(target: Path, fill: Callable[[Path], str]) -> str:
    """Fill a new path beside the target, which then takes its name: there whole or not at all."""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
            summary = fill(Path(scratch) / "new")
            system.replace(Path(scratch) / "new", target)
    return f"{summary}: {target}"


# ---- SAT's files


def _sat_files(source: Path) -> list[list[Path]]:
    """The .pt files of a SAT model, each with the other pieces of its checkpoint: the one named, or those of a folder.

    Raises ConfigError.
    """
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
            f"{source} is neither a model of diffusers (model_index.json) nor of SAT (latest, 3d-vae.pt), nor a file: "
            f"check the name"
        )
    return [_pieces(path) for path in found]


def _pieces(path: Path) -> list[Path]:
    """The files of a checkpoint by their ranks. Raises ConfigError when one of them is missing."""
    if not PIECE.fullmatch(path.name):
        return [path]
    ranks = {int(match[1]): other for other in path.parent.iterdir() if (match := PIECE.fullmatch(other.name))}
    if missing := sorted(set(range(max(ranks) + 1)) - ranks.keys()):
        raise ConfigError(f"{path.parent} lacks the piece mp_rank_{missing[0]:02d}_model_states.pt: copy it, too")
    return [ranks[rank] for rank in sorted(ranks)]


# ---- models


def _model_to_diffusers(checkpoints: Sequence[Tensors], folder: Path, new: Path, report: Report) -> str:
    made = set()
    for checkpoint in checkpoints:
        part = "transformer" if any(name.startswith(sat.TRANSFORMER) for name in checkpoint) else "vae"
        report(f"Converting the {part} ...")
        model = empty_part(folder, part)
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        rename = sat.transformer_to_diffusers if part == "transformer" else sat.vae_to_diffusers
        model.load_state_dict(rename(checkpoint, shapes), assign=True)
        model.save_pretrained(new / part, max_shard_size=SHARD)
        made.add(part)
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name not in made and not path.name.startswith("."):
            shutil.copytree(path, new / path.name, copy_function=link_or_copy)
    shutil.copy2(folder / "model_index.json", new / "model_index.json")
    return f"{' and '.join(sorted(made))} from SAT, the rest from {folder.name}"


def _model_to_sat(folder: Path, new: Path, report: Report) -> str:
    import torch

    report("Converting the transformer ...")
    states = new / "transformer" / "1" / STATES
    states.parent.mkdir(parents=True)
    torch.save({"module": sat.transformer_to_sat(tensors(folder, "transformer"), _computed_positions(folder))}, states)
    (new / "transformer" / "latest").write_text("1", encoding="utf-8")
    report("Converting the vae ...")
    (new / "vae").mkdir()
    torch.save({"state_dict": sat.vae_to_sat(tensors(folder, "vae"))}, new / "vae" / "3d-vae.pt")
    return "transformer and vae for SAT"


def _computed_positions(folder: Path) -> torch.Tensor | None:
    """What SAT keeps as a weight and diffusers computes: the positions of a 2B model; None for others."""
    import torch

    found = config(folder, "transformer")
    if found["use_rotary_positional_embeddings"]:
        return None
    embed = empty_part(folder, "transformer").patch_embed
    size = (found["sample_height"], found["sample_width"], found["sample_frames"])
    positions: torch.Tensor = embed._get_positional_embeddings(*size, device=torch.device("cpu"))
    return positions


# ---- LoRAs


def _lora_to_diffusers(checkpoint: Tensors, new: Path) -> str:
    from safetensors.torch import save_file

    lora = sat.lora_to_diffusers(checkpoint)
    found, metadata = lora_writing.export(lora, "diffusers", lora_writing.WRITERS)
    save_file(found, new, metadata)
    return f"a LoRA of rank {lora.rank} from SAT, with SAT's alpha of {sat.ALPHA:g}"


def _lora_to_sat(source: Path, new: Path) -> str:
    import torch

    lora = lora_names.read(loras.NAMES, *read_lora(source))
    torch.save({"module": sat.lora_to_sat(lora)}, new)
    return f"a LoRA for SAT: r {lora.rank}, lora_alpha 1 in its lora_config"
