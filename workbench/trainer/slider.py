"""Slider LoRAs: a LoRA whose strength turns something up and down, learned from prompts or from pairs of clips.

From prompts, without a clip that shows it: at the same noisy latents the frozen base model is asked three times, v0 of
the neutral prompt, v+ of more, v- of less. With direction = guidance * (v+ - v-), the LoRA at strength s learns to
predict v0 + s * direction of the neutral prompt, and at strength -s v0 - s * direction: both in one step, so that 0
stays the base model (Concept Sliders, arXiv 2311.12092). s is 1, or drawn between 1 and the run's `slider_reach`: a
slider that was trained at 1 alone is extrapolated at 2.

A direction means something only at latents that the model meets while it generates. They are those of the dataset's
clips, noised as in any training; without a dataset the base model generates clips of all three prompts before the first
step, as previews are generated: with both of a model's experts, and from pictures where it begins with one. They wait
in the cache under the key of all that made them, so a run that goes on has the same.

From pairs, the LoRA at strength 1 learns the clip and at -1 the one beside it, with the same noise (the same paper's
visual sliders).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from workbench.families.model_files import part_identity
from workbench.families.model_inputs import ModelInputs
from workbench.runs.data import RunClip, seed_for
from workbench.runs.settings import SliderPair, TrainSettings
from workbench.trainer.batch_inputs import Batch
from workbench.trainer.encoder import read_picture
from workbench.trainer.lora import scaled
from workbench.trainer.previewer import MissingPreview, PreviewPrompt

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
    settings, strength = session.settings, 1.0
    sides: list[tuple[ModelInputs, torch.Tensor]]  # what the model is shown, and what it is to predict, at s and -s
    if batch.opposite is not None:
        shown = [batch.inputs, replace(batch.inputs, latents=batch.opposite)]
        sides = [(one, session.schedule.target(one.latents, one.noise, one.timesteps)) for one in shown]
    else:
        pairs = pairs_of(settings, batch.items, step, micro)
        strength = strength_of(settings, step, micro)
        positive, negative, neutral = (
            replace(batch.inputs, text=session.inputs.embeddings([getattr(pair, side) for pair in pairs]))
            for side in ("positive", "negative", "neutral")
        )
        more, less, middle = (base_prediction(inputs).float() for inputs in (positive, negative, neutral))
        direction = strength * (settings.slider_guidance * (more - less))
        sides = [(neutral, middle + direction), (neutral, middle - direction)]
    losses = list[torch.Tensor]()
    for factor, (inputs, target) in zip((strength, -strength), sides, strict=True):
        # The backward pass inside, too: what is computed twice has to be computed with the same strength.
        with scaled(session.bare_transformer, factor):
            with session.accelerator.autocast():
                each = session.family.loss(session.transformer, session.schedule, inputs, target)
                loss = (each * weights).mean() / 2
            session.accelerator.backward(loss / settings.gradient_accumulation)
        losses.append(each.detach())
    return torch.stack(losses).mean(0)


def strength_of(settings: TrainSettings, step: int, micro: int) -> float:
    """The strength at which a batch is learned, and its opposite."""
    if settings.slider_reach == 1.0:
        return 1.0
    noise = torch.Generator().manual_seed(seed_for(settings.seed, "slider strength", step, micro))
    drawn: float = torch.rand((), generator=noise).item()
    return 1.0 + (settings.slider_reach - 1.0) * drawn


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
    previewer = replace(session.previewer, shape=session.shape)  # previews may be longer
    parts: dict[str, str | list[str]] = {"transformer": part_identity(model, session.folder, "transformer")}
    if model.boundary:
        parts["experts"] = [part_identity(model, session.folder, one.part) for one in model.experts]
    sampler = [previewer.steps, previewer.guidance_scale, settings.preview_dynamic_guidance, previewer.flow_shift]
    encoder.generates_with = {
        **parts,
        "prompts": [item.caption for item in session.data.train],
        "frozen": {one.setting: one.identity for one in session.frozen.loras},
        "dtype": str(encoder.dtype),
        "sampler": [*sampler, settings.dropped_caption],
    }
    items = session.data.train if session.sharded else session.ranks.share(session.data.train)
    missing = [item for item in items if encoder.clip_key(item) not in encoder.cache]

    def report(done: int, total: int) -> None:
        each = total // len(missing)
        clip, step = divmod(done - 1, each)
        message = f"clip {clip + 1} of {len(missing)}, denoising step {step + 1} of {each}"
        session.job.beat(PHASE, message=message)
        session.job.check_stop("Stopped while it generated clips; what was generated is kept.")

    if missing:
        wanted = [
            MissingPreview(
                PreviewPrompt(
                    item.caption,
                    session.inputs.embeddings([item.caption]),
                    read_picture(item.picture, item) if item.picture else None,
                ),
                seed_for(settings.seed, "slider clip", item.generated or 0),
                "",
            )
            for item in missing
        ]
        negative = session.inputs.negative()
        with session.frozen.previewing(), session.base_model(), session.accelerator.autocast():
            made = previewer.generate_latents(session.bare_transformer, wanted, negative, report)
            for item, latents in zip(missing, made, strict=True):
                tensors = family.latents_to_file(session.folder, latents)
                encoder.cache.put(encoder.clip_key(item), family.moments_from_file(session.folder, tensors))
    if session.ranks.count > 1:
        session.ranks.wait()
