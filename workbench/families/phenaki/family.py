"""The Phenaki family: a clip is a grid of codes, which MaskGit fills in from a caption.

Phenaki (arXiv 2210.02399) published no weights, so models are user-trained. Latents are codes as points [B, dimensions,
f, h, w], noise is the order in which codes are masked, and a timestep is the share of masked codes. A clip has 1 + 2k
frames; an image is a clip of one. There is no scheduler.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.families.base import Family, ImageScale, OwnSetting
from workbench.families.denoising import DenoiseInputs, SamplerSteps, StepOptions
from workbench.families.facts import Part, VaeFacts
from workbench.families.model import TINY_PROMPTS, Frames, Model
from workbench.families.model_files import INDEX, MADE_FOR, config, index, part_folder
from workbench.families.model_inputs import CallInputs, Given, ModelInputs, Tensors, t5_parts
from workbench.families.noise_schedules import AS_PUBLISHED, NoiseSchedule, NoiseSettings
from workbench.families.phenaki import models as known
from workbench.families.phenaki.maskgit import Filling, MaskSchedule, divergence, ids, losses, points
from workbench.families.phenaki.models import PARTS, PIPELINE, WIDTH_MULTIPLE, NewModelSettings
from workbench.families.usage import HERE, lora_source
from workbench.settings import Settings
from workbench.workspace import link_or_copy, write_json

if TYPE_CHECKING:
    import torch

TOY_LEVELS = (4, 4, 4)
TOKENIZER_SETTINGS = ("tokenizer_steps", "tokenizer_batch_size", "tokenizer_learning_rate")
# For model cards, since no other library has this family.
CODE = """import torch
from diffusers.utils import export_to_video
from workbench.families import find_model  # Phenaki is part of Video LoRA Workbench
from workbench.families.denoising import DenoiseInputs, Guidance

{here}family, model = find_model({model!r})
folder, device, dtype = family.fetch(model), torch.device("cpu"), torch.float32
text_encoder = family.load_text_encoder(folder, device, dtype)
transformer = family.load_transformer(folder, device, dtype)
pipe = family.load_pipeline(folder, transformer)
pipe.load_lora_weights({source}, adapter_name="lora")
pipe.set_adapters(["lora"], [1.0])
inputs = DenoiseInputs(
    folder,
    text=family.encode_text(text_encoder, [{prompt!r}]),
    negative_text=family.encode_text(text_encoder, [""]),
    latents_shape=family.latents_shape(folder, {frames}, {height}, {width}),
    steps={steps},
    guidance=Guidance({guidance:g}),
    noise=torch.Generator().manual_seed({seed}),
)
latents = family.denoise(transformer, inputs)
video = family.decode(family.load_vae(folder, device, dtype), latents)[0]
export_to_video(list((video.permute(1, 2, 3, 0).numpy() + 1) / 2), "video.mp4", fps={fps:g})"""


class Phenaki(Family):
    """The Phenaki family. See Family for the methods."""

    name = "phenaki"
    title = "Phenaki"
    remedy = "create it again"  # no model can be downloaded
    models = known.MODELS
    layer_names = known.NAMES
    lora_formats = known.FORMATS
    schedulers = (known.SCHEDULER,)
    pipelines = {PIPELINE: "text-to-video"}
    has_pipeline = False  # PIPELINE is our own class
    toys = known.TOYS
    text_tokens = known.TEXT_TOKENS
    text_mask = True
    text_layers = r".+\.attn2\.to_[kv]"
    shared_layers = r".+\.(attn1\.to_[kv]|attn2\.to_v)"
    preservation_prompts = TINY_PROMPTS
    new_model = NewModelSettings

    # ---- files

    def like(self, folder: Path) -> Model:
        rule = Frames(int(config(folder, "vae")["patch_frames"]), 129)
        return replace(known.TINY, frame_rule=rule, guidance_scale=known.GUIDANCE, recipes="")

    def create(self, folder: Path, new: Settings, text: Path, made_for: Mapping[str, int], seed: int) -> None:
        import torch

        from workbench.families import find_model
        from workbench.families.phenaki.tokenizer import PhenakiTokenizer
        from workbench.families.phenaki.transformer import PhenakiTransformer

        assert isinstance(new, NewModelSettings)
        levels = _levels(new.code_levels)
        step = math.lcm(WIDTH_MULTIPLE, new.model_heads)
        for name in ("model_width", "tokenizer_width"):
            if (width := getattr(new, name)) % step:
                rule = (
                    f"{name} is {width}, must be a multiple of {WIDTH_MULTIPLE} and of model_heads, {new.model_heads}"
                )
                raise ConfigError(f"{rule}: use {max(step, round(width / step) * step)}", {name: rule})
        kind = index(text).get("text_encoder", ("", ""))[1]
        if kind != "T5EncoderModel":
            raise ConfigError.about(
                f"text_encoder is {new.text_encoder}, whose encoder is {kind or 'missing'}: choose a model with a T5"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            tokenizer = PhenakiTokenizer(
                new.tokenizer_width,
                new.model_heads,
                new.tokenizer_layers,
                new.tokenizer_layers,
                new.patch,
                new.patch_frames,
                levels,
            )
            transformer = PhenakiTransformer(
                levels,
                new.model_width,
                new.model_heads,
                new.model_layers,
                config(text, "text_encoder")["d_model"],
                new.critic,
                new.critic_layers,
                new.text_tokens or find_model(str(text)).family.caption_length(text),
            )
        write(folder, tokenizer, transformer, text, dict(made_for))

    def sizes(self, transformer: Mapping[str, Any]) -> dict[str, Any]:
        heads, codes = transformer["heads"], len(transformer["levels"])
        by_diffusers = {"num_attention_heads": heads, "attention_head_dim": transformer["width"] // heads}
        return {**transformer, **by_diffusers, "in_channels": codes, "patch_size": 1}

    def vae_facts(self, vae: Part) -> VaeFacts:
        """Convert the tokenizer's widest layer to channels at full resolution."""
        width = max(1, 4 * vae.config["width"] // vae.config["patch"] ** 2)
        return VaeFacts(vae.values, width, width, frames_at_once=129, tile=(512, 512))

    def compression(self, vae: Mapping[str, Any]) -> tuple[int, int, int]:
        return len(vae["levels"]), vae["patch_frames"], vae["patch"]

    def part_class(self, folder: Path, name: str) -> Any:
        from transformers import T5EncoderModel

        from workbench.families.phenaki.tokenizer import PhenakiTokenizer
        from workbench.families.phenaki.transformer import PhenakiTransformer

        return {"text_encoder": T5EncoderModel, "vae": PhenakiTokenizer, "transformer": PhenakiTransformer}[name]

    def load_pipeline(self, folder: Path, transformer: Any) -> Any:
        """Return a transformer with diffusers' LoRA loader."""
        from diffusers import DiffusionPipeline
        from diffusers.loaders import CogVideoXLoraLoaderMixin

        class PhenakiPipeline(DiffusionPipeline, CogVideoXLoraLoaderMixin):
            def __init__(self, transformer: Any) -> None:
                super().__init__()
                self.register_modules(transformer=transformer)

        return PhenakiPipeline(transformer)

    # ---- saving memory and time in the transformer

    def blocks(self, transformer: Any) -> Sequence[Any]:
        return [*transformer.transformer_blocks, *getattr(transformer, "critic_blocks", ())]

    def use_attention(self, transformer: Any, kernel: str, device: torch.device) -> None:
        if kernel not in ("auto", "stock"):
            raise ConfigError.about(f"attention is {kernel}, which {self.title} does not support: choose auto")

    # ---- encoding

    def encode_video(self, vae: Any, video: torch.Tensor) -> Tensors:
        """Return codes as points, float32 [B, dimensions, f, h, w], in "mean"; "std" is 0, since nothing is sampled."""
        import torch

        weight = next(vae.parameters())
        with torch.no_grad():
            found = vae.encode(video.to(weight.device, weight.dtype)).float()
        return {"mean": found, "std": torch.zeros_like(found)}

    def decode(self, vae: Any, latents: torch.Tensor, noise: torch.Generator | None = None) -> torch.Tensor:
        import torch

        weight, levels = next(vae.parameters()), vae.config.levels
        codes = ids(latents.to(weight.device), levels).clamp(max=math.prod(levels) - 1)
        with torch.no_grad():
            video: torch.Tensor = vae.decode(points(codes, levels).to(weight.dtype))
        return video.float().clamp(-1, 1)

    def latents_to_file(self, folder: Path, latents: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return {"codes": [f, h, w]}, int64 indices into the tokenizer's codebook."""
        return {"codes": ids(latents, config(folder, "vae")["levels"])[0].cpu()}

    def latents_from_file(self, folder: Path, tensors: Tensors) -> torch.Tensor:
        return points(tensors["codes"][None], config(folder, "vae")["levels"])

    def codes(self, model: Model) -> int:
        return math.prod(config(Path(model.source), "vae")["levels"])

    def vae_loss(self, vae: Any, clips: torch.Tensor) -> torch.Tensor:
        """Return the squared error plus half the absolute error, which keeps edges sharp."""
        error = vae(clips).float() - clips
        return error.square().mean() + 0.5 * error.abs().mean()

    # ---- training

    def own_settings(self, model: Model) -> Mapping[str, OwnSetting]:
        critic = config(Path(model.source), "transformer")["critic"]
        own = {"temperature": OwnSetting(known.TEMPERATURE, "as phenaki-pytorch samples")}
        own |= {name: OwnSetting() for name in TOKENIZER_SETTINGS}
        return own if critic == "none" else {**own, "train_part": OwnSetting()}

    def noise_schedule(self, folder: Path, device: torch.device, chosen: NoiseSettings = AS_PUBLISHED) -> NoiseSchedule:
        return MaskSchedule(chosen)

    def call(self, transformer: Any, inputs: CallInputs) -> torch.Tensor:
        """Return logits [B, codes, f, h, w], with a critic's logit as one more channel at the end."""
        import torch

        given = ids(inputs.latents, transformer.config.levels), inputs.text["prompt_embeds"], inputs.text["mask"]
        found: torch.Tensor = transformer(*given)
        if transformer.config.critic == "none":
            return found
        return torch.cat([found, transformer.criticise(*given).unsqueeze(1)], dim=1)

    def loss(
        self,
        transformer: Any,
        schedule: NoiseSchedule,
        inputs: ModelInputs,
        base: torch.Tensor | None = None,
        weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        assert isinstance(schedule, MaskSchedule)
        assert weights is None, "Phenaki does not have the setting loss_mask"
        if base is None:
            return losses(transformer, schedule, inputs)
        masked, codes = schedule.masked(inputs.noise, inputs.timesteps), math.prod(transformer.config.levels)
        return divergence(self.predict(transformer, schedule, inputs), base, masked, codes)

    # ---- sampling

    def sampler_steps(self, options: StepOptions) -> SamplerSteps:
        raise ConfigError(f"scheduler is {options.scheduler!r}, but {self.title} has none: leave it at model")

    def check_given(self, transformer: Any, given: Given | None) -> None:
        if given is not None:
            raise ConfigError(f"{self.title} takes text only: remove the image, or continue a clip from it")

    def denoise(self, transformer: Any, inputs: DenoiseInputs) -> torch.Tensor:
        """Ignore `skip_steps`, since codes cannot be extrapolated."""
        self.check_inputs(transformer, inputs)
        return Filling(transformer, inputs).run()

    # ---- the rest

    def usage(
        self,
        model: Model,
        folder: Path,
        lora: str,
        prompt: str,
        shape: tuple[int, int, int],
        image_scale: ImageScale = "pipeline",
        experts: Sequence[str] = (),
        repository: str = "",
        seed: int = 0,
        kinds: Sequence[str] = (),
    ) -> str:
        frames, height, width = shape
        return CODE.format(
            model=model.id,
            here="" if repository else f"# {HERE}\n",
            source=lora_source(lora, repository),
            seed=seed,
            prompt=prompt,
            frames=frames,
            height=height,
            width=width,
            steps=model.steps,
            guidance=model.guidance_scale,
            fps=model.fps,
        )

    def write_miniature(self, folder: Path, variant: str) -> None:
        from workbench.families.phenaki.tokenizer import PhenakiTokenizer
        from workbench.families.phenaki.transformer import PhenakiTransformer

        words, text_encoder = t5_parts()
        tokenizer = PhenakiTokenizer(width=16, heads=2, spatial_layers=1, temporal_layers=1, levels=TOY_LEVELS)
        transformer = PhenakiTransformer(TOY_LEVELS, 16, 2, 2, text_encoder.config.d_model, variant, 1)
        words.save_pretrained(folder / "tokenizer")
        text_encoder.save_pretrained(folder / "text_encoder")
        write(folder, tokenizer, transformer, folder, {"frames": 9, "height": 32, "width": 32, "fps": 8})


# ---- a model's folder


def write(
    folder: Path, tokenizer: Any, transformer: Any, text: Path, made_for: dict[str, int], half: bool = False
) -> None:
    """Write a model, with the tokenizer and text encoder of the folder `text`, and in float16 if `half`."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("tokenizer", "text_encoder"):
        if text != folder:
            shutil.copytree(part_folder(text, part), folder / part, copy_function=link_or_copy, dirs_exist_ok=True)
    for part, model in (("vae", tokenizer), ("transformer", transformer)):
        if half:
            import copy

            model = copy.deepcopy(model).half()
        model.save_pretrained(folder / part)
    write_json(folder / MADE_FOR, made_for)
    write_json(folder / INDEX, {"_class_name": PIPELINE, **PARTS})
    for part in ("vae", "transformer"):
        for file in (folder / part).iterdir():
            file.chmod(0o644)


def _levels(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 2 <= int(part) <= 64 for part in parts) or len(parts) > 8:
        raise ConfigError.about(
            f"code_levels is {text[:40]!r}: write 1 to 8 numbers from 2 to 64 with commas, as in 8,5,5,5"
        )
    return tuple(map(int, parts))


FAMILY = Phenaki()
