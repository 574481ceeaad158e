"""Seconds a step and in total, from the operations of a run and what its GPU does in a second. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.families.facts import ModelFacts, VaeFacts
from workbench.families.model import Model
from workbench.fit.constants import (
    ATTENTION_BACKWARD,
    COMPILED,
    DISPATCH,
    DRIFT_PASSES,
    EXPOSED,
    FULL_WIDTH,
    LINK,
    LOADING_BYTES,
    NARROWER,
    OPTIMIZING,
    START_SECONDS,
    STOCK,
    TERA,
    UNPACKING,
)
from workbench.fit.gpus import GpuModel
from workbench.fit.memory import Sizes, preview_sizes
from workbench.runs.analysis.curves import BANDS
from workbench.runs.settings import TrainSettings


@dataclass(frozen=True)
class RunTimes:
    """Seconds: of a step; of the whole run by what they are spent on."""

    step: float
    parts: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def forward_operations(settings: TrainSettings, facts: ModelFacts, size: Sizes) -> tuple[float, float, float]:
    """Of one clip, through all blocks: (linear layers, attention, trained matrices)."""
    block = [one for one in facts.linears if one.in_blocks]
    linear = 2.0 * sum(one.values * facts.computed(one, size.tokens) for one in block) * facts.blocks
    looked_at = 0 if facts.text_joint else facts.text_tokens + facts.picture_tokens
    attention = 4.0 * size.tokens * (size.tokens + looked_at) * facts.width * facts.blocks
    beside = 0.0 if settings.method == "full" else 2.0 * size.trained.values * size.tokens
    return linear, attention, beside


def step_operations(settings: TrainSettings, facts: ModelFacts, size: Sizes) -> float:
    """Of the passes through the blocks for one batch, forwards and backwards."""
    linear, attention, beside = forward_operations(settings, facts, size)
    level = settings.gradient_checkpointing
    again = {"none": 0.0, "keep attention": linear + beside}.get(level, linear + attention + beside)
    # A frozen layer passes the gradient on; a trained one also has a gradient of its own.
    backward = linear * (2 if settings.method == "full" else 1) + attention * ATTENTION_BACKWARD + 2 * beside
    forward = linear + attention + beside
    operations = (forward + again + backward) * settings.batch_size
    if settings.preservation_weight:  # the same with preservation prompts, and the base model's predictions
        operations = 2 * operations + forward * settings.batch_size
    if settings.regularization_target == "base model" and settings.regularization_dataset:
        operations += forward * settings.batch_size * settings.regularization_share
    return operations


def step_seconds(settings: TrainSettings, facts: ModelFacts, gpu: GpuModel, size: Sizes) -> float:
    """Of one adjustment of the weights, with all its batches."""
    seconds = step_operations(settings, facts, size) / _rate(facts, gpu)
    seconds *= UNPACKING[settings.base_model_precision] * OPTIMIZING.get(settings.optimizer, 1.0)
    seconds *= STOCK if settings.attention == "stock" else 1.0
    seconds *= COMPILED if settings.compile and gpu.kind == "cuda" else 1.0
    if gpu.kind == "cpu":
        passes = 2 if settings.gradient_checkpointing == "none" else 3
        passes = 2 * passes + 1 if settings.preservation_weight else passes
        seconds += DISPATCH * facts.blocks * passes
    else:
        seconds = _with_copies(settings, facts, size, seconds)
    return seconds * settings.gradient_accumulation


def _with_copies(settings: TrainSettings, facts: ModelFacts, size: Sizes, seconds: float) -> float:
    copied = 0.0
    if settings.gradient_checkpointing == "offloaded":
        copied += 2 * facts.blocks * size.rates.boundary * size.unit / LINK
    copied += 2 * size.waiting / LINK  # forwards and backwards
    return max(seconds, copied) + EXPOSED * min(seconds, copied)


def _rate(facts: ModelFacts, gpu: GpuModel) -> float:
    narrower = min(1.0, (facts.width / FULL_WIDTH) ** NARROWER) if gpu.kind != "cpu" else 1.0
    return gpu.rate * TERA * narrower


def encoding_operations(vae: VaeFacts, shape: tuple[int, int, int]) -> float:
    """Of a clip (frames, height, width) in one piece."""
    return vae.encoder_operations * vae.encoder_width**2 * math.prod(shape)


def decoding_operations(vae: VaeFacts, shape: tuple[int, int, int]) -> float:
    """Of a clip (frames, height, width)."""
    return vae.decoder_operations * vae.decoder_width**2 * math.prod(shape)


def times(
    settings: TrainSettings, model: Model, facts: ModelFacts, gpu: GpuModel, size: Sizes, clips: int, step: float
) -> RunTimes:
    """The whole run, when a step takes `step` seconds."""
    steps, rate = steps_of(settings, clips), _rate(facts, gpu)
    forward = sum(forward_operations(settings, facts, size)) / rate
    if gpu.kind == "cpu":
        forward += DISPATCH * facts.blocks
    encoding = encoding_operations(facts.vae, size.shape) / rate
    text = 2.0 * facts.text_encoder_values * facts.text_tokens / rate
    parts = {
        "starting": START_SECONDS + (facts.values + facts.text_encoder_values) * 2 / LOADING_BYTES,
        "encoding": clips * (encoding + text),
        "training": steps * step,
    }
    if settings.evaluate_every:
        passes = BANDS * settings.held_out + DRIFT_PASSES
        parts["measuring"] = (steps // settings.evaluate_every + 1) * passes * forward
    if settings.preview_every:
        guided = model.guidance_scale if settings.preview_guidance is None else settings.preview_guidance
        preview = preview_sizes(settings, facts, size)
        answer = sum(forward_operations(settings, facts, preview)) / rate
        answer += DISPATCH * facts.blocks if gpu.kind == "cpu" else 0.0
        decoding = decoding_operations(facts.vae, preview.shape) / rate
        one = (settings.preview_steps or model.steps) * answer * (2 if guided > 1 else 1) + decoding
        parts["previews"] = (steps // settings.preview_every + 1) * settings.previews_at_once * one
    return RunTimes(step, parts)


def steps_of(settings: TrainSettings, clips: int) -> int:
    """Steps of the run; counted from epochs as nearly as can be without looking at every clip."""
    if settings.epochs is None:
        return settings.steps
    return max(1, round(settings.epochs * clips / settings.batch_size / settings.gradient_accumulation))
