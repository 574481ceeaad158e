"""Trackers: the lines of metrics.jsonl also go to TensorBoard, trackio, Weights & Biases or Comet, through accelerate.

    RUN/tensorboard/          tensorboard --logdir runs shows every run
    WORKSPACE/trackio/        the page shows its dashboard (workbench.ui.app)
    RUN/wandb/                offline if nobody is logged in: wandb login, then wandb sync RUN/wandb/offline-*
    RUN/comet_ml/             likewise: comet login, then comet upload RUN/comet_ml/*.zip
    RUN/tracker.json          the trackers' ids of this run, so that a resumed run continues there

A tracker that fails is logged and turned off; the run continues. Jobs get no tokens in their environment, so Weights &
Biases takes its key from the netrc file (`wandb login`) and Comet from ~/.comet.config (`comet login`), not from
WANDB_API_KEY or COMET_API_KEY.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from workbench.runs.checks import trackers_of
from workbench.runs.settings import TrainSettings
from workbench.workspace import read_json, write_json

RECORD = "tracker.json"
TRACKIO = "trackio"  # folder in the workspace
NOT_SENT = ("step", "time", "samples")  # trackers have their own axes and cannot plot pairs
QUIET_COMET = (  # what Comet would collect on its own
    *("parse_args", "log_code", "log_graph", "log_git_metadata", "log_git_patch", "log_env_details"),
    *("auto_param_logging", "auto_metric_logging", "auto_log_co2"),
)
START_SECONDS, FINISH_SECONDS = 30.0, 60.0  # the longest waits for a server that does not answer


def accelerator_options(run: Path, settings: TrainSettings) -> dict[str, Any]:
    """Return the `Accelerator` arguments that enable the run's trackers."""
    names = trackers_of(settings)
    return {"log_with": list(names), "project_dir": str(run)} if names else {}


class Tracker:
    """The trackers of a run, if any. No method raises.

    accelerator: created with `accelerator_options`.
    step:        the last completed step, 0 for a new run.
    say:         writes to the log.
    """

    def __init__(
        self, accelerator: Any, run: Path, settings: TrainSettings, step: int, say: Callable[[str], None]
    ) -> None:
        self._accelerator, self._say = accelerator, say
        self._open: dict[str, Any] = {}  # by name, as accelerate wraps them
        if settings.tracker != "none":
            self._attempt(settings.tracker, "started", partial(self._start_all, run, settings, step))

    def log(self, line: Mapping[str, Any]) -> None:
        """Send a line of metrics.jsonl to the trackers."""
        for name, tracker in [*self._open.items()]:
            self._attempt(name, "written to", partial(tracker.log, values(line), step=line["step"]))

    def show(self, step: int, videos: Sequence[tuple[str, Path]]) -> None:
        """Send preview videos, as (prompt, mp4), to all trackers except TensorBoard, which cannot play them."""
        for name in [name for name in self._open if name != "tensorboard" and videos]:
            self._attempt(name, "given previews", partial(self._show, name, step, videos))

    def finish(self) -> None:
        """Flush and close the trackers."""
        for name, tracker in [*self._open.items()]:
            self._attempt(name, "ended", tracker.finish)
        self._open.clear()

    def _attempt(self, name: str, what: str, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - a boundary: other people's programs, and the run goes on
            for lost in [*self._open] if name == "all" else [name]:
                self._open.pop(lost, None)
            reason = str(error).strip().split("\n")[0][:300] or type(error).__name__
            self._say(f"the tracker {name} could not be {what} and is now off; the run continues: {reason}")

    def _start_all(self, run: Path, settings: TrainSettings, step: int) -> None:
        names = trackers_of(settings)
        if settings.tracker == "all":
            self._say(f"trackers: {', '.join(names)}")
        made = settings.model_dump(mode="json", exclude_defaults=True)
        config = {
            name: value if isinstance(value, int | float | str) else json.dumps(value) for name, value in made.items()
        }
        if "tensorboard" in names:
            self._attempt("tensorboard", "started", partial(self._tensorboard, run, config, step))
        if others := [name for name in names if name != "tensorboard"]:
            identity, known = _identity(run, settings)
            for name in others:
                self._attempt(name, "started", partial(self._start, name, run, identity, known, config))
            if set(others) & set(self._open):
                write_json(run / RECORD, identity)

    def _start(self, name: str, run: Path, identity: Mapping[str, str], known: bool, config: dict[str, Any]) -> None:
        if name == "trackio":
            os.environ["TRACKIO_DIR"] = str(run.parent.parent / TRACKIO)  # read on import
            # "allow" continues the newest run of that name, which for a new run might be a deleted run's.
            resume = "allow" if known else "never"
            # The metrics already have what we want to know about the machine.
            quiet = {"embed": False, "auto_log_cpu": False, "auto_log_gpu": False}
            options = {"name": run.name, "resume": resume, **quiet}
            self._say("trackio: its dashboard opens in the Train tab")
        elif name == "wandb":
            options = self._wandb(run, identity["id"])
        else:
            options = self._comet(run, identity["id"])
        self._init(name, identity["project"], config, options)

    def _init(self, name: str, project: str, config: dict[str, Any] | None, options: dict[str, Any]) -> None:
        """Start one tracker. accelerate starts all of its trackers or none, so it gets them one at a time."""
        self._accelerator.log_with = [name]
        self._accelerator.trackers.clear()
        self._accelerator.init_trackers(project, config, {name: options})
        (self._open[name],) = self._accelerator.trackers

    def _tensorboard(self, run: Path, config: dict[str, Any], step: int) -> None:
        # Hide what an earlier process wrote beyond the checkpoint: those steps come again.
        self._init("tensorboard", "tensorboard", None, {"purge_step": step + 1 if step else 0})
        if not step:
            rows = "\n".join(f"| {name} | {value} |" for name, value in config.items())
            self._open["tensorboard"].log({"settings": f"| setting | value |\n|---|---|\n{rows}"}, step=0)
        self._say(f"TensorBoard: tensorboard --logdir {run.parent}")

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
            f"Weights & Biases: nobody is logged in, so metrics stay in {run / 'wandb'}: wandb login, then wandb sync"
        )
        return {**options, "mode": "offline"}

    def _comet(self, run: Path, identity: str) -> dict[str, Any]:
        # Read on import. Without these, Comet patches torch and the other trackers, and reports its own errors home.
        os.environ |= {"COMET_DISABLE_AUTO_LOGGING": "1", "COMET_ERROR_TRACKING_ENABLE": "false"}
        import comet_ml
        from comet_ml import config

        kept = run / "comet_ml"
        quiet: dict[str, Any] = dict.fromkeys(QUIET_COMET, False)
        about = comet_ml.ExperimentConfig(
            name=run.name, offline_directory=str(kept), auto_output_logging="", display_summary_level=0, **quiet
        )
        options: dict[str, Any] = {
            "experiment_config": about,
            "online": config.get_api_key(None, config.get_config()) is not None,
        }
        if not options["online"]:
            self._say(f"Comet: nobody is logged in, so metrics stay in {kept}: comet login, then comet upload")
        # An experiment's key is 32 to 50 letters and digits.
        return {**options, "experiment_key": hashlib.sha256(identity.encode()).hexdigest()[:40]}

    def _show(self, name: str, step: int, videos: Sequence[tuple[str, Path]]) -> None:
        if name == "comet_ml":
            for index, (prompt, path) in enumerate(videos):
                title = f"previews/{index} at step {step}"
                self._open[name].writer.log_video(str(path), name=title, step=step, metadata={"prompt": prompt})
            return
        video = importlib.import_module(name).Video
        logged = {f"previews/{index}": video(str(path), caption=prompt) for index, (prompt, path) in enumerate(videos)}
        self._open[name].log(logged, step=step)


def values(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a metrics line by name, with list items numbered: held_out_bands/0."""
    found: dict[str, float] = {}
    for name, value in line.items():
        if name in NOT_SENT:
            continue
        numbered = value if isinstance(value, list | tuple) else ()
        named = {name: value} | {f"{name}/{index}": one for index, one in enumerate(numbered)}
        found |= {key: one for key, one in named.items() if isinstance(one, int | float)}
    return found


def _identity(run: Path, settings: TrainSettings) -> tuple[dict[str, str], bool]:
    """Return the run's identity at the trackers, and whether it had one before."""
    path, tracker = run / RECORD, settings.tracker
    if path.exists() and (known := read_json(path))["tracker"] == tracker:
        return known, True
    return {"tracker": tracker, "project": settings.tracker_project, "id": f"{run.name}-{secrets.token_hex(4)}"}, False
