"""Slider LoRAs: LoRAs whose strength turns an attribute up or down, learned from prompts or from pairs of clips.

From prompts: the frozen base model makes three predictions at the same noisy latents, v0 for the neutral prompt, v+ for
more and v- for less of the attribute. With direction = guidance * (v+ - v-), the LoRA learns to predict
v0 + s * direction for the neutral prompt at strength s, and v0 - s * direction at strength -s. Both happen in the same
step, so strength 0 stays the base model (Concept Sliders, arXiv 2311.12092). s is 1, or drawn between 1 and
`slider_reach`; a slider trained at 1 alone has to extrapolate at 2.

A direction is meaningful only at latents that occur during generation. With a dataset, they are its noised clips.
Without one, the base model generates clips of all three prompts before the first step, in the same way as previews:
with both experts of a model that has two, and from pictures for image-to-video models. The clips are cached under a
hash of everything that determines them, so a resumed run uses the same ones.

From pairs: with the same noise, the LoRA learns the clip at strength 1 and its counterpart at -1 (the visual sliders of
the same paper).
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
    """Accumulate the gradients of one batch at both strengths.

    Args:
        weights: The weight of each clip's loss, [B].
        base_prediction: Predicts without the LoRA.

    Returns:
        The loss of each clip, averaged over both strengths, [B].
    """
    settings, strength = session.settings, 1.0
    sides: list[tuple[ModelInputs, torch.Tensor]]  # inputs and target at strengths s and -s
    if batch.opposite is not None:
        pair = [batch.inputs, replace(batch.inputs, latents=batch.opposite)]
        sides = [(one, session.schedule.target(one.latents, one.noise, one.timesteps)) for one in pair]
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
        # Backward stays inside: gradient checkpointing recomputes the forward pass and needs the same strength.
        with scaled(session.bare_transformer, factor):
            with session.accelerator.autocast():
                each = session.family.loss(session.transformer, session.schedule, inputs, target)
                loss = (each * weights).mean() / 2
            session.accelerator.backward(loss / settings.gradient_accumulation)
        losses.append(each.detach())
    return torch.stack(losses).mean(0)


def strength_of(settings: TrainSettings, step: int, micro: int) -> float:
    """Draw the strength s for a batch."""
    if settings.slider_reach == 1.0:
        return 1.0
    noise = torch.Generator().manual_seed(seed_for(settings.seed, "slider strength", step, micro))
    drawn: float = torch.rand((), generator=noise).item()
    return 1.0 + (settings.slider_reach - 1.0) * drawn


def pairs_of(settings: TrainSettings, items: Sequence[RunClip], step: int, micro: int) -> list[SliderPair]:
    """Return the prompts for each clip of a batch: the ones it was generated from, or random ones for dataset clips."""
    pairs = settings.slider_pairs
    noise = torch.Generator().manual_seed(seed_for(settings.seed, "slider prompts", step, micro))
    drawn = torch.randint(len(pairs), (len(items),), generator=noise).tolist()
    return [
        pairs[number if item.generated is None else item.generated // settings.slider_samples]
        for item, number in zip(items, drawn, strict=True)
    ]


def generate_clips(session: Session) -> None:
    """Generate the clips of a slider without a dataset, except those in the cache.

    Raises jobs.Stop when asked to stop; finished clips are kept.
    """
    settings, model, family, encoder = session.settings, session.model, session.family, session.encoder
    previewer = replace(session.previewer, shape=session.shape)  # previews may be longer
    parts: dict[str, str | list[str]] = {"transformer": part_identity(model, session.folder, "transformer")}
    if model.boundary:
        parts["experts"] = [part_identity(model, session.folder, one.part) for one in model.experts]
    made = previewer.generated_with
    sampler = [made.steps, made.guidance_scale, made.dynamic_guidance, made.flow_shift]
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
        session.job.check_stop("Stopped while generating clips; finished clips are kept.")

    if missing:
        wanted = [
            MissingPreview(
                PreviewPrompt(
                    item.caption,
                    session.inputs.embeddings([item.caption]),
                    read_picture(item.picture, item) if item.picture else None,
                    session.inputs.nothing(item),
                ),
                seed_for(settings.seed, "slider clip", item.generated or 0),
                "",
            )
            for item in missing
        ]
        negative = session.inputs.negative()
        with session.frozen.previewing(), session.base_model(), session.accelerator.autocast():
            generated = previewer.generate_latents(session.bare_transformer, wanted, negative, report)
            for item, latents in zip(missing, generated, strict=True):
                tensors = family.latents_to_file(session.folder, latents.picture)
                encoder.cache.put(encoder.clip_key(item), family.moments_from_file(session.folder, tensors))
    if session.ranks.count > 1:
        session.ranks.wait()
