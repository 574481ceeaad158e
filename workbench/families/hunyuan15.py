"""HunyuanVideo 1.5: text-to-video and image-to-video, 480p and 720p (Tencent Hunyuan Community License).

The license grants no rights in the European Union, the United Kingdom and South Korea, and forbids the use of outputs
there (sections 1.l and 5.c).

Sources: diffusers' HunyuanVideo15Pipeline and HunyuanVideo15ImageToVideoPipeline, which this matches; the authors'
HunyuanVideo-1.5 (train.py for the loss and the density of noise levels; hyvideo/commons for guidance and shift).

Flow matching: x = (1 - s) clean + s noise; the transformer gets 1000 s and predicts noise - clean. Training draws s
logit-normal and shifts it by 3. Latents are scaled by one factor.

The noisy latents are joined by the latents of a first frame and a mask, both zero without one. Captions are read by
Qwen2.5-VL inside a chat template, and what they quote by ByT5, for text in the picture; SigLIP sees the first frame.
All of these are tokens with layers of their own beside the video's, joined in attention, without positions, so their
order does not matter. diffusers' transformer attends with a mask of tokens by tokens (12 GB at 720p), padding included.
The forward pass here cuts the padding instead, as in Mochi.

diffusers rounds timesteps to the transformer's dtype; like the authors, this does not. Latents stay float32 between
steps, as in the authors' scheduler. Its pipelines load no LoRA, but their transformer does.

Models distilled to one pass without guidance are listed as such. The 480p model for few steps (MeanFlow) is used by its
name on the Hub. Its transformer also takes the timestep at which a step ends. In training that is the step's own, at
which its prediction is the velocity by MeanFlow's definition; how its authors trained it is not published.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.families.base import Family, ImageScale, OwnSetting, check_picture
from workbench.families.denoising import DenoiseInputs, Denoising, FlowSteps, SamplerSteps, StepOptions
from workbench.families.facts import ModelFacts, Part, VaeFacts
from workbench.families.hunyuan15_loras import (
    ATTENTION_LAYERS,
    FORMATS,
    NAMES,
    transformer_to_diffusers,
    with_parts_apart,
)
from workbench.families.lora_files import LoraWeights
from workbench.families.mochi import FEED_FORWARD_LAYERS, JointAttention, lengths
from workbench.families.model import ClipSize, Frames, Model, Shape, Shapes
from workbench.families.model_files import config, has_part, index, part_folder
from workbench.families.model_inputs import CallInputs, CaptionTokens, Given, PromptEncoder, Tensors
from workbench.families.noise_schedules import AS_PUBLISHED, FlowSchedule, NoiseSettings
from workbench.families.usage import UsageExtras
from workbench.workspace import read_object

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SHIFT = 3.0  # of noise levels in training: the authors' train_timestep_shift
TEMPLATE_TOKENS = 108  # of the chat template in front of a caption, which the transformer does not get
GLYPHS, GLYPHS_MASK = "prompt_embeds_2", "mask_2"  # what ByT5 makes of quoted text
ENDS = "step_ends"  # the timestep at which each step ends, for models for few steps
FEW_STEPS = 12  # as the authors recommend, or 8
LONGEST = 241  # frames: 5 to 10 seconds, as ComfyUI's documentation says

T2V_480 = Model(
    id="hunyuanvideo1.5-t2v-480p",
    title="HunyuanVideo 1.5 480p",
    family="hunyuan15",
    source="hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_t2v",
    revision=None,
    task="text-to-video",
    frames=121,
    fps=24,
    height=480,
    width=848,  # what 16:9 becomes in the authors' list of sizes
    frame_rule=Frames(4, LONGEST),
    size_multiple=16,
    steps=50,
    guidance_scale=6.0,
    scheduler="Euler",
    flow_shift=5.0,
    license="Tencent Hunyuan Community (grants no rights in the EU, the UK and South Korea)",
    license_file="",
    download_gb=53.0,
)


def variant(task: str, size: str, shift: float, distilled: bool = False) -> Model:
    """Return another published model: task "t2v" or "i2v", size "480p" or "720p", distilled to need no guidance."""
    height, width = (480, 848) if size == "480p" else (720, 1280)
    words = ", image-to-video" if task == "i2v" else ""
    return replace(
        T2V_480,
        id=f"hunyuanvideo1.5-{task}-{size}" + "-cfg-distilled" * distilled,
        title=f"HunyuanVideo 1.5 {size}{words}" + ", guidance-distilled" * distilled,
        source=f"hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-{size}_{task}" + "_distilled" * distilled,
        task="image-to-video" if task == "i2v" else "text-to-video",
        height=height,
        width=width,
        flow_shift=shift,
        guidance_scale=1.0 if distilled else T2V_480.guidance_scale,
        distilled="guidance" if distilled else "",
        distilled_from=f"hunyuanvideo1.5-{task}-{size}" if distilled else "",
        download_gb=54.0 if task == "i2v" else T2V_480.download_gb,
    )


MODELS = (
    T2V_480,
    variant("i2v", "480p", 5.0),
    variant("t2v", "720p", 9.0),
    variant("i2v", "720p", 7.0),
    variant("t2v", "480p", 5.0, distilled=True),
    variant("i2v", "480p", 5.0, distilled=True),
    variant("i2v", "720p", 7.0, distilled=True),
)

# ---- code on model cards

GUIDED = """

# Guidance and the shift of noise levels, as in samples and previews.
pipe.guider.guidance_scale = {guidance}
pipe.scheduler = type(pipe.scheduler).from_config(pipe.scheduler.config{shift})"""
SIZED = """

# This pipeline chooses a size by the picture's shape: keep the trained one.
pipe.video_processor.calculate_default_height_width = lambda *_, **__: ({height}, {width})"""


class Attention(JointAttention):
    """diffusers' HunyuanVideo15AttnProcessor2_0, with a mask of keys alone or none at all."""

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: Tensor,
        image_rotary_emb: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        assert image_rotary_emb is not None
        cos, sin = (one[:, None, ::2] for one in image_rotary_emb)  # each angle is there twice
        return super().__call__(attn, hidden_states, encoder_hidden_states, attention_mask, (cos, sin))


class FewSteps(Denoising):
    """Denoising that passes the transformer the end of each step, rounded to its dtype as in diffusers."""

    def _call(self, latents: Tensor, text: Tensors, timestep: Tensor, given: Given | None) -> Tensor:
        given, steps = given or Given(), self.steps.timesteps
        later = steps[steps < timestep][:1]
        ends = later if len(later) else timestep.new_zeros(1)
        return super()._call(latents, text, timestep, replace(given, tokens={**given.tokens, ENDS: ends}))


class HunyuanVideo15(Family):
    """HunyuanVideo 1.5. See Family for the methods."""

    name = "hunyuan15"
    title = "HunyuanVideo 1.5"
    models = MODELS
    pipelines = {
        "HunyuanVideo15Pipeline": "text-to-video",
        "HunyuanVideo15ImageToVideoPipeline": "image-to-video",
    }
    schedulers = ("Euler",)
    toys = ("text", "image")
    lora_targets = {
        "attention": ATTENTION_LAYERS,
        "attention+feed-forward": (*ATTENTION_LAYERS, *FEED_FORWARD_LAYERS),
    }
    layer_names = NAMES
    lora_formats = FORMATS
    text_tokens = 1000
    text_mask = True
    second_text_tokens = 256
    more_text = (GLYPHS, GLYPHS_MASK)
    text_joint = True
    text_layers = r".*\.attn\.(add_[qkv]_proj|to_add_out)|.*\.ff_context\..+|context_embedder(_2)?\..+"
    shared_layers = r".*\.attn\.(to_[kv]|add_[kv]_proj)"
    position_bytes = 1
    image_dropout = 0.0  # like musubi-tuner
    float32_latents = True
    auto_for_float32 = "bfloat16"
    own_defaults = {
        "timestep_density": OwnSetting("logit-normal", "as the authors' trainer"),
        "timestep_shift": OwnSetting(SHIFT, "as the authors' trainer"),
    }

    # ---- facts

    def like(self, folder: Path) -> Model:
        task = self.pipelines[index(folder)["_class_name"]]
        large = (config(folder, "transformer").get("target_size") or 640) > 640
        found = next(model for model in MODELS if model.task == task and (model.height > 480) == large)
        guider = read_object(part_folder(folder, "guider") / "guider_config.json")
        guidance = float(guider.get("guidance_scale", found.guidance_scale))
        if config(folder, "transformer").get("use_meanflow"):
            found = replace(found, steps=FEW_STEPS, distilled="steps", distilled_from=found.id)
        return replace(found, guidance_scale=guidance, flow_shift=None)

    def facts_of(self, model: Model, folder: Path | None) -> ModelFacts:
        found = super().facts_of(model, folder)
        return replace(found, picture_tokens=max(0, found.picture_tokens - 1))  # SigLIP has no class token

    def vae_facts(self, vae: Part) -> VaeFacts:
        width = vae.config["block_out_channels"][0]
        return VaeFacts(
            values=vae.values,
            encoder_width=width,
            decoder_width=width,
            frames_at_once=LONGEST,  # clips are never split in time
            tile=(256, 256),
            # Simulated with 61 frames of a tile.
            encoder_tensors=7.1,
            decoder_tensors=7.1,
            encoder_operations=860.0,
            decoder_operations=1530.0,
        )

    def own_settings(self, model: Model) -> Mapping[str, OwnSetting]:
        own = model.flow_shift
        shift = OwnSetting(own, "as the authors generate") if own else OwnSetting("the scheduler's own")
        return {**super().own_settings(model), "flow_shift": shift, "preview_flow_shift": shift}

    # ---- single files

    def from_file(self, part: str, tensors: dict[str, Tensor], shapes: Shapes) -> dict[str, Tensor]:
        if part != "transformer":
            return super().from_file(part, tensors, shapes)
        return transformer_to_diffusers(tensors)

    # ---- captions

    def caption_tokens(self, folder: Path, captions: Sequence[str]) -> list[CaptionTokens]:
        """Count a caption's own tokens in the chat template, whose closing tokens may be cut."""
        from diffusers.pipelines.hunyuan_video1_5 import pipeline_hunyuan_video1_5 as stock

        if not captions:
            return []
        tokenizer, limit = self.load_tokenizer(folder), self.text_tokens + TEMPLATE_TOKENS
        make = inspect.signature(stock.HunyuanVideo15Pipeline._get_mllm_prompt_embeds)
        wrapped = stock.format_text_input(["\0", *captions], make.parameters["system_message"].default)
        probe, *texts = tokenizer.apply_chat_template(wrapped, add_generation_prompt=True, tokenize=False)
        found = tokenizer(texts, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
        tokens, begin = [], probe.index("\0")
        for caption, text, offsets in zip(captions, texts, found.offset_mapping, strict=True):
            end = begin + len(caption)
            own = [last for first, last in offsets if first < end and last > begin]
            before = sum(last <= begin for _, last in offsets)
            read = own[: max(0, limit - before)]
            cut = text[read[-1] if read else begin : end].strip() if len(read) < len(own) else ""
            tokens.append(CaptionTokens(len(own), limit - before, cut))
        return tokens

    def encode_text(self, text_encoder: PromptEncoder, captions: Sequence[str]) -> Tensors:
        """Return what Qwen makes of captions, {"prompt_embeds": [B, 1000, 3584], "mask"}, and ByT5 of quoted text."""
        import torch
        from diffusers import HunyuanVideo15Pipeline as Stock

        glyphs, captions = text_encoder.second, list(captions)
        assert glyphs is not None
        with torch.no_grad():
            embeds, mask = Stock._get_mllm_prompt_embeds(
                text_encoder.model, text_encoder.tokenizer, captions, text_encoder.model.device
            )
            quoted, quoted_mask = Stock._get_byt5_prompt_embeds(
                glyphs.tokenizer, glyphs.model, captions, glyphs.model.device, glyphs.max_length
            )
        return {"prompt_embeds": embeds, "mask": mask.to(embeds), GLYPHS: quoted, GLYPHS_MASK: quoted_mask.to(quoted)}

    def text_shapes(self, facts: ModelFacts) -> dict[str, tuple[int, ...]]:
        glyphs = self.second_text_tokens
        return super().text_shapes(facts) | {GLYPHS: (glyphs, facts.second_text_width), GLYPHS_MASK: (glyphs,)}

    # ---- clips and first frames

    def load_vae(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        """Load the autoencoder, whose mask of attention only fits one clip at a time."""
        vae = super().load_vae(folder, device, dtype)
        vae.enable_slicing()
        return vae

    def latent_scale(self, vae: Any) -> tuple[Tensor, Tensor]:
        import torch

        one = torch.ones(1, 1, 1, 1, 1, device=vae.device)
        return 0 * one, one / vae.config.scaling_factor

    def load_image_encoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any | None:
        if not has_part(folder, "image_encoder"):
            return None
        processor = self.part_class(folder, "feature_extractor").from_pretrained(
            part_folder(folder, "feature_extractor")
        )
        return processor, self._part(folder, "image_encoder", device, dtype)

    def encode_image(self, vae: Any, image_encoder: Any, images: Tensor, frames: int, scale: ImageScale) -> Tensors:
        """Return {"beside": latents of the picture [B, C, 1, h, w], "image": SigLIP states [B, 729, 1152]}."""
        import torch

        if image_encoder is None:
            raise ConfigError("this model takes text only: remove the image, or choose an image-to-video model")
        processor, model = image_encoder
        pixels = (127.5 * images.float() + 127.5).round().clamp(0, 255).to(torch.uint8).cpu()
        seen = processor.preprocess(images=list(pixels), do_resize=True, do_convert_rgb=True, return_tensors="pt")
        with torch.no_grad():
            states = model(seen["pixel_values"].to(model.device, model.dtype)).last_hidden_state
        return {"beside": self.encode_video(vae, images.unsqueeze(2))["mean"], "image": states}

    def given(
        self, image: Tensors, noise: Tensor, latents_shape: Shape, kept: Tensor | None = None, every_frame: bool = False
    ) -> Given:
        """Add the picture's latents and a mask beside the first latent frame, zero for clips without their picture."""
        import torch

        first = image["beside"]
        known = torch.cat([first, torch.ones_like(first[:, :1])], dim=1)
        if kept is not None:
            known = known * kept.view(-1, 1, 1, 1, 1).to(known)
        rest = known.new_zeros(*known.shape[:2], latents_shape[1] - 1, *known.shape[3:])
        return Given(beside=torch.cat([known, rest], dim=2), kept=kept, tokens={"image": image["image"]})

    def check_given(self, transformer: Any, given: Given | None) -> None:
        """Every transformer has the channels for a first frame, so `check_inputs` asks the pipeline."""

    def check_inputs(self, transformer: Any, inputs: DenoiseInputs) -> None:
        super().check_inputs(transformer, inputs)
        check_picture(self.pipelines[index(inputs.folder)["_class_name"]] == "image-to-video", inputs.given)

    # ---- training and sampling

    def use_attention(self, transformer: Any, kernel: str, device: torch.device) -> None:
        from diffusers.models.transformers.transformer_hunyuan_video15 import HunyuanVideo15AttnProcessor2_0 as Stock

        backend = self._attention_backend(kernel, device)
        for block in transformer.transformer_blocks:
            block.attn.processor = Stock() if kernel == "stock" else Attention(backend)

    def noise_schedule(self, folder: Path, device: torch.device, chosen: NoiseSettings = AS_PUBLISHED) -> FlowSchedule:
        return FlowSchedule(chosen, SHIFT)

    def sampler_steps(self, options: StepOptions) -> SamplerSteps:
        import numpy as np

        scheduler = self.load_scheduler(options.folder, options.scheduler, options.shift)
        sigmas = np.linspace(1.0, 0.0, options.steps + 1)[:-1]
        return FlowSteps(scheduler, None, options.device, sigmas=sigmas)

    def denoise(self, transformer: Any, inputs: DenoiseInputs) -> Tensor:
        few = transformer.config.use_meanflow
        return FewSteps(self, transformer, inputs).run() if few else super().denoise(transformer, inputs)

    def call(self, transformer: Any, inputs: CallInputs) -> Tensor:
        """Call the transformer with `_forward` as its forward pass, so that its hooks, such as FSDP's, run."""
        transformer.forward = partial(self._forward, transformer)
        try:
            predicted: Tensor = transformer(inputs)
        finally:
            del transformer.forward
        return predicted

    def _forward(self, transformer: Any, inputs: CallInputs) -> Tensor:
        """Compute the transformer's forward pass, with padding cut and masked only where captions differ in length."""
        import torch

        latents, given = inputs.latents, inputs.given
        beside = None if given is None else given.beside
        if beside is None:
            more = transformer.config.in_channels - latents.shape[1]
            beside = latents.new_zeros(len(latents), more, *latents.shape[2:])
        joined = torch.cat([latents, beside], dim=1)
        text, mask = self._text(transformer, inputs)
        positions = transformer.rope(joined)
        time = transformer.time_embed
        embedded = time.timestep_embedder(time.time_proj(inputs.timesteps).to(latents.dtype))
        if time.use_meanflow:
            ends = inputs.timesteps if given is None else given.tokens.get(ENDS, inputs.timesteps)
            embedded = embedded + time.timestep_embedder_r(time.time_proj_r(ends).to(latents.dtype))
        video = transformer.x_embedder(joined)
        for block in transformer.transformer_blocks:
            if torch.is_grad_enabled() and transformer.gradient_checkpointing:
                recomputed = transformer._gradient_checkpointing_func
                video, text = recomputed(block, video, text, embedded, mask, positions)
            else:
                video, text = block(video, text, embedded, mask, positions)
        predicted: Tensor = transformer.proj_out(transformer.norm_out(video, embedded))
        patch = transformer.config.patch_size_t, transformer.config.patch_size, transformer.config.patch_size
        frames, height, width = (size // one for size, one in zip(latents.shape[2:], patch, strict=True))
        cells = predicted.reshape(len(latents), frames, height, width, -1, *patch)
        return cells.permute(0, 4, 1, 5, 2, 6, 3, 7).flatten(6, 7).flatten(4, 5).flatten(2, 3)

    def _text(self, transformer: Any, inputs: CallInputs) -> tuple[Tensor, Tensor]:
        """Return the tokens beside the video's, [B, n, D], and their mask [B, n]: an integer one if none is padding.

        Compiled blocks keep all padding, since they would recompile for each length. Embedders also get an empty batch,
        so that their layers have a gradient on every GPU of a run.
        """
        import torch

        text, given, parts = inputs.text, inputs.given, []
        compiled = "forward" in vars(transformer.transformer_blocks[0])  # see memory.compiling
        kinds: list[tuple[int, Tensor, Tensor]] = [
            (0, text["prompt_embeds"], text["mask"].bool()),
            (1, text[GLYPHS], text[GLYPHS_MASK].bool()),
        ]
        if given is not None and "image" in given.tokens:
            picture = given.tokens["image"]
            shown = picture.new_ones(len(picture), dtype=torch.bool) if given.kept is None else given.kept
            kinds.append((2, picture, shown[:, None].expand(picture.shape[:2])))
        whole = True
        for kind, states, mask in kinds:
            shortest, longest = (0, mask.shape[1]) if compiled else lengths(mask)
            states, mask, padded = states[:, :longest], mask[:, :longest], shortest < longest
            whole = whole and not padded
            if kind == 0:
                tokens = transformer.context_embedder(states, inputs.timesteps, mask if padded else None)
            else:
                tokens = (transformer.context_embedder_2 if kind == 1 else transformer.image_embedder)(states)
            tokens = tokens + transformer.cond_type_embed.weight[kind].to(tokens)
            parts.append((torch.where(mask[..., None], tokens, 0) if padded else tokens, mask))
        tokens, every = (torch.cat(one, dim=1) for one in zip(*parts, strict=True))
        return tokens, every.to(torch.uint8) if whole else every

    # ---- LoRA files and model cards

    def load_pipeline(self, folder: Path, transformer: Any) -> Any:
        """Return a pipeline of the transformer alone with HunyuanVideo's LoRA loader, which the stock ones lack."""
        from diffusers import DiffusionPipeline
        from diffusers.loaders import HunyuanVideoLoraLoaderMixin

        class Loader(DiffusionPipeline, HunyuanVideoLoraLoaderMixin):
            def __init__(self, transformer: Any) -> None:
                super().__init__()
                self.register_modules(transformer=transformer)

        return Loader(transformer)

    def lora_weights(self, tensors: Tensors, metadata: Mapping[str, str]) -> LoraWeights:
        return super().lora_weights(with_parts_apart(tensors), metadata)

    def usage_extras(self, model: Model, folder: Path, shape: ClipSize, image_scale: ImageScale) -> UsageExtras:
        shift = "" if model.flow_shift is None else f", shift={model.flow_shift}"
        changes, of_image = GUIDED.format(guidance=model.guidance_scale, shift=shift), model.task == "image-to-video"
        if of_image:
            changes += SIZED.format(height=shape[1], width=shape[2])
        return UsageExtras(changes=changes, guided=False, sized=not of_image, by_transformer=True)

    # ---- a random miniature, for tests

    def miniature(self, variant: str) -> tuple[Any, dict[str, int]]:
        import diffusers
        import transformers

        of_image = variant.startswith("image")  # or "image-few-steps"
        tokenizer, text_encoder, tokenizer_2, text_encoder_2 = _text_parts()
        parts = {
            "tokenizer": tokenizer,
            "text_encoder": text_encoder,
            "tokenizer_2": tokenizer_2,
            "text_encoder_2": text_encoder_2,
            "transformer": diffusers.HunyuanVideo15Transformer3DModel(
                in_channels=9,
                out_channels=4,
                num_attention_heads=2,
                attention_head_dim=12,
                num_layers=2,
                num_refiner_layers=1,
                text_embed_dim=32,
                text_embed_2_dim=32,
                image_embed_dim=32,
                rope_axes_dim=(4, 4, 4),
                target_size=32,
                task_type="i2v" if of_image else "t2v",
                use_meanflow=variant.endswith("few-steps"),
            ),
            "vae": diffusers.AutoencoderKLHunyuanVideo15(
                latent_channels=4,
                block_out_channels=(16, 16, 16),
                layers_per_block=1,
                spatial_compression_ratio=4,
                temporal_compression_ratio=4,
            ),
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=5.0),
            "guider": diffusers.ClassifierFreeGuidance(guidance_scale=6.0),
        }
        if of_image:
            sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
            look = transformers.SiglipVisionConfig(**sizes, image_size=16, patch_size=8)
            parts |= {
                "image_encoder": transformers.SiglipVisionModel(look),
                "feature_extractor": transformers.SiglipImageProcessor(size={"height": 16, "width": 16}),
            }
        kind = diffusers.HunyuanVideo15ImageToVideoPipeline if of_image else diffusers.HunyuanVideo15Pipeline
        return kind(**parts), {"frames": 9, "height": 32, "width": 32, "fps": 8}


def _text_parts() -> tuple[Any, Any, Any, Any]:
    """Return a Qwen of one token per letter with a template of TEMPLATE_TOKENS tokens, and a ByT5, with tokenizers."""
    import transformers

    letters = [*(chr(code) for code in range(33, 127)), "\u0120", "\u010a"]  # the last are the space and the line's end
    words = transformers.Qwen2Tokenizer(vocab={letter: number for number, letter in enumerate(letters)}, merges=[])
    words.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    user, close = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
    words.chat_template = (
        "{% for message in messages %}{% if message['role'] == 'system' %}{{ 'x' * "
        f"{TEMPLATE_TOKENS - 6}"
        " }}{% else %}{{ " + f"{user!r} + message['content'] + {close!r}" + " }}{% endif %}{% endfor %}"
    )
    qwen = transformers.Qwen2_5_VLTextModel(
        transformers.Qwen2_5_VLTextModel.config_class(
            vocab_size=len(words),
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=2,
            rope_scaling={"mrope_section": [2, 3, 3], "rope_type": "default"},
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    glyphs = transformers.ByT5Tokenizer()
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 4}
    return words, qwen, glyphs, transformers.T5EncoderModel(transformers.T5Config(vocab_size=len(glyphs), **sizes))


FAMILY = HunyuanVideo15()
