"""What a person may do with a run: a button on the page and in a notebook, a command in the shell. No torch.

Not covered: which actions make sense at a moment (snapshot), which of them help after a failure (failures).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from workbench.errors import ConfigError
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

ActionKind = Literal[
    "go on",  # start the run, or start it again
    "from start",  # begin at step 0 again, where no checkpoint is whole
    "fork",  # go on from `Action.step` in a new run, with `Action.settings` changed
    "new run",  # put the run's settings into the form, with `Action.settings` changed
    "pause",
    "resume",
    "stop",
    "kill",  # end a run that does not react to `stop`
    "save",
    "preview",  # generate the previews after this step
    "live sample",  # generate one video with the weights as they are
    "decode",  # make videos of previews that were kept as latents
    "sample",  # open the LoRA in the Sample tab
    "stacks",  # what every thread of a silent run is doing
    "report",
    "log in",  # to the Hub: in a terminal, never on a page
    "free space",  # look at the checkpoints and caches that can go
    "dataset",  # open the dataset
]


@dataclass(frozen=True)
class Action:
    """One thing to do next.

    command: the same in the shell;  settings, step: what a new run changes, and the checkpoint it goes on from
    hint: of what happens elsewhere (`log in`, `free space`, `dataset`): what to do, in words
    """

    kind: ActionKind
    label: str
    command: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    step: int | None = None
    hint: str = ""


def flags(settings: Mapping[str, Any]) -> str:
    """Settings as they are typed after a command: " --rank 8 --no-flip"."""
    found = ""
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            found += f" --{flag}" if value else f" --no-{flag}"
        else:
            found += f" --{flag} {shlex.quote(str(value))}"
    return found


def perform(workspace: Workspace, run: Run, action: Action) -> Run | TrainSettings | str:
    """Do it. Returns the run to show from then on, settings for the form of a new run, or a sentence.

    Raises ConfigError for actions that need more than the run (`preview`, `sample`, ...), CannotWrite.
    """
    match action.kind:
        case "go on" | "from start":
            run.start(from_start=action.kind == "from start")
            return run
        case "new run":
            return run.settings.changed(**action.settings)
        case "fork":
            if action.step is None:
                raise ConfigError(f"{run.name} has no checkpoint to fork from")
            fork = run.fork(workspace, action.step, run.settings.changed(**action.settings))
            fork.start()
            return fork
        case "pause":
            run.pause()
            return "The run pauses after this step, so that you can sample meanwhile."
        case "resume":
            run.resume()
            return "The run goes on."
        case "stop" | "kill":
            run.stop(grace=0.0 if action.kind == "kill" else None)
            return "The run finishes its step, saves, and ends." if action.kind == "stop" else "The run is ended."
        case "save":
            run.save()
            return "A checkpoint is written after this step."
        case "decode":
            run.decode_previews()
            return "The previews are decoded in the background and appear one by one."
    raise ConfigError(f"{action.label}: {action.hint or 'this needs more than the run'}")
