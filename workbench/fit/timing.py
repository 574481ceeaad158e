"""Estimate the seconds of a step and of a run from its operations and the GPU's speed. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.families.denoising import computed_steps
from workbench.fit import constants as known
from workbench.fit.constants import DISPATCH, LINK
from workbench.fit.memory import RunSizes
from workbench.runs.analysis.best_point import PASSES, interval
from workbench.runs.analysis.curves import BANDS
from workbench.runs.settings import TrainSettings


@dataclass(frozen=True)
class RunTimes:
    """Seconds of a step, and of the parts of the whole run."""

    step: float
    parts: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def forward_operations(run: RunSizes) -> tuple[float, float, float]:
    """Return the operations of one clip through all blocks: (linear layers, attention, adapters)."""
    facts, tokens = run.facts, run.tokens
    block = [one for one in facts.linears if one.in_blocks]
    linear = 2.0 * sum(one.values * facts.computed(one, tokens) for one in block) * facts.blocks
    linear += 2.0 * sum(one.values * facts.computed(one, tokens) for one in facts.side)
    looked_at = 0 if facts.text_joint else facts.text_tokens + facts.picture_tokens
    attention = 4.0 * tokens * (tokens + looked_at) * facts.width * facts.all_blocks
    return linear, attention, 0.0 if run.full else 2.0 * run.trained * tokens


def step_operations(run: RunSizes) -> float:
    """Return the operations of the forward and backward passes for one batch."""
    settings, (linear, attention, adapters) = run.settings, forward_operations(run)
    level = settings.gradient_checkpointing
    again = {"none": 0.0, "keep attention": linear + adapters}.get(level, linear + attention + adapters)
    # Frozen layers only pass gradients on; trained layers also compute their own.
    backward = linear * (2 if run.full else 1) + attention * known.ATTENTION_BACKWARD + 2 * adapters
    forward = linear + attention + adapters
    operations = (forward + again + backward) * settings.batch_size
    if settings.is_slider:  # two strengths, and without pairs three predictions of the base model
        operations = 2 * operations + (0 if settings.has_pairs else 3) * forward * settings.batch_size
    if settings.preservation_weight:  # preservation prompts, and the base model's predictions for them
        operations = 2 * operations + forward * settings.batch_size
    if settings.regularization_target == "base model" and settings.regularization_dataset:
        operations += forward * settings.batch_size * settings.regularization_share
    if preserves_outside(settings):  # the base model's prediction
        operations += forward * settings.batch_size
    return operations


def preserves_outside(settings: TrainSettings) -> bool:
    """Return whether training penalizes departures from the base model outside the clips' masks."""
    return settings.loss_mask != "off" and settings.outside_weight > 0


def step_seconds(run: RunSizes) -> float:
    """Return the seconds of an optimizer step, with all its batches."""
    settings, facts = run.settings, run.facts
    seconds = step_operations(run) / _rate(run)
    seconds *= known.UNPACKING[settings.base_model_precision] * known.OPTIMIZING.get(settings.optimizer, 1.0)
    seconds *= known.STOCK if settings.attention == "stock" else 1.0
    seconds *= known.COMPILED if settings.compile and run.gpu.kind == "cuda" else 1.0
    if run.gpu.kind == "cpu":
        passes = 2 if settings.gradient_checkpointing == "none" else 3
        passes = 2 * passes + (0 if settings.has_pairs else 3) if settings.is_slider else passes
        passes = 2 * passes + 1 if settings.preservation_weight else passes
        passes += preserves_outside(settings)
        seconds += DISPATCH * facts.all_blocks * passes
    else:
        offloaded = settings.gradient_checkpointing == "offloaded"
        copied = 2 * facts.all_blocks * run.rates.boundary * run.unit / LINK if offloaded else 0.0
        copied += 2 * run.weights[1] / LINK  # forwards and backwards
        seconds = max(seconds, copied) + known.EXPOSED * min(seconds, copied)
    return seconds * settings.gradient_accumulation


def _rate(run: RunSizes) -> float:
    narrower = min(1.0, (run.facts.width / known.FULL_WIDTH) ** known.NARROWER) if run.gpu.kind != "cpu" else 1.0
    return run.gpu.rate * known.TERA * narrower


def encoding_operations(run: RunSizes) -> float:
    """Return the operations to encode a clip without tiles."""
    vae = run.facts.vae
    return vae.encoder_operations * vae.encoder_width**2 * math.prod(run.shape)


def decoding_operations(run: RunSizes) -> float:
    """Return the operations to decode a clip."""
    vae = run.facts.vae
    return vae.decoder_operations * vae.decoder_width**2 * math.prod(run.shape)


def times(run: RunSizes, clips: int) -> RunTimes:
    """Estimate the times of the whole run."""
    settings, facts, model = run.settings, run.facts, run.model
    step, steps, rate = step_seconds(run), steps_of(run, clips), _rate(run)
    dispatch = DISPATCH * facts.all_blocks if run.gpu.kind == "cpu" else 0.0
    text = 2.0 * facts.text_encoder_values * facts.text_tokens / rate
    parts = {
        "starting": known.START_SECONDS + (facts.values + facts.text_encoder_values) * 2 / known.LOADING_BYTES,
        "encoding": clips
        * ((1 + settings.conditioning_ways + settings.has_pairs) * encoding_operations(run) / rate + text),
        "training": steps * step,
    }
    if settings.evaluate_every:
        forward = sum(forward_operations(run)) / rate + dispatch
        passes = BANDS * settings.held_out + known.DRIFT_PASSES
        parts["measuring"] = (steps // settings.evaluate_every + 1) * passes * forward
    if every := interval(settings):
        forward = sum(forward_operations(run)) / rate + dispatch
        parts["measuring"] = parts.get("measuring", 0.0) + (steps // every + 2) * PASSES * forward
    if settings.preview_every:
        guided = model.guidance_scale if settings.preview_guidance is None else settings.preview_guidance
        prediction = sum(forward_operations(run.preview)) / rate + dispatch
        decoding = decoding_operations(run.preview) / rate
        denoising = settings.preview_steps or model.steps
        if settings.skips_preview_steps:
            denoising = len(computed_steps(denoising))
        one = denoising * prediction * (facts.guided_passes if guided > 1 else 1) + decoding
        parts["previews"] = (steps // settings.preview_every + 1) * settings.previews_at_once * one
    return RunTimes(step, parts)


def steps_of(run: RunSizes, clips: int) -> int:
    """Return the steps of the run; from epochs only approximately, because not every clip is read."""
    settings = run.settings
    if settings.epochs is None:
        return settings.steps
    return max(1, round(settings.epochs * clips / settings.batch_size / settings.gradient_accumulation))
