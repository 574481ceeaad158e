"""The commands that a person leaves for a run, followed between two steps: save, preview, pause, stop.

With several processes rank 0 takes the commands and tells them to the others, so that all do the same at the same step;
a signal to stop counts whichever of them gets it. A paused run has saved and left its device (pausing). Not covered:
leaving commands (jobs), doing what they ask (session, trying).
"""

from __future__ import annotations

import time
from typing import Any

from workbench import jobs
from workbench.runs.live_sample import LiveSample
from workbench.trainer.monitoring.live_sample import draw_try
from workbench.trainer.pausing import aside
from workbench.trainer.session import Session

PAUSE_SECONDS = 0.2  # between two looks for a command
Orders = dict[str, dict[str, Any]]  # what was asked for, and with which values


def obey(session: Session, late: bool = False) -> None:
    """Follow the commands in the run's control folder. Raises jobs.Stop after saving.

    late: the time limit is reached; with several processes the clock of rank 0 counts
    """
    orders = _taken(session, "save", "preview", "pause", "stop", late=late)
    if "save" in orders:
        session.save(must=False)
    if (asked := orders.get("preview")) is not None:
        _draw(session, asked)
        orders |= _taken(session, "pause", "stop")  # drawing takes long
    if "pause" in orders and "stop" not in orders:
        _pause(session)
    if "stop" in orders:
        _end(session, "Stopped")
    if "late" in orders:
        _end(session, "The time limit is reached: saved and stopped")


def _draw(session: Session, asked: dict[str, Any]) -> None:
    """Previews, unless the command asks only for videos to try the weights."""
    live_samples = [LiveSample.read(one) for one in asked.get("live_samples") or ()]
    for one in live_samples:
        draw_try(session, one)
    if asked.get("previews") or not live_samples:
        prompts = [asked["prompt"]] if asked.get("prompt") else session.shown.prompts
        for scale in asked.get("scales") or [1.0]:
            session.preview(prompts, float(scale))


def _pause(session: Session) -> None:
    """Save, leave the device to others, and wait to be told to go on. Raises jobs.Stop when told to stop instead."""
    session.save(must=False)
    session.beat("paused", paused=True)
    with aside(session):
        orders: Orders = {}
        while not {"resume", "stop"} & set(orders):
            session.beat("paused", paused=True)
            time.sleep(PAUSE_SECONDS)
            orders |= _taken(session, "resume", "stop")
        if "stop" in orders:
            _end(session, "Stopped")


def _taken(session: Session, *commands: jobs.Command, late: bool = False) -> Orders:
    """Which of the commands were given, the same in all processes."""
    own: Orders = {name: given for name in commands if (given := session.job.take(name)) is not None}
    if session.stop_asked:  # it was taken while previews were generated
        own["stop"] = {}
    every = session.ranks.gathered({**own, "late": {}} if late else own)
    stopped: Orders = {"stop": {}} if any("stop" in one for one in every) else {}
    return every[0] | stopped


def _end(session: Session, why: str) -> None:
    """Save and end; the run can go on from here. Raises jobs.Stop."""
    if session.step:
        session.save()
    raise jobs.Stop(f"{why} at step {session.step} of {session.settings.steps}; start it again to go on.")
