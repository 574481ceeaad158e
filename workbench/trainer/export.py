"""What a finished run leaves: the trained weights as their users load them, proved, their card, and the result.

Not covered: files of checkpoints (trainable, session), publishing (the model card's reader).
"""

from __future__ import annotations

import io
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from workbench.runs import oom_fallback
from workbench.runs.metrics import read_metrics
from workbench.runs.model_card import CardFacts, model_card
from workbench.runs.run import CARD, Run
from workbench.trainer.log import log
from workbench.trainer.session import Session
from workbench.workspace import write_bytes, write_text

PICTURE = "first_frame.png"  # of an image-to-video run: what the card's code gives the model


def export(session: Session) -> None:
    """Write what was trained and its card; prove that the stock pipeline loads it and draws otherwise with it."""
    session.beat("exporting", patient=session.idle)
    if session.idle:
        return
    session.memory_levels.take_off()
    with session.weights_in_use():
        path = session.trainable.export(session.run, session.notes(), session.ranks.first)
        if session.sharded:
            session.ranks.wait()  # all read what rank 0 has written
        with session.accelerator.autocast():
            change = session.trainable.prove(session.folder, path, _probe(session))
    if not session.ranks.first:
        return
    lines = read_metrics(session.run)[0]
    measured = [line["held_out_loss"] for line in lines if "held_out_loss" in line]
    losses = (measured[0], measured[-1]) if measured else (None, None)
    changes = [(line["change_own"], line["change_others"]) for line in lines if "change_own" in line]
    write_text(session.run / CARD, _card(session, path, losses, changes[-1] if changes else None))
    session.job.outcome = {
        "lora": path.name,
        "steps": session.step,
        "change": change,
        "held_out_loss_before": losses[0],
        "held_out_loss_after": losses[1],
    }
    log(f"done: {path} changes the model's output by {change:.1%}")


def _card(
    session: Session,
    path: Path,
    losses: tuple[float | None, float | None],
    changes: tuple[float, float] | None,
) -> str:
    shape, prompt = (session.shape.frames, session.shape.height, session.shape.width), session.preview_inputs.prompts[0]
    scale = session.settings.image_latent_scale
    if (picture := session.preview_inputs.picture(prompt, session.inputs)) is not None:
        _write_picture(session.run / PICTURE, picture)
    facts: CardFacts = {
        "clips": len(session.data.train),
        "trigger_word": session.info.trigger_word,
        "prompt": prompt,
        "usage": session.family.usage(session.model, session.folder, path.name, prompt, shape, scale),
        "losses": losses,
        "packages": {name: version(name) for name in session.packages},
        "steps": session.step,
        "changes": changes,
        "parent": Run(session.run).parent or None,
        "also": bool(session.settings.train_also),
        "oom_fallback": oom_fallback.sentence(oom_fallback.record(session.run)),
    }
    return model_card(session.run.name, session.model, session.settings, facts)


def _write_picture(path: Path, picture: torch.Tensor) -> None:
    """What the card's code begins with. picture: [1, 3, H, W] in [-1, 1]"""
    from PIL import Image

    pixels = ((picture[0].float().cpu() + 1) * 127.5).round().clamp(0, 255).byte().permute(1, 2, 0)
    data = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(data, "PNG")
    write_bytes(path, data.getvalue())


def _probe(session: Session) -> dict[str, Any]:
    """A fixed input of the model, without the model."""
    item = session.data.train[0]
    clip = next(session.inputs.clips([item]))
    assert clip.moments is not None
    return {
        "schedule": session.schedule,
        "latents": session.family.sample_latents(clip.moments, session.inputs.noise(item, "probe")),
        "text": clip.text,
        "noise": session.inputs.noise(item, "probe noise"),
        "timesteps": torch.tensor([session.family.timesteps // 2], device=session.device),
        "condition": clip.condition,
    }
