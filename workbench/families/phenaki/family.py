"""The Phenaki family: clips as grids of codes, filled in by MaskGit from a caption; what `base.Family` promises.

Phenaki (arXiv 2210.02399) published no weights: a model is one that somebody trained. Latents are
codes as points [B, dimensions, f, h, w], noise is the order in which codes are masked, and a timestep is the share
that is masked. A clip has 1 + 2k frames; an image is a clip of one. There is no scheduler.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.families import lora_names, lora_writing
from workbench.families.architectures import Part
from workbench.families.base import Family, ImageScale, OwnSetting
from workbench.families.denoising import DenoiseInputs, SamplerSteps, StepOptions
from workbench.families.diffusers_family import DiffusersFamily
from workbench.families.facts import ModelFacts, VaeFacts
from workbench.families.lora_files import LoraFormat
from workbench.families.model import Model
from workbench.families.model_files import config
from workbench.families.model_inputs import Given, ModelInputs, Tensors
from workbench.families.noise_schedules import AS_PUBLISHED, NoiseSchedule, NoiseSettings
from workbench.families.phenaki import files, sizes, toys, usage
from workbench.families.phenaki.codes import ids, points
from workbench.families.phenaki.models import (
    IN_BLOCK,
    LORA_TARGETS,
    MODELS,
    OUTSIDE,
    SCHEDULER,
    TEMPERATURE,
    TEXT_TOKENS,
    TINY_PROMPTS,
    described,
)
from workbench.families.phenaki.new_model import NewModelSettings, create
from workbench.families.phenaki.objective import MaskSchedule, divergence, losses
from workbench.families.prompt_encoder import PromptEncoder, load_tokenizer
from workbench.settings import Settings

if TYPE_CHECKING:
    import torch

TOKENIZER_SETTINGS = ("tokenizer_steps", "tokenizer_batch_size", "tokenizer_learning_rate")
READERS = "this workbench, diffusers or finetrainers"
NAMES = lora_names.LayerNames(
    "Phenaki", "transformer_blocks", IN_BLOCK, OUTSIDE, READERS, more_parts=("critic_blocks",)
)
FORMATS = (
    LoraFormat(
        "diffusers",
        "diffusers",
        "diffusers' layout: rank and alpha in the file's metadata.",
        readers=("this workbench",),
        outside="this workbench",
    ),
)
WRITERS: dict[str, lora_writing.Writer] = {"diffusers": lora_writing.diffusers}


class Phenaki(DiffusersFamily):
    """The Phenaki family; see Family for what each method promises."""

    name = "phenaki"
    title = "Phenaki"
    remedy = "write it again"  # nobody publishes one
    models = MODELS
    lora_targets = LORA_TARGETS
    layer_names = NAMES
    lora_formats = FORMATS
    lora_writers = WRITERS
    schedulers = (SCHEDULER,)
    has_pipeline = False
    toys = toys.TOYS
    text_tokens = TEXT_TOKENS
    text_mask = True
    preservation_prompts = TINY_PROMPTS
    new_model = NewModelSettings

    # ---- files

    def described(self, folder: Path) -> Model | None:
        return described(folder)

    def create(self, folder: Path, new: Settings, text: Path, made_for: Mapping[str, int], seed: int) -> None:
        assert isinstance(new, NewModelSettings)
        create(folder, new, text, made_for, seed)

    def facts(self, model: Model) -> ModelFacts:
        return sizes.facts(model)

    def vae_facts(self, vae: Part) -> VaeFacts:
        return sizes.vae_facts(vae)

    def compression(self, vae: Mapping[str, Any]) -> tuple[int, int, int]:
        return len(vae["levels"]), vae["patch_frames"], vae["patch"]

    def load_text_encoder(self, folder: Path, device: torch.device, dtype: torch.dtype) -> PromptEncoder:
        from transformers import T5EncoderModel

        model = T5EncoderModel.from_pretrained(folder / "text_encoder", dtype=dtype, use_safetensors=True)
        frozen = model.to(device).eval().requires_grad_(False)
        return PromptEncoder(load_tokenizer(folder), frozen, self.caption_length(folder))

    def load_vae(self, folder: Path, device: torch.device, dtype: torch.dtype) -> Any:
        from workbench.families.phenaki.tokenizer import PhenakiTokenizer

        tokenizer = PhenakiTokenizer.from_pretrained(folder / "vae", torch_dtype=dtype, use_safetensors=True)
        return tokenizer.to(device).eval().requires_grad_(False)

    def load_transformer(
        self, folder: Path, device: torch.device, dtype: torch.dtype, part: str = "transformer"
    ) -> Any:
        from workbench.families.phenaki.transformer import PhenakiTransformer

        found = PhenakiTransformer.from_pretrained(folder / part, torch_dtype=dtype, use_safetensors=True)
        return found.to(device).eval().requires_grad_(False)

    def load_pipeline(self, folder: Path, transformer: Any) -> Any:
        return files.pipeline(transformer)

    # ---- what makes a transformer cheaper

    def blocks(self, transformer: Any) -> Sequence[Any]:
        return [*transformer.transformer_blocks, *getattr(transformer, "critic_blocks", ())]

    def use_attention(self, transformer: Any, kernel: str, device: torch.device) -> None:
        if kernel not in ("auto", "stock"):
            sentence = f"attention is {kernel}, and {self.title} has torch's own choice alone: choose auto"
            raise ConfigError(sentence, {"attention": sentence})

    # ---- encoding

    def encode_text(self, text_encoder: PromptEncoder, captions: Sequence[str]) -> Tensors:
        """{"prompt_embeds": [B, tokens, D], "mask": [B, tokens]}: padding is neither encoded nor looked at."""
        import torch

        found = text_encoder.tokens(captions)
        with torch.no_grad():
            embeds = text_encoder.model(found.input_ids, attention_mask=found.attention_mask)[0]
        return {"prompt_embeds": embeds, "mask": found.attention_mask.to(embeds)}

    def encode_video(self, vae: Any, video: torch.Tensor) -> Tensors:
        """{"mean"}: codes as points [B, dimensions, f, h, w] float32; nothing is sampled, "std" is 0."""
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
        """{"codes": [f, h, w]} int64, numbers of the tokenizer's codes."""
        return {"codes": ids(latents, config(folder, "vae")["levels"])[0].cpu()}

    def latents_from_file(self, folder: Path, tensors: Tensors) -> torch.Tensor:
        return points(tensors["codes"][None], config(folder, "vae")["levels"])

    def codes(self, model: Model) -> int:
        return math.prod(config(Path(model.source), "vae")["levels"])

    def vae_loss(self, vae: Any, clips: torch.Tensor) -> torch.Tensor:
        """Squared and half the absolute error, which keeps edges sharp."""
        error = vae(clips).float() - clips
        return error.square().mean() + 0.5 * error.abs().mean()

    # ---- training

    def own_settings(self, model: Model) -> Mapping[str, OwnSetting]:
        critic = config(Path(model.source), "transformer")["critic"]
        own = {"temperature": OwnSetting(TEMPERATURE, "as phenaki-pytorch samples")}
        own |= {name: OwnSetting() for name in TOKENIZER_SETTINGS}
        return own if critic == "none" else {**own, "train_part": OwnSetting()}

    def noise_schedule(self, folder: Path, device: torch.device, chosen: NoiseSettings = AS_PUBLISHED) -> NoiseSchedule:
        return MaskSchedule(chosen)

    def call(
        self,
        transformer: Any,
        latents: torch.Tensor,
        text: Tensors,
        timesteps: torch.Tensor,
        given: Given | None,
        fps: float,
    ) -> torch.Tensor:
        """Logits [B, codes, f, h, w], and behind them the critic's of the same codes where there is one."""
        import torch

        codes = ids(latents, transformer.config.levels)
        found = transformer(codes, text["prompt_embeds"], text["mask"])
        if transformer.config.critic == "none":
            logits: torch.Tensor = found
            return logits
        return torch.cat([found, transformer.criticise(codes, text["prompt_embeds"], text["mask"]).unsqueeze(1)], dim=1)

    def loss(
        self, transformer: Any, schedule: NoiseSchedule, inputs: ModelInputs, base: torch.Tensor | None = None
    ) -> torch.Tensor:
        assert isinstance(schedule, MaskSchedule)
        if base is None:
            return losses(transformer, schedule, inputs)
        masked, codes = schedule.masked(inputs.noise, inputs.timesteps), math.prod(transformer.config.levels)
        return divergence(self.predict(transformer, schedule, inputs), base, masked, codes)

    # ---- sampling

    def sampler_steps(self, options: StepOptions) -> SamplerSteps:
        raise ConfigError(f"scheduler is {options.scheduler!r}, and {self.title} has none: leave it at model")

    def check_inputs(self, transformer: Any, inputs: DenoiseInputs) -> None:
        if inputs.given is not None:
            raise ConfigError(f"{self.title} takes text alone: leave out the image, or continue a clip from it")
        Family.check_inputs(self, transformer, inputs)

    def denoise(self, transformer: Any, inputs: DenoiseInputs) -> torch.Tensor:
        """Steps cannot be skipped: codes are not numbers that change evenly."""
        from workbench.families.phenaki.sampling import Filling

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
    ) -> str:
        return usage.code(model, lora, prompt, shape)

    def toy(self, folder: Path, variant: str) -> Model:
        toys.write(folder, variant)
        model = self.describe_folder(folder)
        assert model is not None
        return model


FAMILY = Phenaki()
