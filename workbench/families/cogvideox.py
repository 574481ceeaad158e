"""CogVideoX: text-to-video at 2B, 5B, 1.5-5B, and the embedded miniature.

Sources: CogVideoX (arXiv 2408.06072); SAT's VideoDiffusionLoss and diffusers' CogVideoXPipeline, which this file
equals: latents [B, F, C, H, W] are scaled by the VAE's factor; the transformer predicts velocity; timesteps are uniform
integers; the schedule is scaled-linear with zero terminal SNR. What differs between the sizes (scaling factor, rotary
grids, `patch_size_t` with its padding at the front, `ofs`, text length) is read from the model's own configs.

Not covered: image-to-video.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, ModelUnavailable
from workbench.families.base import CaptionTokens, Family, Frames, ImageScale, LoraWeights, Model, Report, Tensors
from workbench.workspace import read_json

if TYPE_CHECKING:
    import torch

ASSETS = Path(__file__).resolve().parent.parent.parent / "assets"
LICENCE = "CogVideoX licence (research; commercial use needs registration)"

TINY = Model(
    id="tiny-cogvideox", title="Tiny CogVideoX (built in)", family="cogvideox", source=str(ASSETS / "tiny-cogvideox"),
    revision=None, task="text-to-video", frames=9, fps=8, height=40, width=40, frame_rule=Frames(8, 17),
    size_multiple=8, steps=25, guidance_scale=3.0, scheduler="DDIM", licence="Apache-2.0", local=True, embedded=True,
)  # fmt: skip
MODELS = (
    TINY,
    Model(
        id="cogvideox-2b", title="CogVideoX 2B", family="cogvideox", source="THUDM/CogVideoX-2b",
        revision="1137dacfc2c9c012bed6a0793f4ecf2ca8e7ba01", task="text-to-video", frames=49, fps=8, height=480,
        width=720, frame_rule=Frames(8, 49), size_multiple=16, steps=50, guidance_scale=6.0, scheduler="DDIM",
        licence="Apache-2.0", download_gb=13.5,
    ),
    Model(
        id="cogvideox-5b", title="CogVideoX 5B", family="cogvideox", source="THUDM/CogVideoX-5b",
        revision="8d6ea3f817438460b25595a120f109b88d5fdfad", task="text-to-video", frames=49, fps=8, height=480,
        width=720, frame_rule=Frames(8, 49), size_multiple=16, steps=50, guidance_scale=6.0, scheduler="DPM",
        licence=LICENCE, download_gb=21.0,
    ),
    Model(
        id="cogvideox1.5-5b", title="CogVideoX 1.5 5B", family="cogvideox", source="THUDM/CogVideoX1.5-5B",
        revision="fdc5267c90b5c06492985b966e43aae984e189e0", task="text-to-video", frames=81, fps=16, height=768,
        width=1360, frame_rule=Frames(16, 161), size_multiple=16, largest=(768, 1360), steps=50, guidance_scale=6.0,
        scheduler="DPM", licence=LICENCE, download_gb=21.0,
    ),
)  # fmt: skip

USAGE = """from diffusers import CogVideoXPipeline
from diffusers.utils import export_to_video

pipe = CogVideoXPipeline.from_pretrained({source!r}{revision})
pipe.load_lora_weights(".", weight_name={lora!r}, adapter_name="lora")
pipe.set_adapters(["lora"], [1.0])
video = pipe(
    {prompt!r},
    num_frames={frames}, height={height}, width={width}, num_inference_steps={steps},
    guidance_scale={guidance_scale}, max_sequence_length={tokens},
).frames[0]
export_to_video(video, "video.mp4")"""


@dataclass(frozen=True)
class TextEncoder:
    """Tokenizer and T5 encoder, with the number of tokens the transformer expects."""

    tokenizer: Any
    model: Any
    max_length: int


class CogVideoX(Family):
    """The CogVideoX family; see Family for what each method promises."""

    name = "cogvideox"
    title = "CogVideoX"
    models = MODELS
    lora_targets = {
        "attention": ("to_q", "to_k", "to_v", "to_out.0"),
        "attention+feed-forward": ("to_q", "to_k", "to_v", "to_out.0", "ff.net.0.proj", "ff.net.2"),
    }
    lora_prefix = "transformer"
    schedulers = ("DDIM", "DPM")
    timesteps = 1000
    toys = ("sincos", "rotary", "rotary-1.5")
    everyday_prompts = (
        "a red circle moves left on a blue background",
        "a green square moves right on a white background",
        "a yellow triangle moves up on a black background",
    )
    image_noise = (-3.0, 0.5)

    # ---- files

    def describe_folder(self, folder: Path) -> Model | None:
        index = read_json(folder / "model_index.json")
        if index.get("_class_name") != "CogVideoXPipeline":
            return None
        transformer, vae = _config(folder, "transformer"), _config(folder, "vae")
        spatial = 2 ** (len(vae["block_out_channels"]) - 1)
        newer = transformer.get("patch_size_t") is not None
        height, width = transformer["sample_height"] * spatial, transformer["sample_width"] * spatial
        return Model(
            id=str(folder), title=folder.name, family=self.name, source=str(folder), revision=None,
            task="text-to-video", frames=transformer["sample_frames"], fps=16 if newer else 8,
            height=height, width=width,
            frame_rule=Frames(16, 161) if newer else Frames(8, max(49, transformer["sample_frames"])),
            size_multiple=spatial * transformer["patch_size"], largest=(height, width) if newer else None,
            steps=50, guidance_scale=6.0,
            scheduler="DPM" if "DPM" in index["scheduler"][1] else "DDIM", licence="unknown", local=True,
        )  # fmt: skip

    def fetch(self, model: Model, report: Report = print) -> Path:
        if model.local:
            folder = Path(model.source)
            if not (folder / "model_index.json").is_file():
                raise ModelUnavailable(f"model is {model.id}, but {folder} has no model_index.json: restore the folder")
            return folder
        if (folder_here := self.on_disk(model)) is not None:
            return folder_here
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError

        report(f"Downloading {model.title}, about {model.download_gb:g} GB, once ...")
        try:
            return Path(snapshot_download(**_wanted(model)))
        except GatedRepoError as error:
            raise ModelUnavailable(
                f"{model.source} asks for consent: accept its terms on the Hub, then log in"
            ) from error
        except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
            reason = str(error).split("\n")[0][:200]
            raise ModelUnavailable(
                f"{model.source} cannot be downloaded ({reason}): check the network and try again"
            ) from error

    def on_disk(self, model: Model) -> Path | None:
        if model.local:
            return Path(model.source)
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            return Path(snapshot_download(**_wanted(model), local_files_only=True))
        except LocalEntryNotFoundError:
            return None

    def caption_tokens(self, folder: Path, captions: Sequence[str]) -> list[CaptionTokens]:
        if not captions:
            return []
        limit = _config(folder, "transformer")["max_text_seq_length"]
        found = load_tokenizer(folder)(list(captions), return_offsets_mapping=True, verbose=False)
        counted = []
        for caption, ids, places in zip(captions, found.input_ids, found.offset_mapping, strict=True):
            # Truncation keeps the closing token, so the last place is not the caption's.
            cut = caption[places[limit - 2][1] :].strip() if len(ids) > limit else ""
            counted.append(CaptionTokens(len(ids), limit, cut))
        return counted

    def stored_dtype(self, folder: Path) -> str:
        files = sorted((folder / "transformer").glob("*.safetensors"))
        if not files:
            raise ModelUnavailable(f"{folder / 'transformer'} holds no .safetensors file: download the model again")
        with files[0].open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        dtype = next(entry["dtype"] for name, entry in header.items() if name != "__metadata__")
        return {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[dtype]

    # ---- loading

    def load_text_encoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> TextEncoder:
        from transformers import T5EncoderModel

        model = T5EncoderModel.from_pretrained(folder / "text_encoder", dtype=dtype, use_safetensors=True)
        return TextEncoder(
            load_tokenizer(folder),
            model.to(device).eval().requires_grad_(False),
            _config(folder, "transformer")["max_text_seq_length"],
        )

    def load_vae(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        from diffusers.models.autoencoders.autoencoder_kl_cogvideox import AutoencoderKLCogVideoX

        vae = AutoencoderKLCogVideoX.from_pretrained(folder / "vae", dtype=dtype, use_safetensors=True)
        return vae.to(device).eval().requires_grad_(False)

    def load_transformer(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        from diffusers.models.transformers.cogvideox_transformer_3d import CogVideoXTransformer3DModel

        transformer = CogVideoXTransformer3DModel.from_pretrained(
            folder / "transformer", dtype=dtype, use_safetensors=True
        )
        return transformer.to(device).eval().requires_grad_(False)

    def load_pipeline(
        self, folder: Path, *, transformer: Any = None, vae: Any = None, text_encoder: Any = None, dtype: torch.dtype
    ) -> Any:
        from diffusers import CogVideoXPipeline

        pipeline = CogVideoXPipeline(
            tokenizer=text_encoder.tokenizer if text_encoder else None,
            text_encoder=text_encoder.model if text_encoder else None,
            vae=vae,
            transformer=transformer,
            scheduler=_scheduler(folder, "model"),
        )
        pipeline.set_progress_bar_config(disable=True)
        return pipeline

    # ---- encoding

    def encode_text(self, text_encoder: TextEncoder, captions: Sequence[str]) -> Tensors:
        """{"prompt_embeds": [B, tokens, D]}. Padding tokens are embedded too: the model was trained without a mask."""
        import torch

        tokens = text_encoder.tokenizer(
            list(captions), padding="max_length", max_length=text_encoder.max_length, truncation=True,
            add_special_tokens=True, return_tensors="pt",
        )  # fmt: skip
        with torch.no_grad():
            return {"prompt_embeds": text_encoder.model(tokens.input_ids.to(text_encoder.model.device))[0]}

    def encode_video(self, vae: Any, video: torch.Tensor) -> Tensors:
        """{"mean", "std"}: [B, f, C, h, w] float32, times the scaling factor: latents are mean + std * noise."""
        import torch

        with torch.no_grad():
            posterior = vae.encode(video.to(vae.device, vae.dtype)).latent_dist
            scale = vae.config.scaling_factor
            return {
                "mean": posterior.mean.float().permute(0, 2, 1, 3, 4).contiguous() * scale,
                "std": posterior.std.float().permute(0, 2, 1, 3, 4).contiguous() * scale,
            }

    def draw_latents(self, moments: Tensors, noise: torch.Tensor) -> torch.Tensor:
        import torch

        padding = noise.shape[1] - moments["mean"].shape[1]
        latents = moments["mean"] + moments["std"] * noise[:, padding:]
        # 1.5 takes latent frames in pairs; inference drops what stands in front, so the copies go there.
        return torch.cat([latents[:, :1].expand(-1, padding, -1, -1, -1), latents], dim=1) if padding else latents

    def latents_shape(self, folder: Path, frames: int, height: int, width: int) -> tuple[int, ...]:
        vae, transformer = _config(folder, "vae"), _config(folder, "transformer")
        spatial = 2 ** (len(vae["block_out_channels"]) - 1)
        latent_frames = (frames - 1) // int(vae["temporal_compression_ratio"]) + 1
        pair = transformer.get("patch_size_t") or 1
        return (
            math.ceil(latent_frames / pair) * pair,
            transformer["out_channels"],
            height // spatial,
            width // spatial,
        )

    def decode(self, vae: Any, latents: torch.Tensor) -> torch.Tensor:
        import torch

        with torch.no_grad():
            unscaled = latents.permute(0, 2, 1, 3, 4) / vae.config.scaling_factor
            return vae.decode(unscaled.to(vae.device, vae.dtype)).sample.float().clamp(-1, 1)

    # ---- image-to-video

    def encode_image(self, vae: Any, images: torch.Tensor, scale: ImageScale) -> Tensors:
        """{"mean", "std"}: [B, 1, C, h, w] float32. The scale is that of the stock pipeline, or none at all."""
        import torch

        with torch.no_grad():
            posterior = vae.encode(images.unsqueeze(2).to(vae.device, vae.dtype)).latent_dist
            factor = 1.0
            if scale == "pipeline":
                factor = vae.config.scaling_factor ** (-1 if vae.config.invert_scale_latents else 1)
            return {
                "mean": posterior.mean.float().permute(0, 2, 1, 3, 4).contiguous() * factor,
                "std": posterior.std.float().permute(0, 2, 1, 3, 4).contiguous() * factor,
            }

    def image_condition(
        self, image: Tensors, noise: torch.Tensor, latents_shape: tuple[int, ...], every_frame: bool = False
    ) -> torch.Tensor:
        latents = image["mean"] + image["std"] * noise
        if every_frame:
            return latents.expand(-1, latents_shape[0], -1, -1, -1)
        condition = latents.new_zeros(len(latents), *latents_shape)
        condition[:, :1] = latents
        return condition

    # ---- training

    def noise_schedule(self, folder: Path, device: torch.device) -> torch.Tensor:
        """alphas_cumprod [1000], float32: in bfloat16 the first timesteps would hold no noise at all."""
        return _scheduler(folder, "model").alphas_cumprod.float().to(device)

    def predict(
        self,
        transformer: Any,
        schedule: torch.Tensor,
        latents: torch.Tensor,
        text: Tensors,
        noise: torch.Tensor,
        timesteps: torch.Tensor,
        condition: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The predicted velocity, shaped as the latents."""
        import torch

        signal, sigma = _signal_and_sigma(schedule, timesteps)
        dtype = transformer.dtype
        noisy = signal * latents.float() + sigma * noise.float()
        if condition is not None:
            noisy = torch.cat([noisy, condition.float()], dim=2)
        return transformer(
            hidden_states=noisy.to(dtype),
            encoder_hidden_states=text["prompt_embeds"].to(dtype),
            timestep=timesteps,
            ofs=None if transformer.config.ofs_embed_dim is None else latents.new_full((1,), 2.0),
            image_rotary_emb=rotary_embeddings(
                transformer.config, latents.shape[1], latents.shape[3], latents.shape[4], latents.device
            ),
            return_dict=False,
        )[0]

    def loss(
        self,
        transformer: Any,
        schedule: torch.Tensor,
        latents: torch.Tensor,
        text: Tensors,
        noise: torch.Tensor,
        timesteps: torch.Tensor,
        condition: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Velocity MSE. Equals the published 1/(1-a) * (x0_hat - x0)^2 exactly, since the two differ by that factor."""
        predicted = self.predict(transformer, schedule, latents, text, noise, timesteps, condition)
        signal, sigma = _signal_and_sigma(schedule, timesteps)
        velocity = signal * noise.float() - sigma * latents.float()
        return (predicted.float() - velocity).square().flatten(1).mean(1)

    def min_snr_weights(self, schedule: torch.Tensor, timesteps: torch.Tensor, gamma: float) -> torch.Tensor:
        """min(snr, gamma) / (snr + 1): the form for predicted velocity; snr = a / (1 - a)."""
        alpha = schedule[timesteps]
        # Multiplied out by (1 - a), so that nothing divides by zero where there is no noise or no signal.
        return alpha.minimum(gamma * (1 - alpha))

    # ---- sampling

    def sample(
        self,
        pipeline: Any,
        *,
        text: Tensors,
        negative_text: Tensors | None,
        frames: int,
        height: int,
        width: int,
        steps: int,
        guidance_scale: float,
        dynamic_guidance: bool,
        scheduler: str,
        noise: torch.Generator,
        on_step: Callable[[int, int], None],
        image: torch.Tensor | None = None,
        image_scale: ImageScale = "pipeline",
        condition: torch.Tensor | None = None,
        prefix: torch.Tensor | None = None,
        latents_only: bool = False,
    ) -> torch.Tensor:
        import torch

        if guidance_scale > 1 and negative_text is None:
            raise ConfigError(
                f"guidance scale is {guidance_scale:g}, which needs a negative prompt: encode an empty one"
            )
        if scheduler != "model":
            pipeline.scheduler = _scheduler_class(scheduler).from_config(pipeline.scheduler.config)

        def report(_: Any, step: int, __: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            on_step(step + 1, steps)
            return tensors

        with torch.no_grad():
            video = pipeline(
                prompt_embeds=text["prompt_embeds"],
                negative_prompt_embeds=negative_text["prompt_embeds"] if negative_text is not None else None,
                num_frames=frames, height=height, width=width, num_inference_steps=steps, guidance_scale=guidance_scale,
                use_dynamic_cfg=dynamic_guidance, generator=noise, output_type="pt",
                callback_on_step_end=report, callback_on_step_end_tensor_inputs=[],
            ).frames  # fmt: skip
        return video.float().permute(0, 1, 3, 4, 2).cpu()

    def usage(self, model: Model, folder: Path, lora: str, prompt: str, shape: tuple[int, int, int]) -> str:
        source = f"assets/{folder.name}" if model.embedded else model.source
        revision = f", revision={model.revision!r}" if model.revision else ""
        frames, height, width = shape
        return USAGE.format(
            source=source, revision=revision, lora=lora, prompt=prompt, frames=frames, height=height, width=width,
            steps=model.steps, guidance_scale=model.guidance_scale,
            tokens=_config(folder, "transformer")["max_text_seq_length"],
        )  # fmt: skip

    def lora_weights(self, tensors: Tensors, metadata: Mapping[str, str]) -> LoraWeights:
        prefix = f"{self.lora_prefix}."
        names = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
        rank = next(tensor.shape[0] for name, tensor in names.items() if "lora_A" in name)
        return LoraWeights(names, int(rank), None, "diffusers")

    def toy(self, folder: Path, variant: str) -> Model:
        write_toy(folder, variant)
        model = self.describe_folder(folder)
        assert model is not None
        return model


def _signal_and_sigma(schedule: torch.Tensor, timesteps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(sqrt(a), sqrt(1 - a)) of the timesteps, shaped to multiply latents; float32, see noise_schedule."""
    alpha = schedule[timesteps].view(-1, 1, 1, 1, 1)
    return alpha.sqrt(), (1 - alpha).sqrt()


def load_tokenizer(folder: Path) -> Any:
    """The T5 tokenizer; the published repositories hold it as `spiece.model` alone. Raises ModelUnavailable.

    transformers answers a missing or unreadable file with an all-<unk> tokenizer or a misleading error, so the result
    is checked here rather than found out in a run that learned nothing.
    """
    from transformers import T5Tokenizer

    source = folder / "tokenizer"
    if not any((source / name).is_file() for name in ("tokenizer.json", "spiece.model")):
        raise ModelUnavailable(f"{source} holds neither tokenizer.json nor spiece.model: download the model again")
    try:
        tokenizer = T5Tokenizer.from_pretrained(source)
    except (ImportError, ValueError) as error:
        raise ModelUnavailable(
            f"{source} cannot be read: pip install 'sentencepiece>=0.2.0,<0.2.2' 'protobuf>=5' ({str(error)[:120]})"
        ) from error
    ids = tokenizer("a video", add_special_tokens=False).input_ids
    if not ids or all(token == tokenizer.unk_token_id for token in ids):
        raise ModelUnavailable(f"{source} knows no plain words, so it did not load rightly: download the model again")
    return tokenizer


def rotary_embeddings(
    config: Any, latent_frames: int, latent_height: int, latent_width: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """(cos, sin) for latents of this size, as CogVideoXPipeline makes them; None for models with sincos positions."""
    if not config.use_rotary_positional_embeddings:
        return None
    grid = (latent_height // config.patch_size, latent_width // config.patch_size)
    base = (config.sample_height // config.patch_size, config.sample_width // config.patch_size)
    return _rotary(config.attention_head_dim, config.patch_size_t, latent_frames, grid, base, device)


@lru_cache(maxsize=16)
def _rotary(
    head_dim: int,
    patch_size_t: int | None,
    frames: int,
    grid: tuple[int, int],
    base: tuple[int, int],
    device: torch.device,
) -> tuple[torch.Tensor, torch.Tensor]:
    from diffusers.models.embeddings import get_3d_rotary_pos_embed
    from diffusers.pipelines.cogvideo.pipeline_cogvideox import get_resize_crop_region_for_grid

    if patch_size_t is None:
        crop = get_resize_crop_region_for_grid(grid, base[1], base[0])
        return get_3d_rotary_pos_embed(head_dim, crop, grid, frames, device=device)
    pairs = (frames + patch_size_t - 1) // patch_size_t
    return get_3d_rotary_pos_embed(head_dim, None, grid, pairs, grid_type="slice", max_size=base, device=device)


def _wanted(model: Model) -> dict[str, Any]:
    """Which files of the model's Hub repository are needed, as `snapshot_download` takes it."""
    patterns = ["*.json", "*/*.json", "*/*.safetensors", "*/*.model", "*/*.txt"]
    return {"repo_id": model.source, "revision": model.revision, "allow_patterns": patterns}


@lru_cache(maxsize=32)
def _config(folder: Path, part: str) -> dict[str, Any]:
    return read_json(folder / part / "config.json")


def _scheduler_class(name: str) -> Any:
    import diffusers

    return {"DDIM": diffusers.CogVideoXDDIMScheduler, "DPM": diffusers.CogVideoXDPMScheduler}[name]


def _scheduler(folder: Path, name: str) -> Any:
    """The named scheduler with the model's own schedule; "model": the one the model was published with."""
    config = read_json(folder / "scheduler" / "scheduler_config.json")
    if name == "model":
        name = "DPM" if "DPM" in config["_class_name"] else "DDIM"
    return _scheduler_class(name).from_config(config)


def write_toy(folder: Path, variant: str) -> None:
    """A random pipeline of about 100,000 parameters: "sincos" as 2B, "rotary" as 5B, "rotary-1.5" as 1.5-5B."""
    import torch
    from diffusers import AutoencoderKLCogVideoX, CogVideoXPipeline, CogVideoXTransformer3DModel
    from transformers import T5Config, T5EncoderModel, T5Tokenizer

    words = (
        "a",
        "the",
        "video",
        "red",
        "blue",
        "circle",
        "square",
        "moves",
        "left",
        "right",
        "on",
        "background",
        "sks",
    )
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,-"
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -6.0)]
    vocabulary += [(f"▁{word}", -2.0) for word in words] + [(letter, -8.0) for letter in letters]
    tokenizer = T5Tokenizer(vocab=vocabulary, extra_ids=0)
    text = T5Config(
        vocab_size=len(tokenizer),
        d_model=32,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=4,
        pad_token_id=0,
        eos_token_id=1,
    )
    newer = {"patch_size_t": 2, "patch_bias": False} if variant == "rotary-1.5" else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        pipeline = CogVideoXPipeline(
            tokenizer=tokenizer,
            text_encoder=T5EncoderModel(text),
            vae=AutoencoderKLCogVideoX(
                down_block_types=("CogVideoXDownBlock3D",) * 3, up_block_types=("CogVideoXUpBlock3D",) * 3,
                block_out_channels=(8, 8, 8), latent_channels=4, layers_per_block=1, norm_num_groups=2,
                temporal_compression_ratio=4, sample_height=16, sample_width=16, scaling_factor=0.7,
            ),
            transformer=CogVideoXTransformer3DModel(
                num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, time_embed_dim=8,
                text_embed_dim=32, num_layers=2, sample_width=4, sample_height=4, sample_frames=17 if newer else 9,
                patch_size=2, max_text_seq_length=16, use_rotary_positional_embeddings=variant != "sincos",
                spatial_interpolation_scale=1.0, **newer,
            ),
            scheduler=_scheduler_class("DDIM" if variant == "sincos" else "DPM")(
                beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012, prediction_type="v_prediction",
                rescale_betas_zero_snr=True, snr_shift_scale=3.0 if variant == "sincos" else 1.0,
                timestep_spacing="trailing", set_alpha_to_one=True, clip_sample=False,
            ),
        )  # fmt: skip
    pipeline.save_pretrained(folder)


FAMILY = CogVideoX()
