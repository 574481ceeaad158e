"""The end of a run: export the trained weights, prove that they load, write the model card and the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.families import model_files
from workbench.families.lora_files import DROPPED_KEY
from workbench.jobs.log import log
from workbench.memory import compiling
from workbench.runs.model_card import CardFacts, card_facts, model_card
from workbench.runs.run import CARD, Run
from workbench.trainer.previewer import write_png
from workbench.trainer.session import Session
from workbench.workspace import write_text

PICTURE = "first_frame.png"  # of an image-to-video run: what the card's code gives the model


def export(session: Session) -> None:
    """Write what was trained and its card; prove that the stock pipeline loads it and that its output changes."""
    session.beat("exporting", patient=session.idle)
    if session.idle:
        return
    compiling.interpret_blocks(session.family.blocks(session.trainable.transformer))  # layers come and go
    with session.weights_in_use():
        path = session.trainable.export(session.run, session.notes(), session.ranks.first)
        if session.sharded:
            session.ranks.wait()  # all read what rank 0 has written
        with session.accelerator.autocast():
            change = session.trainable.prove(session.folder, path, _probe(session))
    if not session.ranks.first:
        return
    if session.trainable.full:
        _make_model(session)
    facts = card_facts(Run(session.run), session.settings, session.step)
    write_text(session.run / CARD, _card(session, path, facts))
    before, after = facts.losses or (None, None)
    session.job.outcome = {
        "lora": path.name,  # of a full fine-tune the folder of the trained part
        "steps": session.step,
        "change": change,
        "held_out_loss_before": before,
        "held_out_loss_after": after,
    }
    log(f"done: {path} changes the model's output by {change:.1%}")


def _make_model(session: Session) -> None:
    """Make the run's folder a whole model: `--model runs/NAME` and diffusers load it. Raises CannotWrite."""
    base, shape = session.family.base_of(session.folder) or session.model, session.shape
    made_for: dict[str, Any] = {"task": session.model.task, "fps": shape.fps}
    made_for |= {"frames": shape.frames, "height": shape.height, "width": shape.width}
    if session.settings.dropped_caption == "zeros":
        made_for[DROPPED_KEY] = "zeros"
    if not base.local or base.embedded:
        made_for[model_files.BASE_MODEL] = base.id
    model_files.complete(session.run, session.folder, session.trainable.part, made_for)


def _card(session: Session, path: Path, facts: CardFacts) -> str:
    """The model card. Writes the first frame that its code uses, where the model takes one."""
    shape, prompt = (session.shape.frames, session.shape.height, session.shape.width), session.preview_inputs.prompts[0]
    scale, experts = session.settings.image_latent_scale, [session.settings.expert]
    if (picture := session.preview_inputs.picture(prompt, session.inputs)) is not None:
        write_png(session.run / PICTURE, picture)
    model = session.previewer.records.generated_with
    usage = session.family.usage(model, session.folder, path.name, prompt, shape, scale, experts)
    widget = [{"text": prompt}] if prompt else []
    return model_card(session.run.name, session.model, facts, usage, widget, session.info.trigger_word)


def _probe(session: Session) -> dict[str, Any]:
    """Inputs for `Trainable.prove`: the first training clip, half noised, always with the same noise."""
    item = session.data.train[0]
    clip = next(session.inputs.clips([item]))
    assert clip.moments is not None
    latents = session.family.sample_latents(clip.moments, session.inputs.noise(item, "probe"))
    inputs = clip.noised(session.schedule, latents, session.inputs.noise(item, "probe noise"), quantile=0.5)
    return {"schedule": session.schedule, "inputs": inputs}
