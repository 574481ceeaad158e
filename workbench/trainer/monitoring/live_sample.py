"""Live samples: a person requests a video of a living run, generated with its weights between two steps.

    previews/step-00000250/live-0.mp4 .json     in the run's folder; kind "live"
    samples/<day>/<id>.mp4 .json                the same among the samples, where a LoRA's file can hold the weights

Importing it loads no torch. Not covered: the run's own previews (previews), samples of finished LoRAs (sampler).
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbench.runs.live_sample import LiveSample
from workbench.sampler.samples import new_id, video_path, write_sample

if TYPE_CHECKING:
    import numpy as np

    from workbench.trainer.session import Session


def draw_try(session: Session, wish: LiveSample) -> None:
    """Draw it, and show it with the run and with the samples. What goes wrong is said in the log; the run goes on."""
    phase = "drawing a video to try"
    if session.idle:
        session.beat(phase, patient=True)
        return
    began, prompt = time.monotonic(), wish.prompt.strip() or session.shown.prompts[0]
    session.encoder.encode_captions([prompt], lambda *_: None)
    given = {"preview_steps": wish.steps, "preview_guidance": wish.guidance_scale}
    settings = session.settings.changed(**{name: value for name, value in given.items() if value is not None})
    with session.previewing(), session.weights_in_use(), session.accelerator.autocast():
        (one,) = session.shown.asked([prompt], session.inputs)
        drawn = replace(session.previewer, settings=settings).draw_one(
            session.run, session.step, session.bare_transformer, one, wish.seed, session.inputs.unconditional(),
            session.reporter(phase), wish.scale,
        )  # fmt: skip
        if drawn is not None:
            frames, record = drawn
            _publish(session, frames, {**record, "kind": "live", "seconds": round(time.monotonic() - began, 3)})


def _publish(session: Session, frames: np.ndarray, record: dict[str, Any]) -> None:
    """Write the video into the run's folder and, if what drew it can be named there, among the samples."""
    folder, fps = session.run / "previews" / f"step-{session.step:08d}", float(record["fps"])
    number = len(list(folder.glob("live-*.json")))
    write_sample(folder / f"live-{number}.mp4", frames, fps, record, session.workspace.root)
    if "settings" not in record:
        return
    settings = session.settings
    lora = {
        "name": f"runs/{session.run.name}@{session.step}", "scale": record["scale"], "rank": settings.rank,
        "alpha": settings.alpha or settings.rank, "base_model": session.model.title,
        "origin": "the weights of a run while it trained",
    }  # fmt: skip
    live = {**record, "loras": [lora] if settings.method == "lora" and record["scale"] else []}
    write_sample(video_path(session.workspace, new_id()), frames, fps, live, session.workspace.root)
