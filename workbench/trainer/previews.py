"""Videos of a session: the previews that are due, and live samples that a person asks for while it trains.

The previewer generates and writes them. A failure costs the videos, never the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from workbench.runs.previews import LiveSample, previews_of
from workbench.trainer.session import Session

PHASE = "generating previews"


def preview_at_start(session: Session) -> None:
    """Before the first step of this start: training inputs, videos of the base model, or what was interrupted."""
    every, step, settings = session.settings.preview_every, session.step, session.settings
    if not every or not (session.no_steps_yet or step % every == 0 or step == settings.steps):
        return
    if session.no_steps_yet and settings.preview_inputs and session.ranks.first:
        session.beat(PHASE, message="training inputs")
        with session.preview_failures_logged():
            session.previewer.save_inputs(session.preview_inputs.clips(session.inputs))
    preview(session)


def preview(session: Session, prompts: Sequence[str] = (), scale: float = 1.0) -> None:
    """Generate preview videos, of the run's own prompts if none are given; scale: of the LoRA."""
    if session.idle:
        session.beat(PHASE, patient=True)
        return
    generated, prompts = False, prompts or session.preview_inputs.prompts
    session.encoder.encode_captions(prompts, lambda *_: None)  # a person may ask for a new one
    controls = []
    if scale == 1.0 and list(prompts) == session.preview_inputs.prompts:
        controls = session.preview_inputs.controls(session.inputs)
    with session.preview_failures_logged(), session.weights_in_use(), session.accelerator.autocast():
        generated = session.previewer.generate(
            session.step,
            session.bare_transformer,
            [*session.preview_inputs.with_embeddings(prompts, session.inputs), *controls],
            session.inputs.negative(),
            progress(session, PHASE),
            scale,
        )
    if session.ranks.first and session.step and scale == 1.0:
        session.write_visible_effect()
    if generated and session.ranks.first:
        written = previews_of(session.run, session.step)
        session.tracker.show(session.step, [(one.prompt, one.video) for one in written])


def generate_live_sample(session: Session, sample: LiveSample) -> None:
    """Generate a video with the weights of this moment, into the run's folder and among the samples."""
    phase = "generating a live sample"
    if session.idle:
        session.beat(phase, patient=True)
        return
    began, prompt = time.monotonic(), sample.prompt.strip() or session.preview_inputs.prompts[0]
    session.encoder.encode_captions([prompt], lambda *_: None)
    given = {"preview_steps": sample.steps, "preview_guidance": sample.guidance_scale}
    settings = session.settings.changed(**{name: value for name, value in given.items() if value is not None})
    with session.preview_failures_logged(), session.weights_in_use(), session.accelerator.autocast():
        (one,) = session.preview_inputs.with_embeddings([prompt], session.inputs)
        generated = replace(session.previewer, settings=settings).generate_one(
            session.step,
            session.bare_transformer,
            one,
            sample.seed,
            session.inputs.negative(),
            progress(session, phase),
            sample.scale,
        )
        if generated is not None:
            frames, record = generated
            record |= {"kind": "live", "seconds": round(time.monotonic() - began, 3)}
            session.previewer.write_live(session.step, frames, record)


def progress(session: Session, phase: str) -> Callable[[int, int], None]:
    """Reports denoising steps. Raises Interrupted in all processes that take part, when one was told to stop."""

    def report(done: int, total: int) -> None:
        session.beat(phase, message=f"denoising step {done} of {total}")
        session.check_for_stop(together=session.sharded)

    return report
