"""The commands that a person leaves for a run, followed between two steps: save, preview, pause, stop.

With several processes rank 0 takes the commands and sends them to the others, so that all do the same at the same step;
a signal to stop counts whichever of them gets it. A paused run has saved and left its device (pausing). Not covered:
leaving commands (jobs), carrying them out (session, previewing).
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from workbench import jobs
from workbench.errors import CannotWrite
from workbench.runs.previews import LiveSample
from workbench.trainer.pausing import device_lent
from workbench.trainer.previewing import generate_live_sample, preview
from workbench.trainer.session import Session

PAUSE_SECONDS = 0.2  # between two checks for a command
Commands = dict[str, dict[str, Any]]  # by name, each with its values


def follow_commands(session: Session, late: bool = False) -> None:
    """Follow the commands in the run's control folder. Raises jobs.Stop after saving.

    late: the time limit is reached; with several processes the clock of rank 0 counts
    """
    commands = _taken(session, "save", "preview", "pause", "stop", late=late)
    if "save" in commands:
        session.save(must=False)
    if (request := commands.get("preview")) is not None:
        _generate(session, request)
        commands |= _taken(session, "pause", "stop")  # it takes long
    if "pause" in commands and "stop" not in commands:
        _pause(session)
    if "stop" in commands:
        _end(session, "Stopped")
    if "late" in commands:
        _end(session, "The time limit is reached: saved and stopped")


def _generate(session: Session, request: dict[str, Any]) -> None:
    live = [LiveSample.read(one) for one in request.get("live_samples") or ()]
    for one in live:
        generate_live_sample(session, one)
    if request.get("previews") or not live:
        prompts = [request["prompt"]] if request.get("prompt") else session.preview_inputs.prompts
        for scale in request.get("scales") or [1.0]:
            preview(session, prompts, float(scale))


def _pause(session: Session) -> None:
    """Save, leave the device to others, and wait for the command to go on. Raises jobs.Stop when the command is to
    stop."""
    session.save(must=False)
    paused_at = time.time()
    session.beat("paused", paused=True)
    try:
        with device_lent(session):
            commands: Commands = {}
            while not {"resume", "stop"} & set(commands):
                session.beat("paused", paused=True)
                time.sleep(PAUSE_SECONDS)
                commands |= _taken(session, "resume", "stop")
            if "stop" in commands:
                _end(session, "Stopped")
    finally:
        with contextlib.suppress(CannotWrite):  # a full disk ends no run that could go on
            session.record(paused_at)


def _taken(session: Session, *names: jobs.Command, late: bool = False) -> Commands:
    """Which of the commands were given, the same in all processes."""
    own: Commands = {name: given for name in names if (given := session.job.take(name)) is not None}
    if session.stop_requested:  # it was taken while previews were generated
        own["stop"] = {}
    every = session.ranks.gathered({**own, "late": {}} if late else own)
    stopped: Commands = {"stop": {}} if any("stop" in one for one in every) else {}
    return every[0] | stopped


def _end(session: Session, why: str) -> None:
    """Save and end; the run can go on from here. Raises jobs.Stop."""
    if session.step:
        session.save()
    raise jobs.Stop(f"{why} at step {session.step} of {session.settings.steps}; start it again to go on.")
