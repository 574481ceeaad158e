"""A session's way into a checkpoint and back: everything it needs to go on to the same bits.

Where several processes share the steps, all give their pieces, and rank 0 writes. Not covered: how a checkpoint is
written, which one a start goes on from (runs.checkpoints), when one is due (loop).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes

from workbench.errors import CannotWrite, ResumeRefused
from workbench.runs import checkpoints
from workbench.trainer.model import optimizers
from workbench.trainer.model.ema import Ema
from workbench.workspace import write_bytes, write_json

if TYPE_CHECKING:
    from workbench.trainer.session import Session


def save(session: Session, must: bool) -> str:
    """Publish a checkpoint of the present step, then retire the oldest; a sentence where that failed and need not work.

    A step that is saved already is not saved again. Raises CannotWrite.
    """
    scaler = session.accelerator.scaler.state_dict() if session.accelerator.scaler is not None else None
    first = session.ranks.first  # the others give their pieces of weights that are cut, and keep nothing
    beside = session.trainable.plain(first)
    tensors, values = optimizers.state_of(session.optimizer, session.trainable.named, first)
    averages = session.ema.tensors(first) if session.ema is not None else None
    if not first or checkpoints.verified(checkpoints.folder_of(session.run, session.step)):
        return ""
    state = {
        "step": session.step,
        "settings": session.settings.model_dump(mode="json"),
        "versions": {name: version(name) for name in session.packages},
        "precision": session.precision,
        "defaults": session.defaults,
        "text_form": session.family.text_form(session.folder),
        "threads": torch.get_num_threads() if session.device.type == "cpu" else None,
        "scaler": scaler,
        "optimizer": values,
    }

    def fill(target: Path) -> None:
        session.trainable.write(target, session.notes(), beside)
        write_bytes(target / checkpoints.OPTIMIZER, to_bytes(tensors))
        if averages is not None:
            write_bytes(target / checkpoints.EMA, to_bytes(averages))
        write_json(target / checkpoints.STATE, state)

    try:
        checkpoints.publish(session.run, session.step, fill)
    except CannotWrite as error:
        if must:
            raise
        return f"step {session.step} is not saved, the next save tries again: {error}"
    checkpoints.retire(session.run, session.settings.keep_checkpoints, session.settings.keep_every, session.step)
    return ""


def restore(session: Session, folder: Path, state: Mapping[str, Any]) -> int:
    """Load what `save` published into a session that has not begun; returns its step. Raises ResumeRefused."""
    if (before := state.get("precision", session.precision)) != session.precision:
        raise ResumeRefused(
            f"the checkpoint was computed in {before}, this machine computes in {session.precision}: set precision to "
            f"{before} and go on, or fork the run"
        )
    form = session.family.text_form(session.folder)
    if state.get("text_form", "") not in (form, None):
        raise ResumeRefused(
            f"{session.model.title} was trained as an older pipeline reads it when this checkpoint was written, and is "
            f"now trained as {form} does, with other captions and positions: fork the run to go on in the new way"
        )
    session.trainable.load(folder)
    if (file := folder / checkpoints.OPTIMIZER).exists():
        optimizers.load_state(session.optimizer, session.trainable.named, load_file(file), state["optimizer"])
    if session.ema is not None:
        averages = folder / checkpoints.EMA
        # A fork may begin to average where its parent did not.
        if averages.exists():
            session.ema.load(load_file(averages))
        else:
            session.ema = Ema(session.trainable.named, session.settings.ema_decay)
    if session.accelerator.scaler is not None and state["scaler"]:
        session.accelerator.scaler.load_state_dict(state["scaler"])
    return int(state["step"])
