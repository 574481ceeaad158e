"""The loss of a batch, and its gradients: on clips, inside their masks, against the base model, or for a slider.

All of it is a pure function of the weights and the batch, which batch_inputs makes from the run's seed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from workbench.families.model_inputs import PICTURE_FOR_SOUND, SOUND_ONLY, ModelInputs
from workbench.fit.timing import preserves_outside
from workbench.jobs.torch_devices import to_device
from workbench.runs.data import seed_for
from workbench.trainer import slider
from workbench.trainer.batch_inputs import Batch

if TYPE_CHECKING:
    from workbench.trainer.session import Session


class Losses(NamedTuple):
    """The losses of one batch. They stay on the device, because reading them would wait for the backward pass."""

    names: list[str]
    shape: torch.Size  # of the latents
    quantiles: torch.Tensor  # noise quantiles on the host, [B]
    each: torch.Tensor  # the loss of each clip, [B]
    means: torch.Tensor  # [training loss, preservation loss, loss outside the masks, loss of the sound beside]
    heard: bool  # whether there was a sound beside the picture


def backward(session: Session, step: int, micro: int) -> Losses:
    """Accumulate the gradients of one batch."""
    settings, accelerator = session.settings, session.accelerator
    batch = session.inputs.batch(step, micro)
    weights, of_sound, sound = batch.weights, batch.weights, batch.inputs.sound
    learned = None if sound is None else sound.learned
    if settings.loss_weighting == "min-snr":
        by_snr = partial(session.schedule.min_snr_weights, gamma=settings.snr_gamma)
        if sound is not None and learned != PICTURE_FOR_SOUND:
            of_sound = of_sound * by_snr(sound.timesteps)
        weights = of_sound if learned in SOUND_ONLY else weights * by_snr(batch.inputs.timesteps)
    if settings.lora_dropout:
        torch.manual_seed(seed_for(settings.seed, "dropout", step, micro))
    if settings.is_slider:
        each = slider.backward(session, batch, weights, step, micro, partial(base_prediction, session))
        loss = (each * weights).mean()
        outside = heard = torch.zeros_like(loss)
    else:
        with accelerator.autocast():
            each, each_outside, each_sound = clip_losses(session, batch)
            loss = (each * weights).mean()
            outside = torch.zeros_like(loss) if each_outside is None else (each_outside * weights).mean()
            heard = torch.zeros_like(loss) if each_sound is None else (each_sound * of_sound).mean()
        total = loss if each_outside is None else loss + settings.outside_weight * outside
        total = total if each_sound is None else total + settings.sound_weight * heard
        accelerator.backward(total / settings.gradient_accumulation)
    preserved = torch.zeros_like(loss)
    if settings.preservation_weight:
        # Only after the first backward pass, so that one graph at a time is in memory.
        inputs = session.inputs.preservation(batch, session.preservation_prompts, step, micro)
        preserved = preservation_loss(session, inputs)
        accelerator.backward(preserved * settings.preservation_weight / settings.gradient_accumulation)
    means, names = torch.stack([loss, preserved, outside, heard]).detach(), [item.name for item in batch.items]
    beside = learned == "picture+sound"
    return Losses(names, batch.inputs.latents.shape, batch.quantiles, each.detach(), means, beside)


def clip_losses(session: Session, batch: Batch) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Return the loss of each clip, its distance from the base model outside its mask, and the loss of its sound.

    Each is [B]; the second is None without masks, the third without sounds beside the pictures.

    A masked clip's loss is sum(w e^2) / sum(w) with w = floor + (1 - floor) mask; its distance is
    sum((1 - mask) (v - v_base)^2) / sum(1 - mask).
    """
    settings, family, inputs, mask = session.settings, session.family, batch.inputs, batch.mask
    weights = None if mask is None else settings.mask_floor + (1 - settings.mask_floor) * mask
    base = None
    # All ranks must call the model equally often (see training_targets).
    if preserves_outside(settings) and (mask is not None or session.ranks.count > 1):
        base = base_prediction(session, inputs)
    targets = training_targets(session, batch, base)
    if base is None or mask is None:
        each, heard = family.losses(session.transformer, session.schedule, inputs, targets, weights)
        return each, None, heard
    if targets is None:
        targets = session.schedule.target(inputs.latents, inputs.noise, inputs.timesteps)
    predicted = family.predictions(session.transformer, session.schedule, inputs)[0]
    return (
        family.error(predicted, targets, inputs.given, weights),
        family.error(predicted, base.to(targets), inputs.given, 1 - mask),
        None,
    )


def training_targets(session: Session, batch: Batch, base: torch.Tensor | None = None) -> torch.Tensor | None:
    """Return targets in which regularization clips aim at the base model's prediction; None for the usual targets.

    base: the base model's prediction of the batch, if it was already computed
    """
    settings, inputs = session.settings, batch.inputs
    if settings.regularization_target == "clips" or not settings.regularization_dataset:
        return None
    targets = session.schedule.target(inputs.latents, inputs.noise, inputs.timesteps)
    roles = [item.role for item in batch.items]
    known = to_device(torch.tensor([role == "known" for role in roles]).nonzero().flatten(), targets.device)
    if base is not None:
        targets[known] = base[known].to(targets)
    elif session.ranks.count > 1:
        # Sharded weights are gathered during the forward pass, so all ranks must call the model equally often.
        targets[known] = base_prediction(session, inputs)[known].to(targets)
    elif len(known):
        targets[known] = base_prediction(session, inputs.rows(known)).to(targets)
    return targets


def base_prediction(session: Session, inputs: ModelInputs) -> torch.Tensor:
    """Predict the picture, for its sound if that is given, without the LoRA."""
    session.transformer.eval()
    with session.accelerator.autocast(), session.base_model(), torch.no_grad():
        found = session.family.predictions(session.transformer, session.schedule, inputs)[0]
    session.transformer.train()
    return found


def preservation_loss(session: Session, inputs: ModelInputs) -> torch.Tensor:
    """Return the mean distance between the model's and the base model's predictions."""
    base = base_prediction(session, inputs)
    with session.accelerator.autocast():
        return session.family.loss(session.transformer, session.schedule, inputs, base).mean()
