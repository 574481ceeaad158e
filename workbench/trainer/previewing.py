"""Previews of a session: what is due before the first step, the videos of its prompts, and failures that cost no run.

Not covered: generating and writing them (monitoring.previews), videos that a person asks for (monitoring.live_sample).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from workbench import jobs
from workbench.errors import CannotWrite, ConfigError
from workbench.runs.previews import previews_of
from workbench.trainer.inputs.encoder import free_memory
from workbench.trainer.log import log

if TYPE_CHECKING:
    from workbench.trainer.session import Session

PHASE = "generating previews"


class Interrupted(jobs.Stop):
    """A stop was requested while previews were generated: they are left, the run saves and ends."""


def preview_start(session: Session) -> None:
    """Before the first step of this start: training inputs, videos of the base model, or what was interrupted."""
    every, step, settings = session.settings.preview_every, session.step, session.settings
    if not every or not (session.unseen or step % every == 0 or step == settings.steps):
        return
    if session.unseen and settings.preview_inputs and session.ranks.first:
        session.beat(PHASE, message="training inputs")
        with failures_left_out(session):
            session.previewer.save_inputs(session.run, session.preview_inputs.clips(session.inputs))
    preview(session)


def preview(session: Session, prompts: Sequence[str] = (), scale: float = 1.0) -> None:
    """Generate preview videos, of the run's own prompts if none are given; scale: of the LoRA."""
    if session.idle:
        session.beat(PHASE, patient=True)
        return
    generated, prompts = False, prompts or session.preview_inputs.prompts
    session.encoder.encode_captions(prompts, lambda *_: None)  # a person may ask for a new one
    with failures_left_out(session), session.weights_in_use(), session.accelerator.autocast():
        generated = session.previewer.generate(
            session.run,
            session.step,
            session.bare_transformer,
            session.preview_inputs.with_embeddings(prompts, session.inputs),
            session.inputs.unconditional(),
            progress(session, PHASE),
            scale,
        )
    if generated and session.ranks.first:
        written = previews_of(session.run, session.step)
        session.tracker.show(session.step, [(one.prompt, one.video) for one in written])


def progress(session: Session, phase: str) -> Callable[[int, int], None]:
    """Reports denoising steps. Raises Interrupted in all processes that take part, when one was told to stop."""

    def report(done: int, total: int) -> None:
        session.beat(phase, message=f"denoising step {done} of {total}")
        session.check_for_stop(together=session.sharded)

    return report


@contextmanager
def failures_left_out(session: Session) -> Iterator[None]:
    """What goes wrong here costs the previews, never the run; a trial hides nothing."""
    if not session.keeps_going:
        yield
        return
    try:
        yield
    except Interrupted:
        log(f"asked to stop: the preview of step {session.step} is left for the next start")
    except CannotWrite as error:
        session.warning = f"a preview of step {session.step} is not written yet, the next preview tries again: {error}"
        log(session.warning)
    except (torch.OutOfMemoryError, ConfigError) as error:
        log(f"the preview of step {session.step} is left out: {str(error).splitlines()[0]}")
        free_memory()
