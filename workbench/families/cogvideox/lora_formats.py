"""LoRAs of CogVideoX written for other programs, each so that its reader gets the same change of every weight.

    diffusers, portable, finetrainers, comfyui, kohya: families.lora_writing
    sat: a torch file with SAT's matrices, for its alpha of 1

Not covered: reading, names (loras).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.families import lora_writing
from workbench.families.cogvideox.loras import NAMES, SAT_ALPHA, SAT_MODULES
from workbench.families.lora_files import LoraFormat, LoraWeights, even, refuse_more_than_matrices

if TYPE_CHECKING:
    import torch

    Tensors = dict[str, torch.Tensor]

# Its LoRA loader looks for its own layers' names, passes over all others with a line in its log, and goes on.
UNKNOWN_TO_COMFYUI = (
    "ComfyUI's own CogVideoX model does not know these names: there the file loads without an error and changes "
    "nothing. For ComfyUI, convert it to comfyui"
)
FORMATS = (
    LoraFormat(
        "diffusers",
        "diffusers",
        "As in the library: rank and alpha in the file's metadata. For diffusers from 0.34 on, and this workbench.",
        warning=UNKNOWN_TO_COMFYUI,
    ),
    LoraFormat(
        "portable",
        "portable (cogvideox-factory, ComfyUI-CogVideoXWrapper)",
        "diffusers' names with the strength multiplied into the weights, for programs that know nothing of alpha: "
        "cogvideox-factory, kijai's ComfyUI-CogVideoXWrapper, older diffusers.",
        warning=UNKNOWN_TO_COMFYUI,
    ),
    LoraFormat(
        "finetrainers",
        "finetrainers",
        "diffusers' names with rank and alpha where finetrainers writes and reads them.",
    ),
    LoraFormat(
        "comfyui",
        "ComfyUI",
        "For the LoRA loader of ComfyUI's own CogVideoX model (diffusion_model.blocks.0.q and so on).",
    ),
    LoraFormat(
        "kohya",
        "kohya",
        "kohya's flat names with an alpha for each layer (lora_unet_transformer_blocks_0_attn1_to_q), as VideoX-Fun "
        "reads them. In ComfyUI's own CogVideoX model they do nothing: choose comfyui for it.",
        warning=UNKNOWN_TO_COMFYUI,
    ),
    LoraFormat(
        "sat",
        "SAT",
        "A torch file for the authors' own code (SwissArmyTransformer), lora_alpha 1.",
        ".pt",
    ),
)


WRITERS: dict[str, lora_writing.Writer] = {
    "diffusers": lora_writing.diffusers,
    "portable": lora_writing.portable,
    "finetrainers": lora_writing.finetrainers,
    "comfyui": lora_writing.comfyui(NAMES),
    "kohya": lambda lora: lora_writing.kohya(lora, {layer: layer for layer in lora.layers}),
    "sat": lambda lora: (to_sat(lora), {}),
}


def to_sat(lora: LoraWeights) -> Tensors:
    """The LoRA's matrices by SAT's names, for its default alpha of 1: the scale is multiplied into B. Raises
    ConfigError.

    What the LoRA has for one or two of query, key and value gets matrices of zeros for the rest, which SAT cannot omit.
    """
    import torch

    refuse_more_than_matrices(lora, "SAT")
    one = even(lora)
    scale = (one.rank if one.alpha is None else one.alpha) / SAT_ALPHA
    parts = {
        f"attn1.{name}": (module, part) for module, names in SAT_MODULES.items() for part, name in enumerate(names)
    }
    found: dict[str, torch.Tensor] = {}
    for name, tensor in one.tensors.items():
        match = re.fullmatch(r"transformer_blocks\.(\d+)\.(.+)\.lora_([AB])\.weight", name)
        if match is None or match[2] not in parts:
            raise ConfigError(
                f"the LoRA holds {name[:80]!r}, SAT's change the attention's projections alone: train one on attention"
            )
        module, part = parts[match[2]]
        sat = f"model.diffusion_model.transformer.layers.{match[1]}.attention.{module}.matrix_{match[3]}.{part}"
        found[sat] = tensor * scale if match[3] == "B" else tensor
    for name, tensor in list(found.items()):
        stem, part_name = name.rsplit(".", 1)
        for part in range(len(SAT_MODULES["query_key_value"]) if "query_key_value" in name else 0):
            if part != int(part_name):
                found.setdefault(f"{stem}.{part}", torch.zeros_like(tensor))
    return dict(sorted(found.items()))
