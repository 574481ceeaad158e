"""Sizes of the CogVideoX models: from a folder's configs, or as published for those that are not on the disk.

Sources: the configs of the repositories on the Hub. Not covered: what is computed from the sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import ModelUnavailable
from workbench.families import hub_files
from workbench.families.base import Model
from workbench.families.cogvideox import files
from workbench.families.facts import Linear, ModelFacts, VaeFacts

COMMON = {
    "attention_head_dim": 64,
    "in_channels": 16,
    "out_channels": 16,
    "text_embed_dim": 4096,
    "time_embed_dim": 512,
    "patch_size": 2,
    "max_text_seq_length": 226,
    "sample_frames": 49,
    "sample_height": 60,
    "sample_width": 90,
}
SMALL = {**COMMON, "num_attention_heads": 30, "num_layers": 30}
LARGE = {**COMMON, "num_attention_heads": 48, "num_layers": 42, "use_rotary_positional_embeddings": True}
NEWER = {**LARGE, "patch_size_t": 2, "patch_bias": False, "sample_frames": 81}
TRANSFORMERS: dict[str, dict[str, Any]] = {
    "cogvideox-2b": SMALL,
    "cogvideox-5b": LARGE,
    "cogvideox-5b-i2v": {**LARGE, "in_channels": 32, "use_learned_positional_embeddings": True},
    "cogvideox1.5-5b": NEWER,
    "cogvideox1.5-5b-i2v": {**NEWER, "in_channels": 32, "ofs_embed_dim": 512},
}
VAE: dict[str, Any] = {
    "block_out_channels": [128, 256, 256, 512],
    "temporal_compression_ratio": 4,
    "sample_height": 480,
    "sample_width": 720,
}
ATTENTION = ("to_q", "to_k", "to_v", "to_out.0")
VAE_VALUES, T5_VALUES = 215_583_907, 4_762_310_656
STORED = {"cogvideox-2b": "float16"}  # the others: bfloat16


def facts(model: Model, folder: Path | None, presets: Mapping[str, tuple[str, ...]]) -> ModelFacts:
    """The model's sizes; folder: where its files are, None when it is not on the disk.

    Of another repository the configs were fetched when it was first named (families.settle).
    """
    if folder is None:
        known = model.id.partition(":")[0].partition("@")[0]
        transformer, vae = TRANSFORMERS.get(known) or _configured(model), VAE
        stored = "float16" if model.variant == "fp16" else STORED.get(known, "bfloat16")
        values = {"transformer": _values(transformer), "vae": VAE_VALUES, "text_encoder": T5_VALUES}
    else:
        transformer, vae, stored = (
            files.config(folder, "transformer"),
            files.config(folder, "vae"),
            files.stored_dtype(folder),
        )
        values = {part: files.values(folder, part) for part in ("transformer", "vae", "text_encoder")}
    channels, temporal = vae["block_out_channels"], int(vae["temporal_compression_ratio"])
    return ModelFacts(
        stored=stored,
        blocks=transformer["num_layers"],
        width=_width(transformer),
        heads=transformer["num_attention_heads"],
        text_tokens=transformer["max_text_seq_length"],
        text_width=transformer["text_embed_dim"],
        values=values["transformer"],
        linears=tuple(_linears(transformer)),
        text_encoder_values=values["text_encoder"],
        vae=VaeFacts(
            values=values["vae"],
            encoder_width=channels[0],
            decoder_width=channels[min(1, len(channels) - 1)],
            # diffusers' autoencoder takes two latent frames at a time, and the odd one with the first.
            frames_at_once=2 * temporal + 1,
            tile=(vae["sample_height"] // 2, vae["sample_width"] // 2),
        ),
        spatial=2 ** (len(channels) - 1),
        temporal=temporal,
        patch=transformer["patch_size"],
        patch_frames=transformer.get("patch_size_t") or 1,
        channels=transformer["out_channels"],
        in_channels=transformer["in_channels"],
        presets=presets,
        on_disk=folder is not None,
    )


def _configured(model: Model) -> dict[str, Any]:
    """The transformer's config, of a model that is described by its own."""
    folder = hub_files.find_configs(model.source, model.revision)
    if folder is None:
        raise ModelUnavailable(f"the configs of {model.id} are no longer on the disk: name the model anew")
    return files.config(folder, "transformer")


def _width(transformer: Mapping[str, Any]) -> int:
    return int(transformer["num_attention_heads"] * transformer["attention_head_dim"])


def _linears(transformer: Mapping[str, Any]) -> list[Linear]:
    """Every linear layer, by the names of diffusers' transformer; a patch's projection is one, whatever its class."""
    width, time = _width(transformer), transformer["time_embed_dim"]
    area = transformer["patch_size"] ** 2 * (transformer.get("patch_size_t") or 1)
    block = "transformer_blocks.{}."
    found = [
        Linear("patch_embed.proj", area * transformer["in_channels"], width),
        Linear("patch_embed.text_proj", transformer["text_embed_dim"], width),
        Linear("time_embedding.linear_1", width, time, per_token=False),
        Linear("time_embedding.linear_2", time, time, per_token=False),
        Linear(f"{block}norm1.linear", time, 6 * width, per_token=False),
        *(Linear(f"{block}attn1.{name}", width, width, shared=name in ("to_k", "to_v")) for name in ATTENTION),
        Linear(f"{block}norm2.linear", time, 6 * width, per_token=False),
        Linear(f"{block}ff.net.0.proj", width, 4 * width),
        Linear(f"{block}ff.net.2", 4 * width, width),
        Linear("norm_out.linear", time, 2 * width, per_token=False),
        Linear("proj_out", width, area * transformer["out_channels"]),
    ]
    if ofs := transformer.get("ofs_embed_dim"):
        found += [Linear(f"ofs_embedding.linear_{n}", ofs, ofs, per_token=False) for n in (1, 2)]
    return found


def _values(transformer: Mapping[str, Any]) -> int:
    """Numbers in a transformer of these sizes: matrices, biases, norms, and positions where those are learned."""
    width, head, blocks = _width(transformer), transformer["attention_head_dim"], transformer["num_layers"]
    total: int = 4 * width  # of the last two norms
    total += blocks * (4 * width + 4 * head)  # two norms of tokens, two of queries and keys
    for linear in _linears(transformer):
        total += (linear.values + linear.outputs) * (blocks if linear.in_blocks else 1)
    if transformer.get("use_learned_positional_embeddings"):
        patch = transformer["patch_size"]
        frames = (transformer["sample_frames"] - 1) // 4 + 1
        area = (transformer["sample_height"] // patch) * (transformer["sample_width"] // patch)
        total += (frames * area + transformer["max_text_seq_length"]) * width
    return total
