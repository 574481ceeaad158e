"""A fork: a new run that starts from a checkpoint of another, with other settings or other clips.

    parent.json      {"run": slug, "step": step, "changed": {setting: [old, new]}, "dropped": [sentences]}

Its first checkpoint is a copy of the parent's under the new settings, so that from then on the fork is a run like any
other and resumes exactly. What cannot be copied is decided in one place, `carried`. Not covered: a LoRA of another size
from the weights of this one (start_from).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import jobs
from workbench.errors import ConfigError
from workbench.runs import checkpoints
from workbench.runs.checkpoints import PARENT
from workbench.runs.from_scratch import BASE_MODEL
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, fresh_folder, link_or_copy, read_json, write_json

if TYPE_CHECKING:
    from workbench.runs.run import Run

# Settings that decide which weights there are, or what their numbers mean; the second of a LoRA only.
WEIGHTS = ("model", "method", "expert")
LORA_WEIGHTS = ("rank", "alpha", "targets", "dora", "rslora", "train_also")


@dataclass(frozen=True)
class Carried:
    """What of a checkpoint goes into a fork: its files, and a sentence for each thing that does not."""

    files: tuple[str, ...]
    state: dict[str, Any]
    dropped: tuple[str, ...]


def carried(folder: Path, state: Mapping[str, Any], settings: TrainSettings) -> Carried:
    """What of the checkpoint in this folder can be used under new settings.

    Raises ConfigError for settings whose weights are others: there is nothing to go on from, only to begin with.
    """
    changed = checkpoints.setting_changes(state["settings"], settings)
    deciding = WEIGHTS + (LORA_WEIGHTS if settings.method == "lora" else ())
    problems = {
        name: f"{name} was {changed[name][0]!r}, is {changed[name][1]!r}" for name in deciding if name in changed
    }
    if problems:
        raise ConfigError(
            f"a fork goes on with the weights of its checkpoint, which these settings do not fit: "
            f"{'; '.join(problems.values())}. Put them back, or begin a new run with start_from set to the parent",
            problems,
        )
    if settings.steps <= state["step"]:
        sentence = f"steps is {settings.steps}, the fork begins at step {state['step']}: give a larger number"
        raise ConfigError(sentence, {"steps": sentence})

    files = {path.name for path in folder.iterdir()} - {checkpoints.MANIFEST, checkpoints.STATE}
    kept, dropped = dict(state), []
    if "optimizer" in changed:
        files -= {checkpoints.OPTIMIZER}
        kept.pop("optimizer", None)
        old, new = changed["optimizer"]
        dropped.append(f"the optimizer's memory: {new} cannot use that of {old} and begins with none")
    if checkpoints.EMA in files and not settings.ema_decay:
        files -= {checkpoints.EMA}
        dropped.append("the averaged weights: ema_decay is 0 now")
    kept.pop("precision", None)  # a fork may go on in another format
    kept.pop("threads", None)
    kept["text_form"] = None  # and with captions that are encoded in another way
    if "precision" in changed:
        kept["scaler"] = None
    return Carried(tuple(sorted(files)), kept, tuple(dropped))


def fork(workspace: Workspace, parent: Run, step: int, settings: TrainSettings, name: str | None) -> Path:
    """Write the folder of a run that goes on from a parent's checkpoint. Raises ConfigError, CannotWrite."""
    source = checkpoints.folder_of(parent.folder, step)
    if not checkpoints.verified(source):
        whole = [str(s) for s in parent.checkpoints if checkpoints.verified(checkpoints.folder_of(parent.folder, s))]
        raise ConfigError(
            f"{parent.name} has no whole checkpoint of step {step}: choose one of {', '.join(whole) or 'none'}"
        )
    state = read_json(source / checkpoints.STATE)
    taken = carried(source, state, settings)
    now = {**taken.state, "settings": settings.model_dump(mode="json")}
    now["versions"] = checkpoints.versions_now(state["versions"])
    changed = checkpoints.setting_changes(state["settings"], settings)

    def fill(target: Path) -> None:
        for file_name in taken.files:
            shutil.copyfile(source / file_name, target / file_name)
        write_json(target / checkpoints.STATE, now)

    folder = fresh_folder(workspace.runs, name or parent.name)
    try:
        if (own := parent.folder / BASE_MODEL).is_dir():  # its tokenizer is not trained again
            shutil.copytree(own, folder / BASE_MODEL, copy_function=link_or_copy)
        checkpoints.publish(folder, step, fill)
        if not checkpoints.verified(checkpoints.folder_of(folder, step)) or not checkpoints.verified(source):
            raise ConfigError(f"the checkpoint of step {step} of {parent.name} could not be copied whole: try again")
        write_json(
            folder / PARENT, {"run": parent.name, "step": step, "changed": changed, "dropped": list(taken.dropped)}
        )
        settings.save(folder / jobs.CONFIG)  # last: this is what makes the folder a run
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder
