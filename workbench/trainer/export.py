"""The end of a run: export the trained weights, prove that they load, write the model card and the result.

Not covered: the files of checkpoints (saving), publishing (workbench.publishing).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.runs.model_card import CardFacts, card_facts, model_card
from workbench.runs.run import CARD, Run
from workbench.trainer.log import log
from workbench.trainer.model import memory_levels
from workbench.trainer.monitoring.preview_files import write_png
from workbench.trainer.session import Session
from workbench.workspace import write_text

PICTURE = "first_frame.png"  # of an image-to-video run: what the card's code gives the model


def export(session: Session) -> None:
    """Write what was trained and its card; prove that the stock pipeline loads it and that its output changes."""
    session.beat("exporting", patient=session.idle)
    if session.idle:
        return
    memory_levels.take_off(session.family, session.trainable.transformer)
    with session.weights_in_use():
        path = session.trainable.export(session.run, session.notes(), session.ranks.first)
        if session.sharded:
            session.ranks.wait()  # all read what rank 0 has written
        with session.accelerator.autocast():
            change = session.trainable.prove(session.folder, path, _probe(session))
    if not session.ranks.first:
        return
    facts = card_facts(Run(session.run), session.settings, session.step)
    write_text(session.run / CARD, _card(session, path, facts))
    before, after = facts.losses or (None, None)
    session.job.outcome = {
        "lora": path.name,
        "steps": session.step,
        "change": change,
        "held_out_loss_before": before,
        "held_out_loss_after": after,
    }
    log(f"done: {path} changes the model's output by {change:.1%}")


def _card(session: Session, path: Path, facts: CardFacts) -> str:
    """The model card. Writes the first frame that its code uses, where the model takes one."""
    shape, prompt = (session.shape.frames, session.shape.height, session.shape.width), session.preview_inputs.prompts[0]
    scale, experts = session.settings.image_latent_scale, [session.settings.expert]
    if (picture := session.preview_inputs.picture(prompt, session.inputs)) is not None:
        write_png(session.run / PICTURE, picture)
    model = session.previewer.records.generated_with
    usage = session.family.usage(model, session.folder, path.name, prompt, shape, scale, experts)
    return model_card(session.run.name, session.model, facts, usage, prompt, session.info.trigger_word)


def _probe(session: Session) -> dict[str, Any]:
    """Inputs for `Trainable.prove`: the first training clip, half noised, always with the same noise."""
    item = session.data.train[0]
    clip = next(session.inputs.clips([item]))
    assert clip.moments is not None
    latents = session.family.sample_latents(clip.moments, session.inputs.noise(item, "probe"))
    inputs = clip.noised(session.schedule, latents, session.inputs.noise(item, "probe noise"), quantile=0.5)
    return {"schedule": session.schedule, "inputs": inputs}
