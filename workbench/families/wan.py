"""The Wan family: 2.1 and 2.2, text-to-video and image-to-video (Apache-2.0).

Sources: diffusers' WanPipeline and WanImageToVideoPipeline, which this matches; Wan-Video's Wan2.1 and Wan2.2 (configs,
generate.py; modules/vae.py, which uses the posterior's mean; shared_config.py for the negative prompt, whose commas are
full-width).

Flow matching: x = (1 - s) clean + s noise; the transformer gets 1000 s and predicts noise - clean. No training code was
published. s is drawn logit-normal, as in the report (Wan2.1 issue 293), and shifted by 3, as musubi-tuner's docs advise
for Wan (docs/wan.md: timestep_sampling shift, discrete_flow_shift 3) and SimpleTuner does. ai-toolkit's grid uses 3 for
2.1 and 5 for 2.2. DiffSynth's shift of 5 goes with uniform draws and bell-shaped loss weights that undo it;
logit-normal draws with a shift of 5 would leave only 0.7% below s = 0.3.

A first frame is concatenated to the channels (14B: a mask, and the latents of the frame followed by gray; 2.1 adds CLIP
states) or replaces latents (2.2 5B). Training always shows it: no published Wan trainer drops the whole picture. Other
given frames have the same layout: four mask channels, one per frame of a latent frame (the first counts four times),
and the latents of the clip with everything unknown gray. Fun-Control models (VideoX-Fun) have a control video's latents
right after the noisy ones. A transformer's number of input channels tells what it supports (`Wan.joined`). CLIP sees
the whole picture, squeezed into a square with bicubic interpolation, as in the authors' code (Wan2.1 modules/clip.py),
while diffusers' processor would crop it. VACE models have a side branch for all of this: `wan_vace`.

A reference (in-context LoRA) is extra latent frames in front of the clip's, clean, at timestep 0 and without loss. The
weights and the transformer class stay the same. Each token has its own timestep, as in 2.2 5B, and positions continue:
after a reference of r latent frames, the clip starts at r. No trainer for Wan is known to do this. Wan's VACE (vace.py:
vace_encode_frames, decode_latent) and VideoX-Fun (wan_transformer3d.py: full_ref) place references this way; clean
tokens at timestep 0 come from LTX-Video-Trainer. In models with mask channels, the reference is marked as known.

The Hub's folders hold the transformers in float32. Like the authors (shared_config.py: param_dtype, t5_dtype), `auto`
runs them in bfloat16 on a GPU, with the autoencoder in float32. Latents stay float32 between denoising steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.families import lora_names, lora_writing, wan_comfyui, wan_vace
from workbench.families.base import Family, ImageScale, OwnSetting
from workbench.families.conditioning import NAMES as KINDS
from workbench.families.conditioning import NOTHING, Conditioning
from workbench.families.denoising import DenoiseInputs
from workbench.families.facts import ModelFacts, Part, VaeFacts
from workbench.families.lora_writing import LoraFormat, passed_over_by_comfyui
from workbench.families.model import ClipSize, Model, Shape, Shapes
from workbench.families.model_files import INDEX, has_part, index, part_folder
from workbench.families.model_inputs import (
    CallInputs,
    Given,
    ModelInputs,
    PromptEncoder,
    Tensors,
    prompt_clean,
    umt5_parts,
)
from workbench.families.noise_schedules import AS_PUBLISHED, FlowSchedule, NoiseSchedule, NoiseSettings
from workbench.families.usage import UsageExtras
from workbench.families.wan_models import FIRST, FIVE, MODELS, PAIR, VACE
from workbench.workspace import read_object

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# ---- names of layers, and formats of LoRA files

MASK = 4  # mask channels: one per frame of a latent frame
SHIFT, FORMER_SHIFT = 3.0, 5.0  # shift of noise levels in training; the latter in version 1 of the defaults

IN_BLOCK = {
    **{f"attn1.to_{one}": f"self_attn.{one}" for one in "qkv"},
    "attn1.to_out.0": "self_attn.o",
    **{f"attn2.to_{one}": f"cross_attn.{one}" for one in "qkv"},
    "attn2.to_out.0": "cross_attn.o",
    "attn2.add_k_proj": "cross_attn.k_img",
    "attn2.add_v_proj": "cross_attn.v_img",
    "ffn.net.0.proj": "ffn.0",
    "ffn.net.2": "ffn.2",
}
ATTENTION = ("to_q", "to_k", "to_v", "to_out.0", "add_k_proj", "add_v_proj")
EMBEDDER = "condition_embedder"
OUTSIDE = {
    "patch_embedding": "patch_embedding",
    f"{EMBEDDER}.time_embedder.linear_1": "time_embedding.0",
    f"{EMBEDDER}.time_embedder.linear_2": "time_embedding.2",
    f"{EMBEDDER}.time_proj": "time_projection.1",
    f"{EMBEDDER}.text_embedder.linear_1": "text_embedding.0",
    f"{EMBEDDER}.text_embedder.linear_2": "text_embedding.2",
    f"{EMBEDDER}.image_embedder.ff.net.0.proj": "img_emb.proj.1",
    f"{EMBEDDER}.image_embedder.ff.net.2": "img_emb.proj.3",
    "proj_out": "head.head",
    **wan_vace.OUTSIDE,
}
READERS = (
    "this workbench, diffusers, finetrainers, ComfyUI, diffusion-pipe, ai-toolkit, musubi-tuner, lightx2v, VideoX-Fun "
    "or DiffSynth"
)
NAMES = lora_names.LayerNames(
    "Wan", "blocks", IN_BLOCK, OUTSIDE, READERS, side=wan_vace.SIDE, in_side=wan_vace.SIDE_LAYERS
)
# Programs that read ComfyUI's names without alpha: id of the format -> title. They can read each other's files.
WITHOUT_ALPHA = {"ai-toolkit": "ai-toolkit", "videox-fun": "VideoX-Fun", "diffsynth": "DiffSynth-Studio"}
FORMATS = (
    *passed_over_by_comfyui(
        "Wan",
        lora_writing.DIFFUSERS,
        replace(lora_writing.PORTABLE, readers=("diffusers", "ai-toolkit")),
        replace(lora_writing.FINETRAINERS, readers=("finetrainers", "diffusers", "ai-toolkit")),
    ),
    replace(
        lora_writing.COMFYUI,
        help="The authors' names (diffusion_model.blocks.0.self_attn.q), alpha per layer, which ai-toolkit ignores.",
        readers=("ComfyUI", "diffusers", "VideoX-Fun", "DiffSynth-Studio"),
    ),
    *(
        LoraFormat(
            id,
            program,
            "ComfyUI's names, the strength multiplied into the weights: what most programs read.",
            lora_writing.comfyui_without_alpha(program),
            ("ComfyUI", "diffusers", *WITHOUT_ALPHA.values()),
            "ComfyUI",
        )
        for id, program in WITHOUT_ALPHA.items()
    ),
    replace(
        lora_writing.KOHYA,
        help="Flat names (lora_unet_blocks_0_self_attn_q), alpha per layer. diffusers refuses such a file unless it "
        "has every layer of every block.",
        readers=("musubi-tuner", "ComfyUI", "VideoX-Fun"),
    ),
    *lora_writing.passed_over_by_comfyui("Wan", lora_writing.LYCORIS),
)
CAPTION = ", max_sequence_length={}"
SHIFTED = """

# The shift of noise levels in samples and previews. The model's own config may have another.
pipe.scheduler = type(pipe.scheduler).from_config(pipe.scheduler.config, flow_shift={shift})"""

NARROWED = """

# This pipeline takes no control video, so remove its channels, which would be zero, from the transformer.
kept = [*range({own}), *range({control}, {all})]
first = pipe.transformer.patch_embedding
first.weight.data, first.in_channels = first.weight.data[:, kept], len(kept)
pipe.transformer.register_to_config(in_channels=len(kept))"""

IN_CONTEXT = """

# The LoRA was trained with a reference: clean frames at timestep 0 in front of the video. Repeat the last frame of a
# shorter one. For a picture, use one frame: shown = [load_image("reference.png")]
shown = load_video("reference.mp4")
shown = (shown + shown[-1:] * {frames})[:{frames}]
pixels = pipe.video_processor.preprocess_video(shown, {height}, {width}, resize_mode="crop")
with torch.no_grad():
    latents = pipe.vae.encode(pixels.to(device, torch.float32)).latent_dist.mode().cpu()
own = pipe.vae.config
mean, std = (torch.tensor(one).view(1, -1, 1, 1, 1) for one in (own.latents_mean, own.latents_std))
reference = (latents - mean) / std


def in_context(transformer):
    forward, (_, tall, wide) = transformer.forward, transformer.config.patch_size

    def with_reference(hidden_states, timestep, **more):
        count, _, frames, height, width = hidden_states.shape
        front, tokens = reference.to(hidden_states).expand(count, -1, -1, -1, -1), height // tall * (width // wide)
        if hidden_states.shape[1] > front.shape[1]:  # mark the reference as known
            front = torch.cat([front, torch.ones_like(front[:, :4]), front], dim=1)
        times = timestep.reshape(count, -1).expand(-1, frames * tokens)
        times = torch.cat([times.new_zeros(count, front.shape[2] * tokens), times], dim=1)
        found = forward(hidden_states=torch.cat([front, hidden_states], dim=2), timestep=times, **more)
        return (found[0][:, :, front.shape[2] :],)

    transformer.forward = with_reference


{transformers}"""

SQUEEZED = """

# Show CLIP the whole picture, squeezed into a square, as in training. The pipeline would crop it.
def squeezed(image, device=None):
    clip, look = pipe.image_encoder, pipe.image_processor
    images = image if isinstance(image, list) else [image]  # with a last frame, which only some models use
    images = images if pipe.transformer.config.pos_embed_seq_len else images[:1]
    pixels = pipe.video_processor.preprocess(images, {height}, {width}).float().to(clip.device)
    pixels = torch.nn.functional.interpolate(pixels, (clip.config.image_size,) * 2, mode="bicubic") / 2 + 0.5
    mean, std = (torch.tensor(one, device=clip.device).view(1, -1, 1, 1) for one in (look.image_mean, look.image_std))
    return clip(((pixels - mean) / std).to(clip.dtype), output_hidden_states=True).hidden_states[-2]


pipe.encode_image = squeezed"""


# ---- names in the authors' autoencoder of 2.2, whose blocks are lists of their own

WAN22_VAE = re.compile(r"(encoder|decoder)\.(down|up)samples\.(\d+)\.(?:down|up)samples\.(\d+)\.(.+)")
RESIDUAL = {"residual.0": "norm1", "residual.2": "conv1", "residual.3": "norm2", "residual.6": "conv2"}
RESIDUAL |= {"shortcut": "conv_shortcut"}


class Wan(Family):
    """The Wan family. See Family for the methods."""

    name = "wan"
    title = "Wan"
    models = MODELS
    lora_targets = {"attention": ATTENTION, "attention+feed-forward": (*ATTENTION, "ffn.net.0.proj", "ffn.net.2")}
    layer_names = NAMES
    lora_formats = FORMATS
    tests_output = True
    schedulers = ("UniPC",)
    shift_name = "flow_shift"
    stock_kinds = ("first", "first+last")
    toys = ("text", "image-2.1", "5b", "5b-image", "a14b", "a14b-image", "vace")  # beside "image-flf" and "control"
    pipelines = {
        "WanPipeline": "text-to-video",
        "WanImageToVideoPipeline": "image-to-video",
        wan_vace.PIPELINE: "text-to-video",
    }
    text_tokens = 512
    timed_number = 4
    posterior_share = 0.0
    image_dropout = 0.0  # no published Wan trainer drops the whole picture
    float32_latents = True
    float32_vae = True
    auto_for_float32 = "bfloat16"

    # ---- facts

    def like(self, folder: Path) -> Model:
        pipeline = index(folder)
        # With expand_timesteps, each token has its own timestep, and a first frame replaces latents (2.2 5B).
        shared = FIVE if pipeline.get("expand_timesteps") else FIRST
        shared = VACE if pipeline.get("_class_name") == wan_vace.PIPELINE else shared
        # Only a second transformer means two experts: exports of 2.1 may have a boundary, too.
        two = has_part(folder, "transformer_2")
        boundary = float(pipeline.get("boundary_ratio") or PAIR.boundary) if two else 0.0
        return replace(shared, boundary=boundary, flow_shift=None)

    def vae_facts(self, vae: Part) -> VaeFacts:
        width = vae.config["base_dim"]
        halved = vae.config.get("patch_size") or 1  # pixels per side that the VAE first folds into channels
        return VaeFacts(
            values=vae.values,
            encoder_width=width // halved**2,
            decoder_width=(vae.config.get("decoder_base_dim") or width) // halved**2,
            frames_at_once=self.compression(vae.config)[1],
            tile=(256 * halved, 256 * halved),  # the 5B's encoder tiles the folded clip
            # 14.0 without tiles; with tiles, the folded clip is in memory, too.
            encoder_tensors=15.5 if halved > 1 else 9.7,
            encoder_operations=2190.0 if halved > 1 else 550.0,
            decoder_operations=7440.0 if halved > 1 else 1525.0,
            decoder_tensors=19.7 if halved > 1 else 12.6,
        )

    def facts_of(self, model: Model, folder: Path | None) -> ModelFacts:
        found = super().facts_of(model, folder)
        if found.side:  # a side branch's input has no timesteps of its own
            found = replace(found, given_bytes=0, reference_bytes=0)
        return found if folder is None else replace(found, text_tokens=self.caption_length(folder))

    # ---- single files

    def from_file(self, part: str, tensors: dict[str, Tensor], shapes: Shapes) -> dict[str, Tensor]:
        from diffusers.loaders import single_file_utils as diffusers

        if part == "vae":
            renamed = {name: _in_wan22_vae(name) for name in tensors}
            blocks = {ours: tensors.pop(name) for name, ours in renamed.items() if ours}
            return {**diffusers.convert_wan_vae_to_diffusers(tensors), **blocks}
        if not part.startswith("transformer"):
            return super().from_file(part, tensors, shapes)
        found: dict[str, Tensor] = diffusers.convert_wan_transformer_to_diffusers(tensors)
        if (places := found.pop("img_emb.emb_pos", None)) is not None:  # of first and last frame
            found["condition_embedder.image_embedder.pos_embed"] = places
        return found

    # ---- captions

    def caption_length(self, folder: Path) -> int:
        """Return 512, or fewer if a small model's tokenizer says so: the amount of padding affects the output."""
        own = read_object(part_folder(folder, "tokenizer") / "tokenizer_config.json").get("model_max_length")
        return min(int(own), self.text_tokens) if isinstance(own, int | float) and own >= 1 else self.text_tokens

    def cleaned(self, caption: str) -> str:
        return prompt_clean(caption)

    def encode_text(self, text_encoder: PromptEncoder, captions: Sequence[str]) -> Tensors:
        """Return {"prompt_embeds": [B, 512, D]}, zero for padding, which the encoder does not attend to."""
        import torch

        found = text_encoder.tokens([self.cleaned(caption) for caption in captions])
        with torch.no_grad():
            embeds = text_encoder.model(found.input_ids, found.attention_mask).last_hidden_state
        return {"prompt_embeds": embeds * found.attention_mask[..., None].to(embeds)}

    # ---- first frames

    def load_image_encoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any | None:
        if index(folder).get("_class_name") == wan_vace.PIPELINE:
            return wan_vace.Vace()
        if not has_part(folder, "image_encoder"):  # 2.1 encodes its first frame with CLIP, too
            return None
        import transformers

        processor = transformers.AutoImageProcessor.from_pretrained(
            part_folder(folder, "image_processor"), use_fast=False
        )
        return processor, self._part(folder, "image_encoder", device, dtype)

    def encode_image(self, vae: Any, image_encoder: Any, images: Tensor, frames: int, scale: ImageScale) -> Tensors:
        """Return {"known": latents of the picture} for 2.2 5B, else {"beside": latents of the picture and gray frames}.

        With an image encoder, also return {"image": CLIP states [B, 257, 1280]}.
        """
        import torch

        clip = images.unsqueeze(2)
        if vae.config.is_residual:
            return {"known": self.encode_video(vae, clip)["mean"]}
        clip = torch.cat([clip, clip.new_zeros(*clip.shape[:2], frames - 1, *clip.shape[3:])], dim=2)
        found = {"beside": self.encode_video(vae, clip)["mean"]}
        return found | ({} if image_encoder is None else {"image": _clip_states(image_encoder, images)})

    def given(
        self, image: Tensors, noise: Tensor, latents_shape: Shape, kept: Tensor | None = None, every_frame: bool = False
    ) -> Given:
        """For 2.2 5B, replace the first latent frame; else, add mask and latents beside, zeros without a picture."""
        import torch

        if "known" in image:  # with one latent frame, nothing would be left to learn
            return Given(known=image["known"], kept=kept) if latents_shape[1] > 1 else Given()
        latents, tokens = image["beside"], {name: image[name] for name in ("image",) if name in image}
        mask = latents.new_zeros(len(latents), 4, *latents.shape[2:])
        mask[:, :, 0] = 1
        beside = torch.cat([mask, latents], dim=1)
        if kept is not None:
            beside = beside * kept.view(-1, 1, 1, 1, 1).to(beside)
            tokens = {name: one * kept.view(-1, 1, 1).to(one) for name, one in tokens.items()}
        return Given(beside=beside, tokens=tokens)

    # ---- other conditioning

    def given_kinds(self, model: Model) -> Mapping[str, str]:
        transformer = self.part_config(model, "transformer")
        if not transformer:
            return {}
        if wan_vace.is_vace(transformer):
            return wan_vace.KINDS
        own = transformer.get("out_channels") or transformer["in_channels"]
        more = transformer["in_channels"] - own
        control, frames = more in (own, 2 * own, 2 * own + MASK), more in (own + MASK, 2 * own + MASK)
        found = {"control": "" if control else "has no channels for a control video: choose a Fun-Control model"}
        found[NOTHING] = "" if control or model.task == "text-to-video" else "starts from a first frame"
        found["reference"] = ""
        if not more:
            if self.part_config(model, "vae").get("is_residual"):
                why = "supports only first and prefix: diffusers takes a last frame for it and ignores it"
                found |= {name: "" if name in ("first", "prefix") else why for name in KINDS}
                return found
            return {NOTHING: "", "reference": ""}
        if frames and transformer.get("pos_embed_seq_len"):
            why = "looks at a first and a last frame together: use first+last or keyframes"
            return found | {name: "" if name in ("first+last", "keyframes") else why for name in KINDS}
        if not frames and more > own:
            why = "has no mask channels: use first"
            return found | {name: "" if name == "first" else why for name in KINDS}
        return found | (dict.fromkeys(KINDS, "") if frames else {})

    def joins_conditioning(self, model: Model) -> bool:
        return wan_vace.is_vace(self.part_config(model, "transformer"))

    def encode_conditioning(self, vae: Any, image_encoder: Any, pixels: Conditioning) -> Tensors:
        """Return latents for "control" and "reference", and given frames.

        Given frames are latents "known" for 2.2 5B. For others they are the latents "beside", with everything unknown
        gray, and the "mask" [B, 4, f, h, w]. With an image encoder, also return CLIP states of the first known frame
        ("image") and, if both ends of the clip are known, of the last ("last image").
        """
        if isinstance(image_encoder, wan_vace.Vace):
            return image_encoder.encode(self, vae, pixels)
        found: dict[str, Tensor] = {}
        if pixels.control is not None:
            found["control"] = self.encode_video(vae, pixels.control)["mean"]
        if pixels.reference is not None:
            found["reference"] = self.encode_video(vae, pixels.reference)["mean"]
        if (shown := pixels.shown) is None:
            return found
        if vae.config.is_residual:
            return found | {"known": self.encode_video(vae, shown[:, :, : len(pixels.known)])["mean"]}
        found["beside"] = self.encode_video(vae, shown)["mean"]
        found["mask"] = _mask(pixels, found["beside"])
        if image_encoder is not None:
            ends = pixels.known[:1] or (0,)
            ends += (pixels.frames - 1,) if {0, pixels.frames - 1} <= set(pixels.known) else ()
            for name, frame in zip(("image", "last image"), ends, strict=False):
                found[name] = _clip_states(image_encoder, shown[:, :, frame])
        return found

    def conditioning(self, tensors: Tensors, latents_shape: Shape, noise: torch.Generator, dtype: torch.dtype) -> Given:
        """Draw nothing, since latents are the posterior's mean. `call` fills missing parts with zeros.

        Raises ConfigError for a reference of another size.
        """
        import torch

        if wan_vace.INACTIVE in tensors:
            return wan_vace.given(tensors, noise)
        names = ("image", "last image", "control", "reference")
        tokens = {name: tensors[name] for name in names if name in tensors}
        if "reference" in tokens and tokens["reference"].shape[-2:] != latents_shape[-2:]:
            sentence = f"the LoRA takes a reference smaller than the video, {self.title} one of the same size"
            raise ConfigError(f"{sentence}: choose a LoRA that was trained on {self.title}, or remove the reference")
        beside = torch.cat([tensors["mask"], tensors["beside"]], dim=1) if "beside" in tensors else None
        return Given(beside=beside, known=tensors.get("known"), tokens=tokens)

    def conditioning_to_sample(
        self, folder: Path, tensors: Tensors, latents_shape: Shape, noise: torch.Generator, dtype: torch.dtype
    ) -> Given:
        if wan_vace.INACTIVE in tensors:
            return wan_vace.given(tensors, None)
        return super().conditioning_to_sample(folder, tensors, latents_shape, noise, dtype)

    def check_given(self, transformer: Any, given: Given | None) -> None:
        if wan_vace.is_vace(transformer.config):
            if given is None or wan_vace.CONTEXT not in given.tokens:
                raise ConfigError("this model always needs conditioning: encode a gray clip if nothing is known")
            return
        own = transformer.config.out_channels or transformer.config.in_channels
        if transformer.config.in_channels - own not in (own, 2 * own, 2 * own + MASK):
            super().check_given(transformer, given)

    def joined(self, transformer: Any, latents: Tensor, given: Given | None) -> Tensor:
        """Concatenate conditioning to the channels of noisy latents [B, C, f, h, w], with zeros for what is missing.

        After the C noisy channels come mask and known frames (C + 4, Wan); or a control video (C), followed by the
        first frame's latents (C, Wan2.1-Fun-Control) or mask and known frames (C + 4, Wan2.2-Fun-Control).
        """
        import torch

        own = transformer.config.out_channels or transformer.config.in_channels
        more = transformer.config.in_channels - own
        beside, control = (None, None) if given is None else (given.beside, given.tokens.get("control"))
        if not more:
            return latents
        parts = [latents]
        if more != own + MASK:
            parts.append(torch.zeros_like(latents) if control is None else control)
        if more == 2 * own:
            first = torch.zeros_like(latents)
            if beside is not None:
                first[:, :, :1] = beside[:, MASK:, :1]
            parts.append(first)
        elif more > own:
            size = (len(latents), own + MASK, *latents.shape[2:])
            parts.append(latents.new_zeros(size) if beside is None else beside)
        return torch.cat(parts, dim=1)

    def in_front(self, transformer: Any, reference: Tensor) -> Tensor:
        """Lay out a reference [B, C, r, h, w] to go in front of what `joined` returns, marked as known."""
        import torch

        known = torch.cat([torch.ones_like(reference[:, :MASK]), reference], dim=1)
        return self.joined(transformer, reference, Given(beside=known))

    def pictures(self, transformer: Any, latents: Tensor, given: Given | None) -> Tensor | None:
        """Return CLIP states for the transformer, zeros without a picture; None for models without CLIP.

        Transformers that take two pictures expect them as rows of the batch.
        """
        import torch

        tokens = {} if given is None else given.tokens
        if "image" not in tokens and transformer.config.image_dim is None:
            return None
        both = transformer.config.pos_embed_seq_len
        size = (len(latents), both // 2 if both else 1, transformer.config.image_dim)
        image = tokens["image"] if "image" in tokens else latents.new_zeros(size)
        if not both:
            return image
        return torch.stack([image, tokens.get("last image", torch.zeros_like(image))], dim=1).flatten(0, 1)

    # ---- training

    def own_settings(self, model: Model) -> Mapping[str, OwnSetting]:
        common = super().own_settings(model)
        scale = OwnSetting(model.guidance_scale_2 or model.guidance_scale, "as the authors generate")
        own, small = model.flow_shift_at(model.height, model.width), model.small_flow_shift
        sizes = "" if small is None else f": {small:g} up to 832x480, {model.flow_shift:g} above"
        found = "as it was trained" if model.embedded else f"as the authors generate{sizes}"
        shift = OwnSetting(own, found) if own else OwnSetting("the scheduler's own")
        experts = {"expert": OwnSetting(), "guidance_scale_2": scale} if model.boundary else {}
        side = {"conditioning_scale": OwnSetting()} if self.joins_conditioning(model) else {}
        return {  # a reference must be as large as the clip, to have the same positions
            **{name: own for name, own in common.items() if name != "reference_downscale"},
            **side,
            **experts,
            "flow_shift": shift,
            "preview_flow_shift": shift,
            "timestep_density": OwnSetting("logit-normal", "as the authors' report says"),
            "timestep_shift": OwnSetting(SHIFT, "as musubi-tuner and SimpleTuner train Wan"),
        }

    def noise_schedule(self, folder: Path, device: torch.device, chosen: NoiseSettings = AS_PUBLISHED) -> FlowSchedule:
        return FlowSchedule(chosen, SHIFT if chosen.defaults > 1 else FORMER_SHIFT)

    def predict(self, transformer: Any, schedule: NoiseSchedule, inputs: ModelInputs) -> Tensor:
        if (reference := wan_vace.reference_of(inputs.given)) is None:
            return super().predict(transformer, schedule, inputs)
        found = super().predict(transformer, schedule, wan_vace.with_reference(inputs, reference))
        return found[:, :, reference.shape[2] :]

    def loss(
        self,
        transformer: Any,
        schedule: NoiseSchedule,
        inputs: ModelInputs,
        base: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Include VACE's reference in the loss, except with weights or another target."""
        reference = wan_vace.reference_of(inputs.given)
        if reference is not None and base is None and weights is None:
            inputs = wan_vace.with_reference(inputs, reference)
        return super().loss(transformer, schedule, inputs, base, weights)

    def denoise(self, transformer: Any, inputs: DenoiseInputs) -> Tensor:
        if (reference := wan_vace.reference_of(inputs.given)) is None:
            return super().denoise(transformer, inputs)
        return super().denoise(transformer, wan_vace.to_denoise(inputs, reference))[:, :, reference.shape[2] :]

    def all_blocks(self, transformer: Any) -> Sequence[Any]:
        return [*getattr(transformer, wan_vace.SIDE, ()), *self.blocks(transformer)]

    def call(self, transformer: Any, inputs: CallInputs) -> Tensor:
        import torch

        if wan_vace.is_vace(transformer.config):
            return wan_vace.predicted(transformer, inputs)
        timesteps, given = inputs.timesteps, inputs.given
        latents = self.joined(transformer, inputs.latents, given)
        reference = None if given is None else given.tokens.get("reference")
        seen = self.pictures(transformer, inputs.latents, given)
        more = {} if seen is None else {"encoder_hidden_states_image": seen}
        _, tall, wide = transformer.config.patch_size
        frames, height, width = latents.shape[2:]
        tokens, front = (height // tall) * (width // wide), 0
        if given is not None and given.known is not None:  # one timestep per token [B, tokens]
            timesteps = given.times_of_tokens(timesteps, frames, tokens)
        if reference is not None:
            front, count = reference.shape[2], len(latents)
            latents = torch.cat([self.in_front(transformer, reference), latents], dim=2)
            timesteps = timesteps.reshape(count, -1).expand(-1, frames * tokens)
            timesteps = torch.cat([timesteps.new_zeros(count, front * tokens), timesteps], dim=1)
        predicted: Tensor = transformer(
            hidden_states=latents,
            timestep=timesteps,
            encoder_hidden_states=inputs.text["prompt_embeds"],
            return_dict=False,
            **more,
        )[0]
        return predicted[:, :, front:]

    # ---- the rest

    def comfyui_workflow(
        self,
        model: Model,
        lora: str,
        prompt: str,
        shape: ClipSize,
        seed: int = 0,
        experts: Sequence[str] = (),
        picture: str = "",
    ) -> Mapping[str, Any] | None:
        return wan_comfyui.workflow(model, lora, prompt, shape, seed, experts, picture)

    def usage_extras(self, model: Model, folder: Path, shape: ClipSize, image_scale: ImageScale) -> UsageExtras:
        load = 'vae = AutoencoderKLWan.from_pretrained(SOURCE, subfolder="vae", torch_dtype=torch.float32)\n'
        own = model.flow_shift_at(*shape[1:])
        changes = "" if own is None else SHIFTED.format(shift=own)
        known = has_part(folder, "image_encoder") if (folder / INDEX).exists() else "Wan2.1" in model.source
        looks = model.task == "image-to-video" and known
        return UsageExtras(
            classes=("AutoencoderKLWan",),
            before=load,
            parts=", vae=vae",
            changes=changes + (SQUEEZED.format(height=shape[1], width=shape[2]) if looks else ""),
            arguments="" if (tokens := self.caption_length(folder)) == self.text_tokens else CAPTION.format(tokens),
        )

    def usage_conditioning(
        self, model: Model, folder: Path, shape: ClipSize, extras: UsageExtras, kinds: Sequence[str]
    ) -> UsageExtras:
        transformer = self.part_config(model, "transformer")
        if wan_vace.is_vace(transformer):
            return wan_vace.usage_conditioning(extras, shape, kinds)
        found = super().usage_conditioning(
            model, folder, shape, extras, [kind for kind in kinds if kind != "reference"]
        )
        if "reference" in kinds:
            frames, height, width = shape
            calls = "\n".join(f"in_context(pipe.{expert.part})" for expert in model.experts)
            code = IN_CONTEXT.format(frames=frames, height=height, width=width, transformers=calls)
            found = replace(found, changes=found.changes + code, helpers=(*found.helpers, "load_video"))
        own = transformer.get("out_channels") or transformer.get("in_channels", 0)
        if own and transformer["in_channels"] == 3 * own + MASK:
            found = replace(
                found, changes=NARROWED.format(own=own, control=2 * own, all=3 * own + MASK) + found.changes
            )
        return found

    def miniature(self, variant: str) -> tuple[Any, dict[str, Any]]:
        """Return a random pipeline.

        "text", "image-2.1" and "image-flf" (first and last frame) are like 2.1, "5b" and "a14b" like 2.2. "control" has
        the channels of Wan2.2-Fun-Control in one transformer, "vace" a side branch at blocks 0 and 2.
        """
        import diffusers
        import transformers

        five, of_image = variant.startswith("5b"), "image" in variant or variant == "control"
        looks = variant in ("image-2.1", "image-flf")
        channels = 48 if five else 16
        more = {"image-2.1": 20, "image-flf": 20, "a14b-image": 20, "control": 36}
        transformer: dict[str, Any] = {
            "num_attention_heads": 2,
            "attention_head_dim": 12,
            "in_channels": channels + more.get(variant, 0),
            "out_channels": channels,
            "text_dim": 32,
            "freq_dim": 16,
            "ffn_dim": 32,
            "num_layers": 2,
            "rope_max_seq_len": 32,
        }
        if looks:
            transformer |= {"image_dim": 32, "added_kv_proj_dim": 24}
        if variant == "image-flf":
            transformer |= {"pos_embed_seq_len": 2 * 5}  # for two pictures
        if variant == "vace":
            transformer |= {"num_layers": 3, "vace_layers": [0, 2]}
        kind = diffusers.WanVACETransformer3DModel if variant == "vace" else diffusers.WanTransformer3DModel
        vae: dict[str, Any] = {"base_dim": 4, "z_dim": channels, "dim_mult": [1] * 4, "num_res_blocks": 1}
        if five:
            vae |= {
                "in_channels": 12,
                "out_channels": 12,
                "is_residual": True,
                "patch_size": 2,
                "scale_factor_spatial": 16,
            }
            vae |= {"latents_mean": [0.1] * 48, "latents_std": [0.9] * 48}
        tokenizer, text_encoder = umt5_parts()
        parts: dict[str, Any] = {
            "tokenizer": tokenizer,
            "text_encoder": text_encoder,
            "vae": diffusers.AutoencoderKLWan(**vae),
            "transformer": kind(**transformer),
            "scheduler": diffusers.UniPCMultistepScheduler(
                prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=5.0 if five else 3.0
            ),
        }
        if variant.startswith("a14b"):
            parts["transformer_2"] = diffusers.WanTransformer3DModel(**transformer)
        if of_image:
            parts |= {"image_processor": None, "image_encoder": None}
        if looks:
            sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
            look = transformers.CLIPVisionConfig(**sizes, image_size=16, patch_size=8)
            square = {"height": 16, "width": 16}
            parts |= {
                "image_encoder": transformers.CLIPVisionModel(look),
                "image_processor": transformers.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size=square),
            }
        pipeline = diffusers.WanImageToVideoPipeline if of_image else diffusers.WanPipeline
        pipeline = diffusers.WanVACEPipeline if variant == "vace" else pipeline
        boundary = {"boundary_ratio": 0.9 if of_image else 0.875} if variant.startswith("a14b") else {}
        made = pipeline(**parts, **boundary, **({"expand_timesteps": True} if five else {}))
        size = 64 if five else 32
        return made, {"frames": 9, "height": size, "width": size}


def _clip_states(image_encoder: Any, images: Tensor) -> Tensor:
    """Encode pictures [B, 3, H, W] in [-1, 1] with CLIP: [B, 257, 1280]."""
    import torch

    processor, model = image_encoder
    size = (model.config.image_size,) * 2
    seen = torch.nn.functional.interpolate(images.float().to(model.device), size, mode="bicubic")
    mean, std = (
        torch.tensor(values, device=model.device).view(1, -1, 1, 1)
        for values in (processor.image_mean, processor.image_std)
    )
    pixels = ((seen / 2 + 0.5 - mean) / std).to(model.dtype)
    with torch.no_grad():
        found: Tensor = model(pixel_values=pixels, output_hidden_states=True).hidden_states[-2]
    return found


def _mask(pixels: Conditioning, latents: Tensor) -> Tensor:
    """Return which latents are known in which of their four frames, [B, 4, f, h, w]; the first frame counts four times.

    A latent is known in a frame if all of its pixels are.
    """
    import torch

    (count, _, frames, *size) = latents.shape
    cells = latents.new_zeros(count, pixels.frames, *size)
    if pixels.mask is None:
        cells[:, list(pixels.known)] = 1
    else:
        unknown = 1 - pixels.mask[:, 0].to(latents)
        cells = 1 - torch.nn.functional.adaptive_max_pool2d(unknown, tuple(size))
    every = torch.cat([cells[:, :1].expand(-1, MASK, -1, -1), cells[:, 1:]], dim=1)
    return every.unflatten(1, (frames, MASK)).transpose(1, 2).contiguous()


def _in_wan22_vae(name: str) -> str:
    """Return diffusers' name of a tensor in a block of 2.2's autoencoder; "" for others, which the library renames."""
    match = WAN22_VAE.fullmatch(name)
    if match is None:
        return ""
    coder, side, block, layer, rest = match.groups()
    if rest.startswith(("resample.", "time_conv.")):
        return f"{coder}.{side}_blocks.{block}.{side}sampler.{rest}"
    for theirs, ours in RESIDUAL.items():
        rest = rest.replace(theirs, ours)
    return f"{coder}.{side}_blocks.{block}.resnets.{layer}.{rest}"


FAMILY = Wan()
