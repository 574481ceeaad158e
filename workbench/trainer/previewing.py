"""Previews of a session: what is due before the first step, the videos of its prompts, and failures that cost no run.

And live samples, videos that a person asks for, generated with the weights of that moment:

    previews/step-00000250/live-0.mp4 .json     in the run's folder; kind "live"
    samples/<day>/<id>.mp4 .json                the same among the samples, where a LoRA's file can hold the weights

Not covered: generating and writing previews (monitoring.previews), samples of finished LoRAs (sampler).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from workbench import jobs
from workbench.errors import CannotWrite, ConfigError
from workbench.jobs.torch_devices import free_memory
from workbench.runs.analysis import visible_effect
from workbench.runs.previews import LiveSample, previews_of
from workbench.sampler.samples import new_id, video_path, write_sample
from workbench.trainer.log import log
from workbench.trainer.monitoring.preview_files import step_folder

if TYPE_CHECKING:
    import numpy as np

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
    controls = []
    if scale == 1.0 and list(prompts) == session.preview_inputs.prompts:
        controls = session.preview_inputs.controls(session.inputs)
    with failures_left_out(session), session.weights_in_use(), session.accelerator.autocast():
        generated = session.previewer.generate(
            session.run,
            session.step,
            session.bare_transformer,
            [*session.preview_inputs.with_embeddings(prompts, session.inputs), *controls],
            session.inputs.negative(),
            progress(session, PHASE),
            scale,
        )
    measured = session.ranks.first and session.step and scale == 1.0
    line = visible_effect.measure(session.run, session.step) if measured else None
    if line is not None and line != session.effects.get(session.step):  # a start after a kill measures the same again
        session.effects[session.step] = line
        session.write(**line)
    if generated and session.ranks.first:
        written = previews_of(session.run, session.step)
        session.tracker.show(session.step, [(one.prompt, one.video) for one in written])


def generate_live_sample(session: Session, sample: LiveSample) -> None:
    """Generate it into the run's folder and among the samples. Failures are logged; the run goes on."""
    phase = "generating a live sample"
    if session.idle:
        session.beat(phase, patient=True)
        return
    began, prompt = time.monotonic(), sample.prompt.strip() or session.preview_inputs.prompts[0]
    session.encoder.encode_captions([prompt], lambda *_: None)
    given = {"preview_steps": sample.steps, "preview_guidance": sample.guidance_scale}
    settings = session.settings.changed(**{name: value for name, value in given.items() if value is not None})
    with failures_left_out(session), session.weights_in_use(), session.accelerator.autocast():
        (one,) = session.preview_inputs.with_embeddings([prompt], session.inputs)
        generated = replace(session.previewer, settings=settings).generate_one(
            session.run,
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
            _publish(session, frames, {**record, "kind": "live", "seconds": round(time.monotonic() - began, 3)})


def _publish(session: Session, frames: np.ndarray, record: dict[str, Any]) -> None:
    """Write the video into the run's folder and, if a sample's settings can name its weights, among the samples."""
    folder, fps = step_folder(session.run, session.step), float(record["fps"])
    number = len(list(folder.glob("live-*.json")))
    write_sample(folder / f"live-{number}.mp4", frames, fps, record, session.workspace.root)
    if "settings" not in record:
        return
    settings = session.settings
    lora = {
        "name": f"runs/{session.run.name}@{session.step}",
        "scale": record["scale"],
        "rank": settings.rank,
        "alpha": settings.alpha or settings.rank,
        "base_model": session.model.title,
        "origin": "the weights of a run while it trained",
    }
    live = {**record, "loras": [lora] if settings.method == "lora" and record["scale"] else []}
    write_sample(video_path(session.workspace, new_id()), frames, fps, live, session.workspace.root)


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
