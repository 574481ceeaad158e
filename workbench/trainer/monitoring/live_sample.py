"""Live samples: a video of a running run, generated on request with its weights between two steps.

    previews/step-00000250/live-0.mp4 .json     in the run's folder; kind "live"
    samples/<day>/<id>.mp4 .json                the same among the samples, where a LoRA's file can hold the weights

Not covered: the run's own previews (previews), samples of finished LoRAs (sampler).
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbench.runs.live_sample import LiveSample
from workbench.sampler.samples import new_id, video_path, write_sample
from workbench.trainer.previewing import failures_left_out, progress

if TYPE_CHECKING:
    import numpy as np

    from workbench.trainer.session import Session


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
            session.inputs.unconditional(),
            progress(session, phase),
            sample.scale,
        )
        if generated is not None:
            frames, record = generated
            _publish(session, frames, {**record, "kind": "live", "seconds": round(time.monotonic() - began, 3)})


def _publish(session: Session, frames: np.ndarray, record: dict[str, Any]) -> None:
    """Write the video into the run's folder and, if a sample's settings can name its weights, among the samples."""
    folder, fps = session.run / "previews" / f"step-{session.step:08d}", float(record["fps"])
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
