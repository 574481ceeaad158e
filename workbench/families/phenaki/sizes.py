"""A Phenaki model's sizes, from its files, for estimates of memory and time. No torch."""

from __future__ import annotations

import re
from pathlib import Path

from workbench.families import architectures
from workbench.families.architectures import Part
from workbench.families.facts import Linear, ModelFacts, VaeFacts
from workbench.families.model import Model
from workbench.families.phenaki.models import LORA_TARGETS, TEXT_TOKENS

TEXT_LAYERS = re.compile(r".+\.attn2\.to_[kv]")
SHARED_LAYERS = re.compile(r".+\.(attn1\.to_[kv]|attn2\.to_v)")


def facts(model: Model) -> ModelFacts:
    """Sizes from the model's folder: there are none but on this disk."""
    found = architectures.architecture(model, Path(model.source), ("transformer", "vae", "text_encoder"))
    transformer, vae, text = (found.parts[name] for name in ("transformer", "vae", "text_encoder"))
    return ModelFacts(
        stored=found.stored,
        blocks=transformer.config["layers"],
        width=transformer.config["width"],
        heads=transformer.config["heads"],
        text_tokens=int(transformer.config.get("max_text_seq_length", TEXT_TOKENS)),
        text_width=transformer.config["text_width"],
        values=transformer.values,
        linears=tuple(
            Linear(
                name,
                *sizes,
                on="text" if TEXT_LAYERS.fullmatch(name) else "video",
                shared=SHARED_LAYERS.fullmatch(name) is not None,
            )
            for name, sizes in transformer.layers.items()
            if not name.endswith("embed")  # of codes, looked up
        ),
        text_encoder_values=text.values,
        vae=vae_facts(vae),
        spatial=vae.config["patch"],
        temporal=vae.config["patch_frames"],
        patch=1,
        patch_frames=1,
        channels=len(vae.config["levels"]),
        in_channels=len(vae.config["levels"]),
        presets=LORA_TARGETS,
        on_disk=True,
        text_joint=False,
    )


def vae_facts(vae: Part) -> VaeFacts:
    """What the tokenizer needs memory for: its tokens' widest layer, as channels of a frame in full resolution."""
    width = max(1, 4 * vae.config["width"] // vae.config["patch"] ** 2)
    return VaeFacts(vae.values, width, width, frames_at_once=129, tile=(512, 512))
