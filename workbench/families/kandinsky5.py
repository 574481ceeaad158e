"""Kandinsky 5.0 Video Lite, text- and image-to-video, 5 s (MIT).

Sources: the authors' kandinsky-5 (generation_utils.py, t2v_pipeline.py, configs/k5_lite_*.yaml) and their LoRA trainer
(noise levels, loss, dropped captions); diffusers' Kandinsky5T2VPipeline and Kandinsky5I2VPipeline, which this matches.

Flow matching: x = (1 - s) clean + s noise; the transformer gets 1000 s and predicts noise - clean. Training draws s
logit-normal and shifts it by 5. Latents are HunyuanVideo's, scaled by one number; the pipelines keep channels last.

A caption is read twice: as the user's turn of a chat by Qwen2.5-VL, whose states of the caption are read by two text
blocks and then by every video block's cross-attention, and by CLIP, whose pooled state is added to the timestep. No
layer can mask padding, so clips whose captions differ in length go through the transformer one after the other.

Beside 16 noisy channels, the transformer reads 16 that are zero in both pipelines, and one that marks known frames. An
image-to-video sample starts with the picture's clean latents, marked. So does training here, without loss on them. (The
authors' LoRA trainer puts the clean latents into the other 16, which their samplers and diffusers' leave zero.)

The 10 s checkpoints attend to a part of the tokens (NABLA) that depends on their values; they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.families import lora_writing
from workbench.families.base import Family, ImageScale, OwnSetting, check_picture, device_and_dtype
from workbench.families.denoising import DenoiseInputs
from workbench.families.facts import ModelFacts, Part, VaeFacts
from workbench.families.lora_names import LayerNames
from workbench.families.lora_writing import passed_over_by_comfyui
from workbench.families.model import ClipSize, Frames, Model
from workbench.families.model_files import config
from workbench.families.model_inputs import (
    CallInputs,
    CaptionTokens,
    Given,
    PromptEncoder,
    Tensors,
    clip_parts,
    prompt_clean,
    qwen_parts,
)
from workbench.families.noise_schedules import AS_PUBLISHED, FlowSchedule, NoiseSettings
from workbench.families.usage import UsageExtras

if TYPE_CHECKING:
    import torch

SHIFT = 5.0  # of noise levels in training: scheduler_scale of the authors' trainer
TEXT_TOKENS, CLIP_TOKENS = 512, 77  # of the pipelines; the authors cut captions at 256
MATCHED, COMPARED = 4, 5  # latent frames: see `matched`
NEGATIVE_PROMPT = (
    "Static, 2D cartoon, cartoon, 2d animation, paintings, images, worst quality, low quality, ugly, deformed, "
    "walking backwards"
)
TEXT = Model(
    id="kandinsky5-lite-t2v-5s",
    title="Kandinsky 5 Lite, text (pretrain)",
    family="kandinsky5",
    source="kandinskylab/Kandinsky-5.0-T2V-Lite-pretrain-5s-Diffusers",
    revision=None,
    task="text-to-video",
    frames=121,
    fps=24,
    height=512,
    width=768,
    frame_rule=Frames(4, 121),
    size_multiple=16,
    steps=50,
    guidance_scale=5.0,
    scheduler="Euler",
    license="MIT",
    download_gb=22.0,
    negative_prompt=NEGATIVE_PROMPT,
    aliases=("ai-forever/Kandinsky-5.0-T2V-Lite-pretrain-5s-Diffusers",),
)
IMAGE = replace(
    TEXT,
    id="kandinsky5-lite-i2v-5s",
    title="Kandinsky 5 Lite, image",
    source="kandinskylab/Kandinsky-5.0-I2V-Lite-5s-Diffusers",
    task="image-to-video",
    aliases=(),
)

# ---- names of layers, which every program shares

QUERY = ("to_query", "to_key", "to_value", "out_layer")
SELF_ATTENTION = tuple(f"self_attention.{name}" for name in QUERY)
CROSS_ATTENTION = tuple(f"cross_attention.{name}" for name in QUERY)
FEED_FORWARD = ("feed_forward.in_layer", "feed_forward.out_layer")
OUTSIDE = (
    "time_embeddings.in_layer",
    "time_embeddings.out_layer",
    "text_embeddings.in_layer",
    "pooled_text_embeddings.in_layer",
    "visual_embeddings.in_layer",
    "out_layer.modulation.out_layer",
    "out_layer.out_layer",
)
IN_BLOCK = (*SELF_ATTENTION, *CROSS_ATTENTION, *FEED_FORWARD, "visual_modulation.out_layer")
NAMES = LayerNames(
    title="Kandinsky 5",
    blocks="visual_transformer_blocks",
    in_block={name: name for name in IN_BLOCK},
    outside={name: name for name in OUTSIDE},
    readers="this workbench, diffusers, Kandinsky's own trainer, ComfyUI or musubi-tuner",
    authors_blocks="visual_transformer_blocks",
    side="text_transformer_blocks",
    in_side={"text_modulation.out_layer": "text_modulation.out_layer"},
)
FORMATS = (
    *passed_over_by_comfyui("Kandinsky 5", lora_writing.DIFFUSERS, lora_writing.PORTABLE),
    replace(
        lora_writing.COMFYUI,
        help="diffusion_model. and the authors' names, which are diffusers', alpha per layer.",
    ),
    replace(
        lora_writing.KOHYA,
        help="Flat names (lora_unet_visual_transformer_blocks_0_self_attention_to_query), alpha per layer.",
        readers=("musubi-tuner", "ComfyUI"),
    ),
    *passed_over_by_comfyui("Kandinsky 5", lora_writing.LYCORIS),
)


@cache
def template() -> tuple[str, int]:
    """Return the stock pipelines' chat around a caption, with {} for it, and how many of its first tokens they drop."""
    import diffusers

    pipeline = diffusers.Kandinsky5T2VPipeline(*[None] * 7)
    return pipeline.prompt_template, pipeline.prompt_template_encode_start_idx


def scale_factor(height: int, width: int) -> tuple[float, float, float]:
    """Return the factors that the stock pipelines divide positions by, for a size in pixels."""
    around_480p = all(480 <= side <= 854 for side in (height, width))
    return (1, 2, 2) if around_480p else (1, 3.16, 3.16)


def lengths(mask: torch.Tensor) -> list[int]:
    """Return the number of tokens of each caption, from a mask [B, tokens].

    Tensors without values, used to simulate memory, count as full.
    """
    import torch

    if mask.is_meta or type(mask) is not torch.Tensor:
        return [mask.shape[1]] * len(mask)
    return [max(int(count), 1) for count in mask.sum(1).tolist()]


def matched(latents: torch.Tensor) -> torch.Tensor:
    """Bring mean and std of the first latent frames nearer to those of the next, by at most 0.1 and 0.25.

    The image-to-video pipeline does so at the end, against a mesh in the first frames. It makes NaN of latents [B, C,
    f, h, w] without further frames, which stay as they are here.
    """
    import torch

    first, rest = latents[:, :, :MATCHED], latents[:, :, MATCHED : MATCHED + COMPARED]
    if not rest.shape[2]:
        return latents
    axes = (1, 2, 3, 4)
    mean, std = first.mean(axes, keepdim=True), first.std(axes, keepdim=True)
    wanted = torch.clamp(rest.mean(), mean - 0.05, mean + 0.1), torch.clamp(rest.std(), std - 0.1, std + 0.25)
    return torch.cat([(first - mean) / std * wanted[1] + wanted[0], latents[:, :, MATCHED:]], dim=2)


class Kandinsky5(Family):
    """Kandinsky 5 Lite. See Family for the methods."""

    name = "kandinsky5"
    title = "Kandinsky 5"
    models = (TEXT, IMAGE)
    pipelines = {"Kandinsky5T2VPipeline": "text-to-video", "Kandinsky5I2VPipeline": "image-to-video"}
    schedulers = ("Euler",)
    toys = ("text", "image")
    lora_targets = {
        "attention": (*SELF_ATTENTION, *CROSS_ATTENTION),
        "attention+feed-forward": (*SELF_ATTENTION, *CROSS_ATTENTION, *FEED_FORWARD),
    }
    layer_names = NAMES
    lora_formats = FORMATS
    text_tokens = TEXT_TOKENS
    text_mask = True
    second_text_tokens = CLIP_TOKENS
    more_text = ("pooled",)
    caption_lengths_differ = True
    clip_layers = r".*modulation\.out_layer|(pooled_text|time)_embeddings\..+"
    text_layers = r"text_(embeddings|transformer_blocks\.\w+\.(self|feed)_\w+)\..+|.*\.cross_attention\.to_(key|value)"
    shared_layers = r".*\.self_attention\.to_(key|value)"
    auto_for_float32 = "bfloat16"
    own_defaults = {
        "flow_shift": OwnSetting("the scheduler's own"),
        "preview_flow_shift": OwnSetting("the scheduler's own"),
        "timestep_density": OwnSetting("logit-normal", "as the authors' LoRA trainer"),
        "timestep_shift": OwnSetting(SHIFT, "as the authors' LoRA trainer"),
    }

    # ---- facts

    def like(self, folder: Path) -> Model:
        if (kind := config(folder, "transformer").get("attention_type", "regular")) != "regular":
            raise ConfigError(
                f"{folder} attends to a part of the tokens ({str(kind)[:20]}), as models for 10 s do, which is not "
                f"supported: choose a model for 5 s"
            )
        return self.models[0]

    def sizes(self, transformer: Mapping[str, Any]) -> Mapping[str, Any]:
        channels, head = transformer["in_visual_dim"], sum(transformer["axes_dims"])
        return {
            **transformer,
            "in_channels": 2 * channels + 1 if transformer["visual_cond"] else channels,
            "num_attention_heads": transformer["model_dim"] // head,
            "attention_head_dim": head,
        }

    def vae_facts(self, vae: Part) -> VaeFacts:
        width = vae.config["block_out_channels"][0]
        return VaeFacts(
            values=vae.values,
            encoder_width=width,
            decoder_width=width,
            frames_at_once=17,  # windows that overlap by a quarter, which the operations below include
            tile=(256, 256),
            encoder_tensors=5.2,
            decoder_tensors=10.3,
            encoder_operations=806.0,
            decoder_operations=2318.0,
        )

    # ---- captions

    def text_shapes(self, facts: ModelFacts) -> dict[str, tuple[int, ...]]:
        return super().text_shapes(facts) | {"pooled": (facts.second_text_width,)}

    def cleaned(self, caption: str) -> str:
        return prompt_clean(caption)

    def caption_tokens(self, folder: Path, captions: Sequence[str]) -> list[CaptionTokens]:
        """Count the tokens that Qwen reads after the template's first ones. CLIP reads 77 at most."""
        tokenizer, (chat, dropped), found = self.load_tokenizer(folder), template(), []
        before = len(chat.partition("{}")[0])
        for caption in map(self.cleaned, captions):
            ends = [end for _, end in tokenizer(chat.format(caption), return_offsets_mapping=True).offset_mapping]
            last = dropped + TEXT_TOKENS
            cut = caption[max(ends[last - 1] - before, 0) :].strip() if len(ends) > last else ""
            found.append(CaptionTokens(len(ends) - dropped, TEXT_TOKENS, cut))
        return found

    def encode_text(self, text_encoder: PromptEncoder, captions: Sequence[str]) -> Tensors:
        """Return {"prompt_embeds": [B, 512, D], "mask": [B, 512], "pooled": [B, E]}, zeros for padding.

        Captions are encoded one at a time, since the pipelines' Qwen attends to padding. Those that are too long lose
        their end, as in the authors' code; diffusers first cuts by characters, which may leave a word's letters.
        """
        import torch

        second, (chat, dropped) = text_encoder.second, template()
        assert second is not None
        texts = [self.cleaned(caption) for caption in captions]
        states, mask = [], []
        with torch.no_grad():
            words = second.tokens(texts)
            pooled = second.model(**words).pooler_output
            for text in texts:
                ids = text_encoder.tokenizer(
                    chat.format(text),
                    truncation=True,
                    max_length=dropped + text_encoder.max_length,
                    return_tensors="pt",
                ).input_ids.to(text_encoder.model.device)
                found = text_encoder.model(input_ids=ids, output_hidden_states=True).hidden_states[-1][0, dropped:]
                padding = text_encoder.max_length - len(found)
                states.append(torch.nn.functional.pad(found, (0, 0, 0, padding)))
                mask.append(torch.nn.functional.pad(found.new_ones(len(found)), (0, padding)))
        return {"prompt_embeds": torch.stack(states), "mask": torch.stack(mask), "pooled": pooled.to(states[0])}

    # ---- latents

    def latent_scale(self, vae: Any) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        scale = torch.tensor(1 / vae.config.scaling_factor, device=device_and_dtype(vae)[0]).view(1, 1, 1, 1, 1)
        return torch.zeros_like(scale), scale

    def first_noise(self, latents_shape: tuple[int, ...], noise: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
        import torch

        channels, *size = latents_shape
        return torch.randn(1, *size, channels, generator=noise, dtype=dtype).movedim(-1, 1)

    # ---- first frames

    def given_to_sample(
        self, folder: Path, image: Tensors, latents_shape: tuple[int, ...], noise: torch.Generator, dtype: torch.dtype
    ) -> Given:
        first = self.first_noise(latents_shape, noise, dtype)  # the pipeline draws the video's noise first
        return replace(super().given_to_sample(folder, image, latents_shape, noise, dtype), first=first)

    def check_given(self, transformer: Any, given: Given | None) -> None:
        check_picture(False, given)

    # ---- training and sampling

    def blocks(self, transformer: Any) -> Sequence[Any]:
        """Return the blocks of the video; those of the caption are few and small."""
        return list(transformer.visual_transformer_blocks)

    def noise_schedule(self, folder: Path, device: torch.device, chosen: NoiseSettings = AS_PUBLISHED) -> FlowSchedule:
        return FlowSchedule(chosen, SHIFT)

    def call(self, transformer: Any, inputs: CallInputs) -> torch.Tensor:
        """Predict clips with captions of different lengths one after the other."""
        import torch

        found = lengths(inputs.text["mask"])
        if len(set(found)) == 1:
            return self._called(transformer, inputs, found[0], slice(None))
        rows = [slice(row, row + 1) for row in range(len(found))]
        each = [self._called(transformer, inputs, count, row) for count, row in zip(found, rows, strict=True)]
        return torch.cat(each)

    def _called(self, transformer: Any, inputs: CallInputs, tokens: int, rows: slice) -> torch.Tensor:
        """Return the prediction for some rows of the batch, whose captions have `tokens` tokens."""
        import torch

        latents, given = inputs.latents[rows], inputs.given
        count, channels, frames, height, width = latents.shape
        patch = transformer.config.patch_size[1]
        if transformer.config.visual_cond:
            known = latents.new_zeros(count, 1, frames, height, width)
            if given is not None and given.where is not None:
                known = known + given.where[rows]
            elif given is not None and given.known is not None:
                kept = 1.0 if given.kept is None else given.kept[rows].to(known).view(-1, 1, 1, 1, 1)
                known[:, :, : given.known.shape[2]] = kept
            latents = torch.cat([latents, torch.zeros_like(latents), known], dim=1)
        predicted: torch.Tensor = transformer(
            hidden_states=latents.movedim(1, -1),
            encoder_hidden_states=inputs.text["prompt_embeds"][rows, :tokens],
            pooled_projections=inputs.text["pooled"][rows],
            timestep=inputs.timesteps[rows],
            visual_rope_pos=[
                torch.arange(size, device=latents.device) for size in (frames, height // patch, width // patch)
            ],
            text_rope_pos=torch.arange(tokens, device=latents.device),
            scale_factor=scale_factor(8 * height, 8 * width),
            return_dict=False,
        )
        return predicted.movedim(-1, 1)

    def denoise(self, transformer: Any, inputs: DenoiseInputs) -> torch.Tensor:
        found = super().denoise(transformer, inputs)
        return found if inputs.given is None or inputs.given.known is None else matched(found)

    # ---- model cards

    def usage_extras(self, model: Model, folder: Path, shape: ClipSize, image_scale: ImageScale) -> UsageExtras:
        return UsageExtras(before="# Qwen2.5-VL's processor needs torchvision: pip install torchvision\n")

    # ---- a random miniature, for tests

    def miniature(self, variant: str) -> tuple[Any, dict[str, int]]:
        import diffusers

        chat, _ = template()
        tokenizer, text_encoder = qwen_parts(re.findall(r"[A-Za-z]+", chat))
        tokenizer_2, text_encoder_2 = clip_parts()
        transformer = diffusers.Kandinsky5Transformer3DModel(
            in_visual_dim=4,
            out_visual_dim=4,
            in_text_dim=32,
            in_text_dim2=32,
            time_dim=16,
            model_dim=32,
            ff_dim=64,
            num_text_blocks=1,
            num_visual_blocks=2,
            axes_dims=(4, 6, 6),
            visual_cond=True,
        )
        for name, parameter in transformer.named_parameters():  # initialized to zero, which would ignore all else
            if "modulation" in name:
                parameter.data.normal_(std=0.2)
        vae = diffusers.AutoencoderKLHunyuanVideo(
            latent_channels=4, block_out_channels=(8,) * 4, layers_per_block=1, norm_num_groups=4
        )
        kind = diffusers.Kandinsky5T2VPipeline if variant == "text" else diffusers.Kandinsky5I2VPipeline
        scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=SHIFT)
        pipeline = kind(transformer, vae, text_encoder, tokenizer, text_encoder_2, tokenizer_2, scheduler)
        return pipeline, {"frames": 17, "height": 32, "width": 32, "fps": 8}


FAMILY = Kandinsky5()
