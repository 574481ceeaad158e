"""The LTX-2 family: 2.0 (19B), 2.3 (22B) and folders of 2.5, from text and images, with sound.

Sources: diffusers' LTX2Pipeline and LTX2ImageToVideoPipeline, which this matches; Lightricks' LTX-2 repository at
400fd31, its ltx-trainer for the loss (text_to_video.py, flexible.py, timestep_samplers.py) and ltx-pipelines for the
guidance (constants.py); the configs of diffusers' scripts/convert_ltx2_to_diffusers.py.

One transformer makes picture and sound, in two streams that attend to each other in every block. Flow matching:
x = (1 - s) clean + s noise; the transformer gets 1000 s and predicts noise - clean. The authors' trainer leaves a
stream out of a run that does not learn it: the other then attends to itself and to its caption, and no layer of the
missing stream or between the streams is computed. diffusers always computes both, so here the missing one gets one
token of zeros, with attention between the streams off (isolate_modalities), which gives the same prediction. Layers
that a run's loss does not need are never trained (`unreached_layers`).

A run that learns picture and sound draws noise and s separately for each stream, s from the density for its own number
of tokens, and adds the two errors (flexible.py, _process_modality and compute_loss; the older text_to_video.py drew one
s for both). Attention between the streams receives the other stream's s. A sound is a spectrogram (`sound`) of the mean
of its autoencoder's posterior, about 25 tokens a second, each of all channels and frequencies. A stream that is given
to the other (is_generated false) is clean, at s = 0 and without loss; which layers then learn is as in a2v_lora.yaml
and v2a_lora.yaml.

s is drawn logit-normal around a mean that rises with the number of tokens, then stretched so that its 0.5% and 99.9%
quantiles lie at 0 and 1; a tenth of the draws is uniform. A first frame replaces the first latent frame, at timestep 0
and without loss. Latents are the mean of the autoencoder's posterior. Positions are seconds and pixels.

`ltx_conditioning` lays conditioning out, with every frame that does not start the clip as tokens, as in diffusers'
LTX2InContextPipeline: a picture fills one frame, a reference has the clip's own positions.

A sample has a sound, which the picture attends to. It is denoised together with the picture, from noise that is drawn
after the picture's. Only a clip that is changed (`source`) is denoised without one. Guidance follows the pipeline's
defaults: away from the negative prompt, from self-attention skipped in one block (2.3; the blocks of 2.0 ignore it in
diffusers) and from separate streams, then rescaled. A stream that is given to a sample stays
clean at s = 0 and is not guided: it keeps its prompt and its self-attention (ltx-trainer, validation_runner.py, and
ltx-pipelines, a2vid_two_stage.py; diffusers has no such pipeline).

Captions are read by Gemma 3, in 2.5 by Gemma 4, padded on the left to 1,024 tokens. Connectors turn the outputs of all
its layers into two sequences, for picture and sound, in which learned registers stand for padding, so nothing is
masked. A picture is not compressed again before it is encoded, as it is by default in the pipeline (image_crf):
training does not do it either.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.families import lora_writing, ltx
from workbench.families.base import ImageScale, OwnSetting
from workbench.families.conditioning import NAMES as KINDS
from workbench.families.conditioning import NOTHING
from workbench.families.denoising import DenoiseInputs, FlowSteps, SamplerSteps, StepOptions, steps_shifted_by_tokens
from workbench.families.facts import ModelFacts, On, Part, VaeFacts
from workbench.families.lora_names import ATTENTION, FEED_FORWARD, LayerNames
from workbench.families.ltx2_sampling import JointDenoising, StretchedSchedule, perturbed_block, unpacked
from workbench.families.ltx_conditioning import EXTRA, NO_CHANNELS, PLACES, SPATIAL, TEMPORAL, InContextFamily, packed
from workbench.families.model import Frames, Model, Shapes
from workbench.families.model_files import config, part_folder
from workbench.families.model_inputs import (
    ALONE,
    PICTURE_FOR_SOUND,
    SOUND_FOR_PICTURE,
    SOUND_ONLY,
    CallInputs,
    CaptionTokens,
    Given,
    ModelInputs,
    PromptEncoder,
    Tensors,
    gemma_parts,
)
from workbench.families.noise_schedules import (
    AS_PUBLISHED,
    FlowSchedule,
    NoiseSchedule,
    NoiseSettings,
)
from workbench.families.sound import Sound, spectrogram
from workbench.families.usage import UsageExtras
from workbench.workspace import read_json

if TYPE_CHECKING:
    import torch

# ---- the published models

NEGATIVE_PROMPT = (
    "blurry, out of focus, overexposed, underexposed, low contrast, washed out colors, excessive noise, grainy "
    "texture, poor lighting, flickering, motion blur, distorted proportions, unnatural skin tones, deformed facial "
    "features, asymmetrical face, missing facial features, extra limbs, disfigured hands, wrong hand count, artifacts "
    "around text, inconsistent perspective, camera shake, incorrect depth of field, background too sharp, background "
    "clutter, distracting reflections, harsh shadows, inconsistent lighting direction, color banding, cartoonish "
    "rendering, 3D CGI look, unrealistic materials, uncanny valley effect, incorrect ethnicity, wrong gender, "
    "exaggerated expressions, wrong gaze direction, mismatched lip sync, silent or muted audio, distorted voice, "
    "robotic voice, echo, background noise, off-sync audio, incorrect dialogue, added dialogue, repetitive speech, "
    "jittery movement, awkward pauses, incorrect timing, unnatural transitions, inconsistent framing, tilted camera, "
    "flat lighting, inconsistent tone, cinematic oversaturation, stylized filters, or AI artifacts."
)
LONGEST = 481  # frames: 20 seconds at 24 fps, the length of the position table
NEWER = Model(
    id="ltx-2.3-22b",
    title="LTX-2.3 22B",
    family="ltx2",
    source="diffusers/LTX-2.3-Diffusers",
    revision=None,
    task="text-to-video",
    frames=121,
    fps=24,
    height=512,
    width=768,
    frame_rule=Frames(8, LONGEST),
    size_multiple=32,
    steps=30,
    guidance_scale=3.0,
    scheduler="Euler",
    license="LTX-2 Community License (paid from 10 million USD of yearly revenue)",
    license_file="",
    download_gb=70.5,
    negative_prompt=NEGATIVE_PROMPT,
)
OLDER = replace(NEWER, id="ltx-2-19b", title="LTX-2 19B", source="Lightricks/LTX-2", steps=40, download_gb=67.7)
OF_IMAGE = "LTX2ImageToVideoPipeline"
MODELS = tuple(
    one
    for model in (NEWER, OLDER)
    for one in (
        model,
        replace(
            model,
            id=f"{model.id}-image",
            title=f"{model.title}, image to video",
            task="image-to-video",
            pipeline=OF_IMAGE,
        ),
    )
)
# LTX-2.5's repository: `transformer` and the scheduler are distilled, `transformer_full` is not. Its scheduler is
# that of diffusers' documentation of LTX-2.5.
FULL, NEWEST = "full", "Lightricks/LTX-2.5-Diffusers:full"
FULL_SCHEDULER = (("use_dynamic_shifting", True), ("shift_terminal", 0.1))
# Of distilled models, whose scheduler does not shift: their noise levels, at which they are sampled without guidance.
DISTILLED = (1.0, 0.99375, 0.9875, 0.98125, 0.975, 0.909375, 0.725, 0.421875)


def is_distilled(folder: Path) -> bool:
    """Return whether a folder's scheduler has fixed noise levels, as those of distilled models."""
    scheduler = read_json(part_folder(folder, "scheduler") / "scheduler_config.json")
    return not scheduler.get("use_dynamic_shifting", True)


# ---- names of layers, and formats of LoRA files

STREAMS = ("", "audio_")
BETWEEN = ("audio_to_video_attn", "video_to_audio_attn")
ATTENTIONS = (*(f"{stream}attn{number}" for stream in STREAMS for number in (1, 2)), *BETWEEN)
IN_BLOCK = tuple(f"{attention}.{name}" for attention in ATTENTIONS for name in (*ATTENTION, "to_gate_logits"))
IN_BLOCK += tuple(f"{stream}{name}" for stream in STREAMS for name in FEED_FORWARD)
ATTENDING = tuple(f"{attention}.{name}" for attention in ATTENTIONS for name in ATTENTION)
FEEDING_FORWARD = tuple(f"{stream}{name}" for stream in STREAMS for name in FEED_FORWARD)
EMBEDDINGS = {  # diffusers' name -> the authors'
    "time_embed": "adaln_single",
    "audio_time_embed": "audio_adaln_single",
    "av_cross_attn_video_scale_shift": "av_ca_video_scale_shift_adaln_single",
    "av_cross_attn_video_a2v_gate": "av_ca_a2v_gate_adaln_single",
    "av_cross_attn_audio_scale_shift": "av_ca_audio_scale_shift_adaln_single",
    "av_cross_attn_audio_v2a_gate": "av_ca_v2a_gate_adaln_single",
    "prompt_adaln": "prompt_adaln_single",
    "audio_prompt_adaln": "audio_prompt_adaln_single",
}
OUTSIDE = {
    f"{ours}.{name}": f"{theirs}.{name}"
    for ours, theirs in EMBEDDINGS.items()
    for name in ("emb.timestep_embedder.linear_1", "emb.timestep_embedder.linear_2", "linear")
}
SAME = ("proj_out", "caption_projection.linear_1", "caption_projection.linear_2")
for stream in STREAMS:
    OUTSIDE |= {f"{stream}{name}": f"{stream}{name}" for name in SAME}
    OUTSIDE[f"{stream}proj_in"] = f"{stream}patchify_proj"
NAMES = LayerNames(
    title="LTX-2",
    blocks="transformer_blocks",
    in_block={name: name for name in IN_BLOCK},
    outside=OUTSIDE,
    readers="this workbench, diffusers, ComfyUI, LTX-2's trainer, ai-toolkit or musubi-tuner's fork for LTX-2",
    authors_blocks="transformer_blocks",
)
FORMATS = (
    *lora_writing.passed_over_by_comfyui("LTX-2", lora_writing.DIFFUSERS, lora_writing.PORTABLE),
    replace(ltx.COMFYUI, title="ComfyUI, LTX-2's trainer"),
    lora_writing.LoraFormat(
        "kohya",
        "musubi-tuner's fork for LTX-2",
        "Flat names (lora_unet_transformer_blocks_0_attn1_to_q), alpha per layer.",
        lora_writing.kohya,
        ("musubi-tuner's fork", "ComfyUI"),
    ),
    *lora_writing.passed_over_by_comfyui("LTX-2", lora_writing.LYCORIS),
)


VAE_23 = {  # the decoder's fourth level, which only 2.3 has and the library's table lacks
    "decoder.up_blocks.7.": "decoder.up_blocks.3.upsamplers.0.",
    "decoder.up_blocks.8.": "decoder.up_blocks.3.",
}

# ---- code on model cards

WHOLE: dict[str, Any] = {  # of LTX-2.5
    "classes": ("FlowMatchEulerDiscreteScheduler", "LTX2VideoTransformer3DModel"),
    "before": """# The weights that the LoRA was trained on, beside the distilled ones.
transformer = LTX2VideoTransformer3DModel.from_pretrained(SOURCE, subfolder="transformer_full", torch_dtype=dtype)
""",
    "parts": ", transformer=transformer",
    "changes": """

# The repository's scheduler is for the distilled weights.
pipe.scheduler = FlowMatchEulerDiscreteScheduler.from_config(
    pipe.scheduler.config, use_dynamic_shifting=True, shift_terminal=0.1
)""",
}
IN_CONTEXT = """from diffusers.pipelines.ltx2.pipeline_ltx2_condition import LTX2VideoCondition
from diffusers.pipelines.ltx2.pipeline_ltx2_ic_lora import LTX2ReferenceCondition
"""
CONDITIONED = ',\n    conditions=[LTX2VideoCondition(frames=load_image("first_frame.png"), index=0, crf=0)]'
REFERRED = """,
    reference_conditions=[LTX2ReferenceCondition(frames=load_video("reference.mp4"))],
    # 1, or reference_downscale_factor in the LoRA's metadata
    reference_downscale_factor=1"""


class LTX2(InContextFamily):
    """The LTX-2 family. See Family for the methods."""

    name = "ltx2"
    title = "LTX-2"
    models = MODELS
    layer_names = NAMES
    lora_formats = FORMATS
    lora_targets = {"attention": ATTENDING, "attention+feed-forward": (*ATTENDING, *FEEDING_FORWARD)}
    schedulers = ("Euler",)
    toys = ("text", "image", "text-2.3", "image-2.3", "text-2.5")
    pipelines = {
        "LTX2Pipeline": "text-to-video",
        OF_IMAGE: "image-to-video",
        "LTX2ConditionPipeline": "text-to-video",
    }
    posterior_share = 0.0  # the authors train on the posterior's mean
    text_tokens = 1024
    more_text = ("audio_embeds",)
    clip_layers = r"(time_embed|prompt_adaln)\..+|.*(audio|a2?v_cross_attn)_.+"
    shared_layers = r".*\.attn1\.(to_[kv]|to_gate_logits)|.*\.attn2\.to_gate_logits"
    unreached_layers = {
        "picture": r".*(audio|a2?v_cross_attn|keyframes_abs_pos)_.+",
        "picture+sound": r"keyframes_abs_pos_.+",
        ALONE: r"(?!(.*\.)?audio_(?!to_|a2v_)).+",  # all but the sound's own
        # All but the sound's own, and what lets it attend to the picture.
        SOUND_FOR_PICTURE: r"(?!(.*\.)?(audio_(?!to_)|video_to_audio_|av_cross_attn_audio_)).+",
        # What only changes the sound after the picture has attended to it for the last time.
        PICTURE_FOR_SOUND: r"keyframes_abs_pos_.+|audio_(proj_out|scale_shift_table).*"
        r"|.*\.LAST\.(video_to_audio_attn|audio_ff)\..+",
    }
    saved_bytes = 11.0  # simulated (benchmarks/memory_simulation.py): rotary positions are applied in float32
    float32_latents = True
    auto_for_float32 = "bfloat16"
    file_parts = ("text_encoder", "transformer", "vae", "audio_vae")
    image_dropout = 0.5  # i2v_lora.yaml of the authors' trainer shows half of the clips their first frame
    own_first_frames = OwnSetting(0.1, "as text_to_video of the authors' trainer")
    own_defaults = {
        "timestep_density": OwnSetting("logit-normal", "stretched, a tenth uniform, as the authors' trainer"),
        "timestep_shift": OwnSetting(1.0, "none, as in the authors' trainer"),
    }

    # ---- facts

    def like(self, folder: Path) -> Model:
        found = OLDER if config(folder, "transformer").get("use_prompt_embeddings", True) else NEWER
        if not is_distilled(folder):
            return found
        few = len(DISTILLED)
        origin = found.id if config(folder, "transformer").get("ff_bias", True) else NEWEST
        return replace(found, steps=few, guidance_scale=1.0, distilled="steps", distilled_from=origin)

    def with_variant(self, model: Model, variant: str) -> Model:
        """Return 2.5 with the weights to train, in a folder beside the distilled ones, whose scheduler does not fit."""
        found = super().with_variant(model, variant)
        if variant != FULL:
            return found
        steps, scale = NEWER.steps, NEWER.guidance_scale
        found = replace(found, steps=steps, guidance_scale=scale, distilled="", distilled_from="")
        return replace(found, scheduler_changes=FULL_SCHEDULER)

    def facts_of(self, model: Model, folder: Path | None) -> ModelFacts:
        found = super().facts_of(model, folder)
        own = config(folder, "transformer") if folder else self.part_config(model, "transformer")
        picture, sound = text_widths(own)
        passes = 4 if perturbed_block(own) else 3
        found = replace(found, text_width=picture, second_text_width=sound, guided_passes=passes)
        return replace(found, learning=with_sound(found, own))

    def positions(self, transformer: Mapping[str, Any]) -> int:
        """Sine and cosine in float32 for self-attention, and half as many for attention between the streams."""
        return 6 if transformer.get("rope_type") == "split" else 12

    def vae_facts(self, vae: Part) -> VaeFacts:
        """All simulated (benchmarks/memory_simulation.py); the autoencoder of 2.3 has another decoder."""
        patch, newer = vae.config["patch_size"] ** 2, len(vae.config["decoder_block_out_channels"]) > 3
        return VaeFacts(
            values=vae.values,
            encoder_width=vae.config["block_out_channels"][0] // patch,
            decoder_width=vae.config["decoder_block_out_channels"][0] // patch,
            frames_at_once=LONGEST,  # clips are never split in time
            tile=(512, 512),
            encoder_tensors=2.5,
            decoder_tensors=2.0 if newer else 2.4,
            encoder_operations=9.35e3 if newer else 11.5e3,
            decoder_operations=11.8e3 if newer else 6.0e3,
        )

    # ---- single files

    def from_file(self, part: str, tensors: dict[str, torch.Tensor], shapes: Shapes) -> dict[str, torch.Tensor]:
        from diffusers.loaders import single_file_utils as diffusers

        if part == "vae":
            found: dict[str, torch.Tensor] = diffusers.convert_ltx2_vae_to_diffusers(tensors)
            for theirs, ours in VAE_23.items():
                found = {name.replace(theirs, ours): tensor for name, tensor in found.items()}
            return found
        if part == "audio_vae":
            return dict(diffusers.convert_ltx2_audio_vae_to_diffusers(tensors))
        if part == "transformer":  # the library leaves a name of 2.3
            found = diffusers.convert_ltx2_transformer_to_diffusers(tensors)
            return {name.replace("prompt_adaln_single.", "prompt_adaln."): one for name, one in found.items()}
        return super().from_file(part, tensors, shapes)

    # ---- captions

    def cleaned(self, caption: str) -> str:
        return caption.strip()

    def caption_tokens(self, folder: Path, captions: Sequence[str]) -> list[CaptionTokens]:
        """Count tokens. Gemma closes captions with none, so the last token read is the caption's own."""
        if not captions:
            return []
        limit, texts = self.text_tokens, [self.cleaned(caption) for caption in captions]
        found = self.load_tokenizer(folder)(texts, return_offsets_mapping=True, verbose=False)
        return [
            CaptionTokens(len(offsets), limit, text[offsets[limit - 1][1] :].strip() if len(offsets) > limit else "")
            for text, offsets in zip(texts, found.offset_mapping, strict=True)
        ]

    def load_tokenizer(self, folder: Path, part: str = "tokenizer") -> Any:
        found = super().load_tokenizer(folder, part)
        found.padding_side = "left"
        return found

    def load_text_encoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> PromptEncoder:
        """Load Gemma with the connectors as one of its modules."""
        found = super().load_text_encoder(folder, device, dtype)
        found.model.connectors = self._part(folder, "connectors", device, dtype)
        return found

    def encode_text(self, text_encoder: PromptEncoder, captions: Sequence[str]) -> Tensors:
        """Return {"prompt_embeds": [B, 1024, D], "audio_embeds": [B, 1024, E]}.

        One caption at a time: the outputs of all layers take 0.4 GB each in bfloat16.
        """
        import torch

        found = []
        for caption in captions:
            tokens = text_encoder.tokens([self.cleaned(caption)])
            with torch.no_grad():
                read = text_encoder.model(
                    tokens.input_ids, attention_mask=tokens.attention_mask, output_hidden_states=True, logits_to_keep=1
                )
                states = torch.stack(read.hidden_states, dim=-1)
                found.append(text_encoder.model.connectors(states, tokens.attention_mask)[:2])
        embeds, audio = (torch.cat(parts) for parts in zip(*found, strict=True))
        return {"prompt_embeds": embeds, "audio_embeds": audio}

    def text_shapes(self, facts: ModelFacts) -> dict[str, tuple[int, ...]]:
        return {**super().text_shapes(facts), "audio_embeds": (facts.text_tokens, facts.second_text_width)}

    # ---- latents

    def latent_scale(self, vae: Any) -> tuple[torch.Tensor, torch.Tensor]:
        mean, std = vae.latents_mean.view(1, -1, 1, 1, 1), vae.latents_std.view(1, -1, 1, 1, 1)
        return mean, std / vae.config.scaling_factor

    # ---- conditioning on given frames

    def given_kinds(self, model: Model) -> Mapping[str, str]:
        return {**dict.fromkeys((*KINDS, NOTHING, "reference"), ""), "control": NO_CHANNELS}

    def conditioning_to_sample(
        self, folder: Path, tensors: Tensors, latents_shape: tuple[int, ...], noise: torch.Generator, dtype: torch.dtype
    ) -> Given:
        """Draw the noise of all tokens at once, as the pipeline does."""
        import torch

        found, (channels, *sizes) = self.laid_out(tensors, latents_shape, noise, dtype), latents_shape
        extra = found.tokens.get(EXTRA)
        count = math.prod(sizes) + (0 if extra is None else extra.shape[1])
        first = unpacked(torch.randn(1, count, channels, generator=noise), sizes)
        return replace(found, first=first)

    def places(self, sizes: Sequence[int], device: torch.device, start: int | None, scale: float) -> torch.Tensor:
        """Return the first and the next frame, row and column of each token, int64 [6, tokens]."""
        import torch

        frames, height, width = (torch.arange(size, device=device) for size in sizes)
        side, frame = round(SPATIAL * scale), TEMPORAL * frames
        if start is None:  # the autoencoder is causal: the first latent frame is one frame
            begin, end = (frame + 1 - TEMPORAL).clamp(min=0), frame + 1
        else:
            begin, end = start + frame, start + (frame + TEMPORAL if sizes[0] > 1 else frame + 1)
        starts, ends = (
            torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1)
            for axes in ((begin, side * height, side * width), (end, side * height + side, side * width + side))
        )
        return torch.stack([starts, ends], dim=1).flatten(0, 1)

    # ---- sound

    def sound_rate(self, folder: Path) -> int:
        return int(config(folder, "audio_vae")["sample_rate"])

    def load_sound_encoder(self, folder: Path, device: torch.device) -> Any:
        """Load the autoencoder in float32, as the authors' trainer does (process_videos.py)."""
        import torch

        return self._part(folder, "audio_vae", device, torch.float32)

    def encode_sound(self, encoder: Any, samples: torch.Tensor) -> Tensors:
        import torch

        sizes = encoder.config
        heard = spectrogram(
            samples.to(encoder.latents_mean.device), sizes.sample_rate, sizes.mel_bins, sizes.mel_hop_length
        )
        with torch.no_grad():
            mean = encoder.encode(heard[None]).latent_dist.mode()
        tokens = mean.transpose(1, 2).flatten(2)
        return {"sound": (tokens - encoder.latents_mean) / encoder.latents_std}

    def load_sound_decoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        """Load the autoencoder and the vocoder, as one module."""
        import torch

        return torch.nn.ModuleDict({name: self._part(folder, name, device, dtype) for name in ("audio_vae", "vocoder")})

    def decode_sound(self, decoder: Any, latents: torch.Tensor) -> Sound:
        import torch

        vae, vocoder = decoder["audio_vae"], decoder["vocoder"]
        clean = latents.to(vae.latents_mean.device) * vae.latents_std.float() + vae.latents_mean.float()
        with torch.no_grad():
            unpacked = clean.unflatten(2, (vae.config.latent_channels, -1)).transpose(1, 2)
            waves = vocoder(vae.decode(unpacked.to(vae.latents_mean.dtype), return_dict=False)[0])
        return Sound(waves[0].float().cpu().numpy(), vocoder.config.output_sampling_rate)

    # ---- training

    def noise_schedule(self, folder: Path, device: torch.device, chosen: NoiseSettings = AS_PUBLISHED) -> FlowSchedule:
        return StretchedSchedule(chosen)

    def call(self, transformer: Any, inputs: CallInputs) -> torch.Tensor:
        """Return the prediction for the picture without a sound."""
        return self.both(transformer, inputs)[0]

    def losses(
        self,
        transformer: Any,
        schedule: NoiseSchedule,
        inputs: ModelInputs,
        base: torch.Tensor | None = None,
        weights: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        sound = inputs.sound
        if sound is None:
            return super().losses(transformer, schedule, inputs, base, weights)
        predicted = self.predictions(transformer, schedule, inputs)
        of_sound = None
        if sound.learned != PICTURE_FOR_SOUND:
            of_sound = self.error(predicted[-1], schedule.target(sound.latents, sound.noise, sound.timesteps))
            if sound.learned in SOUND_ONLY:
                return of_sound, None
        target = schedule.target(inputs.latents, inputs.noise, inputs.timesteps) if base is None else base.float()
        return self.error(predicted[0], target, inputs.given, weights), of_sound

    def predictions(self, transformer: Any, schedule: NoiseSchedule, inputs: ModelInputs) -> tuple[torch.Tensor, ...]:
        sound, dtype = inputs.sound, transformer.dtype
        if sound is None:
            return super().predictions(transformer, schedule, inputs)
        noisy = schedule.mix(sound.latents, sound.noise, sound.timesteps).to(dtype)
        text = {name: tensor.to(dtype) for name, tensor in inputs.text.items()}
        if sound.learned == ALONE:  # one token stands for the picture, and one for its caption
            picture = noisy.new_zeros(len(noisy), transformer.config.in_channels, 1, 1, 1)
            text["prompt_embeds"] = text["prompt_embeds"][:, :1] * 0
            call = CallInputs(picture, text, sound.timesteps, None, inputs.fps)
            return (self.both(transformer, call, noisy, isolated=True)[1],)
        picture = self.with_known(schedule.mix(inputs.latents, inputs.noise, inputs.timesteps), inputs.given)
        given = inputs.given and inputs.given.to(picture.device, dtype)
        call = CallInputs(picture.to(dtype), text, inputs.timesteps, given, inputs.fps)
        found = self.both(transformer, call, noisy, times=sound.timesteps)
        return {PICTURE_FOR_SOUND: found[:1], SOUND_FOR_PICTURE: found[1:]}.get(sound.learned, found)

    def both(
        self, transformer: Any, inputs: CallInputs, sound: torch.Tensor | None = None, **more: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the predictions for the picture, shaped as its latents, and for the sound [B, tokens, C].

        The arguments are those of `tokens`.
        """
        picture, heard = self.tokens(transformer, inputs, sound, **more)
        return unpacked(picture, inputs.latents.shape[2:]), heard

    def tokens(
        self,
        transformer: Any,
        inputs: CallInputs,
        sound: torch.Tensor | None = None,
        isolated: bool = False,
        perturbed: int = 0,
        times: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the predictions for the picture's tokens, with those of its conditioning behind, and for the sound's.

        Args:
            sound: Noisy, [B, tokens, C]; None for the picture alone.
            isolated: The streams do not attend to each other.
            perturbed: A block to compute without self-attention; 0 for none.
            times: Of the sound, [B]; None for the picture's.
        """
        import torch

        latents, own, given, text = inputs.latents, inputs.timesteps, inputs.given, inputs.text["prompt_embeds"]
        times = own if times is None else times
        count, (frames, height, width) = len(latents), latents.shape[2:]
        alone, sizes = sound is None, transformer.config
        if sound is None:
            sound = latents.new_zeros(count, 1, sizes.audio_in_channels)
            words = text.new_zeros(count, 1, text_widths(sizes)[1])
        else:
            words = inputs.text["audio_embeds"]
        picture, moments = packed(latents), own
        where: torch.Tensor | None = None
        if given is not None and given.known is not None:
            moments = given.times_of_tokens(own, frames, height * width)
        if given is not None and (extra := given.tokens.get(EXTRA)) is not None:
            moments = moments if moments.dim() > 1 else moments[:, None].expand(-1, picture.shape[1])
            moments = torch.cat([moments, moments.new_zeros(extra.shape[:2])], dim=1)
            picture = torch.cat([picture, extra], dim=1)
            own_places = transformer.rope.prepare_video_coords(
                count, frames, height, width, latents.device, fps=inputs.fps
            )
            more = given.tokens[PLACES].unflatten(1, (3, 2)).transpose(2, 3).to(own_places)
            more = torch.cat([more[:, :1] / inputs.fps, more[:, 1:]], dim=1)
            where = torch.cat([own_places, more], dim=2)
        found, heard = transformer(
            hidden_states=picture,
            audio_hidden_states=sound,
            encoder_hidden_states=text,
            audio_encoder_hidden_states=words,
            timestep=moments,
            audio_timestep=times,
            sigma=own,
            audio_sigma=times,
            num_frames=frames,
            height=height,
            width=width,
            fps=inputs.fps,
            audio_num_frames=sound.shape[1],
            video_coords=where,
            isolate_modalities=alone or isolated,
            spatio_temporal_guidance_blocks=[perturbed] if perturbed else None,
            use_cross_timestep=True,
            return_dict=False,
        )
        return found, heard

    # ---- sampling

    def sampler_steps(self, options: StepOptions) -> SamplerSteps:
        import numpy as np

        scheduler, steps = self.load_scheduler(options.folder, options.scheduler), options.steps
        if scheduler.config.use_dynamic_shifting:
            return steps_shifted_by_tokens(scheduler, options, self.title)
        sigmas = np.array(DISTILLED) if steps == len(DISTILLED) else np.linspace(1.0, 1 / steps, steps)
        return FlowSteps(scheduler, None, options.device, sigmas=sigmas)

    def sound_noise(self, inputs: DenoiseInputs) -> torch.Tensor:
        """Draw the noise [1, tokens, C] of a sound as long as the picture, as the pipelines do after the picture's.

        LTX2InContextPipeline, which `conditioning_to_sample` draws like, draws by token, the others by channel.
        """
        import torch

        sound, temporal = config(inputs.folder, "audio_vae"), self.compression(config(inputs.folder, "vae"))[1]
        seconds = ((inputs.latents_shape[1] - 1) * temporal + 1) / inputs.fps
        # The autoencoder of sound has the same factor in time and frequency, whatever its config.
        count = round(seconds * (sound["sample_rate"] / sound["mel_hop_length"] / 4))
        shape = (1, sound["latent_channels"], count, sound["mel_bins"] // 4)
        if inputs.given is not None and inputs.given.first is not None:
            return torch.randn(1, count, shape[1] * shape[3], generator=inputs.noise).to(inputs.device)
        return torch.randn(shape, generator=inputs.noise).transpose(1, 2).flatten(2).to(inputs.device)

    def denoise(self, transformer: Any, inputs: DenoiseInputs) -> torch.Tensor:
        return self.denoise_with_sound(transformer, inputs)[0]

    def denoise_with_sound(self, transformer: Any, inputs: DenoiseInputs) -> tuple[torch.Tensor, torch.Tensor | None]:
        loop = JointDenoising(self, transformer, inputs)
        return loop.run(), loop.sound

    # ---- model cards

    def usage_extras(
        self, model: Model, folder: Path, shape: tuple[int, int, int], image_scale: ImageScale
    ) -> UsageExtras:
        own = WHOLE if model.variant == FULL else {}
        arguments = f", frame_rate={model.fps:g}"
        arguments += ", image_crf=0" if model.task == "image-to-video" else ""
        if model.guidance_scale > 1:
            block = perturbed_block(self.part_config(model, "transformer"))
            stg = f"spatio_temporal_guidance_blocks=[{block}]" if block else "stg_scale=0.0, audio_stg_scale=0.0"
            return UsageExtras(arguments=f"{arguments},\n    {stg}", heard=True, **own)
        arguments += f",\n    sigmas={list(DISTILLED)}" if model.steps == len(DISTILLED) else ""
        off = (
            f"{of}{name}" for of in STREAMS for name in ("stg_scale=0.0", "modality_scale=1.0", "guidance_rescale=0.0")
        )
        return UsageExtras(arguments=f"{arguments},\n    audio_guidance_scale=1.0, {', '.join(off)}", heard=True)

    def usage_conditioning(
        self, model: Model, folder: Path, shape: tuple[int, int, int], extras: UsageExtras, kinds: Sequence[str]
    ) -> UsageExtras:
        """Give a reference in LTX2InContextPipeline, whose first frame is a condition."""
        if "reference" not in kinds:
            return super().usage_conditioning(model, folder, shape, extras, kinds)
        first = model.task == "image-to-video" or "first" in kinds
        rest = [kind for kind in kinds if kind not in ("reference", "first")]
        found = super().usage_conditioning(model, folder, shape, extras, rest)
        arguments = found.arguments.replace(", image_crf=0", "") + (CONDITIONED if first else "") + REFERRED
        return replace(
            found,
            arguments=arguments,
            before=found.before + IN_CONTEXT,
            helpers=(*found.helpers, "load_video", *(["load_image"] if first else [])),
            pipeline="LTX2InContextPipeline",
        )

    # ---- a random miniature, for tests

    def miniature(self, variant: str) -> tuple[Any, dict[str, Any]]:
        """Return a random pipeline of 2.0, of 2.3, whose blocks have gates and modulated captions, or of 2.5."""
        import diffusers
        from diffusers.pipelines.ltx2 import LTX2TextConnectors, LTX2Vocoder

        newer, newest = "-" in variant, variant.endswith("2.5")
        tokenizer, text_encoder = gemma_parts(newest)
        width, sound = (24, 16) if newer else (16, 16)  # of a caption's embeddings for the two streams
        gates = dict.fromkeys(("gated_attn", "audio_gated_attn", "cross_attn_mod", "audio_cross_attn_mod"), True)
        gates |= {"use_prompt_embeddings": False, "perturbed_attn": True, "ff_bias": not newest}
        gates |= {"use_keyframes_abs_pos_embedding": newest}
        projections = {"per_modality_projections": True, "video_hidden_dim": width, "audio_hidden_dim": sound}
        projections |= {"proj_bias": True, "video_gated_attn": True, "audio_gated_attn": True}
        transformer = diffusers.LTX2VideoTransformer3DModel(
            **{"in_channels": 8, "out_channels": 8, "num_attention_heads": 2, "attention_head_dim": 12},
            **{"audio_in_channels": 4, "audio_out_channels": 4},
            **{"audio_num_attention_heads": 2, "audio_attention_head_dim": 8},
            **{"cross_attention_dim": 24, "audio_cross_attention_dim": 16, "caption_channels": 16, "num_layers": 2},
            **{"rope_type": "split" if newer else "interleaved", **(gates if newer else {})},
        )
        connectors = LTX2TextConnectors(
            **{"caption_channels": 16, "text_proj_in_factor": 3, "rope_type": "split"},
            **{"video_connector_num_attention_heads": 2, "video_connector_attention_head_dim": width // 2},
            **{"audio_connector_num_attention_heads": 2, "audio_connector_attention_head_dim": sound // 2},
            **{"video_connector_num_layers": 1, "audio_connector_num_layers": 1, **(projections if newer else {})},
        )
        vae = diffusers.AutoencoderKLLTX2Video(
            **{"latent_channels": 8, "block_out_channels": (4, 4, 8, 8), "layers_per_block": (1,) * 5},
            **{"decoder_block_out_channels": (8, 16, 32), "decoder_layers_per_block": (1,) * 4},
            **{"decoder_causal": False, "spatial_compression_ratio": 32, "temporal_compression_ratio": 8},
        )
        vae.latents_mean.fill_(0.1)
        vae.latents_std.fill_(0.9)
        shifts = {"base_shift": 0.95, "max_shift": 2.05, "base_image_seq_len": 1024, "max_image_seq_len": 4096}
        parts: dict[str, Any] = {
            "tokenizer": tokenizer,
            "text_encoder": text_encoder,
            "connectors": connectors,
            "transformer": transformer,
            "vae": vae,
            "audio_vae": diffusers.AutoencoderKLLTX2Audio(
                base_channels=4, ch_mult=(1, 1, 1), num_res_blocks=1, resolution=32, latent_channels=2, mel_bins=8
            ),
            "vocoder": LTX2Vocoder(16, 8, 2, [32, 30], [16, 15], [3], [[1, 3, 5]]),  # 240 samples a spectrum, as 2.0
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(
                use_dynamic_shifting=True, shift_terminal=0.1, **shifts
            ),
        }
        parts["audio_vae"].latents_mean.fill_(0.2)
        parts["audio_vae"].latents_std.fill_(0.8)
        kind = diffusers.LTX2ImageToVideoPipeline if variant.startswith("image") else diffusers.LTX2Pipeline
        return kind(**parts), {"frames": 17, "height": 64, "width": 64}


# Layers between the streams that run on the picture's tokens, and what a block keeps for them beyond their inputs.
BETWEEN_ON_PICTURE = r".*\.(audio_to_video_attn\.(to_q|to_out\.0|to_gate_logits)|video_to_audio_attn\.to_[kv])"
BETWEEN_BYTES = 18.5  # simulated (benchmarks/memory_simulation.py)


def with_sound(facts: ModelFacts, transformer: Mapping[str, Any]) -> dict[str, ModelFacts]:
    """Return the sizes of runs that learn a sound, from those of the picture: for `ModelFacts.learning`.

    Beside the picture, the sound's own tokens are so few that they are not counted.
    """

    def on(name: str, of: str) -> On:
        return next((one.on for one in facts.linears if one.name == of), "clip") if of != name else "clip"

    both = tuple(
        replace(one, on="video") if re.fullmatch(BETWEEN_ON_PICTURE, one.name) else one for one in facts.linears
    )
    # The sound's layers work as the picture's of the same name.
    alone = tuple(replace(one, on=on(one.name, one.name.replace("audio_", "", 1))) for one in facts.linears)
    heads = transformer["audio_num_attention_heads"]
    sound = replace(
        facts,
        linears=alone,
        width=heads * transformer["audio_attention_head_dim"],
        heads=heads,
        sound_tokens=25.0,
        learning={"picture": facts},
    )
    return {
        **dict.fromkeys(
            ("picture+sound", SOUND_FOR_PICTURE, PICTURE_FOR_SOUND),
            replace(facts, linears=both, saved_bytes=facts.saved_bytes + BETWEEN_BYTES),
        ),
        ALONE: sound,
    }


def text_widths(transformer: Mapping[str, Any]) -> tuple[int, int]:
    """Return the width of a caption's embeddings for picture and sound, from a transformer's config."""
    if transformer.get("use_prompt_embeddings", True):  # 2.0 projects them itself
        return transformer["caption_channels"], transformer["caption_channels"]
    return transformer["cross_attention_dim"], transformer["audio_cross_attention_dim"]


FAMILY = LTX2()
