"""Mochi 1 preview, text-to-video (Apache-2.0).

Sources: genmo's mochi (demos/fine_tuner for the loss and LoRA config; pipelines.py for the sampler and the zeroed empty
prompt); cogvideox-factory's training/mochi-1, the same for diffusers; diffusers' MochiPipeline, which this matches.

Flow matching, reversed: x = (1 - s) clean + s noise; the transformer gets 1000 (1 - s) and predicts clean - noise.
Here, as in other families, timesteps are 1000 s and predictions noise - clean. Training draws s uniformly. Samples take
small even steps down to s = 0.975, then larger and larger ones. Latents are normalized per channel. genmo's fine-tuner
feeds the transformer latents without normalization, and normalizes only the target, with its mean; here everything is
in normalized latents, as in the sampler.

The transformer has two streams, 3072 wide for the video and 1536 for the caption, joined in attention. It never attends
to padding, and an empty caption has no tokens at all: the authors zero it in training (caption_dropout) and as negative
prompt, as diffusers does with force_zeros_for_empty_prompt. diffusers' attention reads from the GPU in every block
which tokens are padding. Here their number is read once per call, and a mask is used only if captions differ in length.

The authors compute in bfloat16 and keep latents in float32 between steps. diffusers keeps latents in the transformer's
dtype, in which rounding swallows the small first steps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.families import lora_writing
from workbench.families.base import BACKENDS, Family, ImageScale, OwnSetting
from workbench.families.denoising import FlowSteps, SamplerSteps, StepOptions, check_two_levels
from workbench.families.facts import Part, VaeFacts
from workbench.families.lora_files import (
    DOWN,
    UP,
    LoraWeights,
    even,
    refuse_more_than_matrices,
    stacked,
    unstacked,
    without_alpha,
)
from workbench.families.lora_names import ATTENTION, LayerNames
from workbench.families.lora_writing import LoraFormat, Written, passed_over_by_comfyui
from workbench.families.model import ClipSize, Frames, Model, Shapes
from workbench.families.model_inputs import CallInputs, PromptEncoder, Tensors, t5_parts
from workbench.families.noise_schedules import AS_PUBLISHED, FlowSchedule, NoiseSettings
from workbench.families.usage import UsageExtras

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LONGEST = 163  # frames
MODEL = Model(
    id="mochi-1-preview",
    title="Mochi 1 preview",
    family="mochi",
    source="genmo/mochi-1-preview",
    revision=None,
    task="text-to-video",
    frames=85,  # the longest clip that the authors' fine-tuner takes; the model generates up to 163
    fps=30,
    height=480,
    width=848,
    frame_rule=Frames(6, LONGEST),
    size_multiple=16,
    steps=64,
    guidance_scale=4.5,
    scheduler="Euler",
    license="Apache-2.0",
    download_gb=61.0,
)

# ---- names of layers

CAPTION = ("add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")  # attention layers of the caption's tokens
ATTENTION_LAYERS = tuple(f"attn1.{name}" for name in (*ATTENTION, *CAPTION))
FEED_FORWARD_LAYERS = tuple(f"{ff}.{name}" for ff in ("ff", "ff_context") for name in ("net.0.proj", "net.2"))
LAST_NORM = "norm1_context.linear_1"  # of the last block, after which the caption's tokens are not needed
NORM_LAYERS = ("norm1.linear", "norm1_context.linear", LAST_NORM)
OUTSIDE = (
    "patch_embed.proj",
    "time_embed.timestep_embedder.linear_1",
    "time_embed.timestep_embedder.linear_2",
    "time_embed.pooler.to_q",
    "time_embed.pooler.to_kv",
    "time_embed.pooler.to_out",
    "time_embed.caption_proj",
    "norm_out.linear",
    "proj_out",
)
NAMES = LayerNames(
    title="Mochi",
    blocks="transformer_blocks",
    in_block={name: name for name in (*ATTENTION_LAYERS, *FEED_FORWARD_LAYERS, *NORM_LAYERS)},
    outside={name: name for name in OUTSIDE},
    readers="this workbench, diffusers, finetrainers, ComfyUI or Mochi's own fine-tuner",
    authors_blocks="transformer_blocks",
)

# The authors' layers -> ours, whose rows are stacked in theirs. The first layer of a feed-forward has the halves of its
# output swapped.
FUSED = {
    "attn.qkv_x": ("attn1.to_q", "attn1.to_k", "attn1.to_v"),
    "attn.qkv_y": ("attn1.add_q_proj", "attn1.add_k_proj", "attn1.add_v_proj"),
    "attn.proj_x": ("attn1.to_out.0",),
    "attn.proj_y": ("attn1.to_add_out",),
    "mlp_x.w1": ("ff.net.0.proj",),
    "mlp_x.w2": ("ff.net.2",),
    "mlp_y.w1": ("ff_context.net.0.proj",),
    "mlp_y.w2": ("ff_context.net.2",),
    "mod_x": ("norm1.linear",),
    "mod_y": ("norm1_context.linear",),  # or LAST_NORM
}
OF_AUTHORS = re.compile(
    r"(?:diffusion_model\.)?blocks\.(?P<block>\d+)\.(?P<layer>(?:attn\.(?:qkv|proj)|mlp|mod)_[xy](?:\.w[12])?)"
    r"\.lora_(?P<matrix>[AB])(?:\.weight)?"
)
BLOCK = re.compile(r"transformer_blocks\.(\d+)\.(.+)")
KWARGS = "kwargs"  # key of the fine-tuner's metadata: ranks and alphas as JSON


def halves_swapped(tensor: Tensor) -> Tensor:
    """Swap the halves of a feed-forward's first layer: gate and value."""
    import torch

    return torch.cat(tensor.chunk(2)[::-1])


def as_authors(lora: LoraWeights, names: LayerNames) -> Written:
    """Write a file for Mochi's fine-tuner, the strength multiplied in. Raises ConfigError.

    Layers that the authors stack become one pair of matrices, whose B is block-diagonal.
    """
    refuse_more_than_matrices(lora, "ComfyUI")
    one, parts = even(without_alpha(lora)), dict[str, list[str]]()
    ours = {layer: theirs for theirs, layers in FUSED.items() for layer in layers} | {LAST_NORM: "mod_y"}
    for layer in one.layers:
        match = BLOCK.fullmatch(layer)
        if match is None or match[2] not in ours:
            raise ConfigError(f"the LoRA changes {layer[:80]}, which Mochi's own format does not have: choose portable")
        parts.setdefault(f"blocks.{match[1]}.{ours[match[2]]}", []).append(layer)
    found: dict[str, Tensor] = {}
    for name, layers in parts.items():
        _, number, theirs = name.split(".", 2)
        every = layers if theirs == "mod_y" else [f"transformer_blocks.{number}.{layer}" for layer in FUSED[theirs]]
        pairs = {}
        for place, layer in enumerate(every):
            if layer in layers:
                up = one.tensors[f"{layer}.{UP}"]
                pairs[place] = one.tensors[f"{layer}.{DOWN}"], halves_swapped(up) if theirs.endswith("w1") else up
        found[f"{name}.lora_A"], found[f"{name}.lora_B"] = stacked(pairs, len(every))
    kwargs: dict[str, int] = {}
    for kind, part in (("qkv_proj", "attn.qkv_"), ("out_proj", "attn.proj_")):
        ranks = [down.shape[0] for name, down in found.items() if part in name and name.endswith("lora_A")]
        if ranks:
            kwargs |= {f"{kind}_lora_rank": max(ranks), f"{kind}_lora_alpha": max(ranks)}
    return found, {"format": "pt", KWARGS: json.dumps(kwargs)}


def as_ours(tensors: Tensors, metadata: Mapping[str, str]) -> dict[str, Tensor]:
    """Convert the fine-tuner's file to our names, the strength multiplied in. Others stay. Raises ConfigError."""
    try:
        noted = json.loads(metadata.get(KWARGS, "{}"))
        scales = {
            kind: float(noted[f"{name}_lora_alpha"]) / float(noted[f"{name}_lora_rank"])
            for kind, name in (("qkv", "qkv_proj"), ("proj", "out_proj"))
            if f"{name}_lora_rank" in noted
        }
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ConfigError("the LoRA's notes on rank and alpha (kwargs) are damaged: export it again") from error
    found: dict[str, Tensor] = {}
    pairs: dict[tuple[str, str], dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if (match := OF_AUTHORS.fullmatch(name)) is not None and match["layer"] in FUSED:
            pairs.setdefault((match["block"], match["layer"]), {})[match["matrix"]] = tensor
        else:
            found[name] = tensor
    for (block, theirs), pair in pairs.items():
        layers = FUSED[theirs]
        if len(pair) != 2 or pair["B"].shape[0] % len(layers) or pair["B"].shape[1] != pair["A"].shape[0]:
            raise ConfigError(f"the LoRA's matrices of blocks.{block}.{theirs} are incomplete: export it again")
        if theirs == "mod_y" and pair["B"].shape[0] < pair["A"].shape[1]:  # the last block's has a quarter of the rows
            layers = (LAST_NORM,)
        scale = scales.get(theirs.partition(".")[2].partition("_")[0], 1.0)
        for place, (down, up) in unstacked(pair["A"], pair["B"], len(layers)).items():
            name = f"transformer_blocks.{block}.{layers[place]}"
            found[f"{name}.{DOWN}"] = down
            found[f"{name}.{UP}"] = scale * (halves_swapped(up) if theirs.endswith("w1") else up)
    return found


FORMATS = (
    *passed_over_by_comfyui("Mochi", *lora_writing.FORMATS),
    LoraFormat(
        "comfyui",
        "ComfyUI, Mochi's fine-tuner",
        "The authors' names (blocks.0.attn.qkv_x) with query, key and value in one pair of matrices, the strength "
        "multiplied into the weights. The fine-tuner reads only attention layers.",
        as_authors,
        ("ComfyUI",),
    ),
    *passed_over_by_comfyui("Mochi", lora_writing.LYCORIS),
)

ZEROED = """

# Give an empty prompt no tokens, as the authors do in training and sampling.
pipe.register_to_config(force_zeros_for_empty_prompt=True)"""


# ---- attention


class JointAttention:
    """diffusers' MochiAttnProcessor2_0 for a whole batch at once, with one of diffusers' attention backends.

    An integer mask means that there is no padding: see Mochi.call.
    """

    def __init__(self, backend: str) -> None:
        from diffusers.models.attention_dispatch import AttentionBackendName

        self.backend, self.takes_masks = AttentionBackendName(backend), backend != BACKENDS["flash"]

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: Tensor,
        image_rotary_emb: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        import torch
        from diffusers.models.attention_dispatch import dispatch_attention_fn

        def heads(tensor: Tensor) -> Tensor:
            return tensor.unflatten(2, (attn.heads, -1))

        def turned(tensor: Tensor) -> Tensor:
            if image_rotary_emb is None:
                return tensor
            cos, sin = image_rotary_emb
            even, odd = tensor[..., 0::2].float(), tensor[..., 1::2].float()
            pair = (even * cos - odd * sin).to(tensor.dtype), (even * sin + odd * cos).to(tensor.dtype)
            return torch.stack(pair, dim=-1).flatten(-2)

        video, text = hidden_states, encoder_hidden_states
        query, key = turned(attn.norm_q(heads(attn.to_q(video)))), turned(attn.norm_k(heads(attn.to_k(video))))
        of_text = heads(attn.add_q_proj(text)), heads(attn.add_k_proj(text)), heads(attn.add_v_proj(text))
        tokens = [
            torch.cat([query, attn.norm_added_q(of_text[0])], dim=1),
            torch.cat([key, attn.norm_added_k(of_text[1])], dim=1),
            torch.cat([heads(attn.to_v(video)), of_text[2]], dim=1),
        ]
        mask = None
        if attention_mask.dtype == torch.bool:
            if not self.takes_masks:
                raise ConfigError.about(
                    "attention is flash, which cannot mask padding: choose auto, or a batch of one clip"
                )
            mask = torch.nn.functional.pad(attention_mask, (video.shape[1], 0), value=True)[:, None, None]
        found = dispatch_attention_fn(*tokens, attn_mask=mask, backend=self.backend).flatten(2).to(video.dtype)
        video, text = found.split_with_sizes((video.shape[1], text.shape[1]), dim=1)
        video = attn.to_out[1](attn.to_out[0](video))
        return video, attn.to_add_out(text) if hasattr(attn, "to_add_out") else text


def lengths(mask: Tensor) -> tuple[int, int]:
    """Return the number of tokens of a batch's shortest and longest caption, from its mask [B, tokens].

    Tensors without values, used to simulate memory, count as full.
    """
    import torch

    if mask.is_meta or type(mask) is not torch.Tensor:
        return mask.shape[1], mask.shape[1]
    shortest, longest = torch.stack(mask.sum(1).aminmax()).tolist()
    return shortest, longest


class Mochi(Family):
    """Mochi 1. See Family for the methods."""

    name = "mochi"
    title = "Mochi"
    models = (MODEL,)
    pipelines = {"MochiPipeline": "text-to-video"}
    schedulers = ("Euler",)
    toys = ("text",)
    lora_targets = {
        "attention": ATTENTION_LAYERS,
        "attention+feed-forward": (*ATTENTION_LAYERS, *FEED_FORWARD_LAYERS),
    }
    layer_names = NAMES
    lora_formats = FORMATS
    text_tokens = 256
    text_mask = True
    text_joint = True
    text_layers = r".*\.attn1\.(add_[qkv]_proj|to_add_out)|.*\.ff_context\..+|time_embed\.(caption_proj|pooler\.to_kv)"
    shared_layers = r".*\.attn1\.(to_[kv]|add_[kv]_proj)"
    position_bytes = 4
    float32_latents = True
    auto_for_float32 = "bfloat16"
    own_defaults = {
        "timestep_density": OwnSetting("uniform", "as the authors' fine-tuner"),
        "timestep_shift": OwnSetting(1.0, "none, as in the authors' fine-tuner"),
    }

    # ---- facts

    def compression(self, vae: Mapping[str, Any]) -> tuple[int, int, int]:
        return vae["latent_channels"], prod(vae["temporal_expansions"]), prod(vae["spatial_expansions"])

    def vae_facts(self, vae: Part) -> VaeFacts:
        return VaeFacts(
            values=vae.values,
            encoder_width=vae.config["encoder_block_out_channels"][0],
            decoder_width=vae.config["decoder_block_out_channels"][0],
            frames_at_once=LONGEST,  # clips are never split in time: the encoder attends to all of their frames
            tile=(256, 256),
            # Simulated. Without tiles, diffusers convolves tensors of over 2 GB in pieces.
            encoder_tensors=6.8,
            tiled_encoder_tensors=5.1,
            decoder_tensors=5.5,
            encoder_operations=1030.0,
            decoder_operations=1685.0,
        )

    # ---- single files

    def from_file(self, part: str, tensors: dict[str, Tensor], shapes: Shapes) -> dict[str, Tensor]:
        from diffusers.loaders.single_file_utils import convert_mochi_transformer_checkpoint_to_diffusers

        if part != "transformer":
            return super().from_file(part, tensors, shapes)
        return {**convert_mochi_transformer_checkpoint_to_diffusers(tensors), **tensors}  # with what it leaves

    # ---- captions

    def encode_text(self, text_encoder: PromptEncoder, captions: Sequence[str]) -> Tensors:
        """Return {"prompt_embeds": [B, 256, D], "mask": [B, 256]}. An empty caption has no tokens."""
        import torch

        found = text_encoder.tokens(captions)
        written = torch.tensor([[bool(caption)] for caption in captions], device=found.input_ids.device)
        ids, mask = found.input_ids * written, found.attention_mask * written
        with torch.no_grad():
            embeds = text_encoder.model(ids, attention_mask=mask.bool())[0]
        return {"prompt_embeds": embeds, "mask": mask.to(embeds)}

    def no_text(self, text: Tensors) -> Tensors:
        """Return no tokens at all, as the authors' fine-tuner drops captions: attention then covers only the video."""
        return {name: tensor.new_zeros(tensor.shape) for name, tensor in text.items()}

    # ---- training and sampling

    def use_attention(self, transformer: Any, kernel: str, device: torch.device) -> None:
        from diffusers.models.attention_processor import MochiAttnProcessor2_0

        backend = self._attention_backend(kernel, device)
        for block in transformer.transformer_blocks:
            block.attn1.processor = MochiAttnProcessor2_0() if kernel == "stock" else JointAttention(backend)

    def noise_schedule(self, folder: Path, device: torch.device, chosen: NoiseSettings = AS_PUBLISHED) -> FlowSchedule:
        return FlowSchedule(chosen, density="uniform")

    def call(self, transformer: Any, inputs: CallInputs) -> Tensor:
        """Cut padding that no caption of the batch needs. If none is left, pass an integer mask.

        It tells `JointAttention` that nothing needs masking, and makes no difference to diffusers' layers. Compiled
        blocks keep all padding, since they would recompile for each length of captions.
        """
        import torch

        mask = inputs.text["mask"].bool()
        compiled = "forward" in vars(transformer.transformer_blocks[0])  # see memory.compiling
        shortest, longest = (0, mask.shape[1]) if compiled else lengths(mask)
        mask = mask[:, :longest]
        predicted: Tensor = transformer(
            hidden_states=inputs.latents,
            encoder_hidden_states=inputs.text["prompt_embeds"][:, :longest],
            timestep=1000 - inputs.timesteps,
            encoder_attention_mask=mask.to(torch.uint8) if shortest == longest else mask,
            return_dict=False,
        )[0]
        return -predicted

    def sampler_steps(self, options: StepOptions) -> SamplerSteps:
        check_two_levels(options.steps, self.title)
        return MochiSteps(self.load_scheduler(options.folder, options.scheduler), options.steps, options.device)

    # ---- LoRA files and model cards

    def lora_weights(self, tensors: Tensors, metadata: Mapping[str, str]) -> LoraWeights:
        if not any(OF_AUTHORS.fullmatch(name) for name in tensors):
            return super().lora_weights(tensors, metadata)
        found = super().lora_weights(as_ours(tensors, metadata), {})
        return replace(found, origin="Mochi's fine-tuner" if KWARGS in metadata else "ComfyUI")

    def usage_extras(self, model: Model, folder: Path, shape: ClipSize, image_scale: ImageScale) -> UsageExtras:
        return UsageExtras(changes=ZEROED)

    # ---- a random miniature, for tests

    def miniature(self, variant: str) -> tuple[Any, dict[str, int]]:
        import diffusers
        import torch

        tokenizer, text_encoder = t5_parts()
        transformer = diffusers.MochiTransformer3DModel(
            num_attention_heads=2,
            attention_head_dim=12,
            num_layers=2,
            pooled_projection_dim=16,
            text_embed_dim=32,
            time_embed_dim=4,
        )
        torch.nn.init.normal_(transformer.pos_frequencies)  # initialized to zero, which would ignore positions
        vae = diffusers.AutoencoderKLMochi(
            encoder_block_out_channels=(32,) * 4, decoder_block_out_channels=(32,) * 4, layers_per_block=(1,) * 5
        )
        scheduler = diffusers.FlowMatchEulerDiscreteScheduler(invert_sigmas=True)
        pipeline = diffusers.MochiPipeline(
            scheduler, vae, text_encoder, tokenizer, transformer, force_zeros_for_empty_prompt=True
        )
        return pipeline, {"frames": 13, "height": 32, "width": 32, "fps": 8}


class MochiSteps(FlowSteps):
    """Steps of Mochi's scheduler, which runs from 0 (noise) to 1 (clean), converted to the loop's conventions."""

    def __init__(self, scheduler: Any, steps: int, device: torch.device) -> None:
        import numpy as np
        from diffusers.pipelines.mochi.pipeline_mochi import linear_quadratic_schedule

        super().__init__(scheduler, None, device, sigmas=np.array(linear_quadratic_schedule(steps, 0.025)))
        self.timesteps = 1000 - scheduler.timesteps

    def step(self, index: int, predicted: Tensor, latents: Tensor, noise: torch.Generator) -> tuple[Tensor, Tensor]:
        clean = latents.float() - self.timesteps[index] / 1000 * predicted
        scheduler = self._scheduler
        after = scheduler.step(-predicted, scheduler.timesteps[index], latents.float(), return_dict=False)[0]
        return after, clean


FAMILY = Mochi()
