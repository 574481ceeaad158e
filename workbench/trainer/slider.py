"""Slider LoRAs: what a LoRA's strength turns up and down is learned from prompts, without a clip that shows it.

At the same noisy latents the frozen base model is asked three times: v0 of the neutral prompt, v+ of more, v- of less.
With direction = guidance * (v+ - v-), the LoRA at strength 1 learns to predict v0 + direction of the neutral prompt,
and at strength -1 v0 - direction: both in one step, so that 0 stays the base model (Concept Sliders, arXiv 2311.12092).

A direction means something only at latents that the model meets while it generates. They are those of the dataset's
clips, noised as in any training; without a dataset the base model generates clips of all three prompts before the first
step. They wait in the cache under the key of all that made them, so a run that goes on has the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.model_files import part_identity
from workbench.families.model_inputs import ModelInputs
from workbench.runs.data import RunClip, seed_for
from workbench.runs.settings import SliderPair, TrainSettings
from workbench.trainer.batch_inputs import Batch
from workbench.trainer.lora import scaled

if TYPE_CHECKING:
    from workbench.trainer.session import Session

PHASE = "generating clips for the slider"


def backward(
    session: Session,
    batch: Batch,
    weights: torch.Tensor,
    step: int,
    micro: int,
    base_prediction: Callable[[ModelInputs], torch.Tensor],
) -> torch.Tensor:
    """Add the gradients of one batch at both strengths.

    Args:
        weights: What each clip's loss counts, [B].
        base_prediction: What the model predicts without its LoRA.

    Returns:
        The loss of each clip, [B], the mean of both strengths.
    """
    pairs = pairs_of(session.settings, batch.items, step, micro)
    positive, negative, neutral = (
        replace(batch.inputs, text=session.inputs.embeddings([getattr(pair, side) for pair in pairs]))
        for side in ("positive", "negative", "neutral")
    )
    more, less, middle = (base_prediction(inputs).float() for inputs in (positive, negative, neutral))
    direction, losses = session.settings.slider_guidance * (more - less), list[torch.Tensor]()
    for strength in (1.0, -1.0):
        # The backward pass inside, too: what is computed twice has to be computed with the same strength.
        with scaled(session.bare_transformer, strength):
            with session.accelerator.autocast():
                target = middle + strength * direction
                each = session.family.loss(session.transformer, session.schedule, neutral, target)
                loss = (each * weights).mean() / 2
            session.accelerator.backward(loss / session.settings.gradient_accumulation)
        losses.append(each.detach())
    return torch.stack(losses).mean(0)


def pairs_of(settings: TrainSettings, items: Sequence[RunClip], step: int, micro: int) -> list[SliderPair]:
    """The prompts for each clip of a batch: those it was generated of, or drawn anew for a clip of a dataset."""
    pairs = settings.slider_pairs
    noise = torch.Generator().manual_seed(seed_for(settings.seed, "slider prompts", step, micro))
    drawn = torch.randint(len(pairs), (len(items),), generator=noise).tolist()
    return [
        pairs[number if item.generated is None else item.generated // settings.slider_samples]
        for item, number in zip(items, drawn, strict=True)
    ]


def generate_clips(session: Session) -> None:
    """Let the base model generate the clips of a slider without a dataset, those that the cache lacks.

    Raises jobs.Stop when asked to; what was generated is kept.
    """
    settings, model, family, encoder = session.settings, session.model, session.family, session.encoder
    steps = settings.preview_steps or model.steps
    scale = model.guidance_scale if settings.preview_guidance is None else settings.preview_guidance
    shift = settings.preview_flow_shift or model.flow_shift_at(session.shape.height, session.shape.width)
    encoder.generates_with = {
        "transformer": part_identity(model, session.folder, "transformer"),
        "prompts": [item.caption for item in session.data.train],
        "frozen": {one.setting: one.identity for one in session.frozen.loras},
        "dtype": str(encoder.dtype),
        "sampler": [steps, scale, settings.preview_dynamic_guidance, shift, settings.dropped_caption],
    }
    items = session.data.train if session.sharded else session.ranks.share(session.data.train)
    missing = [item for item in items if encoder.clip_key(item) not in encoder.cache]
    transformer = session.bare_transformer.eval()
    for done, item in enumerate(missing):

        def report(at: int, total: int, _: torch.Tensor, done: int = done) -> None:
            message = f"clip {done + 1} of {len(missing)}, denoising step {at} of {total}"
            session.job.beat(PHASE, message=message)
            session.job.check_stop("Stopped while it generated clips; what was generated is kept.")

        text = {name: one.to(encoder.dtype) for name, one in session.inputs.embeddings([item.caption]).items()}
        negative = {name: one.to(encoder.dtype) for name, one in session.inputs.negative().items()}
        inputs = DenoiseInputs(
            session.folder,
            text,
            negative,
            session.inputs.latents_shape(item),
            steps,
            Guidance(scale, settings.preview_dynamic_guidance),
            torch.Generator().manual_seed(seed_for(settings.seed, "slider clip", item.generated or 0)),
            flow_shift=shift,
            on_step=report,
            fps=session.shape.fps,
            given=session.inputs.nothing(item),
        )
        with session.frozen.previewing(), session.base_model(), session.accelerator.autocast():
            latents = family.denoise(transformer, inputs).float().cpu()
        tensors = family.latents_to_file(session.folder, latents)
        encoder.cache.put(encoder.clip_key(item), family.moments_from_file(session.folder, tensors))
    if session.ranks.count > 1:
        session.ranks.wait()
