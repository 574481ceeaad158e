"""Trackers: the lines of metrics.jsonl also go to TensorBoard, trackio or Weights & Biases, through accelerate.

    RUN/tensorboard/          tensorboard --logdir runs shows every run
    WORKSPACE/trackio/        the page shows its dashboard (workbench.ui.train.tracker_view)
    RUN/wandb/                offline where nobody is logged in: wandb login, then wandb sync RUN/wandb/offline-*
    RUN/tracker.json          which of the tracker's runs is this one, so that a resumed run goes on with it

Whatever goes wrong with a tracker costs a line in the log and the tracker, never the run. A job gets no tokens in its
environment, so Weights & Biases finds its key where `wandb login` leaves it (the netrc file), not in WANDB_API_KEY.
Not covered: what is measured (metrics), looking at it (the trackers themselves).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.runs.settings import TrainSettings
from workbench.workspace import read_json, write_json

RECORD = "tracker.json"
TRACKIO = "trackio"  # folder of the workspace
NOT_SENT = ("step", "time", "samples")  # the tracker's own axes, and pairs that no tracker plots
START_SECONDS, FINISH_SECONDS = 30.0, 60.0  # how long a server that does not answer may hold the run up


def accelerator_options(run: Path, settings: TrainSettings) -> dict[str, Any]:
    """What the run's `Accelerator` is made with so that it carries the tracker."""
    return {} if settings.tracker == "none" else {"log_with": settings.tracker, "project_dir": str(run)}


class Tracker:
    """The tracker of a run; all of its methods do nothing when there is none, and none of them raises.

    accelerator: made with `accelerator_options`;  step: the last one done, 0 of a new run;  say: writes to the log
    """

    def __init__(
        self, accelerator: Any, run: Path, settings: TrainSettings, step: int, say: Callable[[str], None]
    ) -> None:
        self.name, self._accelerator, self._say = settings.tracker, accelerator, say
        self.on = self.name != "none"
        self._attempt("started", lambda: self._start(run, settings, step))

    def log(self, line: Mapping[str, Any]) -> None:
        """Send a line of metrics.jsonl on."""
        self._attempt("written to", lambda: self._accelerator.log(values(line), step=line["step"]))

    def show(self, step: int, videos: Sequence[tuple[str, Path]]) -> None:
        """Send preview videos (prompt, mp4) on; not to TensorBoard, which plays none."""
        if self.name != "tensorboard" and videos:
            self._attempt("given previews", lambda: self._show(step, videos))

    def finish(self) -> None:
        """Let the tracker write what it still holds. The Accelerator sends nothing afterwards."""
        self._attempt("ended", self._accelerator.end_training)
        self.on = False

    def _attempt(self, what: str, action: Callable[[], Any]) -> None:
        if not self.on:
            return
        try:
            action()
        except Exception as error:  # noqa: BLE001 - a boundary: other people's programs, and the run goes on
            self.on = False
            self._accelerator.trackers.clear()
            reason = str(error).strip().split("\n")[0][:300] or type(error).__name__
            self._say(f"the tracker {self.name} could not be {what} and is off from here on, the run goes on: {reason}")

    def _start(self, run: Path, settings: TrainSettings, step: int) -> None:
        made = settings.model_dump(mode="json", exclude_defaults=True)
        config = {
            name: value if isinstance(value, int | float | str) else json.dumps(value) for name, value in made.items()
        }
        if self.name == "tensorboard":
            # What an ended process wrote beyond the checkpoint is hidden: those steps come again.
            options: dict[str, Any] = {"purge_step": step + 1 if step else 0}
            self._accelerator.init_trackers("tensorboard", None, {self.name: options})
            if not step:
                rows = "\n".join(f"| {name} | {value} |" for name, value in config.items())
                self._accelerator.log({"settings": f"| setting | value |\n|---|---|\n{rows}"}, step=0)
            self._say(f"TensorBoard: tensorboard --logdir {run.parent}")
            return
        identity, known = _identity(run, self.name, settings.tracker_project)
        if self.name == "trackio":
            options = self._trackio(run, known)
            self._say("trackio: its dashboard opens in the Train tab")
        else:
            options = self._wandb(run, identity["id"])
        self._accelerator.init_trackers(identity["project"], config, {self.name: options})
        write_json(run / RECORD, identity)

    def _trackio(self, run: Path, known: bool) -> dict[str, Any]:
        os.environ["TRACKIO_DIR"] = str(run.parent.parent / TRACKIO)  # read when it is imported
        # "allow" goes on with the newest run of that name; a new run must not fall in with a removed one's.
        resume = "allow" if known else "never"
        # The metrics line says all that is said of the machine.
        quiet = {"embed": False, "auto_log_cpu": False, "auto_log_gpu": False}
        return {"name": run.name, "resume": resume, **quiet}

    def _wandb(self, run: Path, identity: str) -> dict[str, Any]:
        import wandb

        settings = wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            save_code=False,
            init_timeout=START_SECONDS,
            finish_timeout=FINISH_SECONDS,
        )
        options = {"id": identity, "name": run.name, "dir": str(run), "settings": settings}
        if wandb.login(verify=False, prompt=False):
            return {**options, "resume": "allow"}
        self._say(
            f"Weights & Biases: nobody is logged in, so all is kept in {run / 'wandb'}: wandb login, then wandb sync"
        )
        return {**options, "mode": "offline"}

    def _show(self, step: int, videos: Sequence[tuple[str, Path]]) -> None:
        video = importlib.import_module(self.name).Video
        logged = {f"previews/{index}": video(str(path), caption=prompt) for index, (prompt, path) in enumerate(videos)}
        self._accelerator.log(logged, step=step)


def values(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a metrics line by name; those of a list are numbered: held_out_bands/0."""
    found: dict[str, float] = {}
    for name, value in line.items():
        if name in NOT_SENT:
            continue
        numbered = value if isinstance(value, list | tuple) else ()
        named = {name: value} | {f"{name}/{index}": one for index, one in enumerate(numbered)}
        found |= {key: one for key, one in named.items() if isinstance(one, int | float)}
    return found


def _identity(run: Path, tracker: str, project: str) -> tuple[dict[str, str], bool]:
    """Which of the tracker's runs this one is, and whether it was one before."""
    path = run / RECORD
    if path.exists() and (known := read_json(path))["tracker"] == tracker:
        return known, True
    return {"tracker": tracker, "project": project, "id": f"{run.name}-{secrets.token_hex(4)}"}, False
